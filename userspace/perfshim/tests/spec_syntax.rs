// SPDX-License-Identifier: MIT OR Apache-2.0
//! The grammar of events: what is read, what is refused and where, and that nothing panics.

use perfshim::discovery::Pmus;
use perfshim::spec;
use perfshim::spec::Entry;
use perfshim::spec::EventList;
use perfshim::spec::EventSpec;
use perfshim::spec::GroupSpec;
use perfshim::spec::Modifiers;
use perfshim::spec::Term;
use proptest::prelude::*;

fn one(text: &str) -> EventSpec {
    match spec::parse(text).unwrap().entries.as_slice() {
        [Entry::Event(event)] => event.clone(),
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn an_event_has_head_terms_and_modifiers() {
    let event = one("some_pmu/event,config1=0x1,name=x/ukh");
    assert_eq!(event.head, "some_pmu");
    let terms = event.terms.unwrap();
    let terms: Vec<_> = terms
        .iter()
        .map(|t| (t.name.as_str(), t.value.as_deref()))
        .collect();
    assert_eq!(
        terms,
        [
            ("event", None),
            ("config1", Some("0x1")),
            ("name", Some("x"))
        ]
    );
    let places = Modifiers {
        user: true,
        kernel: true,
        hypervisor: true,
        ..Modifiers::default()
    };
    assert_eq!(event.modifiers, places);
}

#[test]
fn both_places_of_modifiers_are_one() {
    assert_eq!(one("p/x/u"), one("p/x/:u"));
    assert_eq!(one("cycles:u").modifiers, one("p/x/u").modifiers);
    assert_eq!(one("p//").terms, Some(vec![]));
    assert_eq!(one("p").terms, None);
}

#[test]
fn every_modifier_is_known() {
    let modifiers = one("cycles:ukhGHIpppPSDe").modifiers;
    let all = Modifiers {
        user: true,
        kernel: true,
        hypervisor: true,
        guest: true,
        host: true,
        non_idle: true,
        precise: 3,
        precise_max: true,
        sample_read: true,
        pinned: true,
        exclusive: true,
        ..Modifiers::default()
    };
    assert_eq!(modifiers, all);
}

#[test]
fn groups_and_lists_nest_as_in_perf() {
    let list = spec::parse("{a,p/b,c=1/k}:u,d,{e}").unwrap();
    let [
        Entry::Group(first),
        Entry::Event(second),
        Entry::Group(third),
    ] = &list.entries[..]
    else {
        panic!("{list:?}");
    };
    assert_eq!(first.members.len(), 2);
    assert!(first.modifiers.user && first.members[1].modifiers.kernel);
    assert_eq!(second.head, "d");
    assert_eq!(third.members.len(), 1);
}

#[test]
fn white_space_means_nothing() {
    let dense = spec::parse("{a:u,p/b,c=1/k}:u,d").unwrap();
    let loose = spec::parse("  { a : u ,\n p / b , c = 1 / k } : u , d\t").unwrap();
    assert_eq!(dense, loose);
}

#[test]
fn quotes_hold_what_would_end_a_value() {
    let event = one("p/name='a/b,c=d {x}'/");
    assert_eq!(
        event.terms.unwrap()[0].value.as_deref(),
        Some("a/b,c=d {x}")
    );
}

/// Where the fault is (column from 1), and a word of what is said about it.
#[test]
fn errors_point_at_the_place() {
    for (text, column, says) in [
        ("", 1, "too early"),
        ("   ", 4, "too early"),
        (",a", 1, "unexpected `,`"),
        ("a,", 3, "too early"),
        ("a b", 3, "expected `,` or the end"),
        ("a:", 3, "u k h"),
        ("a:ux", 4, "no modifier `x`"),
        ("a:uu", 4, "twice"),
        ("a:pppp", 6, "`ppp`"),
        ("a:W", 3, "the tool perf"),
        ("sched:sched_switch", 7, "tracepoints"),
        ("p/a", 4, "closing `/`"),
        ("p/a,/", 5, "a term"),
        ("p/a=/", 5, "a value"),
        ("p/a='b/", 5, "not closed"),
        ("p/a b/", 5, "closing `/`"),
        ("{a", 3, "`,` or `}`"),
        ("{}", 2, "an event"),
        ("{a,}", 4, "an event"),
        ("{a,{b}}", 4, "no groups"),
        ("a}", 2, "opening brace"),
        ("a,é", 3, "unexpected `é`"),
        ("é", 1, "unexpected"),
        ("a\u{0}", 2, "unexpected"),
    ] {
        let error = spec::parse(text).unwrap_err();
        let line = error.to_string();
        assert!(
            line.contains(&format!("column {column}:")),
            "{text:?}: {line}"
        );
        assert!(line.contains(says), "{text:?}: {line}");
        assert!(!line.contains('\n'), "{text:?}: {line}");
        assert_eq!(error.text(), text);
    }
}

#[test]
fn the_pointer_is_below_the_fault() {
    let error = spec::parse("{é,cycles:ux}").unwrap_err();
    assert_eq!(error.pointer(), "{é,cycles:ux}\n ^");
    let error = spec::parse("cycles:ux").unwrap_err();
    assert_eq!(error.pointer(), "cycles:ux\n        ^");
    let error = spec::resolve("task-clock,nonsense", &Pmus::default()).unwrap_err();
    assert_eq!(error.pointer(), "task-clock,nonsense\n           ^^^^^^^^");
}

fn modifiers() -> impl Strategy<Value = Modifiers> {
    (any::<[bool; 9]>(), 0u8..=3, any::<bool>()).prop_map(|(flags, precise, exclusive)| {
        let [
            user,
            kernel,
            hypervisor,
            guest,
            host,
            non_idle,
            precise_max,
            sample_read,
            pinned,
        ] = flags;
        Modifiers {
            user,
            kernel,
            hypervisor,
            guest,
            host,
            non_idle,
            precise,
            precise_max,
            sample_read,
            pinned,
            exclusive,
            ..Modifiers::default()
        }
    })
}

fn term() -> impl Strategy<Value = Term> {
    let value = proptest::option::of("[^'\\pC]{0,8}");
    ("[a-zA-Z0-9_.:-]{1,8}", value).prop_map(|(name, value)| Term {
        name,
        value,
        ..Term::default()
    })
}

fn event() -> impl Strategy<Value = EventSpec> {
    let terms = proptest::option::of(proptest::collection::vec(term(), 0..4));
    ("[a-zA-Z0-9_.-]{1,8}", terms, modifiers()).prop_map(|(head, terms, modifiers)| EventSpec {
        head,
        terms,
        modifiers,
        ..EventSpec::default()
    })
}

fn entry() -> impl Strategy<Value = Entry> {
    let group = (proptest::collection::vec(event(), 1..4), modifiers());
    prop_oneof![
        event().prop_map(Entry::Event),
        group.prop_map(|(members, modifiers)| Entry::Group(GroupSpec { members, modifiers })),
    ]
}

/// Texts that get far into the grammar, unlike random characters.
fn near_text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("{"),
        Just("}"),
        Just(","),
        Just("/"),
        Just(":"),
        Just("="),
        Just("'"),
        Just(" "),
        Just("cycles"),
        Just("r11"),
        Just("rffffffffffffffffff"),
        Just("core_pmu"),
        Just("u"),
        Just("config1"),
        Just("0x"),
        Just("99999999999999999999"),
        Just("name"),
        Just("é"),
        Just("L1-dcache"),
        Just("event"),
        Just("?"),
        Just("-"),
        Just("period"),
        Just("0"),
    ];
    proptest::collection::vec(piece, 0..14).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn what_is_printed_is_read_again(entries in proptest::collection::vec(entry(), 1..4)) {
        let list = EventList { entries };
        let text = list.to_string();
        prop_assert_eq!(spec::parse(&text).map_err(|e| e.to_string()), Ok(list));
    }

    #[test]
    fn what_is_read_is_printed_the_same(text in near_text()) {
        if let Ok(list) = spec::parse(&text) {
            let printed = list.to_string();
            prop_assert_eq!(&spec::parse(&printed).unwrap(), &list);
            prop_assert_eq!(spec::parse(&printed).unwrap().to_string(), printed);
        }
    }

    #[test]
    fn no_text_makes_it_panic(text in prop_oneof![any::<String>(), near_text()]) {
        if let Err(error) = spec::resolve(&text, &Pmus::default()) {
            let span = error.span();
            prop_assert!(error.text().get(span.at..span.at + span.len).is_some());
            prop_assert_eq!(error.pointer().lines().count(), 2);
            prop_assert!(!error.problem().is_empty());
        }
    }
}
