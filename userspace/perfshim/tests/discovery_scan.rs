// SPDX-License-Identifier: MIT OR Apache-2.0
//! PMUs found in folders like sysfs, right and broken ones.

mod discovery_tree;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use discovery_tree::Tree;
use discovery_tree::plain_machine;
use perfshim::discovery::ConfigWord;
use perfshim::discovery::CpuList;
use perfshim::discovery::Format;
use perfshim::discovery::Pmus;
use proptest::prelude::*;

#[test]
fn a_pmu_has_what_its_files_say() {
    let tree = plain_machine();
    tree.write("core_pmu/nr_addr_filters", b"4\n");
    let pmus = tree.scan();
    assert_eq!(pmus.problems(), []);

    let core = pmus.get("core_pmu").unwrap();
    assert_eq!(core.type_id, 8);
    assert!(core.is_core());
    assert_eq!(core.cpus.as_ref().unwrap().to_string(), "0-3");
    assert_eq!(core.cpumask, None);
    assert_eq!(core.nr_addr_filters, Some(4));
    assert_eq!(core.caps["slots"], "0x00000000");
    assert_eq!(core.events["cpu_cycles"].terms, "event=0x0011");
    assert_eq!(core.events["cpu_cycles"].scale, 1.0);
    let split = core.formats["split"];
    assert_eq!(split.word, ConfigWord::Config2);
    assert_eq!(split.mask, 0xf_0000_00ff);

    let memory = pmus.get("mem_0").unwrap();
    assert!(!memory.is_core());
    assert_eq!(memory.cpumask.as_ref().unwrap().to_string(), "0");
    assert_eq!(memory.events["reads"].unit.as_deref(), Some("MiB"));
    assert_eq!(memory.events["reads"].scale, 6.1e-5);
    assert_eq!(memory.events.len(), 1, "suffixes are not events");

    assert_eq!(pmus.by_type(9).unwrap().name, "mem_0");
    let core: Vec<_> = pmus.core().map(|pmu| pmu.name.as_str()).collect();
    assert_eq!(core, ["core_pmu"]);
}

#[test]
fn snapshot_and_per_package_are_read() {
    let tree = plain_machine().with(&[
        ("mem_0/events/temperature", "event=0x2\n"),
        ("mem_0/events/temperature.snapshot", "1\n"),
        ("mem_0/events/temperature.per-pkg", "1\n"),
        // A dot alone makes no suffix.
        ("mem_0/events/v1.reads", "event=0x3\n"),
    ]);
    let pmus = tree.scan();
    let events = &pmus.get("mem_0").unwrap().events;
    assert!(events["temperature"].snapshot && events["temperature"].per_package);
    assert!(!events["reads"].snapshot && !events["reads"].per_package);
    assert_eq!(events["v1.reads"].terms, "event=0x3");
}

/// What is broken is named, and the rest is there.
#[test]
fn garbage_in_one_file_costs_only_that_file() {
    for (file, content) in [
        ("cpus", "0-"),
        ("cpumask", "seven"),
        ("nr_addr_filters", "-1"),
        ("format/broken", "config:70"),
        ("format/broken", "config9:0"),
        ("format/broken", "config:7-3"),
        ("format/broken", ""),
        ("events/reads.scale", "much"),
        ("events/reads.scale", "inf"),
        ("events/reads.snapshot", "perhaps"),
        ("events/absent.unit", "MiB"),
    ] {
        let tree = plain_machine();
        tree.write(&format!("mem_1/{file}"), content.as_bytes());
        let pmus = tree.scan();
        let [problem] = pmus.problems() else {
            panic!("{file} {content}: {:?}", pmus.problems());
        };
        assert!(
            problem.file.ends_with(Path::new("mem_1").join(file)),
            "{problem}"
        );
        assert!(problem.to_string().contains(content), "{problem}");
        let memory = pmus.get("mem_1").unwrap();
        assert_eq!(memory.events["reads"].terms, "event=0x1");
        assert!(!memory.formats.contains_key("broken"));
    }
}

#[test]
fn a_pmu_without_a_type_is_left_out_and_named() {
    for content in [&b"many"[..], b"", b"-1", b"4294967296", &[0xff, 0xfe]] {
        let tree = plain_machine();
        tree.write("core_pmu/type", content);
        let pmus = tree.scan();
        assert!(pmus.get("core_pmu").is_none());
        assert!(pmus.get("mem_0").is_some());
        assert!(pmus.problems()[0].file.ends_with("core_pmu/type"));
    }
}

#[test]
fn huge_binary_and_misplaced_files_are_refused() {
    let tree = plain_machine();
    tree.write("core_pmu/caps/huge", &vec![b'x'; 70_000]);
    tree.write("core_pmu/caps/binary", &[0xff; 10]);
    tree.write("core_pmu/events/folder/file", b"");
    let pmus = tree.scan();
    let broken: BTreeSet<_> = pmus
        .problems()
        .iter()
        .map(|p| p.file.file_name().unwrap())
        .collect();
    let expected = ["huge", "binary", "folder"].map(std::ffi::OsStr::new);
    assert_eq!(broken, BTreeSet::from(expected));
}

#[test]
fn no_folder_is_an_error_that_says_what_may_be_missing() {
    let tree = Tree::new();
    let error = Pmus::scan(&tree.devices()).unwrap_err().to_string();
    assert!(
        error.contains("devices") && error.contains("sysfs"),
        "{error}"
    );
}

/// The PMUs of the machine that runs the test: software events are in every kernel with perf.
#[test]
fn this_machine_is_understood() {
    if !fs::exists(perfshim::discovery::SYSFS_DEVICES).unwrap() {
        eprintln!("skipped: no sysfs, or a kernel without perf");
        return;
    }
    let pmus = Pmus::system().unwrap();
    assert_eq!(pmus.get("software").unwrap().type_id, 1);
    assert_eq!(pmus.problems(), []);
}

#[test]
fn cpu_lists_are_the_kernels() {
    let list: CpuList = "0-3,7\n".parse().unwrap();
    assert_eq!(list.iter().collect::<Vec<_>>(), [0, 1, 2, 3, 7]);
    assert!(list.contains(7) && !list.contains(4));
    let empty: CpuList = "\n".parse().unwrap();
    assert!(empty.is_empty());
    let all: CpuList = "0-4294967295".parse().unwrap();
    assert_eq!(all.len(), 1 << 32);
    for wrong in [
        "0-",
        "-3",
        "3-1",
        "0,,1",
        "+1",
        "4294967296",
        "0 1",
        "0x1",
        "a",
        "1-2-3",
    ] {
        let error = wrong.parse::<CpuList>().unwrap_err();
        assert!(error.to_string().contains("0-3,7"), "{error}");
    }
}

proptest! {
    #[test]
    fn cpu_lists_are_sets(
        a in proptest::collection::btree_set(0u32..100, 0..20),
        b in proptest::collection::btree_set(0u32..100, 0..20),
    ) {
        let (list_a, list_b): (CpuList, CpuList) =
            (a.iter().copied().collect(), b.iter().copied().collect());
        prop_assert_eq!(list_a.iter().collect::<BTreeSet<_>>(), a.clone());
        prop_assert_eq!(list_a.len(), a.len() as u64);
        prop_assert_eq!(&list_a.to_string().parse::<CpuList>().unwrap(), &list_a);
        let both: BTreeSet<u32> = list_a.intersection(&list_b).iter().collect();
        prop_assert_eq!(both, a.intersection(&b).copied().collect::<BTreeSet<_>>());
    }

    #[test]
    fn fields_hold_what_was_put_into_them(mask in 1u64.., value: u64) {
        let format = Format { word: ConfigWord::Config, mask };
        prop_assert_eq!(format.to_string().parse::<Format>().unwrap(), format);
        match format.encode(value) {
            Some(bits) => {
                prop_assert_eq!(bits & !mask, 0);
                prop_assert_eq!(format.decode(bits), value);
            }
            None => prop_assert!(value > format.max()),
        }
        prop_assert_eq!(format.encode(format.max()), Some(mask));
    }

    #[test]
    fn no_text_makes_the_parsers_panic(text in "\\PC{0,30}", near in "config[0-9]?:[0-9,-]{0,12}") {
        let _ = text.parse::<CpuList>();
        let _ = text.parse::<Format>();
        if let Ok(format) = near.parse::<Format>() {
            prop_assert!(format.mask != 0);
        }
    }

    /// Any bytes in any file: the scan ends, and says of each PMU that it is there or why not.
    #[test]
    fn any_bytes_in_any_file_are_survived(
        files in proptest::collection::vec(
            ("(type|cpus|cpumask|nr_addr_filters|format/a|events/b(\\.unit|\\.scale)?|caps/c)",
             proptest::collection::vec(any::<u8>(), 0..20)),
            0..6),
    ) {
        let tree = Tree::new();
        fs::create_dir_all(tree.devices()).unwrap();
        for (file, content) in &files {
            tree.write(&format!("pmu/{file}"), content);
        }
        let pmus = tree.scan();
        let there = pmus.get("pmu").is_some();
        prop_assert!(there || !pmus.problems().is_empty() || files.is_empty());
    }
}
