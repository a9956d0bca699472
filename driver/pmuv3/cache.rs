// SPDX-License-Identifier: GPL-2.0

//! perf's generic cache events, free of the kernel's types.

use crate::{
    events::{
        BR_MIS_PRED,
        BR_PRED,
        L1D_CACHE,
        L1D_CACHE_REFILL,
        L1D_TLB,
        L1D_TLB_REFILL,
        L1I_CACHE,
        L1I_CACHE_REFILL,
        L1I_TLB,
        L1I_TLB_REFILL,
        LL_CACHE_MISS_RD,
        LL_CACHE_RD, //
    },
    evtyper::EventId,
    refusal::Refusal, //
};

use self::{
    Cache::*,
    Operation::*,
    Outcome::*, //
};

/// Which cache: `PERF_COUNT_HW_CACHE_*`, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cache {
    /// Level 1 data.
    L1d,
    /// Level 1 instructions.
    L1i,
    /// Last level.
    Ll,
    /// Data TLB.
    Dtlb,
    /// Instruction TLB.
    Itlb,
    /// Branch prediction unit.
    Bpu,
    /// Memory of a node.
    Node,
}

/// What is done with it: `PERF_COUNT_HW_CACHE_OP_*`, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// Read.
    Read,
    /// Write.
    Write,
    /// Prefetch.
    Prefetch,
}

/// What comes of it: `PERF_COUNT_HW_CACHE_RESULT_*`, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Counts all.
    Access,
    /// Counts those that miss.
    Miss,
}

/// A cache event of perf and the event of the PE that it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CacheEvent(
    pub(crate) Cache,
    pub(crate) Operation,
    pub(crate) Outcome,
    pub(crate) EventId,
);

/// The cache events of perf that are common events of the architecture.
pub(crate) const COMMON: &[CacheEvent] = &[
    CacheEvent(L1d, Read, Access, L1D_CACHE),
    CacheEvent(L1d, Read, Miss, L1D_CACHE_REFILL),
    CacheEvent(L1i, Read, Access, L1I_CACHE),
    CacheEvent(L1i, Read, Miss, L1I_CACHE_REFILL),
    CacheEvent(Ll, Read, Access, LL_CACHE_RD),
    CacheEvent(Ll, Read, Miss, LL_CACHE_MISS_RD),
    CacheEvent(Dtlb, Read, Access, L1D_TLB),
    CacheEvent(Dtlb, Read, Miss, L1D_TLB_REFILL),
    CacheEvent(Itlb, Read, Access, L1I_TLB),
    CacheEvent(Itlb, Read, Miss, L1I_TLB_REFILL),
    CacheEvent(Bpu, Read, Access, BR_PRED),
    CacheEvent(Bpu, Read, Miss, BR_MIS_PRED),
];

/// Returns the event that `config`, of the type `PERF_TYPE_HW_CACHE`, is in `events`.
///
/// # Errors
///
/// - [`Refusal::Invalid`]: perf knows no such event.
/// - [`Refusal::NotFound`]: it is not in `events`.
pub(crate) fn find(config: u64, events: &[CacheEvent]) -> Result<EventId, Refusal> {
    let wanted = parse(config).ok_or(Refusal::Invalid)?;
    let mut events = events.iter();
    let found = events.find(|event| (event.0, event.1, event.2) == wanted);
    found.map(|event| event.3).ok_or(Refusal::NotFound)
}

/// Takes the three low bytes apart; the C driver ignores what is above them.
fn parse(config: u64) -> Option<(Cache, Operation, Outcome)> {
    let cache = match config & 0xff {
        0 => L1d,
        1 => L1i,
        2 => Ll,
        3 => Dtlb,
        4 => Itlb,
        5 => Bpu,
        6 => Node,
        _ => return None,
    };
    let operation = match config >> 8 & 0xff {
        0 => Read,
        1 => Write,
        2 => Prefetch,
        _ => return None,
    };
    let outcome = match config >> 16 & 0xff {
        0 => Access,
        1 => Miss,
        _ => return None,
    };
    Some((cache, operation, outcome))
}

#[cfg(any(CONFIG_KUNIT, test))]
#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(rust_pmuv3_cache))]
mod tests {
    use super::*;

    #[test]
    fn what_perf_knows_is_found_or_not() {
        assert_eq!(find(0, COMMON), Ok(L1D_CACHE));
        assert_eq!(find(0x1_0005, COMMON), Ok(BR_MIS_PRED));
        // L1D, write; NODE, read: known to perf only.
        assert_eq!(find(0x100, COMMON), Err(Refusal::NotFound));
        assert_eq!(find(0x6, COMMON), Err(Refusal::NotFound));
        assert_eq!(find(0x6, crate::models::VULCAN), Ok(EventId(0x60)));
    }

    #[test]
    fn what_perf_does_not_know_is_invalid() {
        assert_eq!(find(0x7, COMMON), Err(Refusal::Invalid));
        assert_eq!(find(0x300, COMMON), Err(Refusal::Invalid));
        assert_eq!(find(0x2_0000, COMMON), Err(Refusal::Invalid));
    }
}
