// SPDX-License-Identifier: GPL-2.0

//! What the driver remembers about each CPU.
//!
//! What the PMU of a CPU holds that comes up is unknown: it has to be reset before it is used. Perf
//! core may schedule events there before the hotplug callback of this driver tells that the CPU
//! comes, and after it told that the CPU goes, and the CPU may be gone before it ever told. So:
//!
//! | a CPU is  | from when                        | to be used, and no event is there                |
//! | --------- | -------------------------------- | ------------------------------------------------ |
//! | *new*     | the driver was bound             | its PMU is reset, and it is *passing*            |
//! | *passing* | it goes, or was used when *new*  | its PMU is reset; it may be gone the next moment |
//! | *cold*    | it has come, or has lost its PMU | its PMU is reset, and it is *ready*              |
//! | *ready*   | it was used                      | its PMU is as the driver left it                 |

use crate::{
    bank::Bank,
    counters::CounterSet,
    layout::{
        Place,
        Reader, //
    },
    percpu::LocalCell, //
};

/// Whether the PMU of a CPU is in the state that the driver left it in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Warmth {
    /// Nobody has used it yet.
    New = 0,
    /// Unknown, unless events are there: the CPU is going or coming.
    Passing = 1,
    /// Unknown, unless events are there: the CPU has come up.
    Cold = 2,
    /// The registers hold what the driver wrote.
    Ready = 3,
}

impl Warmth {
    #[inline]
    const fn from_word(word: u32) -> Self {
        match word {
            0 => Self::New,
            1 => Self::Passing,
            2 => Self::Cold,
            _ => Self::Ready,
        }
    }
}

/// Whether the registers of a CPU's PMU are open to user space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// They are not.
    Closed,
    /// They are, or were until somebody forbade it.
    Open {
        /// The counters that user space may see as they are: those that PMUACR_EL1 opens, or else
        /// those that have been cleared because no event uses them.
        shown: CounterSet,
    },
}

/// The driver's view of the PMU of one CPU.
///
/// It is changed on that CPU with interrupts off, but for its warmth.
pub(crate) struct CpuState {
    warmth: LocalCell<u32>,
    bank: Bank,
    partners: LocalCell<u64>,
    for_user: LocalCell<u64>,
    open: LocalCell<bool>,
    shown: LocalCell<u64>,
}

impl CpuState {
    /// Returns the state of a CPU that has not been looked at.
    pub(crate) fn new() -> Self {
        Self {
            warmth: LocalCell::new(Warmth::New as u32),
            bank: Bank::new(),
            partners: LocalCell::new(0),
            for_user: LocalCell::new(0),
            open: LocalCell::new(false),
            shown: LocalCell::new(0),
        }
    }

    /// Returns whether the PMU is in the state that the driver left it in.
    #[inline]
    pub(crate) fn warmth(&self) -> Warmth {
        Warmth::from_word(self.warmth.load())
    }

    /// Notes whether the PMU is in the state that the driver left it in.
    #[inline]
    pub(crate) fn set_warmth(&self, warmth: Warmth) {
        self.warmth.store(warmth as u32);
    }

    /// Returns what the registers hold.
    #[inline]
    pub(crate) fn bank(&self) -> &Bank {
        &self.bank
    }

    /// Returns the even counters of pairs. The odd ones are the slots of the events.
    #[inline]
    pub(crate) fn partners(&self) -> CounterSet {
        CounterSet::from_bits(self.partners.load())
    }

    /// Returns the counters that events occupy which user space reads itself.
    pub(crate) fn for_user(&self) -> CounterSet {
        CounterSet::from_bits(self.for_user.load())
    }

    /// Notes that an event that takes a pair or that user space reads is at `place`.
    pub(crate) fn occupy(&self, place: Place, reader: Reader) {
        if let Some(even) = place.even() {
            self.partners.store(self.partners().with(even).bits());
        }
        if reader == Reader::User {
            self.for_user
                .store(self.for_user().with(place.counter).bits());
        }
    }

    /// Notes that it is there no more.
    pub(crate) fn vacate(&self, place: Place) {
        if let Some(even) = place.even() {
            self.partners
                .store(self.partners().without(even.into()).bits());
        }
        self.for_user
            .store(self.for_user().without(place.counter.into()).bits());
    }

    /// Returns whether the registers are open to user space.
    #[inline]
    pub(crate) fn access(&self) -> Access {
        if self.open.load() {
            Access::Open {
                shown: CounterSet::from_bits(self.shown.load()),
            }
        } else {
            Access::Closed
        }
    }

    /// Notes whether the registers are open to user space.
    pub(crate) fn set_access(&self, access: Access) {
        if let Access::Open { shown } = access {
            self.shown.store(shown.bits());
        }
        self.open.store(access != Access::Closed);
    }
}
