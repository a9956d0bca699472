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
        if self.0.filter(cpu.cpu()) {
            return Ok(());
        }
        if self.0.prepare(cpu).is_err() {
            // Not a reason to keep the CPU down: events there are refused.
            pr_err!(
                "CPU {} has fewer PMU registers than the CPUs that it shares a device tree node \
                 with: its events will not count\n",
                cpu.cpu().as_u32()
            );
            return Ok(());
        }
        self.0.irq().map_or(Ok(()), |irq| irq.enable(cpu))
    }

    fn offline(&self, cpu: &Transition<'_>) {
        if let Some(irq) = self.0.irq() {
            irq.disable(cpu);
        }
        self.0.retire(cpu, &self.0.active(cpu));
    }
}
