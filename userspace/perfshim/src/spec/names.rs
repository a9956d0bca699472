// SPDX-License-Identifier: MIT OR Apache-2.0
//! The events that the kernel names itself (`include/uapi/linux/perf_event.h`), in perf's spelling.

use crate::Cache;
use crate::CacheId;
use crate::CacheOp;
use crate::CacheResult;
use crate::EventConfig;
use crate::Hardware;
use crate::Software;

/// An event that the kernel names, whatever the PMU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Generic {
    Hardware(Hardware),
    Cache(Cache),
    Software(Software),
}

impl Generic {
    /// The event of that name.
    pub(super) fn find(name: &str) -> Option<Self> {
        let hardware = HARDWARE.iter().find(|(known, _)| *known == name);
        let software = SOFTWARE.iter().find(|(known, _)| *known == name);
        hardware
            .map(|(_, event)| Self::Hardware(*event))
            .or_else(|| software.map(|(_, event)| Self::Software(*event)))
            .or_else(|| cache(name).map(Self::Cache))
    }

    /// The event on whichever PMU the kernel picks.
    pub(super) fn config(self) -> EventConfig {
        match self {
            Self::Hardware(event) => event.into(),
            Self::Cache(event) => event.into(),
            Self::Software(event) => event.into(),
        }
    }

    /// The event on the CPU PMU of that number; software events have no PMU to pick.
    pub(super) fn on_pmu(self, pmu: u32) -> EventConfig {
        match self {
            Self::Hardware(event) => event.on_pmu(pmu),
            Self::Cache(event) => event.on_pmu(pmu),
            Self::Software(event) => event.into(),
        }
    }
}

/// Every name, in the spelling that perf lists.
pub(super) fn all() -> impl Iterator<Item = String> {
    let hardware = HARDWARE.iter().map(|(name, _)| (*name).to_owned());
    let software = SOFTWARE.iter().map(|(name, _)| (*name).to_owned());
    hardware.chain(software).chain(cache_names())
}

const HARDWARE: [(&str, Hardware); 14] = [
    ("cycles", Hardware::CpuCycles),
    ("cpu-cycles", Hardware::CpuCycles),
    ("instructions", Hardware::Instructions),
    ("cache-references", Hardware::CacheReferences),
    ("cache-misses", Hardware::CacheMisses),
    ("branches", Hardware::BranchInstructions),
    ("branch-instructions", Hardware::BranchInstructions),
    ("branch-misses", Hardware::BranchMisses),
    ("bus-cycles", Hardware::BusCycles),
    ("stalled-cycles-frontend", Hardware::StalledCyclesFrontend),
    ("idle-cycles-frontend", Hardware::StalledCyclesFrontend),
    ("stalled-cycles-backend", Hardware::StalledCyclesBackend),
    ("idle-cycles-backend", Hardware::StalledCyclesBackend),
    ("ref-cycles", Hardware::RefCpuCycles),
];

const SOFTWARE: [(&str, Software); 15] = [
    ("cpu-clock", Software::CpuClock),
    ("task-clock", Software::TaskClock),
    ("page-faults", Software::PageFaults),
    ("faults", Software::PageFaults),
    ("context-switches", Software::ContextSwitches),
    ("cs", Software::ContextSwitches),
    ("cpu-migrations", Software::CpuMigrations),
    ("migrations", Software::CpuMigrations),
    ("minor-faults", Software::PageFaultsMin),
    ("major-faults", Software::PageFaultsMaj),
    ("alignment-faults", Software::AlignmentFaults),
    ("emulation-faults", Software::EmulationFaults),
    ("dummy", Software::Dummy),
    ("bpf-output", Software::BpfOutput),
    ("cgroup-switches", Software::CgroupSwitches),
];

type Words = &'static [&'static str];

/// A cache, its names, and the operations that it knows.
const CACHES: [(CacheId, Words, &[CacheOp]); 7] = [
    (CacheId::L1d, &["L1-dcache", "l1-d", "l1d", "L1-data"], &ANY),
    (
        CacheId::L1i,
        &["L1-icache", "l1-i", "l1i", "L1-instruction"],
        &[CacheOp::Read, CacheOp::Prefetch],
    ),
    (CacheId::Ll, &["LLC", "L2"], &ANY),
    (CacheId::Dtlb, &["dTLB", "d-tlb", "Data-TLB"], &ANY),
    (
        CacheId::Itlb,
        &["iTLB", "i-tlb", "Instruction-TLB"],
        &[CacheOp::Read],
    ),
    (
        CacheId::Bpu,
        &["branch", "branches", "bpu", "btb", "bpc"],
        &[CacheOp::Read],
    ),
    (CacheId::Node, &["node"], &ANY),
];

const ANY: [CacheOp; 3] = [CacheOp::Read, CacheOp::Write, CacheOp::Prefetch];

const OPERATIONS: [(CacheOp, Words); 3] = [
    (CacheOp::Read, &["loads", "load", "read"]),
    (CacheOp::Write, &["stores", "store", "write"]),
    (
        CacheOp::Prefetch,
        &[
            "prefetches",
            "prefetch",
            "speculative-read",
            "speculative-load",
        ],
    ),
];

const RESULTS: [(CacheResult, Words); 2] = [
    (CacheResult::Access, &["refs", "Reference", "ops", "access"]),
    (CacheResult::Miss, &["misses", "miss"]),
];

/// `CACHE[-OPERATION][-RESULT]`, in any case: a read when no operation is named, and accesses
/// when no result is.
fn cache(name: &str) -> Option<Cache> {
    CACHES.iter().find_map(|(id, names, operations)| {
        let rest = names.iter().find_map(|known| after(name, known))?;
        let (op, rest) = next_word(&OPERATIONS, rest).unwrap_or((CacheOp::Read, rest));
        let (result, rest) = next_word(&RESULTS, rest).unwrap_or((CacheResult::Access, rest));
        let known = rest.is_empty() && operations.contains(&op);
        known.then_some(Cache {
            id: *id,
            op,
            result,
        })
    })
}

/// Which of the table's words follows a hyphen, and what is left after it.
fn next_word<'a, T: Copy>(table: &[(T, Words)], text: &'a str) -> Option<(T, &'a str)> {
    let text = text.strip_prefix('-')?;
    table.iter().find_map(|(meaning, words)| {
        let rest = words.iter().find_map(|word| after(text, word))?;
        Some((*meaning, rest))
    })
}

/// What follows `word` in `text`, which is nothing or begins with a hyphen.
fn after<'a>(text: &'a str, word: &str) -> Option<&'a str> {
    let (head, rest) = text.split_at_checked(word.len())?;
    let whole = rest.is_empty() || rest.starts_with('-');
    (whole && head.eq_ignore_ascii_case(word)).then_some(rest)
}

/// For each operation of each cache the name of its accesses and that of its misses.
fn cache_names() -> impl Iterator<Item = String> {
    CACHES.iter().flat_map(|(_, names, known)| {
        let operations = OPERATIONS.iter().filter(|(op, _)| known.contains(op));
        operations.flat_map(|(_, words)| {
            [
                format!("{}-{}", names[0], words[0]),
                format!("{}-{}-misses", names[0], words[1]),
            ]
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_listed_name_is_known() {
        let unknown: Vec<_> = all().filter(|name| Generic::find(name).is_none()).collect();
        assert_eq!(unknown, Vec::<String>::new());
    }

    /// Codes as perf's own table has them (`pmu-events/make_legacy_cache.py`): cache, then
    /// operation << 8, then result << 16.
    #[test]
    fn cache_codes_are_perfs() {
        for (name, code) in [
            ("L1-dcache-loads", 0x000000),
            ("L1-dcache-load-misses", 0x010000),
            ("l1d-store-miss", 0x010100),
            ("L1-icache-prefetch-misses", 0x010201),
            ("LLC", 0x000002),
            ("llc-misses", 0x010002),
            ("dTLB-speculative-read-access", 0x000203),
            ("iTLB-load-misses", 0x010004),
            ("branch-load-misses", 0x010005),
            ("node-stores", 0x000106),
        ] {
            let config = Generic::find(name).map(|event| event.config().config);
            assert_eq!(config, Some(code), "{name}");
        }
    }

    #[test]
    fn operations_that_a_cache_has_not_are_unknown() {
        for name in [
            "iTLB-stores",
            "L1-icache-stores",
            "branch-prefetches",
            "LLC-",
            "LLC-x",
        ] {
            assert_eq!(Generic::find(name), None, "{name}");
        }
    }
}
