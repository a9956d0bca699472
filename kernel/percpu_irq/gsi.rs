// SPDX-License-Identifier: GPL-2.0

//! The interrupts that a table of the firmware gives each CPU.

use super::{
    is_private,
    Joining,
    Lines,
    PerCpuIrq, //
};
#[cfg(CONFIG_ACPI)]
use crate::bindings;
use crate::{
    percpu::{
        LocalCell,
        PerCpu, //
    },
    smp::{
        self,
        CpuSet, //
    }, //
};
use core::convert::Infallible;
use kernel::{
    cpu::CpuId,
    cpumask::Cpumask,
    device::{
        Bound,
        Device, //
    },
    ffi::c_uint,
    prelude::*,
    sync::Arc, //
};
#[cfg(CONFIG_ACPI)]
use kernel::{
    error::to_result,
    ffi::c_int, //
};

/// An interrupt as ACPI numbers them: a Global System Interrupt, on arm64 the INTID of the GIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gsi(pub u32);

/// Looks up the interrupts of `cpus`, of which `gsi_of` tells each, such as arm64's
/// `madt::performance_interrupt`. `None` if none has one.
///
/// Either the CPUs share a per-CPU interrupt, and others that have it too may [join](PerCpuIrq::join)
/// later; or each has an ordinary one. Which of the two, the first CPU decides. Those whose
/// interrupts do not fit, or that have none, are left out of the [affinity](PerCpuIrq::affinity).
///
/// Fails with [`EINVAL`], after a line in the log, when no interrupt controller has one of the
/// numbers.
pub fn of_gsis(
    dev: &Device<Bound>,
    cpus: &Cpumask,
    gsi_of: fn(CpuId) -> Option<Gsi>,
) -> Result<Option<Arc<PerCpuIrq>>> {
    let numbers = PerCpu::new::<_, Infallible>(|_cpu| LocalCell::new(0u32))?;
    let affinity = CpuSet::new()?;
    let mut shared = None;

    for cpu in smp::cpus(cpus) {
        let Some(gsi) = gsi_of(cpu) else {
            continue;
        };
        let irq = map(gsi).inspect_err(|_| {
            dev_err!(dev, "no interrupt controller has the interrupt {}\n", gsi.0);
        })?;

        if affinity.empty() && is_private(irq) {
            shared = Some((irq, gsi));
        }
        let fits = match shared {
            Some(first) => first == (irq, gsi),
            None => {
                let is_taken = smp::cpus(&affinity).any(|other| numbers.on(other).load() == irq);
                !is_private(irq) && !is_taken
            }
        };
        if fits {
            numbers.on(cpu).store(irq);
            affinity.add(cpu);
        }
    }

    if affinity.empty() {
        return Ok(None);
    }
    // INVARIANT: It was checked which of the two they are, and no interrupt is 0.
    let lines = match shared {
        Some((irq, gsi)) => Lines::private(irq, Some(Joining { gsi_of, gsi })),
        None => Lines::Pinned(numbers),
    };
    PerCpuIrq::new(lines, affinity).map(Some)
}

/// Returns the kernel's number of an interrupt.
///
/// The kernel keeps the mapping when nobody uses it. Others may: it does not count them.
#[cfg(CONFIG_ACPI)]
fn map(gsi: Gsi) -> Result<c_uint> {
    // What the table says of the trigger makes no sense for an interrupt that lasts until the
    // overflow flag is cleared, and it does not say the polarity, which a GIC cannot change anyway.
    const LEVEL_SENSITIVE: c_int = 0;
    const ACTIVE_HIGH: c_int = 0;

    // SAFETY: It takes any number, and works without a device.
    let irq = unsafe {
        bindings::acpi_register_gsi(core::ptr::null_mut(), gsi.0, LEVEL_SENSITIVE, ACTIVE_HIGH)
    };
    to_result(irq)?;
    Ok(irq.unsigned_abs())
}

/// This kernel does not read such tables.
#[cfg(not(CONFIG_ACPI))]
fn map(_gsi: Gsi) -> Result<c_uint> {
    Err(ENODEV)
}
