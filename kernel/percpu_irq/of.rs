// SPDX-License-Identifier: GPL-2.0

//! The interrupts of a platform device, and whose they are.

use super::{
    is_private,
    Lines,
    PerCpuIrq, //
};
use crate::{
    bindings,
    percpu::{
        LocalCell,
        PerCpu, //
    },
    smp::{
        self,
        CpuSet, //
    }, //
};
use core::{
    convert::Infallible,
    ptr::null, //
};
use kernel::{
    cpu::{
        self,
        nr_cpu_ids,
        CpuId, //
    },
    cpumask::Cpumask,
    device::{
        property::FwNode,
        Bound,
        Device, //
    },
    error::to_result,
    ffi::c_uint,
    platform,
    prelude::*,
    sync::Arc, //
};

/// The property that says which CPU each interrupt is of.
const AFFINITY: &CStr = c"interrupt-affinity";

/// Finds out what interrupts `pdev` has: `None` if there is none.
///
/// Either there is one per-CPU interrupt, or there are ordinary ones, each for the CPU that the
/// property `interrupt-affinity` names. Without the property they are taken to be in the order of
/// the CPUs.
///
/// Fails with [`EPROBE_DEFER`] when the interrupt controller is not there yet; and with [`EINVAL`],
/// after a line in the log, when a per-CPU interrupt is not the only one, when one of them has no
/// CPU, or two have the same. An interrupt of something that is not a CPU of this system is left
/// out.
pub fn of_platform(pdev: &platform::Device<Bound>) -> Result<Option<Arc<PerCpuIrq>>> {
    // `platform::Device` is a transparent wrapper of the C struct, whose pointer it keeps for
    // itself.
    let raw: *mut bindings::platform_device = core::ptr::from_ref(pdev).cast_mut().cast();

    // SAFETY: `raw` is a valid platform device.
    let count = unsafe { bindings::platform_irq_count(raw) };
    to_result(count)?;
    let count = count.unsigned_abs();

    if count == 0 {
        return Ok(None);
    }

    let mut affinity = null();

    // SAFETY: `raw` is a valid platform device, `affinity` a place for a pointer.
    let irq = unsafe { bindings::platform_get_irq_affinity(raw, 0, &mut affinity) };
    to_result(irq)?;
    let irq = irq.unsigned_abs();

    if count > 1 || !is_private(irq) {
        return pinned(pdev.as_ref(), raw, count).map(Some);
    }

    let affinity = if affinity.is_null() {
        smp::possible()
    } else {
        // SAFETY: It is the mask of the interrupt's partition or `cpu_possible_mask`. Both exist
        // as long as the interrupt controller, so until we have copied it.
        unsafe { Cpumask::from_raw(affinity) }
    };
    PerCpuIrq::new(Lines::private(irq, None), CpuSet::of(affinity)?).map(Some)
}

/// Looks up the `count` interrupts of `raw`, which is `dev`, and their CPUs.
fn pinned(
    dev: &Device<Bound>,
    raw: *mut bindings::platform_device,
    count: c_uint,
) -> Result<Arc<PerCpuIrq>> {
    let numbers = PerCpu::new::<_, Infallible>(|_cpu| LocalCell::new(0u32))?;
    let affinity = CpuSet::new()?;
    let node = dev.fwnode().filter(|node| node.property_present(AFFINITY));

    if node.is_none() && nr_cpu_ids() != 1 {
        dev_warn!(
            dev,
            "no interrupt-affinity property, guessing that the interrupts are in the order of the \
             CPUs\n"
        );
    }
    for index in 0..count {
        // SAFETY: Our caller's `raw` is a valid platform device.
        let irq = unsafe { bindings::platform_get_irq(raw, index) };
        to_result(irq)?;
        let irq = irq.unsigned_abs();

        if is_private(irq) {
            dev_err!(
                dev,
                "multiple PPIs or mismatched SPI/PPI detected: `interrupts` takes one PPI, or an \
                 SPI for each CPU\n"
            );
            return Err(EINVAL);
        }
        let cpu = match node {
            Some(node) => named(dev, node, index)?,
            None => CpuId::from_u32(index).filter(|cpu| smp::possible().test(*cpu)),
        };
        let Some(cpu) = cpu else {
            continue;
        };
        if affinity.test(cpu) {
            dev_err!(
                dev,
                "multiple PMU IRQs for the same CPU detected: check interrupt-affinity[{index}]\n"
            );
            return Err(EINVAL);
        }
        affinity.add(cpu);
        numbers.on(cpu).store(irq);
    }
    // INVARIANT: They are not per-CPU interrupts, and no interrupt is 0.
    PerCpuIrq::new(Lines::Pinned(numbers), affinity)
}

/// The CPU that `interrupt-affinity` names at `index`, unless that is none of this system.
fn named(dev: &Device<Bound>, node: &FwNode, index: c_uint) -> Result<Option<CpuId>> {
    let mut reference = bindings::fwnode_reference_args::default();

    // SAFETY: `FwNode` is a transparent wrapper of the C struct, the name is a C string, and
    // `reference` a place for the result.
    to_result(unsafe {
        bindings::fwnode_property_get_reference_args(
            core::ptr::from_ref(node).cast(),
            AFFINITY.as_char_ptr(),
            null(),
            0,
            index,
            &mut reference,
        )
    })
    .map_err(|_| {
        dev_err!(
            dev,
            "failed to parse interrupt-affinity[{index}]: it takes a CPU for each interrupt\n"
        );
        EINVAL
    })?;

    let cpu = smp::cpus(smp::possible()).find(|cpu| node_of(*cpu) == Some(reference.fwnode));

    // SAFETY: The call above has taken a reference, which nobody uses any more.
    unsafe { bindings::fwnode_handle_put(reference.fwnode) };

    if cpu.is_none() {
        dev_warn!(
            dev,
            "interrupt-affinity[{index}] is not a CPU of this system: the interrupt is not used\n"
        );
    }
    Ok(cpu)
}

/// The firmware node of `cpu`, to be compared.
fn node_of(cpu: CpuId) -> Option<*mut bindings::fwnode_handle> {
    // SAFETY: The memory of a CPU's device is never freed; only the address of its node is of
    // interest, which a device that is registered no more has as well.
    let device = unsafe { cpu::from_cpu(cpu) }.ok()?;

    device
        .fwnode()
        .map(|node| core::ptr::from_ref(node).cast_mut().cast())
}
