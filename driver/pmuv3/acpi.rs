// SPDX-License-Identifier: GPL-2.0

//! PMUs of machines that are described by ACPI.
//!
//! ACPI has no device for the PMU: the table of the CPUs (MADT) gives the interrupt of each, and
//! whether a CPU has a PMU its registers tell. CPUs of one kind, which have the same MIDR_EL1, are
//! one PMU. So the module makes a device for each kind that is on line when it is loaded, with the
//! kind as a property, and is the driver of it. A CPU that comes on line later joins the PMU of its
//! kind.

use kernel::{
    platform,
    prelude::*, //
};

use crate::{
    madt,
    platform_device,
    regs::{
        self,
        Registers, //
    },
    smp::{
        self,
        CpuSet, //
    }, //
};

/// The property that has the MIDR_EL1 of the CPUs.
const MIDR: &CStr = c"midr";
/// The property that has the number of the PMU: they are counted from 0.
const INDEX: &CStr = c"index";

/// The devices of this machine's PMUs, for as long as the module is loaded.
pub(crate) struct Devices {
    _devices: KVec<platform_device::Registration>,
}

impl Devices {
    /// Makes them, for a driver by the name `driver`. None on a machine with a device tree.
    pub(crate) fn new(driver: &CStr) -> Result<Self> {
        let mut devices = KVec::new();

        if madt::is_used() {
            for (index, kind) in (0..).zip(kinds()?) {
                let properties = [(MIDR, kind), (INDEX, u64::from(index))];
                devices.push(
                    platform_device::Registration::new(driver, index, &properties)?,
                    GFP_KERNEL,
                )?;
            }
        }
        Ok(Self { _devices: devices })
    }
}

/// The MIDR_EL1 of each kind of CPU that is on line and has a PMU, in the order of their first CPUs.
fn kinds() -> Result<KVec<u64>> {
    let mut kinds = KVec::new();

    for cpu in smp::cpus(smp::online()) {
        // One that leaves meanwhile joins others of its kind when it comes again.
        let answer = smp::call(cpu, |_here| {
            Registers::probe().map(|_regs| regs::midr_el1())
        });
        if let Ok(Some(kind)) = answer {
            if !kinds.contains(&kind) {
                kinds.push(kind, GFP_KERNEL)?;
            }
        }
    }
    Ok(kinds)
}

/// What a device of [`Devices`] stands for.
pub(crate) struct Kind {
    /// The MIDR_EL1 of its CPUs.
    pub(crate) midr: u64,
    /// Its number among the PMUs.
    pub(crate) index: u64,
}

impl Kind {
    /// Reads the properties of `pdev`. `None` when it is none of these devices.
    pub(crate) fn of(pdev: &platform::Device) -> Option<Self> {
        let node = pdev.as_ref().fwnode()?;
        Some(Self {
            midr: node.property_read(MIDR).optional()?,
            index: node.property_read(INDEX).optional()?,
        })
    }

    /// Returns the CPUs of this kind that are on line.
    pub(crate) fn cpus(&self) -> Result<CpuSet> {
        let cpus = CpuSet::new()?;
        for cpu in smp::cpus(smp::online()) {
            if smp::call(cpu, |_here| regs::midr_el1()) == Ok(self.midr) {
                cpus.add(cpu);
            }
        }
        Ok(cpus)
    }
}
