// SPDX-License-Identifier: GPL-2.0

//! What the driver remembers about each CPU.
//!
//! A CPU that has just come up is *cold*: what its PMU holds is unknown. Perf core may schedule
//! events there before the hotplug callback of this driver runs, so whichever comes first makes the
//! CPU *ready*. It stays ready when it is about to leave: events count on there, without interrupts,
//! until perf core has taken them away.

use crate::{
    counters::CounterSet,
    layout::Reader,
    percpu::LocalCell, //
};

/// Whether the PMU of a CPU is in the state that the driver left it in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Warmth {
    /// Unknown: the CPU has come up, or never did.
    Cold,
    /// The registers hold what the driver wrote.
    Ready,
}

/// Whether perf core lets the PMU of a CPU run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It makes changes, so nothing may count. An overflow can be handled all the same: one that
    /// has happened before, by an NMI.
    Disabled,
    /// It does.
    Enabled,
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
/// It is changed on that CPU with interrupts off, or while the CPU is down.
pub(crate) struct CpuState {
    ready: LocalCell<bool>,
    enabled: LocalCell<bool>,
    used: LocalCell<u64>,
    for_user: LocalCell<u64>,
    open: LocalCell<bool>,
    shown: LocalCell<u64>,
}

impl CpuState {
    /// Returns the state of a CPU that has not been looked at.
    pub(crate) fn new() -> Self {
        Self {
            ready: LocalCell::new(false),
            enabled: LocalCell::new(true),
            used: LocalCell::new(0),
            for_user: LocalCell::new(0),
            open: LocalCell::new(false),
            shown: LocalCell::new(0),
        }
    }

    /// Returns whether the PMU is in the state that the driver left it in.
    #[inline]
    pub(crate) fn warmth(&self) -> Warmth {
        if self.ready.load() {
            Warmth::Ready
        } else {
            Warmth::Cold
        }
    }

    /// Notes whether the PMU is in the state that the driver left it in.
    pub(crate) fn set_warmth(&self, warmth: Warmth) {
        self.ready.store(warmth == Warmth::Ready);
    }

    /// Returns whether perf core lets the PMU run.
    #[inline]
    pub(crate) fn phase(&self) -> Phase {
        if self.enabled.load() {
            Phase::Enabled
        } else {
            Phase::Disabled
        }
    }

    /// Notes whether perf core lets the PMU run.
    #[inline]
    pub(crate) fn set_phase(&self, phase: Phase) {
        self.enabled.store(phase == Phase::Enabled);
    }

    /// Returns the counters that events occupy.
    #[inline]
    pub(crate) fn used(&self) -> CounterSet {
        CounterSet::from_bits(self.used.load())
    }

    /// Returns the counters that events occupy which user space reads itself.
    pub(crate) fn for_user(&self) -> CounterSet {
        CounterSet::from_bits(self.for_user.load())
    }

    /// Notes that an event occupies `counters`, to be read by `reader`.
    #[inline]
    pub(crate) fn occupy(&self, counters: CounterSet, reader: Reader) {
        self.used.store(self.used().union(counters).bits());
        if reader == Reader::User {
            self.for_user.store(self.for_user().union(counters).bits());
        }
    }

    /// Notes that no event occupies `counters` any more.
    #[inline]
    pub(crate) fn vacate(&self, counters: CounterSet, reader: Reader) {
        self.used.store(self.used().without(counters).bits());
        if reader == Reader::User {
            self.for_user
                .store(self.for_user().without(counters).bits());
        }
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
