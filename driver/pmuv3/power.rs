// SPDX-License-Identifier: GPL-2.0

//! CPUs that lose their PMU's registers while they idle, or while the system is suspended.

use kernel::sync::Arc;

use crate::{
    cpu_pm::{
        self,
        Registers, //
    },
    percpu::OnCpu,
    perf::{
        Driver,
        Pmu, //
    },
    pmu::Pmuv3, //
};

/// Keeps the counts of a CPU over the time in which its PMU holds nothing.
pub(crate) struct Power(pub(crate) Arc<Pmu<Pmuv3>>);

impl cpu_pm::Callbacks for Power {
    fn enter(&self, cpu: &OnCpu<'_>) {
        if !self.0.filter(cpu.cpu()) {
            self.0.halt(cpu);
            self.0.pause(cpu);
        }
    }

    fn exit(&self, cpu: &OnCpu<'_>, registers: Registers) {
        if self.0.filter(cpu.cpu()) {
            return;
        }
        if registers == Registers::Lost {
            self.0.recover(cpu, &self.0.active(cpu));
        }
        self.0.resume(cpu);
        self.0.enable(cpu, &self.0.active(cpu));
    }
}
