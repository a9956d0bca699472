// SPDX-License-Identifier: GPL-2.0

//! CPUs that come and go.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use crate::{
    cpuhp::{
        self,
        Transition, //
    },
    perf::Pmu,
    pmu::Pmuv3, //
};

/// Notes which CPUs come and go, and looks at each that comes for the first time.
pub(crate) struct Hotplug(pub(crate) Arc<Pmu<Pmuv3>>);

impl cpuhp::Callbacks for Hotplug {
    const NAME: &'static CStr = c"perf/arm/rust_pmuv3:online";

    #[inline]
    fn online(&self, cpu: &Transition<'_>) -> Result {
        if !self.0.arrive(cpu) {
            self.welcome(cpu);
        }
        Ok(())
    }

    #[inline]
    fn offline(&self, cpu: &Transition<'_>) {
        self.0.leave(cpu);
    }
}

impl Hotplug {
    /// Looks at a new CPU. None of it is a reason to keep the CPU down.
    #[cold]
    #[inline(never)]
    fn welcome(&self, cpu: &Transition<'_>) {
        let pmu = &self.0;
        if !pmu.cpus().test(cpu.cpu()) && !pmu.join(cpu) {
            return;
        }
        let prepared = cpu.with_interrupts_off(|on| pmu.prepare(on, &pmu.active(on)));
        if prepared.and_then(|result| result).is_err() {
            pr_err!(
                "CPU {} has fewer PMU registers than the CPUs that it shares a PMU with: its \
                 events will not count\n",
                cpu.cpu().as_u32()
            );
            if let Some(irq) = pmu.irq() {
                irq.leave(cpu);
            }
            return;
        }
        pmu.arrive(cpu);
        if let Some(irq) = pmu.irq() {
            if !irq.affinity().test(cpu.cpu()) && irq.join(cpu).is_err() {
                pr_warn!(
                    "CPU {} has no interrupt that goes with those of the CPUs of its kind: events \
                     count there, and do not sample\n",
                    cpu.cpu().as_u32()
                );
            }
        }
    }
}

impl Drop for Hotplug {
    /// No event is left, and no CPU has its interrupt enabled.
    fn drop(&mut self) {
        self.0.retire();
    }
}
