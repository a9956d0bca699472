// SPDX-License-Identifier: GPL-2.0

//! CPUs that come and go.

use kernel::{
    cpu::CpuId,
    prelude::*,
    sync::Arc, //
};

use crate::{
    cpuhp::{
        self,
        Transition, //
    },
    perf::{
        Driver,
        Pmu, //
    },
    pmu::Pmuv3, //
};

/// Prepares the PMU of each CPU that comes, and retires that of each CPU that goes.
pub(crate) struct Hotplug(pub(crate) Arc<Pmu<Pmuv3>>);

#[vtable]
impl cpuhp::Callbacks for Hotplug {
    fn prepare(&self, cpu: CpuId) -> Result {
        self.0.forget(cpu);
        Ok(())
    }

    fn online(&self, cpu: &Transition<'_>) -> Result {
        if self.0.filter(cpu.cpu()) && !self.0.join(cpu) {
            return Ok(());
        }
        // Without interrupts there is time until the first event comes.
        let Some(irq) = self.0.irq() else {
            return Ok(());
        };
        // None of what follows is a reason to keep the CPU down.
        if !irq.affinity().test(cpu.cpu()) && irq.join(cpu).is_err() {
            pr_warn!(
                "CPU {} has no interrupt that goes with those of the CPUs of its kind: events \
                 count there, and do not sample\n",
                cpu.cpu().as_u32()
            );
            return Ok(());
        }
        if self.0.prepare(cpu).is_err() {
            pr_err!(
                "CPU {} has fewer PMU registers than the CPUs that it shares a PMU with: its \
                 events will not count\n",
                cpu.cpu().as_u32()
            );
            return Ok(());
        }
        irq.enable(cpu)
    }

    fn offline(&self, cpu: &Transition<'_>) {
        if let Some(irq) = self.0.irq() {
            irq.disable(cpu);
        }
        self.0.retire(cpu, &self.0.active(cpu));
    }
}
