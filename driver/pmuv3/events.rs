// SPDX-License-Identifier: GPL-2.0

//! From what user space asks for to an event number, free of the kernel's types.
//!
//! The numbers and names are those of the Arm Architecture Reference Manual (DDI 0487), section
//! "PMU events and event numbers". The generic events of perf are mapped to the same Arm events,
//! and refused with the same error, as drivers/perf/arm_pmuv3.c does.

use crate::{
    cache::{
        self,
        CacheEvent, //
    },
    caps::Pmceid,
    evtyper::EventId,
    layout::{
        CycleCounter,
        EventCounters,
        Length,
        Reader, //
    },
    refusal::Refusal, //
};

/// Level 1 instruction cache refill.
pub(crate) const L1I_CACHE_REFILL: EventId = EventId(0x01);
/// Level 1 instruction TLB refill.
pub(crate) const L1I_TLB_REFILL: EventId = EventId(0x02);
/// Level 1 data cache refill.
pub(crate) const L1D_CACHE_REFILL: EventId = EventId(0x03);
/// Level 1 data cache access.
pub(crate) const L1D_CACHE: EventId = EventId(0x04);
/// Level 1 data TLB refill.
pub(crate) const L1D_TLB_REFILL: EventId = EventId(0x05);
/// Instruction architecturally executed.
pub(crate) const INST_RETIRED: EventId = EventId(0x08);
/// Software change of the PC, architecturally executed.
pub(crate) const PC_WRITE_RETIRED: EventId = EventId(0x0c);
/// Branch instruction mispredicted or not predicted.
pub(crate) const BR_MIS_PRED: EventId = EventId(0x10);
/// Processor cycle.
pub(crate) const CPU_CYCLES: EventId = EventId(0x11);
/// Predictable branch instruction.
pub(crate) const BR_PRED: EventId = EventId(0x12);
/// Level 1 instruction cache access.
pub(crate) const L1I_CACHE: EventId = EventId(0x14);
/// Bus cycle.
pub(crate) const BUS_CYCLES: EventId = EventId(0x1d);
/// Overflow of the even counter below, for pairs.
pub(crate) const CHAIN: EventId = EventId(0x1e);
/// Branch instruction architecturally executed.
pub(crate) const BR_RETIRED: EventId = EventId(0x21);
/// No operation sent for execution because of the frontend.
pub(crate) const STALL_FRONTEND: EventId = EventId(0x23);
/// No operation sent for execution because of the backend.
pub(crate) const STALL_BACKEND: EventId = EventId(0x24);
/// Level 1 data TLB access.
pub(crate) const L1D_TLB: EventId = EventId(0x25);
/// Level 1 instruction TLB access.
pub(crate) const L1I_TLB: EventId = EventId(0x26);
/// Last level cache access, read.
pub(crate) const LL_CACHE_RD: EventId = EventId(0x36);
/// Last level cache miss, read.
pub(crate) const LL_CACHE_MISS_RD: EventId = EventId(0x37);

/// The type and config of a `perf_event_attr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Selection {
    /// `PERF_TYPE_HARDWARE`.
    Hardware(u64),
    /// `PERF_TYPE_HW_CACHE`.
    HwCache(u64),
    /// `PERF_TYPE_RAW`, or the type that perf core gave this PMU.
    Raw(u64),
    /// Any other type.
    Other,
}

impl Selection {
    /// Returns the common event that is asked for, whether or not the PE implements it.
    fn event(self, pmceid: Pmceid) -> Result<EventId, Refusal> {
        match self {
            Self::Hardware(config) => hardware(config, pmceid),
            Self::HwCache(config) => cache::find(config, cache::COMMON),
            // The format has 16 bits for the event; what lies above them is ignored.
            Self::Raw(config) => Ok(EventId((config & 0xffff) as u16)),
            Self::Other => Err(Refusal::NotFound),
        }
    }
}

/// Maps `PERF_COUNT_HW_*`.
fn hardware(config: u64, pmceid: Pmceid) -> Result<EventId, Refusal> {
    Ok(match config {
        0 => CPU_CYCLES,
        1 => INST_RETIRED,
        2 => L1D_CACHE,
        3 => L1D_CACHE_REFILL,
        4 if pmceid.has_common(BR_RETIRED) => BR_RETIRED,
        4 => PC_WRITE_RETIRED,
        5 => BR_MIS_PRED,
        6 => BUS_CYCLES,
        7 => STALL_FRONTEND,
        8 => STALL_BACKEND,
        // PERF_COUNT_HW_REF_CPU_CYCLES is known to perf, but not to this PMU.
        9 => return Err(Refusal::NotFound),
        _ => return Err(Refusal::Invalid),
    })
}

/// Whether an event follows a task or stays on a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// The event follows a task.
    Task,
    /// The event counts whatever runs on a CPU.
    Cpu,
}

/// What user space asks for, as far as it decides about the event number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    /// The type and config.
    pub(crate) selection: Selection,
    /// The format field `long`.
    pub(crate) length: Length,
    /// The format field `rdpmc`.
    pub(crate) reader: Reader,
    /// What the event follows.
    pub(crate) target: Target,
}

/// What the PMU has, as far as it decides about the event number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offer {
    /// The common events that the PE implements.
    pub(crate) pmceid: Pmceid,
    /// The model's own cache events.
    pub(crate) cache: &'static [CacheEvent],
    /// The event counters.
    pub(crate) event_counters: EventCounters,
    /// The use of the cycle counter.
    pub(crate) cycle_counter: CycleCounter,
}

impl Offer {
    /// Returns the number of the event that `wish` asks for.
    ///
    /// A raw number is taken as it is, since the PE may count events that PMCEID<n>_EL0 does not
    /// tell of. A generic event must be one that the PE implements, or else a cache event of the
    /// model's own.
    ///
    /// # Errors
    ///
    /// - [`Refusal::Invalid`]: CHAIN, which makes sense in a pair only; a number that perf does not
    ///   know; an event that user space reads, but that follows no task.
    /// - [`Refusal::NotSupported`]: a 64-bit event that user space reads, which no single counter
    ///   of this PMU can hold.
    /// - [`Refusal::NotFound`]: an event that the PE does not implement, or that is not of this PMU.
    pub(crate) fn event(self, wish: Wish) -> Result<EventId, Refusal> {
        let event = wish.selection.event(self.pmceid);
        if event == Ok(CHAIN) {
            return Err(Refusal::Invalid);
        }
        if wish.reader == Reader::User {
            self.check_user_read(wish, event)?;
        }
        match (event, wish.selection) {
            (_, Selection::Raw(_)) => event,
            (Ok(event), _) if self.pmceid.has_common(event) => Ok(event),
            (_, Selection::HwCache(config)) => cache::find(config, self.cache),
            _ => event.and(Err(Refusal::NotFound)),
        }
    }

    /// User space reads one register, so a 64-bit event that it reads needs a 64-bit counter.
    fn check_user_read(self, wish: Wish, event: Result<EventId, Refusal>) -> Result<(), Refusal> {
        if wish.target != Target::Task {
            return Err(Refusal::Invalid);
        }
        let fits = wish.length == Length::Bits32
            || self.event_counters == EventCounters::Bits64
            || event == Ok(CPU_CYCLES) && self.cycle_counter == CycleCounter::Use;
        if fits {
            Ok(())
        } else {
            Err(Refusal::NotSupported)
        }
    }
}

#[cfg(any(CONFIG_KUNIT, test))]
#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(rust_pmuv3_events))]
mod tests {
    use super::*;
    use crate::models;

    /// Implements CPU_CYCLES, PC_WRITE_RETIRED and L1D_CACHE, with 32-bit event counters.
    const OFFER: Offer = Offer {
        pmceid: Pmceid::new(1 << 0x11 | 1 << 0x0c | 1 << 0x04, 0),
        cache: models::CORTEX_A57,
        event_counters: EventCounters::Bits32,
        cycle_counter: CycleCounter::Use,
    };

    const WISH: Wish = Wish {
        selection: Selection::Hardware(0),
        length: Length::Bits32,
        reader: Reader::Kernel,
        target: Target::Task,
    };

    fn select(selection: Selection) -> Result<EventId, Refusal> {
        OFFER.event(Wish { selection, ..WISH })
    }

    #[test]
    fn hardware_events_must_be_implemented() {
        assert_eq!(select(Selection::Hardware(0)), Ok(CPU_CYCLES));
        assert_eq!(select(Selection::Hardware(1)), Err(Refusal::NotFound));
        assert_eq!(select(Selection::Hardware(9)), Err(Refusal::NotFound));
        assert_eq!(select(Selection::Hardware(10)), Err(Refusal::Invalid));
    }

    #[test]
    fn branches_fall_back_to_pc_writes() {
        assert_eq!(select(Selection::Hardware(4)), Ok(PC_WRITE_RETIRED));
        let offer = Offer {
            pmceid: Pmceid::new(1 << 0x0c, 1 << (0x21 - 32)),
            ..OFFER
        };
        let branches = Wish {
            selection: Selection::Hardware(4),
            ..WISH
        };
        assert_eq!(offer.event(branches), Ok(BR_RETIRED));
    }

    #[test]
    fn cache_events_of_the_model_stand_in_for_those_it_does_not_implement() {
        // L1D, read: a common event that the PE implements.
        assert_eq!(select(Selection::HwCache(0)), Ok(L1D_CACHE));
        // L1D, read, miss: one that it does not. L1D, write: none.
        assert_eq!(select(Selection::HwCache(0x1_0000)), Ok(EventId(0x42)));
        assert_eq!(select(Selection::HwCache(0x100)), Ok(EventId(0x41)));
        // L1I: neither; and what perf does not know.
        assert_eq!(select(Selection::HwCache(1)), Err(Refusal::NotFound));
        assert_eq!(select(Selection::HwCache(7)), Err(Refusal::Invalid));
    }

    #[test]
    fn raw_events_are_taken_except_chain() {
        assert_eq!(select(Selection::Raw(0)), Ok(EventId(0)));
        assert_eq!(select(Selection::Raw(0x7_1234)), Ok(EventId(0x1234)));
        assert_eq!(select(Selection::Raw(0x1e)), Err(Refusal::Invalid));
        assert_eq!(select(Selection::Raw(0x1_001e)), Err(Refusal::Invalid));
        assert_eq!(select(Selection::Other), Err(Refusal::NotFound));
    }

    #[test]
    fn user_reads_need_a_task_and_one_wide_enough_counter() {
        let cycles = Wish {
            reader: Reader::User,
            length: Length::Bits64,
            ..WISH
        };
        assert_eq!(OFFER.event(cycles), Ok(CPU_CYCLES));
        let on_cpu = Wish {
            target: Target::Cpu,
            ..cycles
        };
        assert_eq!(OFFER.event(on_cpu), Err(Refusal::Invalid));
        let cache = Wish {
            selection: Selection::Hardware(2),
            ..cycles
        };
        assert_eq!(OFFER.event(cache), Err(Refusal::NotSupported));
        let wide = Offer {
            event_counters: EventCounters::Bits64,
            ..OFFER
        };
        assert_eq!(wide.event(cache), Ok(L1D_CACHE));
    }
}
