// SPDX-License-Identifier: GPL-2.0

//! What the registers of a CPU's PMU hold, so that they are written only to change that.
//!
//! A write costs tens of cycles, and most would say what the register holds already: a task that
//! comes back finds its events on the counters that it had. So an event that starts or stops
//! changes sets in memory, and [`Bank::run`] brings the registers to what the sets say before it
//! lets the PMU run. While the PMU is stopped (PMCR_EL0.E is 0) no counter moves and no overflow
//! interrupts, so nobody sees the difference.
//!
//! What has to be written each time is where a counter starts, PMCR_EL0.E, and, when an interrupt
//! comes, the overflow flags.
//!
//! An NMI may come at any moment. When it finds that the PMU is not [running](Run::Running),
//! all it does is to [silence](Bank::silence) the counters that interrupt. So all else changes only
//! while the PMU is not running, or in the handler.

use crate::{
    counters::{
        Counter,
        CounterSet, //
    },
    evtyper::Pmevtyper,
    percpu::LocalCell,
    regs::{
        self,
        CounterRegisters,
        Registers, //
    }, //
};

/// Whether writes have to take effect at a certain point, which takes an ISB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sync {
    /// They have: counters that stop, or start, are to do so at the same time.
    Now,
    /// They have not: there is one counter only, or there were no writes.
    Later,
}

/// Whether the PMU runs, as far as the code on its CPU can know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Run {
    /// No counter counts.
    Stopped,
    /// It was told to stop [later](Sync::Later): a counter may count on.
    Stopping,
    /// Counters may count, and their overflows are to be handled.
    Running,
}

impl Run {
    #[inline]
    const fn from_word(word: u32) -> Self {
        match word {
            0 => Self::Stopped,
            1 => Self::Stopping,
            _ => Self::Running,
        }
    }
}

/// The registers of one CPU's PMU.
///
/// It is changed on that CPU with interrupts off.
pub(crate) struct Bank {
    /// What [`Run`] is. It changes before PMCR_EL0.E does.
    run: LocalCell<u32>,
    /// The counters that are to count while the PMU runs.
    counting: LocalCell<u64>,
    /// The counters that were set since the PMU last ran: they have not overflowed.
    fresh: LocalCell<u64>,
    /// What PMCNTENSET_EL0 holds.
    enabled: LocalCell<u64>,
    /// What PMINTENSET_EL1 holds. A counter that is not enabled does not overflow, so it matters
    /// only for those that are.
    interrupting: LocalCell<u64>,
    /// Whether PMINTENSET_EL1 may hold less, or an overflow that has happened may not interrupt.
    silenced: LocalCell<bool>,
    /// What PMEVTYPER<n>_EL0, PMCCFILTR_EL0 and PMICFILTR_EL0 hold.
    types: [LocalCell<u64>; Counter::COUNT],
}

impl Bank {
    /// No event has a type with all bits set, many of which are reserved.
    const UNKNOWN: u64 = u64::MAX;

    /// Returns what is known of a PMU that nobody has looked at. It has to be [reset](Self::reset).
    pub(crate) fn new() -> Self {
        Self {
            run: LocalCell::new(Run::Stopped as u32),
            counting: LocalCell::new(0),
            fresh: LocalCell::new(0),
            enabled: LocalCell::new(0),
            interrupting: LocalCell::new(0),
            silenced: LocalCell::new(false),
            types: core::array::from_fn(|_| LocalCell::new(Self::UNKNOWN)),
        }
    }

    /// Stops all counters, sets them to 0, and keeps overflows from interrupting.
    pub(crate) fn reset(&self, regs: Registers) {
        self.set_state(Run::Stopped);
        self.counting.store(0);
        self.fresh.store(0);
        self.enabled.store(0);
        self.interrupting.store(0);
        self.silenced.store(false);
        for cell in &self.types {
            cell.store(Self::UNKNOWN);
        }

        regs.set_pmcr(regs.stopped().with_const_p::<1>().with_const_c::<1>());
        regs.set_pmcntenclr(CounterSet::ALL);
        regs.set_pmintenclr(CounterSet::ALL);
        // A counter must not overflow after its flag has been cleared.
        regs::isb();
        regs.set_pmovsclr(CounterSet::ALL);
        regs::isb();
    }

    /// Returns whether the PMU runs.
    #[inline]
    pub(crate) fn state(&self) -> Run {
        Run::from_word(self.run.load())
    }

    #[inline]
    fn set_state(&self, state: Run) {
        self.run.store(state as u32);
    }

    /// Keeps all counters from counting.
    #[inline]
    pub(crate) fn halt(&self, regs: Registers, sync: Sync) {
        self.set_state(match sync {
            Sync::Now => Run::Stopped,
            Sync::Later => Run::Stopping,
        });
        regs.set_pmcr(regs.stopped());
        if sync == Sync::Now {
            regs::isb();
        }
    }

    /// Lets the counters count that have been [started](Self::start).
    #[inline]
    pub(crate) fn run(&self, regs: Registers, sync: Sync) {
        if self.counting.load() != self.enabled.load() || self.fresh.load() != 0 {
            self.settle(regs);
            regs::isb();
        } else if sync == Sync::Now {
            regs::isb();
        }
        self.set_state(Run::Running);
        regs.set_pmcr(regs.stopped().with_const_e::<1>());
        // An NMI that came when the state was another is made up for. In QEMU it takes a write to
        // these registers while the PMU runs for an overflow to interrupt that has not yet.
        if self.silenced.load() {
            self.unsilence(regs);
        }
    }

    /// Keeps overflows that have happened from interrupting, until the PMU runs again. For a handler
    /// that finds that it does not run.
    ///
    /// It has just been stopped, by code that the handler interrupts or that had kept interrupts off.
    /// Whether an overflow still interrupts then depends on the time that the interrupt takes to
    /// get here; in QEMU it does until something else than PMCR_EL0.E changes. What becomes of
    /// the overflow is up to those who have stopped the PMU.
    #[cold]
    #[inline(never)]
    pub(crate) fn silence(&self, regs: Registers) {
        regs.set_pmintenclr(regs.pmovsclr());
        self.silenced.store(true);
    }

    #[cold]
    #[inline(never)]
    fn unsilence(&self, regs: Registers) {
        self.silenced.store(false);
        regs.set_pmintenset(CounterSet::from_bits(self.interrupting.load()));
    }

    /// Makes sure that no counter counts, for a moment.
    #[cold]
    #[inline(never)]
    pub(crate) fn pause(&self, regs: Registers) {
        match self.state() {
            Run::Running => self.halt(regs, Sync::Now),
            Run::Stopping => {
                regs::isb();
                self.set_state(Run::Stopped);
            }
            Run::Stopped => {}
        }
    }

    /// Lets them count again.
    #[cold]
    #[inline(never)]
    pub(crate) fn resume(&self, regs: Registers) {
        self.run(regs, Sync::Later);
    }

    /// Brings the registers to what the sets say.
    #[inline]
    fn settle(&self, regs: Registers) {
        let counting = CounterSet::from_bits(self.counting.load());
        let enabled = CounterSet::from_bits(self.enabled.load());
        let gone = enabled.without(counting);

        if counting != enabled {
            Self::enable(regs, counting.without(enabled), gone);
            self.enabled.store(counting.bits());
        }

        // What the counter has counted said as much as a flag that nobody saw.
        let news = CounterSet::from_bits(self.fresh.load()).union(gone);
        let stale = regs.pmovsclr().intersection(news);
        if !stale.is_empty() {
            regs.set_pmovsclr(stale);
            self.silenced.store(true);
        }
        self.fresh.store(0);
    }

    #[cold]
    #[inline(never)]
    fn enable(regs: Registers, come: CounterSet, gone: CounterSet) {
        if !gone.is_empty() {
            regs.set_pmcntenclr(gone);
        }
        if !come.is_empty() {
            regs.set_pmcntenset(come);
        }
    }

    /// Notes that an event was put on `counters`, of which the overflows of `counter` interrupt. The
    /// PMU must not be running.
    #[inline]
    pub(crate) fn put(&self, regs: Registers, counter: Counter, counters: CounterSet) {
        self.fresh.store(self.fresh.load() | counters.bits());

        // All of `counters` are to be silent but one.
        let interrupting = self.interrupting.load();
        if interrupting & counters.bits() != CounterSet::from(counter).bits() {
            self.change_interrupts(regs, counter, counters);
        }
    }

    #[cold]
    #[inline(never)]
    fn change_interrupts(&self, regs: Registers, counter: Counter, counters: CounterSet) {
        let silent = counters.without(counter.into());

        self.silenced.store(true);
        regs.set_pmintenset(counter.into());
        if !silent.is_empty() {
            regs.set_pmintenclr(silent);
        }
        self.interrupting.store(
            CounterSet::from_bits(self.interrupting.load())
                .without(silent)
                .with(counter)
                .bits(),
        );
    }

    /// Lets `counters` count when the PMU runs next. It must not be running.
    #[inline]
    pub(crate) fn start(&self, counters: CounterSet) {
        self.counting.store(self.counting.load() | counters.bits());
    }

    /// Keeps `counters` from counting when the PMU runs next. It must not be running.
    #[inline]
    pub(crate) fn stop(&self, counters: CounterSet) {
        self.counting.store(self.counting.load() & !counters.bits());
    }

    /// Returns whether what `counter` counts is `config`, the bits of a [`Pmevtyper`].
    #[inline]
    pub(crate) fn counts(&self, counter: Counter, config: u64) -> bool {
        self.types[usize::from(counter.index())].load() == config
    }

    /// Chooses what `counter` counts.
    pub(crate) fn set_type(&self, counter: CounterRegisters, typer: Pmevtyper) {
        counter.set_type(typer);
        self.types[usize::from(counter.counter().index())].store(typer.bits());
    }
}
