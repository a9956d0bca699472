// SPDX-License-Identifier: GPL-2.0

//! What the firmware of an arm64 machine without a device tree says about its CPUs: the GICC
//! entries of ACPI's Multiple APIC Description Table.
//!
//! Reference: ACPI Specification, section "GIC CPU Interface (GICC) Structure". C header:
//! [`arch/arm64/include/asm/acpi.h`](srctree/arch/arm64/include/asm/acpi.h)
//!
//! # Examples
//!
//! ```
//! use kernel::{
//!     madt,
//!     smp, //
//! };
//!
//! if madt::is_used() {
//!     for cpu in smp::cpus(smp::possible()) {
//!         let interrupt = madt::performance_interrupt(cpu);
//!         pr_info!("the PMU of CPU {} has the interrupt {interrupt:?}\n", cpu.as_u32());
//!     }
//! }
//! ```

#[cfg(CONFIG_ACPI)]
use crate::bindings;
use crate::percpu_irq::Gsi;
use kernel::cpu::CpuId;
#[cfg(CONFIG_ACPI)]
use kernel::ffi::c_int;

/// Returns whether this machine is described by ACPI. Else it is by a device tree.
pub fn is_used() -> bool {
    #[cfg(CONFIG_ACPI)]
    {
        // SAFETY: It is a plain integer, which does not change once drivers run.
        unsafe { (&raw const bindings::acpi_disabled).read() == 0 }
    }
    #[cfg(not(CONFIG_ACPI))]
    {
        false
    }
}

/// Returns the interrupt of the PMU of `cpu`, the field "Performance Interrupt GSIV".
///
/// `None` when it has none. The table has no way to say so: machines write 0, the number of a
/// software-generated interrupt, which no PMU can have. `None` also where ACPI is not used.
pub fn performance_interrupt(cpu: CpuId) -> Option<Gsi> {
    #[cfg(CONFIG_ACPI)]
    if is_used() {
        // CPU numbers are small.
        let number = cpu.as_u32() as c_int;

        // SAFETY: There is an entry for each number that a CPU can have.
        let gicc = unsafe { bindings::acpi_cpu_get_madt_gicc(number) };

        // SAFETY: `gicc` points to the kernel's copy of the entry, which does not change once
        // drivers run. The fields are packed.
        let gsi = unsafe { (&raw const (*gicc).performance_interrupt).read_unaligned() };
        return (gsi != 0).then_some(Gsi(gsi));
    }
    let _ = cpu;
    None
}
