// SPDX-License-Identifier: GPL-2.0

//! The PMU as perf core sees it: events are opened, get counters, start, stop and are read.
//!
//! While perf core calls [`add`](perf::Driver::add) and [`del`](perf::Driver::del), and mostly also
//! [`start`](perf::Driver::start) and [`stop`](perf::Driver::stop), the PMU is disabled, and
//! [`disable`](perf::Driver::disable) has made sure with an ISB that no counter moves. So they need
//! no synchronization of their own until [`enable`](perf::Driver::enable), whose ISB comes before
//! the counters run again. The exception is a group that a software event leads: when perf core
//! throttles it, or starts it again, the PMU is running, and is [paused](Pmuv3::quiet).

use core::ops::Deref;
use kernel::{
    cpu::CpuId,
    cpumask::Cpumask,
    irq::IrqReturn,
    prelude::*,
    sync::Arc, //
};

use crate::{
    bank::{
        Bank,
        Run,
        Sync, //
    },
    caps::{
        Pmceid,
        Pmmir, //
    },
    counters::CounterSet,
    cpu::{
        Access,
        CpuState,
        Warmth, //
    },
    cpuhp::Transition,
    event::{
        enabled_by,
        exclude,
        wish,
        EnabledBy,
        Stored, //
    },
    events::Offer,
    evtyper::{
        EventId,
        Filter,
        KernelLevel,
        Pmevtyper,
        Threshold, //
    },
    layout::{
        CycleCounter,
        Fit,
        Layout,
        Length,
        Need,
        Place,
        Reader, //
    },
    models::Model,
    percpu::{
        OnCpu,
        PerCpu, //
    },
    percpu_irq::PerCpuIrq,
    perf::{
        self,
        sysfs::{
            Attribute,
            EventAttr,
            FormatAttr, //
        },
        Active,
        Capabilities,
        Event,
        Member,
        NewEvent,
        Slot,
        TaskContext, //
    },
    regs::{
        self,
        CounterRegisters,
        Registers, //
    },
    smp,
    statistics::Statistics,
    sysctl::Setting,
    sysfs,
    user::{
        self,
        USER_ACCESS, //
    }, //
};

/// What the registers of a CPU say about its PMU. All CPUs of one PMU say the same.
#[derive(Clone, Copy)]
pub(crate) struct Identity {
    regs: Registers,
    layout: Layout,
    pmceid: Pmceid,
    pmmir: Pmmir,
    kernel: KernelLevel,
}

impl Identity {
    /// Asks this CPU. Returns `None` when it has no PMUv3.
    pub(crate) fn of(cpu: &OnCpu<'_>) -> Option<Self> {
        let regs = Registers::probe()?;
        // The cycle counter goes on while any thread of the core runs, the event does not.
        let cycle_counter = if smp::core_has_smt(cpu.cpu()) {
            CycleCounter::Avoid
        } else {
            regs.cycle_counter()
        };
        Some(Self {
            regs,
            layout: Layout {
                counters: regs.counters(),
                event_counters: regs.event_counters(),
                cycle_counter,
            },
            pmceid: regs.pmceid(),
            pmmir: regs.pmmir(),
            kernel: regs::kernel_level(),
        })
    }

    /// Returns the counters of the PMU.
    pub(crate) fn counters(&self) -> CounterSet {
        self.layout.counters
    }
}

/// Returns the counters of a CPU that events occupy.
#[inline]
fn used(state: &CpuState, active: &Active<'_, Pmuv3>) -> CounterSet {
    CounterSet::from_bits(active.set()).union(state.partners())
}

/// The bank of a PMU that does not run until this is dropped.
struct Quiet<'a> {
    regs: Registers,
    bank: &'a Bank,
    was_running: bool,
}

impl Deref for Quiet<'_> {
    type Target = Bank;

    #[inline]
    fn deref(&self) -> &Bank {
        self.bank
    }
}

impl Drop for Quiet<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.was_running {
            self.bank.resume(self.regs);
        }
    }
}

/// Where an event is counted.
#[derive(Clone, Copy)]
pub(crate) struct Located {
    /// The counter that overflows; the odd one of a pair.
    counter: CounterRegisters,
    /// The even one of a pair.
    even: Option<CounterRegisters>,
    fit: Fit,
}

impl Located {
    /// Returns the same without the registers.
    #[inline(always)]
    fn place(self) -> Place {
        Place {
            counter: self.counter.counter(),
            fit: self.fit,
        }
    }

    /// Adds to the event what it has counted, while it cannot count.
    #[inline(always)]
    pub(crate) fn update(self, event: &Event<Pmuv3>, length: Length) {
        match self.even {
            None => {
                let count = self.counter.count() & length.largest();
                event.update_undisturbed(length.into(), count);
            }
            Some(even) => self.update_pair(event, even),
        }
    }

    /// Adds to the event what it has counted, while it counts.
    #[inline(always)]
    fn update_running(self, event: &Event<Pmuv3>, length: Length) {
        match self.even {
            None => {
                let count = || self.counter.count() & length.largest();
                event.update(length.into(), count);
            }
            Some(even) => self.update_running_pair(event, even),
        }
    }

    /// Makes the event overflow when `start`, the value of an imagined counter of 64 bits, does.
    #[inline(always)]
    pub(crate) fn set(self, start: u64) {
        match self.even {
            None => self.counter.set_count(self.fit.to_hardware(start)),
            Some(even) => self.set_pair(even, start),
        }
    }

    // The rare case out of line, so that the other has registers to spare.

    #[cold]
    #[inline(never)]
    fn update_pair(self, event: &Event<Pmuv3>, even: CounterRegisters) {
        event.update_undisturbed(Length::Bits64.into(), self.count_pair(even));
    }

    #[cold]
    #[inline(never)]
    fn update_running_pair(self, event: &Event<Pmuv3>, even: CounterRegisters) {
        event.update(Length::Bits64.into(), || self.count_pair(even));
    }

    /// The even counter may overflow into the odd one while they are read one after the other, and
    /// without an ISB the PE may read different counters in any order.
    fn count_pair(self, even: CounterRegisters) -> u64 {
        let before = self.counter.count();
        regs::isb();
        let low = even.count();
        regs::isb();
        let after = self.counter.count();
        if before == after {
            after << 32 | low
        } else {
            // It has just overflowed, and will not again before it is read.
            regs::isb();
            after << 32 | even.count()
        }
    }

    #[cold]
    #[inline(never)]
    fn set_pair(self, even: CounterRegisters, start: u64) {
        self.counter.set_count(start >> 32);
        even.set_count(start & Length::Bits32.largest());
    }
}

/// The CPUs that have a PMU.
pub(crate) struct Members {
    /// Those whose PMU it is, and nobody else's.
    pub(crate) claim: smp::Claim,
    /// The MIDR_EL1 of others that may join them, if some may.
    pub(crate) joining: Option<u64>,
}

/// A PMUv3, one in each of the CPUs that it stands for.
pub(crate) struct Pmuv3 {
    model: Model,
    identity: Identity,
    members: Members,
    /// `None`: the PMU counts, but cannot sample.
    irq: Option<Arc<PerCpuIrq>>,
    states: PerCpu<CpuState>,
    /// What happens, if somebody wants to know.
    statistics: Option<Arc<Statistics>>,
}

impl Pmuv3 {
    /// Makes the driver's data for a PMU whose overflows raise `irq`.
    pub(crate) fn new(
        model: Model,
        identity: Identity,
        members: Members,
        irq: Option<Arc<PerCpuIrq>>,
        statistics: Option<Arc<Statistics>>,
    ) -> Result<Self> {
        Ok(Self {
            model,
            identity,
            members,
            irq,
            states: PerCpu::new(|_cpu| CpuState::new())?,
            statistics,
        })
    }

    /// Returns the interrupt, if the PMU has one.
    pub(crate) fn irq(&self) -> Option<&PerCpuIrq> {
        self.irq.as_deref()
    }

    /// Returns the counters of this CPU whose overflow has not been handled.
    pub(crate) fn overflows(&self) -> CounterSet {
        self.identity.regs.pmovsclr()
    }

    /// Returns the CPUs that have this PMU.
    #[inline]
    pub(crate) fn cpus(&self) -> &Cpumask {
        self.members.claim.cpus()
    }

    /// Counts this CPU to those that have this PMU, if it is of their kind. Returns whether it is.
    pub(crate) fn join(&self, cpu: &Transition<'_>) -> bool {
        self.members.joining == Some(regs::midr_el1())
            && self.identity.regs.work_here()
            && self.members.claim.extend(cpu.cpu()).is_ok()
    }

    /// Returns whether overflows on `cpu`, if it is given, interrupt.
    fn can_sample(&self, cpu: Option<CpuId>) -> bool {
        match (self.irq(), cpu) {
            (Some(irq), Some(cpu)) => irq.affinity().test(cpu),
            (irq, _) => irq.is_some(),
        }
    }

    /// Returns what PMMIR_EL1 says.
    pub(crate) fn pmmir(&self) -> Pmmir {
        self.identity.pmmir
    }

    /// Notes that this CPU has come up. Returns whether it has been looked at.
    #[inline]
    pub(crate) fn arrive(&self, cpu: &Transition<'_>) -> bool {
        let state = self.states.here(cpu);
        let is_known = state.warmth() != Warmth::New;
        if is_known {
            state.set_warmth(Warmth::Cold);
        }
        is_known
    }

    /// Notes that this CPU is about to go down, if it is one of ours.
    #[inline]
    pub(crate) fn leave(&self, cpu: &Transition<'_>) {
        let state = self.states.here(cpu);
        if state.warmth() != Warmth::New {
            state.set_warmth(Warmth::Passing);
        }
    }

    /// Makes the PMU of this CPU, on which the events `active` are, ready for one more.
    ///
    /// # Errors
    ///
    /// `ENOENT` when this CPU does not have this PMU.
    #[inline(always)]
    pub(crate) fn prepare(&self, cpu: &OnCpu<'_>, active: &Active<'_, Self>) -> Result {
        match self.states.get(cpu).warmth() {
            Warmth::Ready => Ok(()),
            _ => self.warm_up(*cpu, active.is_empty()),
        }
    }

    #[cold]
    #[inline(never)]
    fn warm_up(&self, cpu: OnCpu<'_>, is_unused: bool) -> Result {
        let state = self.states.get(&cpu);
        // Where an event is, all has been done for it.
        if is_unused {
            if !self.cpus().test(cpu.cpu()) || !self.identity.regs.work_here() {
                return Err(ENOENT);
            }
            self.reset(state);
        }
        match state.warmth() {
            // The CPU may go before its hotplug callback was called.
            Warmth::New => state.set_warmth(Warmth::Passing),
            Warmth::Cold => state.set_warmth(Warmth::Ready),
            Warmth::Passing | Warmth::Ready => {}
        }
        Ok(())
    }

    /// Brings the PMU of this CPU, which holds anything, back into the state that the driver left
    /// it in, but for the counters.
    pub(crate) fn recover(&self, cpu: &OnCpu<'_>, active: &Active<'_, Self>) {
        let state = self.states.get(cpu);
        if !active.is_empty() {
            self.reset(state);
        } else if state.warmth() == Warmth::Ready {
            state.set_warmth(Warmth::Cold);
        }
    }

    /// Leaves the PMU of each CPU as if nobody had used it. No event may be left.
    pub(crate) fn retire(&self) {
        smp::call_each(|cpu| {
            let state = self.states.get(cpu);
            if state.warmth() != Warmth::New {
                self.reset(state);
            }
        });
    }

    /// Stops all counters, sets them to 0, and keeps overflows from interrupting and user space
    /// from reading.
    fn reset(&self, state: &CpuState) {
        user::close(self.identity.regs, state);
        state.bank().reset(self.identity.regs);
    }

    /// Lets the events that have been started on this CPU count.
    #[inline]
    pub(crate) fn run(&self, cpu: &OnCpu<'_>, active: &Active<'_, Self>) {
        // Without events the PMU stays as `halt` or `reset` left it.
        if !active.is_empty() {
            let bank = self.states.get(cpu).bank();
            bank.run(self.identity.regs, Sync::Later);
        }
    }

    /// Keeps all counters of this CPU from counting. When it returns, none moves any more.
    #[inline]
    pub(crate) fn halt(&self, cpu: &OnCpu<'_>) {
        let bank = self.states.get(cpu).bank();
        if bank.state() == Run::Running {
            bank.halt(self.identity.regs, Sync::Now);
        }
    }

    /// Takes the overflows of this CPU's counters and handles them by `handler`, while no counter
    /// counts, so that the members of a group stay comparable. Returns whether there were any.
    ///
    /// When the PMU does not run there is nothing to handle: see [`Bank::silence`].
    #[inline]
    pub(crate) fn handle_overflows(
        &self,
        cpu: &OnCpu<'_>,
        active: &Active<'_, Self>,
        handler: impl FnOnce(CounterSet),
    ) -> IrqReturn {
        let regs = self.identity.regs;
        let state = self.states.get(cpu);
        if state.bank().state() != Run::Running {
            state.bank().silence(regs);
            return IrqReturn::None;
        }
        let overflowed = regs.pmovsclr();
        if overflowed.is_empty() {
            return IrqReturn::None;
        }
        // From reading to writing a lone counter may run: what it counts there is no event's.
        let sync = if used(state, active).is_one() {
            Sync::Later
        } else {
            Sync::Now
        };
        regs.set_pmovsclr(overflowed);
        state.bank().halt(regs, sync);
        handler(overflowed);
        state.bank().run(regs, sync);
        IrqReturn::Handled
    }

    /// Returns the bank of this CPU, whose PMU does not run until the result is dropped.
    #[inline]
    fn quiet<'a>(&'a self, cpu: &'a OnCpu<'_>) -> Quiet<'a> {
        let bank = self.states.get(cpu).bank();
        let before = bank.state();
        if before != Run::Stopped {
            bank.pause(self.identity.regs);
        }
        Quiet {
            regs: self.identity.regs,
            bank,
            was_running: before == Run::Running,
        }
    }

    /// Opens the registers to the task that runs on this CPU, if it is to read them, or closes
    /// them.
    #[inline]
    fn follow_user(&self, cpu: &OnCpu<'_>, active: &Active<'_, Self>) {
        let state = self.states.get(cpu);
        if user::is_wanted(cpu) {
            // Perf core enables all PMUs that a task has events of, also those of other CPUs.
            if self.prepare(cpu, active).is_err() {
                return;
            }
            let unused = self.identity.layout.counters.without(used(state, active));
            user::open(self.identity.regs, self.identity.layout, state, unused);
        } else if state.access() != Access::Closed {
            user::close(self.identity.regs, state);
        }
    }

    #[cold]
    #[inline(never)]
    fn select(&self, bank: &Bank, event: &Event<Self>, slot: Slot) {
        let need = Stored::load(event).need;
        let Some(at) = self.find(slot, need.length) else {
            return;
        };
        match at.even {
            None => bank.set_type(at.counter, need.typer),
            Some(even) => {
                bank.set_type(even, need.typer);
                bank.set_type(at.counter, Pmevtyper::CHAIN);
            }
        }
    }

    /// Returns where an event of this length that has been added is counted.
    #[inline(always)]
    pub(crate) fn find(&self, slot: Slot, length: Length) -> Option<Located> {
        let regs = self.identity.regs;
        let counter = regs.counter(slot.number())?;
        let place = Place {
            counter: counter.counter(),
            fit: self.identity.layout.fit(counter.counter(), length),
        };
        Some(Located {
            counter,
            even: place.even().and_then(|even| regs.counter(even.index())),
            fit: place.fit,
        })
    }

    /// Returns what an event that is being opened needs, or why it is refused.
    fn accept(&self, event: &Event<Self>) -> Result<Stored> {
        let wish = wish(event);
        let offer = Offer {
            pmceid: self.identity.pmceid,
            cache: self.model.cache,
            event_counters: self.identity.layout.event_counters,
            cycle_counter: self.identity.layout.cycle_counter,
        };
        let number = offer.event(wish)?;
        let exclude = exclude(event);
        Ok(Stored {
            need: Need {
                typer: self.typer(event, number, Filter::new(exclude, self.identity.kernel)?)?,
                length: wish.length,
                reader: wish.reader,
            },
            enabled_by: enabled_by(exclude, self.identity.kernel),
        })
    }

    fn typer(&self, event: &Event<Self>, number: EventId, filter: Filter) -> Result<Pmevtyper> {
        let attr = event.attr();
        let threshold = Threshold::new(
            attr.field(&sysfs::THRESHOLD),
            attr.field(&sysfs::THRESHOLD_COMPARE),
            attr.field(&sysfs::THRESHOLD_COUNT),
            self.identity.pmmir.threshold_max(),
        )?;
        let typer = Pmevtyper::new(number).with_filter(filter);
        Ok(match threshold {
            Some(threshold) => typer.with_threshold(threshold),
            None => typer,
        })
    }

    /// Checks that all members of the event's group fit on the PMU at the same time.
    ///
    /// # Errors
    ///
    /// `EINVAL` when they do not, or when one of them is on another hardware PMU.
    fn check_group(&self, event: &NewEvent<'_, Self>) -> Result {
        let mut used = CounterSet::EMPTY;
        for member in event.group() {
            match member {
                Member::Own(event) if event.can_run() => {
                    let need = Stored::load(event).need;
                    let place = self.identity.layout.place(used, need);
                    used = used.union(place.map_err(|_| EINVAL)?.counters());
                }
                Member::Own(_) | Member::Software => {}
                Member::Other => return Err(EINVAL),
            }
        }
        Ok(())
    }

    /// Finds a counter for the event.
    #[inline(always)]
    fn place(
        &self,
        cpu: &OnCpu<'_>,
        event: &Event<Self>,
        active: &Active<'_, Self>,
    ) -> Result<Slot> {
        self.prepare(cpu, active)?;
        let state = self.states.get(cpu);
        let need = Stored::load(event).need;
        let counter = self.identity.layout.counter(used(state, active), need)?;
        let slot = Slot::new(counter.index()).ok_or(EINVAL)?;
        if Stored::is_special(event) {
            self.occupy(*cpu, event, slot);
        }
        Ok(slot)
    }

    /// Notes what a special event occupies.
    #[cold]
    #[inline(never)]
    fn occupy(&self, cpu: OnCpu<'_>, event: &Event<Self>, slot: Slot) {
        let need = Stored::load(event).need;
        if let Some(at) = self.find(slot, need.length) {
            self.states.get(&cpu).occupy(at.place(), need.reader);
        }
    }

    /// Notes that a special event is there no more.
    #[cold]
    #[inline(never)]
    fn vacate(&self, cpu: OnCpu<'_>, event: &Event<Self>, slot: Slot) {
        if let Some(at) = self.find(slot, Stored::load(event).need.length) {
            self.states.get(&cpu).vacate(at.place());
        }
    }

    /// Starts an event while the PMU does not run.
    #[inline(always)]
    fn start_as(&self, length: Length, bank: &Bank, event: &Event<Self>, slot: Slot) {
        let Some(at) = self.find(slot, length) else {
            return;
        };
        let place = at.place();
        at.set(event.set_period(length.into()));
        if at.even.is_some() || !bank.counts(place.counter, event.config()) {
            self.select(bank, event, slot);
        }
        bank.put(self.identity.regs, place.counter, place.counters());
        if Stored::load(event).enabled_by == EnabledBy::Driver {
            bank.start(place.counters());
        }
    }

    /// Stops an event while the PMU does not run.
    #[inline(always)]
    fn stop_as(&self, length: Length, bank: &Bank, event: &Event<Self>, slot: Slot) {
        if let Some(at) = self.find(slot, length) {
            bank.stop(at.place().counters());
            at.update(event, length);
        }
    }

    /// Starts any event at any time.
    #[cold]
    #[inline(never)]
    fn start_rare(&self, cpu: OnCpu<'_>, event: &Event<Self>, slot: Slot) {
        let length = Stored::load(event).need.length;
        self.start_as(length, &self.quiet(&cpu), event, slot);
    }

    /// Stops any event at any time.
    #[cold]
    #[inline(never)]
    fn stop_rare(&self, cpu: OnCpu<'_>, event: &Event<Self>, slot: Slot) {
        let length = Stored::load(event).need.length;
        self.stop_as(length, &self.quiet(&cpu), event, slot);
    }

    /// Returns the bank of this CPU, if nothing about the event or the PMU is rare: the event has
    /// 32 bits, and so never takes a pair, and the PMU does not run.
    #[inline(always)]
    fn usual<'a>(&'a self, cpu: &'a OnCpu<'_>, event: &Event<Self>) -> Option<&'a Bank> {
        let bank = self.states.get(cpu).bank();
        let is_short = Stored::load(event).need.length == Length::Bits32;
        (is_short && bank.state() == Run::Stopped).then_some(bank)
    }
}

#[vtable]
impl perf::Driver for Pmuv3 {
    const TASK_CONTEXT: TaskContext = TaskContext::Hardware;
    const CAPABILITIES: Capabilities =
        Capabilities::EXTENDED_REGS.and(Capabilities::EXTENDED_HW_TYPE);
    const EVENTS: &'static [EventAttr] = sysfs::EVENTS;
    const FORMAT: &'static [FormatAttr] = sysfs::FORMAT;
    const CAPS: &'static [Attribute<Self>] = sysfs::CAPS;
    const PLAIN: &'static [Attribute<Self>] = sysfs::PLAIN;

    fn event_visible(&self, event: &EventAttr) -> bool {
        let number = event.id().and_then(|id| u16::try_from(id).ok());
        number.is_some_and(|number| self.identity.pmceid.has(EventId(number)))
    }

    fn event_init(&self, event: &mut NewEvent<'_, Self>) -> Result {
        if event.cpu().is_some_and(|cpu| self.filter(cpu)) {
            return Err(ENOENT);
        }
        if event.has_branch_stack() {
            return Err(EOPNOTSUPP);
        }
        let stored = self.accept(event)?;
        stored.store(event);
        event.set_default_period(stored.need.length.into());
        self.check_group(event)?;
        // Last, as perf core does it for a PMU that cannot sample at all.
        if event.is_sampling() && !self.can_sample(event.cpu()) {
            return Err(EOPNOTSUPP);
        }
        Ok(())
    }

    #[inline]
    fn add(&self, cpu: &OnCpu<'_>, event: &Event<Self>, active: &Active<'_, Self>) -> Result<Slot> {
        match self.place(cpu, event, active) {
            Ok(slot) => {
                if let Some(statistics) = &self.statistics {
                    statistics.placed(*cpu);
                }
                Ok(slot)
            }
            Err(error) => {
                if let Some(statistics) = &self.statistics {
                    statistics.refused(*cpu);
                }
                Err(error)
            }
        }
    }

    #[inline]
    fn del(&self, cpu: &OnCpu<'_>, event: &Event<Self>, slot: Slot) {
        if Stored::is_special(event) {
            self.vacate(*cpu, event, slot);
        }
    }

    #[inline(always)]
    fn start(&self, cpu: &OnCpu<'_>, event: &Event<Self>, slot: Slot) {
        match self.usual(cpu, event) {
            Some(bank) => self.start_as(Length::Bits32, bank, event, slot),
            None => self.start_rare(*cpu, event, slot),
        }
    }

    #[inline(always)]
    fn stop(&self, cpu: &OnCpu<'_>, event: &Event<Self>, slot: Slot) {
        match self.usual(cpu, event) {
            Some(bank) => self.stop_as(Length::Bits32, bank, event, slot),
            None => self.stop_rare(*cpu, event, slot),
        }
    }

    #[inline]
    fn read(&self, _cpu: &OnCpu<'_>, event: &Event<Self>, slot: Slot) {
        let length = Stored::load(event).need.length;
        if let Some(at) = self.find(slot, length) {
            at.update_running(event, length);
        }
    }

    #[inline]
    fn enable(&self, cpu: &OnCpu<'_>, active: &Active<'_, Self>) {
        self.follow_user(cpu, active);
        self.run(cpu, active);
    }

    #[inline]
    fn disable(&self, cpu: &OnCpu<'_>, _active: &Active<'_, Self>) {
        self.halt(cpu);
    }

    fn filter(&self, cpu: CpuId) -> bool {
        !smp::contains(self.cpus(), cpu)
    }

    fn event_idx(&self, event: &Event<Self>, slot: Slot) -> Option<u8> {
        let readable =
            USER_ACCESS.get() == Setting::On && Stored::load(event).need.reader == Reader::User;
        readable.then_some(slot.number())
    }
}
