// SPDX-License-Identifier: MIT OR Apache-2.0
//! Profiles and folded stacks.

use perfshim::profile::FoldedStacks;
use perfshim::profile::Profile;
use perfshim::symbols::Frame;
use perfshim::symbols::KERNEL;
use perfshim::symbols::Mode;
use perfshim::symbols::Symbol;
use proptest::prelude::*;

fn frame(name: &str) -> Frame {
    Frame {
        address: 0x1000,
        mode: Mode::User,
        symbol: Some(Symbol {
            name: name.into(),
            offset: 4,
        }),
        object: Some("/bin/program".into()),
        inlined: false,
        location: None,
    }
}

fn kernel(name: &str) -> Frame {
    Frame {
        mode: Mode::Kernel,
        object: Some(KERNEL.into()),
        ..frame(name)
    }
}

fn frames(names: &[&str]) -> Vec<Frame> {
    names.iter().map(|name| frame(name)).collect()
}

#[test]
fn stacks_are_folded_from_the_root() {
    let mut stacks = FoldedStacks::default();
    let inlined = Frame {
        inlined: true,
        ..frame("small")
    };
    let nameless = Frame {
        symbol: None,
        ..frame("")
    };
    let lost = Frame {
        object: None,
        ..nameless.clone()
    };
    stacks.add(
        "prog",
        &[
            kernel("do_work"),
            kernel("entry"),
            frame("leaf"),
            frame("main"),
        ],
        3,
    );
    stacks.add("prog", &[inlined, frame("main")], 1);
    stacks.add("prog", &[nameless, frame("main")], 1);
    stacks.add("prog", &[lost], 1);
    stacks.add(
        "prog",
        &[
            kernel("do_work"),
            kernel("entry"),
            frame("leaf"),
            frame("main"),
        ],
        2,
    );
    stacks.add("two words;\n", &[frame("f<a; 2>()")], 1);
    assert_eq!(
        stacks.to_string(),
        "prog;[unknown] 1\n\
         prog;main;[program] 1\n\
         prog;main;leaf;entry_[k];do_work_[k] 5\n\
         prog;main;small_[i] 1\n\
         two words: ;f<a: 2>() 1\n"
    );
}

#[test]
fn shares_are_of_the_whole_weight() {
    let mut profile = Profile::default();
    profile.add(&frames(&["hot", "caller", "main"]), 70);
    profile.add(&frames(&["warm", "caller", "main"]), 20);
    profile.add(&frames(&["main"]), 10);
    assert_eq!((profile.samples(), profile.weight()), (3, 100));
    let functions = profile.functions();
    let rows: Vec<_> = functions
        .iter()
        .map(|f| (&*f.name, f.self_share, f.total_share))
        .collect();
    assert_eq!(
        rows,
        [
            ("hot", 0.7, 0.7),
            ("warm", 0.2, 0.2),
            ("main", 0.1, 1.0),
            ("caller", 0.0, 0.9),
        ]
    );
}

#[test]
fn recursion_counts_a_sample_once() {
    let mut profile = Profile::default();
    profile.add(&frames(&["f", "g", "f", "f", "main"]), 5);
    let functions = profile.functions();
    let f = functions.iter().find(|row| &*row.name == "f").unwrap();
    assert_eq!((f.self_weight, f.total_weight), (5, 5));
}

#[test]
fn one_name_in_two_objects_is_two_functions() {
    let mut profile = Profile::default();
    let other = Frame {
        object: Some("/lib/other.so".into()),
        ..frame("init")
    };
    profile.add(&[frame("init")], 1);
    profile.add(&[other], 1);
    assert_eq!(profile.functions().len(), 2);
}

#[test]
fn an_empty_profile_and_empty_samples_have_no_shares() {
    let mut profile = Profile::default();
    assert_eq!(profile.functions(), []);
    profile.add(&[], 4);
    assert_eq!((profile.samples(), profile.weight()), (1, 4));
    assert_eq!(profile.functions(), []);
}

proptest! {
    /// Weights are kept: the functions' own ones add up to the whole, and no total exceeds it.
    #[test]
    fn own_weights_add_up(
        samples in proptest::collection::vec(
            (proptest::collection::vec(0u8..6, 1..6), 0u64..1000), 0..30),
    ) {
        let mut profile = Profile::default();
        let mut stacks = FoldedStacks::default();
        for (names, weight) in &samples {
            let names: Vec<_> = names.iter().map(|n| frame(&n.to_string())).collect();
            profile.add(&names, *weight);
            stacks.add("c", &names, *weight);
        }
        let whole: u64 = samples.iter().map(|(_, weight)| weight).sum();
        let functions = profile.functions();
        prop_assert_eq!(functions.iter().map(|f| f.self_weight).sum::<u64>(), whole);
        prop_assert_eq!(stacks.iter().map(|(_, weight)| weight).sum::<u64>(), whole);
        for function in functions {
            prop_assert!(function.self_weight <= function.total_weight);
            prop_assert!(function.total_weight <= whole);
            prop_assert!((0.0..=1.0).contains(&function.total_share));
        }
    }
}
