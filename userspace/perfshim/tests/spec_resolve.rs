// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which PMU serves an event, and with which words of `perf_event_attr`.

mod discovery_tree;

use discovery_tree::Tree;
use discovery_tree::mixed_machine;
use discovery_tree::plain_machine;
use perfshim::EventConfig;
use perfshim::Exclude;
use perfshim::Precision;
use perfshim::Rate;
use perfshim::SampleFields;
use perfshim::discovery::Pmus;
use perfshim::spec;
use perfshim::spec::ResolvedEvent;
use perfshim::sys;

/// The single event that the text stands for on the plain machine.
fn one(text: &str) -> ResolvedEvent {
    let groups = spec::resolve(text, &plain_machine().scan()).unwrap_or_else(|e| panic!("{e}"));
    match &groups[..] {
        [group] if group.events.len() == 1 => group.events[0].clone(),
        other => panic!("{text}: {other:?}"),
    }
}

fn words(event: &ResolvedEvent) -> (u32, u64, u64, u64) {
    let config = &event.config;
    (config.pmu, config.config, config.config1, config.config2)
}

fn refused(text: &str, tree: &Tree) -> String {
    let error = spec::resolve(text, &tree.scan()).expect_err(text);
    let line = error.to_string();
    assert!(!line.contains('\n'), "{line}");
    line
}

#[test]
fn the_kernels_names_have_the_kernels_numbers() {
    for (name, pmu, config) in [
        ("cycles", sys::PERF_TYPE_HARDWARE, 0),
        ("cpu-cycles", sys::PERF_TYPE_HARDWARE, 0),
        ("instructions", sys::PERF_TYPE_HARDWARE, 1),
        ("cache-misses", sys::PERF_TYPE_HARDWARE, 3),
        ("branches", sys::PERF_TYPE_HARDWARE, 4),
        ("branch-misses", sys::PERF_TYPE_HARDWARE, 5),
        ("idle-cycles-backend", sys::PERF_TYPE_HARDWARE, 8),
        ("cpu-clock", sys::PERF_TYPE_SOFTWARE, 0),
        ("task-clock", sys::PERF_TYPE_SOFTWARE, 1),
        ("faults", sys::PERF_TYPE_SOFTWARE, 2),
        ("cs", sys::PERF_TYPE_SOFTWARE, 3),
        ("migrations", sys::PERF_TYPE_SOFTWARE, 4),
        ("cgroup-switches", sys::PERF_TYPE_SOFTWARE, 11),
        ("L1-dcache-load-misses", sys::PERF_TYPE_HW_CACHE, 0x1_0000),
        ("dTLB-store-misses", sys::PERF_TYPE_HW_CACHE, 0x1_0103),
    ] {
        let event = one(name);
        assert_eq!(event.config, EventConfig::new(pmu, config), "{name}");
        assert_eq!((event.pmu, event.name.as_str()), (None, name));
    }
}

#[test]
fn raw_numbers_are_for_the_cpus_pmu() {
    assert_eq!(one("r11").config, EventConfig::raw(0x11));
    assert_eq!(one("r0x1F").config, EventConfig::raw(0x1f));
    assert_eq!(one("rffffffffffffffff").config, EventConfig::raw(u64::MAX));
    let error = refused("r10000000000000000", &plain_machine());
    assert!(error.contains("64 bits"), "{error}");
}

#[test]
fn a_pmus_events_and_fields_make_its_words() {
    assert_eq!(words(&one("core_pmu/cpu_cycles/")), (8, 0x11, 0, 0));
    assert_eq!(words(&one("core_pmu/event=0x8/")), (8, 8, 0, 0));
    assert_eq!(words(&one("core_pmu/event=8,long/")), (8, 8, 1, 0));
    assert_eq!(words(&one("core_pmu/event=8,long=1/")), (8, 8, 1, 0));
    assert_eq!(words(&one("core_pmu/event=8,long=0/")), (8, 8, 0, 0));
    assert_eq!(words(&one("core_pmu/event=inst_retired/")), (8, 8, 0, 0));
    assert_eq!(
        words(&one("core_pmu/split=0xabc/")),
        (8, 0, 0, 0xa_0000_00bc)
    );
    assert_eq!(words(&one("core_pmu/r11/")), (8, 0x11, 0, 0));
    assert_eq!(
        words(&one("core_pmu/config=0x11,config1=1,config2=2/")),
        (8, 0x11, 1, 2)
    );
    let extension = one("core_pmu/config3=3,config4=4/").config;
    assert_eq!((extension.config3, extension.config4), (3, 4));
    let event = one("core_pmu/cpu_cycles/");
    assert_eq!(event.pmu.as_deref(), Some("core_pmu"));
    assert_eq!(event.cpus.unwrap().to_string(), "0-3");
    assert!(!event.system_wide);
}

#[test]
fn a_field_beside_an_event_replaces_the_events_own() {
    assert_eq!(words(&one("core_pmu/slow_loads/")), (8, 0x13, 3 << 5, 0));
    assert_eq!(
        words(&one("core_pmu/slow_loads,threshold=4/")),
        (8, 0x13, 4 << 5, 0)
    );
    assert_eq!(
        words(&one("core_pmu/threshold=4,slow_loads/")),
        (8, 0x13, 4 << 5, 0)
    );
    assert_eq!(
        words(&one("core_pmu/slow_loads,long/")),
        (8, 0x13, (3 << 5) | 1, 0)
    );
    assert_eq!(
        words(&one("core_pmu/slow_loads,config1=1/")),
        (8, 0x13, 1, 0)
    );
    assert_eq!(
        words(&one("core_pmu/needy,threshold=1/")),
        (8, 0x77, 1 << 5, 0)
    );
}

#[test]
fn an_event_of_sysfs_needs_no_pmu_before_it() {
    let event = one("cpu_cycles:u");
    assert_eq!(words(&event), (8, 0x11, 0, 0));
    assert_eq!(event.name, "cpu_cycles:u");
    assert_eq!(words(&one("inst_retired/long/k")), (8, 8, 1, 0));
}

#[test]
fn a_pmu_takes_the_kernels_names_if_it_is_a_cpus() {
    let event = one("core_pmu/cycles/");
    assert_eq!(event.config, EventConfig::new(sys::PERF_TYPE_HARDWARE, 0));
    let groups = spec::resolve("core_pmu/cycles/", &mixed_machine().scan()).unwrap();
    let number = 8 << sys::PERF_PMU_TYPE_SHIFT;
    let expected = EventConfig::new(sys::PERF_TYPE_HARDWARE, number);
    assert_eq!(groups[0].events[0].config, expected);
    let error = refused("mem_0/cycles/", &plain_machine());
    assert!(error.contains("no event or field `cycles`"), "{error}");
}

#[test]
fn a_plain_event_takes_terms_for_any_event() {
    let event = one("cycles/period=1000,config1=1,name=ticks/u");
    assert_eq!(words(&event), (sys::PERF_TYPE_HARDWARE, 0, 1, 0));
    assert_eq!(event.rate, Some(Rate::Period(1000)));
    assert_eq!(event.name, "ticks");
    assert_eq!(one("r11/freq=99/").rate, Some(Rate::Frequency(99)));
    assert_eq!(one("cycles/inherit/").inherit, Some(true));
    assert_eq!(one("cycles/no-inherit/").inherit, Some(false));
    assert_eq!(one("cycles//u").name, "cycles//u");
}

#[test]
fn a_number_behind_the_name_makes_several_events() {
    let groups = spec::resolve("mem/reads/", &plain_machine().scan()).unwrap();
    let events: Vec<_> = groups.iter().map(|group| &group.events[0]).collect();
    let names: Vec<_> = events.iter().map(|event| event.name.as_str()).collect();
    assert_eq!(names, ["mem_0/reads/", "mem_1/reads/"]);
    assert_eq!(events[1].config, EventConfig::new(10, 1));
    assert_eq!(events[1].cpus.as_ref().unwrap().to_string(), "2");
    assert!(events[1].system_wide);
    assert_eq!(
        (events[0].unit.as_deref(), events[0].scale),
        (Some("MiB"), 6.1e-5)
    );
    assert_eq!((events[1].unit.as_deref(), events[1].scale), (None, 1.0));
}

#[test]
fn on_mixed_machines_a_plain_name_is_one_event_for_each_kind_of_cpu() {
    let pmus = mixed_machine().scan();
    let events = |text: &str| -> Vec<ResolvedEvent> {
        let groups = spec::resolve(text, &pmus).unwrap_or_else(|e| panic!("{e}"));
        groups.into_iter().flat_map(|group| group.events).collect()
    };
    let cycles = events("cycles:u");
    let (eight, twelve) = (8 << 32, 12 << 32);
    assert_eq!(
        cycles[0].config,
        EventConfig::new(sys::PERF_TYPE_HARDWARE, eight)
    );
    assert_eq!(
        cycles[1].config,
        EventConfig::new(sys::PERF_TYPE_HARDWARE, twelve)
    );
    assert_eq!(cycles[0].name, "core_pmu/cycles/u");
    assert_eq!(cycles[1].cpus.as_ref().unwrap().to_string(), "4-7");

    let misses = events("LLC-load-misses");
    assert_eq!(
        misses[1].config,
        EventConfig::new(sys::PERF_TYPE_HW_CACHE, twelve | 0x1_0002)
    );
    let raw = events("r11");
    assert_eq!(raw[1].config, EventConfig::new(12, 0x11));
    assert_eq!(raw[1].name, "little_pmu/r11/");
    let named = events("cpu_cycles");
    assert_eq!(named[0].config, EventConfig::new(8, 0x11));
    assert_eq!(named[1].name, "little_pmu/cpu_cycles/");
    assert_eq!(events("task-clock").len(), 1);
    assert_eq!(events("little_pmu/cpu_cycles/").len(), 1);
    assert_eq!(
        events("inst_retired").len(),
        1,
        "only one of the PMUs has it"
    );
}

#[test]
fn an_event_may_be_called_like_the_beginning_of_its_pmu() {
    let tree = Tree::new().with(&[
        ("cycles_big/type", "8"),
        ("cycles_big/cpus", "0"),
        ("cycles_little/type", "9"),
        ("cycles_little/cpus", "1"),
    ]);
    let groups = spec::resolve("cycles/period=5/u", &tree.scan()).unwrap();
    let names: Vec<_> = groups
        .iter()
        .map(|group| group.events[0].name.as_str())
        .collect();
    let expected = [
        "cycles_big/cycles,period=5/u",
        "cycles_little/cycles,period=5/u",
    ];
    assert_eq!(names, expected);
    // What it is called means the same event.
    let again = spec::resolve(names[1], &tree.scan()).unwrap();
    assert_eq!(again[0].events, groups[1].events);
}

#[test]
fn a_group_on_a_mixed_machine_is_one_for_each_kind_of_cpu() {
    let pmus = mixed_machine().scan();
    let names = |text: &str| -> Vec<Vec<String>> {
        let groups = spec::resolve(text, &pmus).unwrap_or_else(|e| panic!("{e}"));
        assert!(groups.iter().all(|group| group.braces));
        let names = |group: spec::ResolvedGroup| group.events.into_iter().map(|e| e.name).collect();
        groups.into_iter().map(names).collect()
    };
    assert_eq!(
        names("{cycles,task-clock,core_pmu/inst_retired/}"),
        [
            vec!["core_pmu/cycles/", "task-clock", "core_pmu/inst_retired/"],
            vec!["little_pmu/cycles/", "task-clock"],
        ]
    );
    assert_eq!(names("{task-clock,cs}"), [["task-clock", "cs"]]);
    let error = refused("{cycles,mem_0/reads/}", &mixed_machine());
    assert!(
        error.contains("column 9") && error.contains("another PMU"),
        "{error}"
    );
}

#[test]
fn modifiers_exclude_as_in_perf() {
    let none = Exclude::empty();
    for (text, exclude) in [
        ("cycles", none),
        ("cycles:u", Exclude::KERNEL | Exclude::HV),
        ("cycles:k", Exclude::USER | Exclude::HV),
        ("cycles:h", Exclude::USER | Exclude::KERNEL),
        ("cycles:uk", Exclude::HV),
        ("cycles:ukh", none),
        ("cycles:G", Exclude::HOST),
        ("cycles:H", Exclude::GUEST),
        ("cycles:GH", none),
        ("cycles:I", Exclude::IDLE),
        ("cycles:uH", Exclude::KERNEL | Exclude::HV | Exclude::GUEST),
        ("{cycles:u}:k", Exclude::HV),
        ("{cycles}:u", Exclude::KERNEL | Exclude::HV),
    ] {
        assert_eq!(one(text).exclude, exclude, "{text}");
    }
}

#[test]
fn precision_adds_up_and_asks_the_pmu() {
    assert_eq!(one("cycles").precision, Precision::Arbitrary);
    assert_eq!(one("cycles:p").precision, Precision::ConstantSkid);
    assert_eq!(one("{cycles:p}:pp").precision, Precision::RequireZeroSkid);
    assert_eq!(one("cycles:P").precision, Precision::Arbitrary);
    let error = refused("{cycles:pp}:pp", &plain_machine());
    assert!(error.contains("three"), "{error}");

    let precise = plain_machine().with(&[("core_pmu/caps/max_precise", "2\n")]);
    for text in ["cycles:P", "r11:P", "core_pmu/cpu_cycles/P"] {
        let groups = spec::resolve(text, &precise.scan()).unwrap();
        assert_eq!(
            groups[0].events[0].precision,
            Precision::RequestZeroSkid,
            "{text}"
        );
    }
    let groups = spec::resolve("task-clock:P", &precise.scan()).unwrap();
    assert_eq!(groups[0].events[0].precision, Precision::Arbitrary);
}

#[test]
fn attributes_say_the_same() {
    let event = one("core_pmu/event=8,long,period=1000/upDeS");
    let counting = event.counting();
    let raw = counting.raw();
    assert_eq!((raw.type_, raw.config), (8, 8));
    assert_eq!((raw.pinned(), raw.exclusive()), (1, 1));
    assert_eq!(
        (raw.exclude_user(), raw.exclude_kernel(), raw.exclude_hv()),
        (0, 1, 1)
    );
    assert!(!counting.is_sampling());
    assert!(counting.check().is_ok());

    let sampling = event.sampling(Rate::Frequency(99), SampleFields::IP);
    assert!(sampling.check().is_ok());
    assert_eq!(
        sampling.sample_fields(),
        SampleFields::IP | SampleFields::READ
    );
    assert_eq!((sampling.raw().freq(), sampling.raw().precise_ip()), (0, 1));
    let other = one("cycles").sampling(Rate::Frequency(99), SampleFields::IP);
    assert_eq!(other.raw().freq(), 1);
    assert_eq!(one("cycles/inherit/").counting().raw().inherit(), 1);
}

/// What was wrong, and what would be right.
#[test]
fn what_is_not_there_is_refused_with_what_is() {
    let tree = plain_machine();
    for (text, says) in [
        ("cycels", &["no event `cycels`", "did you mean cycles"][..]),
        ("Cycles", &["did you mean cycles"]),
        (
            "L1-dcache-load-mises",
            &["did you mean L1-dcache-load-misses"],
        ),
        ("cache", &["cache-misses or cache-references"]),
        ("cpu_cycle", &["did you mean cpu_cycles"]),
        ("xyzzy", &["no event `xyzzy`", "such as cycles"]),
        ("core_pmu", &["core_pmu/EVENT/"]),
        (
            "core_pnu/cpu_cycles/",
            &["no PMU `core_pnu`", "did you mean core_pmu/"],
        ),
        ("nothing/x/", &["core_pmu, mem_0, mem_1, software"]),
        (
            "core_pmu/cpu_cylces/",
            &["column 10", "did you mean cpu_cycles"],
        ),
        (
            "core_pmu/xyzzy/",
            &["one of cpu_cycles, inst_retired, needy, slow_loads"],
        ),
        (
            "core_pmu/xyzzy=1/",
            &["no field `xyzzy`", "event, long, split, threshold"],
        ),
        ("core_pmu/evnt=1/", &["did you mean event"]),
        ("core_pmu/cpu_cycles=1/", &["takes no value"]),
        ("core_pmu/event=0x10000/", &["column 16", "0 to 0xffff"]),
        ("core_pmu/event=x/", &["`x` is no number", "hexadecimal"]),
        ("core_pmu/event=99999999999999999999/", &["64 bits"]),
        ("core_pmu/event=-1/", &["no number"]),
        ("core_pmu/event=0x+1/", &["no number"]),
        ("core_pmu/config/", &["has no value"]),
        ("core_pmu/event=1,event=2/", &["column 18", "contradicts"]),
        ("core_pmu/config=0x11,event=0x12/", &["contradicts"]),
        (
            "core_pmu/cpu_cycles,inst_retired/",
            &["second event beside `cpu_cycles`"],
        ),
        ("core_pmu/cpu_cycles,cycles/", &["second event"]),
        (
            "core_pmu/needy/",
            &["needs a value for `threshold`", "threshold=NUMBER"],
        ),
        ("cycles/long/", &["no term `long`", "period"]),
        (
            "cycles/config=1/",
            &["no term `config`", "config1 to config4"],
        ),
        ("cycles/period=0/", &["is 0", "1 or more"]),
        ("cycles/period=1,freq=2/", &["contradicts"]),
        ("cycles/name/", &["has no value"]),
        ("cycles/inherit=maybe/", &["on or off"]),
        ("software/x/", &["this PMU names no events"]),
        ("software/x=1/", &["this PMU names no fields"]),
    ] {
        let error = refused(text, &tree);
        for part in says {
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}

#[test]
fn a_pmu_that_cannot_be_used_says_why() {
    let tree = plain_machine();
    tree.write("odd_pmu/type", b"many");
    let error = refused("odd_pmu/x/", &tree);
    assert!(
        error.contains("odd_pmu/type") && error.contains("`many`"),
        "{error}"
    );
}

#[test]
fn faults_in_a_pmus_event_file_name_the_file() {
    let tree = plain_machine().with(&[
        ("core_pmu/events/broken", "event="),
        ("core_pmu/events/strange", "volume=11"),
        ("core_pmu/events/wide", "event=0x12345678"),
    ]);
    assert!(refused("core_pmu/broken/", &tree).contains("events/broken"));
    assert!(refused("core_pmu/strange/", &tree).contains("no field `volume`"));
    assert!(refused("core_pmu/wide/", &tree).contains("0 to 0xffff"));
}

#[test]
fn without_sysfs_the_kernels_events_are_still_there() {
    let none = Pmus::default();
    let groups = spec::resolve("{cycles,r11}:u,page-faults", &none).unwrap();
    assert_eq!(groups.len(), 2);
    assert_eq!(groups[0].events[1].config, EventConfig::raw(0x11));
    let error = spec::resolve("cpu/cycles/", &none).unwrap_err().to_string();
    assert!(error.contains("lists no PMU"), "{error}");
}
