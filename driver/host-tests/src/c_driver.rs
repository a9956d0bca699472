// SPDX-License-Identifier: GPL-2.0

//! The models are those of the C driver: its source is read and compared.

use std::{
    collections::BTreeMap,
    env,
    fs, //
};

use crate::{
    cache::{
        Cache,
        CacheEvent,
        Operation,
        Outcome, //
    },
    evtyper::EventId,
    models::{
        self,
        Model, //
    },
};

fn source(file: &str) -> String {
    let folder = env::var("KERNEL_SRC").expect("KERNEL_SRC: scripts/test-host sets it");
    fs::read_to_string(format!("{folder}/{file}")).unwrap()
}

/// What stands between `start` and `end`, behind the first `start`.
fn between<'a>(text: &'a str, start: &str, end: &str) -> &'a str {
    let (_, rest) = text
        .split_once(start)
        .unwrap_or_else(|| panic!("no {start:?}"));
    rest.split_once(end)
        .unwrap_or_else(|| panic!("no {end:?} behind {start:?}"))
        .0
}

/// The value of each macro of one number in `text`.
fn macros(text: &str) -> BTreeMap<&str, u16> {
    text.lines()
        .filter_map(|line| {
            let mut words = line.strip_prefix("#define ")?.split_whitespace();
            let (name, value) = (words.next()?, words.next()?);
            let number = u16::from_str_radix(value.strip_prefix("0x")?, 16).ok()?;
            Some((name, number))
        })
        .collect()
}

/// The lines `[C(L1D)][C(OP_READ)][C(RESULT_MISS)] = EVENT,` of a table.
fn cache_events(table: &str, numbers: &BTreeMap<&str, u16>) -> Vec<CacheEvent> {
    let mut events = Vec::new();
    for line in table
        .lines()
        .filter(|line| line.trim_start().starts_with("[C("))
    {
        let words: Vec<_> = line
            .split("C(")
            .skip(1)
            .map(|word| word.split_once(')').unwrap().0)
            .collect();
        let cache = match words[0] {
            "L1D" => Cache::L1d,
            "L1I" => Cache::L1i,
            "LL" => Cache::Ll,
            "DTLB" => Cache::Dtlb,
            "ITLB" => Cache::Itlb,
            "BPU" => Cache::Bpu,
            "NODE" => Cache::Node,
            other => panic!("{other}"),
        };
        let operation = match words[1] {
            "OP_READ" => Operation::Read,
            "OP_WRITE" => Operation::Write,
            "OP_PREFETCH" => Operation::Prefetch,
            other => panic!("{other}"),
        };
        let outcome = match words[2] {
            "RESULT_ACCESS" => Outcome::Access,
            "RESULT_MISS" => Outcome::Miss,
            other => panic!("{other}"),
        };
        let event = between(line, "= ", ",").trim();
        events.push(CacheEvent(
            cache,
            operation,
            outcome,
            EventId(numbers[event]),
        ));
    }
    events
}

/// The models of the C driver by compatible: the PMU's name and the table of its cache events.
fn c_models(driver: &str) -> BTreeMap<&str, (&str, &str)> {
    // A model's function for events, if it has one.
    let mut own = BTreeMap::new();
    for line in driver.lines() {
        if let Some(arguments) = line.strip_prefix("PMUV3_INIT_MAP_EVENT(") {
            let (name, function) = arguments.trim_end_matches(')').split_once(", ").unwrap();
            let body = between(
                driver,
                &format!("{function}(struct perf_event *event)"),
                "\n}",
            );
            own.insert(
                name,
                between(body, "NULL,", ")").trim().trim_start_matches('&'),
            );
        }
    }
    let table = between(driver, "of_device_id armv8_pmu_of_device_ids[] = {", "};");
    table
        .lines()
        .filter(|line| line.contains(".compatible"))
        .map(|line| {
            let name = between(line, ".data = ", "_pmu_init");
            let cache = own.get(name).copied().unwrap_or_default();
            (between(line, "\"", "\""), (name, cache))
        })
        .collect()
}

/// Ours, by compatible.
fn our_models() -> BTreeMap<&'static str, Model> {
    macro_rules! list {
        ($($compatible:literal => $name:literal, $cache:ident;)*) => {
            [$(($compatible, Model { name: $name, cache: models::$cache })),*]
        };
    }
    let list = models::each_model!(list);
    let count = list.len();
    let map: BTreeMap<_, _> = list
        .into_iter()
        .map(|(compatible, model)| (compatible.to_str().unwrap(), model))
        .collect();
    assert_eq!(map.len(), count, "a compatible is there twice");
    map
}

fn sorted(mut events: Vec<CacheEvent>) -> Vec<CacheEvent> {
    events.sort_by_key(|event| format!("{event:?}"));
    events
}

#[test]
fn the_models_are_those_of_the_c_driver() {
    let driver = source("drivers/perf/arm_pmuv3.c");
    let header = source("include/linux/perf/arm_pmuv3.h");
    let mut numbers = macros(&header);
    numbers.append(&mut macros(&driver));
    let (theirs, ours) = (c_models(&driver), our_models());
    assert!(theirs.len() > 40, "{theirs:?}");
    assert!(
        theirs.keys().eq(ours.keys()),
        "{:?}\n{:?}",
        theirs.keys(),
        ours.keys()
    );
    for (compatible, (name, cache)) in theirs {
        let model = &ours[compatible];
        assert_eq!(model.name.to_str(), Ok(name));
        let events = match cache {
            "" => Vec::new(),
            table => cache_events(between(&driver, &format!("{table}[PERF"), "};"), &numbers),
        };
        assert_eq!(cache.is_empty(), events.is_empty(), "{compatible}");
        assert_eq!(sorted(model.cache.to_vec()), sorted(events), "{compatible}");
    }
    let common = cache_events(
        between(&driver, "armv8_pmuv3_perf_cache_map[PERF", "};"),
        &numbers,
    );
    assert_eq!(sorted(crate::cache::COMMON.to_vec()), sorted(common));
}
