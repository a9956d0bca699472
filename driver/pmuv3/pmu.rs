// SPDX-License-Identifier: GPL-2.0

//! The PMU as perf core sees it: events are opened, get counters, start, stop and are read.
//!
//! While perf core calls [`add`](perf::Driver::add), [`del`](perf::Driver::del) and
//! [`start`](perf::Driver::start), the PMU is disabled, and [`disable`](perf::Driver::disable) has
//! made sure with an ISB that no counter moves. So they need no synchronization of their own until
//! [`enable`](perf::Driver::enable), whose ISB comes before the counters run again. Only
//! [`stop`](perf::Driver::stop) may find the PMU running: when a software event throttles the group
//! that it shares with events of this PMU.

use kernel::{
    cpu::CpuId,
    cpumask::Cpumask,
    prelude::*,
    sync::Arc, //
};

use crate::{
    caps::{
        Pmceid,
        Pmmir, //
    },
    counters::{
        Counter,
        CounterSet, //
    },
    cpu::{
        Access,
        CpuState,
        Phase,
        Warmth, //
    },
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
        Pmcr,
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

/// A PMUv3, one in each of the CPUs that it stands for.
pub(crate) struct Pmuv3 {
    model: Model,
    identity: Identity,
    /// The CPUs whose PMU this is, and nobody else's.
    _claim: smp::Claim,
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
        claim: smp::Claim,
        irq: Option<Arc<PerCpuIrq>>,
        statistics: Option<Arc<Statistics>>,
    ) -> Result<Self> {
        Ok(Self {
            model,
            identity,
            _claim: claim,
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

    /// Returns the CPUs that have this PMU: those that its interrupt goes to, or all.
    pub(crate) fn cpus(&self) -> &Cpumask {
        self.irq().map_or(smp::possible(), PerCpuIrq::affinity)
    }

    /// Returns what PMMIR_EL1 says.
    pub(crate) fn pmmir(&self) -> Pmmir {
        self.identity.pmmir
    }

    /// Notes that what the PMU of `cpu`, which is down, holds will be lost.
    pub(crate) fn forget(&self, cpu: CpuId) {
        self.states.on(cpu).set_warmth(Warmth::Cold);
    }

    /// Makes the PMU of this CPU ready for events, unless it is.
    ///
    /// # Errors
    ///
    /// `ENOENT` when this CPU does not have this PMU.
    #[inline]
    pub(crate) fn prepare(&self, cpu: &OnCpu<'_>) -> Result {
        match self.states.get(cpu).warmth() {
            Warmth::Ready => Ok(()),
            Warmth::Cold => self.warm_up(cpu),
        }
    }

    fn warm_up(&self, cpu: &OnCpu<'_>) -> Result {
        if !self.cpus().test(cpu.cpu()) || !self.identity.regs.work_here() {
            return Err(ENOENT);
        }
        let state = self.states.get(cpu);
        self.reset(state);
        state.set_warmth(Warmth::Ready);
        Ok(())
    }

    /// Brings the PMU of this CPU, which holds anything, back into the state that the driver left
    /// it in, but for the counters.
    pub(crate) fn recover(&self, cpu: &OnCpu<'_>) {
        let state = self.states.get(cpu);
        if state.warmth() == Warmth::Ready {
            self.reset(state);
        }
    }

    /// Leaves the PMU of this CPU as if nobody had used it, unless events are there still.
    pub(crate) fn retire(&self, cpu: &OnCpu<'_>) {
        let state = self.states.get(cpu);
        if state.warmth() == Warmth::Ready && state.used().is_empty() {
            self.reset(state);
            state.set_warmth(Warmth::Cold);
        }
    }

    /// Stops all counters, sets them to 0, and keeps overflows from interrupting and user space
    /// from reading.
    fn reset(&self, state: &CpuState) {
        let regs = self.identity.regs;
        let reset = regs.stopped().with_const_p::<1>().with_const_c::<1>();

        regs.set_pmcr(reset);
        regs.set_pmcntenclr(CounterSet::ALL);
        regs.set_pmintenclr(CounterSet::ALL);
        user::close(regs, state);
        // A counter must not overflow after its flag has been cleared.
        regs::isb();
        regs.set_pmovsclr(CounterSet::ALL);
        regs::isb();
    }

    /// Lets the counters that are enabled on this CPU count, unless perf core has disabled the PMU.
    #[inline]
    pub(crate) fn run(&self, cpu: &OnCpu<'_>) {
        let state = self.states.get(cpu);
        if state.phase() == Phase::Disabled {
            return;
        }
        self.follow_user(cpu, state);
        // Without events the PMU stays as `halt` or `reset` left it.
        if !state.used().is_empty() {
            regs::isb();
            self.set_pmcr(self.identity.regs.stopped().with_const_e::<1>());
        }
    }

    /// Keeps all counters of this CPU from counting. When it returns, none moves any more.
    #[inline]
    pub(crate) fn halt(&self, cpu: &OnCpu<'_>) {
        if !self.states.get(cpu).used().is_empty() {
            self.set_pmcr(self.identity.regs.stopped());
            regs::isb();
        }
    }

    /// Opens the registers to the task that runs on this CPU, if it is to read them, or closes
    /// them.
    #[inline]
    fn follow_user(&self, cpu: &OnCpu<'_>, state: &CpuState) {
        if user::is_wanted(cpu) {
            user::open(self.identity.regs, self.identity.layout, state);
        } else if state.access() != Access::Closed {
            user::close(self.identity.regs, state);
        }
    }

    #[inline]
    fn set_pmcr(&self, pmcr: Pmcr) {
        self.identity.regs.set_pmcr(pmcr);
    }

    /// Returns the counters of this CPU that have overflowed, and makes them overflow anew.
    #[inline]
    pub(crate) fn take_overflows(&self) -> CounterSet {
        let overflowed = self.identity.regs.pmovsclr();
        self.identity.regs.set_pmovsclr(overflowed);
        overflowed
    }

    /// Returns where the event stands.
    #[inline]
    pub(crate) fn count(&self, place: Place) -> u64 {
        match (place.fit, place.counter.chained_to()) {
            (Fit::Pair, Some(even)) => self.count_pair(place.counter, even),
            (fit, _) => fit.to_count(self.identity.regs.count(place.counter)),
        }
    }

    /// The even counter may overflow into the odd one while they are read one after the other, and
    /// without an ISB the PE may read different counters in any order.
    #[cold]
    fn count_pair(&self, odd: Counter, even: Counter) -> u64 {
        let regs = self.identity.regs;
        let before = regs.count(odd);
        regs::isb();
        let low = regs.count(even);
        regs::isb();
        let after = regs.count(odd);
        if before == after {
            after << 32 | low
        } else {
            // It has just overflowed, and will not again before it is read.
            regs::isb();
            after << 32 | regs.count(even)
        }
    }

    /// Makes the event stand at `count`.
    #[inline]
    pub(crate) fn set_count(&self, place: Place, count: u64) {
        match (place.fit, place.counter.chained_to()) {
            (Fit::Pair, Some(even)) => self.set_pair(place.counter, even, count),
            (fit, _) => {
                let value = fit.to_hardware(count);
                self.identity.regs.set_count(place.counter, value);
            }
        }
    }

    #[cold]
    fn set_pair(&self, odd: Counter, even: Counter, count: u64) {
        let regs = self.identity.regs;
        regs.set_count(odd, count >> 32);
        regs.set_count(even, count & 0xffff_ffff);
    }

    /// Chooses what is counted.
    #[inline]
    fn select(&self, place: Place, typer: Pmevtyper) {
        match (place.fit, place.counter.chained_to()) {
            (Fit::Pair, Some(even)) => self.select_pair(place.counter, even, typer),
            _ => self.identity.regs.set_type(place.counter, typer),
        }
    }

    #[cold]
    fn select_pair(&self, odd: Counter, even: Counter, typer: Pmevtyper) {
        let regs = self.identity.regs;
        regs.set_type(even, typer);
        regs.set_type(odd, Pmevtyper::CHAIN);
    }

    /// Returns where an event that has been added is counted.
    #[inline]
    pub(crate) fn place_of(&self, slot: Slot, need: Need) -> Option<Place> {
        let counter = Counter::new(slot.number())?;
        Some(Place {
            counter,
            fit: self.identity.layout.fit(counter, need),
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
    fn place(&self, cpu: &OnCpu<'_>, event: &Event<Self>) -> Result<Slot> {
        self.prepare(cpu)?;
        let state = self.states.get(cpu);
        let need = Stored::load(event).need;
        let place = self.identity.layout.place(state.used(), need)?;
        let slot = Slot::new(place.counter.index()).ok_or(EINVAL)?;
        state.occupy(place.counters(), need.reader);
        Ok(slot)
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
        self.check_group(event)
    }

    fn add(&self, cpu: &OnCpu<'_>, event: &Event<Self>) -> Result<Slot> {
        let slot = self.place(cpu, event);
        if let Some(statistics) = &self.statistics {
            statistics.added(cpu, &slot);
        }
        slot
    }

    fn del(&self, cpu: &OnCpu<'_>, event: &Event<Self>, slot: Slot) {
        let need = Stored::load(event).need;
        if let Some(place) = self.place_of(slot, need) {
            self.states.get(cpu).vacate(place.counters(), need.reader);
        }
    }

    fn start(&self, _cpu: &OnCpu<'_>, event: &Event<Self>, slot: Slot) {
        let Stored { need, enabled_by } = Stored::load(event);
        let Some(place) = self.place_of(slot, need) else {
            return;
        };
        // A period that is over already has been seen by whoever stopped the event.
        let _ = event.set_period(need.length.into(), |count| self.set_count(place, count));
        self.select(place, need.typer);

        let regs = self.identity.regs;
        regs.set_pmintenset(place.counter.into());
        if enabled_by == EnabledBy::Driver {
            regs.set_pmcntenset(place.counters());
        }
    }

    fn stop(&self, _cpu: &OnCpu<'_>, event: &Event<Self>, slot: Slot) {
        let need = Stored::load(event).need;
        let Some(place) = self.place_of(slot, need) else {
            return;
        };
        let regs = self.identity.regs;
        regs.set_pmcntenclr(place.counters());
        // The counter must not move any more when its flag is cleared and it is read.
        regs::isb();
        regs.set_pmintenclr(place.counter.into());
        // What the counter has counted says as much as the flag of an overflow that nobody saw.
        regs.set_pmovsclr(place.counters());
        event.update(need.length.into(), || self.count(place));
    }

    fn read(&self, _cpu: &OnCpu<'_>, event: &Event<Self>, slot: Slot) {
        let need = Stored::load(event).need;
        if let Some(place) = self.place_of(slot, need) {
            event.update(need.length.into(), || self.count(place));
        }
    }

    fn enable(&self, cpu: &OnCpu<'_>, _active: &Active<'_, Self>) {
        self.states.get(cpu).set_phase(Phase::Enabled);
        self.run(cpu);
    }

    fn disable(&self, cpu: &OnCpu<'_>, _active: &Active<'_, Self>) {
        self.states.get(cpu).set_phase(Phase::Disabled);
        self.halt(cpu);
    }

    fn filter(&self, cpu: CpuId) -> bool {
        !self.cpus().test(cpu)
    }

    fn event_idx(&self, event: &Event<Self>, slot: Slot) -> Option<u8> {
        let readable =
            USER_ACCESS.get() == Setting::On && Stored::load(event).need.reader == Reader::User;
        readable.then_some(slot.number())
    }
}
