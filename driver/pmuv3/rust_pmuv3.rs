// SPDX-License-Identifier: GPL-2.0

//! Driver for the Arm Performance Monitors Extension, PMUv3.
//!
//! # The hardware
//!
//! Each CPU has a PMU of its own, reached through system registers: up to 31 event counters of 32
//! or, since FEAT_PMUv3p5, 64 bits, each of which counts an event that is chosen by number; a cycle
//! counter of 64 bits; and, with FEAT_PMUv3_ICNTR, an instruction counter. A counter that overflows
//! sets a flag and raises the CPU's overflow interrupt, a PPI. The register reference is the Arm
//! Architecture Reference Manual for A-profile (DDI 0487), chapter D13 and section D24.5.
//!
//! # What is supported
//!
//! - Device tree nodes of `arm,armv8-pmuv3` and of all models that the C driver knows, with a PPI,
//!   with SPIs, or without an interrupt; and the PMUs of machines that are described by ACPI, one
//!   for each kind of CPU.
//! - All counters; counting, and sampling by period and frequency; 64-bit events, in pairs of
//!   counters where these have 32 bits; thresholds (FEAT_PMUv3_TH).
//! - Filters by exception level, for kernels at EL1 and EL2 (VHE).
//! - Counters that user space reads itself (`kernel.perf_user_access`).
//! - Interrupts as pseudo-NMIs, where the kernel has them.
//! - Statistics in debugfs, if asked for (`statistics=1`).
//! - CPUs that go off and on line while events are open, that lose their registers while they idle,
//!   and binding and unbinding at any time.
//!
//! The names and contents in sysfs, the events that are accepted and the errors for those that are
//! not are the same as with drivers/perf/arm_pmuv3.c.
//!
//! # What is not supported
//!
//! - The branch record buffer (FEAT_BRBE).
//! - KVM. Guests get no PMU, and the hypervisor switches no counters when it enters one: events that
//!   exclude guests count a guest's EL0 too (and EL1, on a host without VHE), and on a kernel at EL1
//!   events that exclude the host count nothing.
//!
//! # Where to read on
//!
//! [`pmu`] is the driver proper, [`bank`] what it remembers of the registers, and [`interrupt`] the
//! overflow handler; [`probe`] sets them up, with [`acpi`] where there is no device tree, and
//! [`hotplug`] follows the CPUs, [`power`] those that sleep, [`user`] what user space may read, and
//! [`statistics`] what happens.
//! [`layout`], [`events`], [`cache`], [`models`], [`evtyper`], [`caps`] and [`counters`] are plain
//! logic, which is tested on the host too. All `unsafe` code is in [`regs`].

use kernel::{
    driver,
    platform,
    prelude::*, //
};

#[cfg(not(RUST_PMU_OUT_OF_TREE))]
use kernel::{
    cpu_pm,
    cpuhp,
    madt,
    percpu,
    percpu_irq,
    perf,
    platform_device,
    smp,
    sysctl, //
};

#[cfg(RUST_PMU_OUT_OF_TREE)]
#[path = "../../kernel/out_of_tree.rs"]
mod out_of_tree;
#[cfg(RUST_PMU_OUT_OF_TREE)]
use out_of_tree::{
    bindings,
    cpu_pm,
    cpuhp,
    madt,
    percpu,
    percpu_irq,
    perf,
    platform_device,
    smp,
    sysctl, //
};

mod acpi;
mod attrs;
mod bank;
mod cache;
mod caps;
mod counters;
mod cpu;
mod event;
mod events;
mod evtyper;
mod hotplug;
mod interrupt;
mod layout;
mod models;
mod pmu;
mod power;
mod probe;
mod refusal;
mod regs;
mod statistics;
mod sysfs;
mod user;

/// The module: it drives PMUs for as long as it is loaded.
#[pin_data]
pub(crate) struct RustPmuv3 {
    #[pin]
    driver: driver::Registration<platform::Adapter<probe::PlatformDriver>>,
    // Made before the driver, and gone after it.
    _devices: acpi::Devices,
    // `None`: the C driver has made the file, and so will have the PMUs.
    _user_access: Option<sysctl::Registration>,
}

impl kernel::InPlaceModule for RustPmuv3 {
    fn init(module: &'static ThisModule) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            _: {
                #[cfg(RUST_PMU_OUT_OF_TREE)]
                out_of_tree::init()?;
            },
            _user_access: sysctl::register(c"kernel", c"perf_user_access", &user::USER_ACCESS).ok(),
            _devices: acpi::Devices::new(<Self as kernel::ModuleMetadata>::NAME)?,
            driver <- driver::Registration::new(<Self as kernel::ModuleMetadata>::NAME, module),
            _: {
                if !probe::was_offered_a_device() {
                    explain_idleness();
                }
            },
        })
    }
}

/// Says what to do if there is nothing to drive.
fn explain_idleness() {
    pr_warn!(
        "loaded, but no PMU has been offered yet. If it stays so, either another driver has\n"
    );
    pr_warn!(
        "it: boot with initcall_blacklist=armv8_pmu_driver_init to keep the C driver away. Or\n"
    );
    pr_warn!("the firmware tells of no PMU: in the device tree there is no node for one, or, on\n");
    pr_warn!("machines with ACPI, no CPU has one.\n");
}

module! {
    type: RustPmuv3,
    name: "rust_pmuv3",
    authors: ["The rust-pmu authors"],
    description: "Arm PMUv3 performance monitors driver",
    license: "GPL v2",
    params: {
        statistics: bool {
            default: false,
            description: "Count what happens on each CPU, in a folder of debugfs for each PMU",
        },
    },
}
