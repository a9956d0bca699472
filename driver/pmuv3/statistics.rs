// SPDX-License-Identifier: GPL-2.0

//! What happens on each CPU, for whoever wants to look into the driver: the file `cpus` in the
//! PMU's folder in debugfs.
//!
//! It is there when the module is loaded with `statistics=1`. Otherwise nothing is counted: the
//! interrupts go to [`OverflowHandler`] directly.

use kernel::{
    debugfs::{
        Dir,
        File, //
    },
    device::{
        Bound,
        Device, //
    },
    devres,
    fmt,
    irq::IrqReturn,
    prelude::*,
    sync::Arc, //
};

use crate::{
    counters::CounterSet,
    interrupt::OverflowHandler,
    percpu::{
        LocalCell,
        OnCpu,
        PerCpu, //
    },
    percpu_irq::{
        self,
        IrqContext, //
    },
    perf,
    smp, //
};

/// How often a thing happened on a CPU. Only that CPU counts.
struct Count(LocalCell<u64>);

impl Count {
    fn new() -> Self {
        Self(LocalCell::new(0))
    }

    fn increment(&self) {
        self.0.store(self.0.load().wrapping_add(1));
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_fmt(fmt!("{}", self.0.load()))
    }
}

/// What happened on one CPU. An NMI may come while an event is placed; they do not share a count.
struct Cpu {
    interrupts: Count,
    spurious: Count,
    /// In nanoseconds.
    longest: LocalCell<u64>,
    overflows: [Count; CounterSet::ALL.bits().count_ones() as usize],
    placed: Count,
    refused: Count,
}

impl Cpu {
    fn new() -> Self {
        Self {
            interrupts: Count::new(),
            spurious: Count::new(),
            longest: LocalCell::new(0),
            overflows: core::array::from_fn(|_| Count::new()),
            placed: Count::new(),
            refused: Count::new(),
        }
    }
}

/// What happened on the CPUs of a PMU since it was bound.
pub(crate) struct Statistics {
    counters: CounterSet,
    cpus: PerCpu<Cpu>,
}

impl Statistics {
    /// Nothing has happened on a PMU with these counters.
    pub(crate) fn new(counters: CounterSet) -> Result<Arc<Self>> {
        let cpus = PerCpu::new(|_cpu| Cpu::new())?;
        Ok(Arc::new(Self { counters, cpus }, GFP_KERNEL)?)
    }

    /// Notes that an event got a counter.
    #[cold]
    #[inline(never)]
    pub(crate) fn placed(&self, here: OnCpu<'_>) {
        self.cpus.get(&here).placed.increment();
    }

    /// Notes that an event got none.
    #[cold]
    #[inline(never)]
    pub(crate) fn refused(&self, here: OnCpu<'_>) {
        self.cpus.get(&here).refused.increment();
    }

    /// Notes an interrupt that found `overflowed`, and how long handling it took.
    fn interrupt(&self, here: &OnCpu<'_>, overflowed: CounterSet, nanoseconds: u64) {
        let cpu = self.cpus.get(here);
        cpu.interrupts.increment();
        if overflowed.is_empty() {
            cpu.spurious.increment();
        }
        for counter in overflowed {
            if let Some(overflows) = cpu.overflows.get(usize::from(counter.index())) {
                overflows.increment();
            }
        }
        if nanoseconds > cpu.longest.load() {
            cpu.longest.store(nanoseconds);
        }
    }

    /// Shows them in debugfs, in a folder `name`, until `dev` is unbound.
    pub(crate) fn show(self: Arc<Self>, dev: &Device<Bound>, name: &CStr) -> Result {
        let folder = Dir::new(name);
        devres::register::<File<Shown>, core::convert::Infallible>(
            dev,
            folder.read_only_file(c"cpus", Shown(self)),
            GFP_KERNEL,
        )
    }
}

/// Statistics as the text of a file.
struct Shown(Arc<Statistics>);

impl kernel::debugfs::Writer for Shown {
    /// A line for each CPU: names, each followed by its value, and at last, for each counter, its
    /// index and its overflows.
    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for number in smp::cpus(smp::possible()) {
            let cpu = self.0.cpus.on(number);
            f.write_fmt(fmt!(
                "cpu{} interrupts {} spurious {} longest_ns {} placed {} refused {} overflows",
                number.as_u32(),
                cpu.interrupts,
                cpu.spurious,
                cpu.longest.load(),
                cpu.placed,
                cpu.refused
            ))?;
            for counter in self.0.counters {
                if let Some(overflows) = cpu.overflows.get(usize::from(counter.index())) {
                    f.write_fmt(fmt!(" {}:{overflows}", counter.index()))?;
                }
            }
            f.write_fmt(fmt!("\n"))?;
        }
        Ok(())
    }
}

/// Handles overflows as [`OverflowHandler`] does, and counts them.
pub(crate) struct CountingHandler {
    handler: OverflowHandler,
    statistics: Arc<Statistics>,
}

impl CountingHandler {
    /// Makes the handler that counts in `statistics`.
    pub(crate) fn new(handler: OverflowHandler, statistics: Arc<Statistics>) -> Self {
        Self {
            handler,
            statistics,
        }
    }
}

impl percpu_irq::Handler for CountingHandler {
    fn handle(&self, irq: &IrqContext<'_>) -> IrqReturn {
        let start = perf::clock();
        let overflowed = self.handler.0.overflows();
        let result = self.handler.handle(irq);
        let took = perf::clock().wrapping_sub(start);
        self.statistics.interrupt(irq, overflowed, took);
        result
    }
}
