// SPDX-License-Identifier: GPL-2.0

//! Finding a PMU and handing it to perf core.
//!
//! Everything that is set up belongs to the device, so the kernel undoes it, last things first,
//! when a later step fails and when the device is unbound: the PMU is unregistered, which revokes
//! its events; then each CPU disables its interrupt and resets its PMU; then the interrupt is freed.

use kernel::{
    cpumask::Cpumask,
    device::Core,
    of,
    platform,
    prelude::*,
    str::CString,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    }, //
};

use crate::{
    acpi,
    cpu_pm,
    cpuhp,
    hotplug::Hotplug,
    interrupt::OverflowHandler,
    madt,
    models::{
        self,
        Model, //
    },
    module_parameters,
    percpu_irq::{
        self,
        PerCpuIrq,
        Urgency, //
    },
    perf::{
        self,
        Capabilities,
        Pmu, //
    },
    pmu::{
        Identity,
        Members,
        Pmuv3, //
    },
    power::Power,
    smp::{
        self,
        Claim,
        CpuList,
        CpuSet,
        Ownership, //
    },
    statistics::{
        CountingHandler,
        Statistics, //
    }, //
};

/// How many devices have been offered to this driver so far.
static OFFERED: Atomic<u32> = Atomic::new(0);

/// Returns whether a device has been offered to this driver so far, whatever came of it. The kernel
/// may do so later: in another thread (`driver_async_probe=`), or when there is a new device.
pub(crate) fn was_offered_a_device() -> bool {
    OFFERED.load(Relaxed) != 0
}

/// The driver of the platform device.
pub(crate) struct PlatformDriver;

macro_rules! of_table {
    ($($compatible:literal => $name:literal, $cache:ident;)*) => {
        kernel::of_device_table!(
            OF_TABLE,
            Model,
            [$((
                of::DeviceId::new($compatible),
                Model {
                    name: $name,
                    cache: models::$cache,
                }
            )),*]
        );
    };
}
models::each_model!(of_table);

impl platform::Driver for PlatformDriver {
    type IdInfo = Model;
    type Data<'bound> = Self;
    const OF_ID_TABLE: Option<of::IdTable<Self::IdInfo>> = Some(&OF_TABLE);

    fn probe<'bound>(
        pdev: &'bound platform::Device<Core<'_>>,
        model: Option<&'bound Self::IdInfo>,
    ) -> impl PinInit<Self, Error> + 'bound {
        OFFERED.fetch_add(1, Relaxed);
        let found = match model {
            Some(model) => Found::in_device_tree(pdev, *model),
            None => Found::in_acpi_tables(pdev),
        }?;
        set_up(pdev, found).map(|()| Self)
    }
}

/// What the firmware says about a PMU.
struct Found {
    name: CString,
    model: Model,
    cpus: CpuSet,
    /// `None` when the PMU has no interrupt.
    irq: Option<Arc<PerCpuIrq>>,
    /// The MIDR_EL1 of CPUs that may join later, if some may.
    joining: Option<u64>,
}

impl Found {
    fn in_device_tree(pdev: &platform::Device<Core<'_>>, model: Model) -> Result<Self> {
        let irq = percpu_irq::of_platform(pdev)?;
        Ok(Self {
            name: model.name.try_into()?,
            model,
            cpus: CpuSet::of(irq.as_deref().map_or(smp::possible(), PerCpuIrq::affinity))?,
            irq,
            joining: None,
        })
    }

    fn in_acpi_tables(pdev: &platform::Device<Core<'_>>) -> Result<Self> {
        // None: this driver did not make the device, but was given it by `driver_override`.
        let kind = acpi::Kind::of(pdev).ok_or(ENODEV)?;
        let cpus = kind.cpus()?;
        if cpus.empty() {
            dev_err!(pdev, "no CPU of this PMU is on line\n");
            return Err(ENXIO);
        }
        Ok(Self {
            name: CString::try_from_fmt(fmt!("{}_{}", models::ACPI.name.to_str()?, kind.index))?,
            model: models::ACPI,
            irq: percpu_irq::of_gsis(pdev.as_ref(), &cpus, madt::performance_interrupt)?,
            cpus,
            joining: Some(kind.midr),
        })
    }
}

fn set_up(pdev: &platform::Device<Core<'_>>, found: Found) -> Result {
    let Found { name, irq, .. } = &found;
    if irq.is_none() {
        dev_warn!(pdev, "no irqs for PMU, sampling events not supported\n");
    }
    let claim = claim(pdev, &found.cpus)?;
    let identity = identify(pdev, &found.cpus)?;
    let counters = identity.counters();
    let statistics = if module_parameters::statistics.value() {
        Some(Statistics::new(counters)?)
    } else {
        None
    };
    let pmu = Pmu::new(Pmuv3::new(
        found.model,
        identity,
        Members {
            claim,
            joining: found.joining,
        },
        irq.clone(),
        statistics.clone(),
    ))?;

    let urgency = match irq {
        Some(irq) => request(pdev, irq, &pmu, statistics.clone())?,
        None => {
            cpuhp::register(pdev.as_ref(), Hotplug(pmu.clone()))?;
            Urgency::Ordinary
        }
    };
    cpu_pm::register(pdev.as_ref(), Power(pmu.clone()))?;
    register(pdev, &pmu, name)?;
    if let Some(statistics) = statistics {
        statistics.show(pdev.as_ref(), name)?;
    }
    dev_info!(
        pdev,
        "enabled with {} PMU driver, {} ({:x},{:08x}) counters available{}\n",
        &**name,
        counters.len(),
        counters.bits() >> 32,
        counters.bits() & 0xffff_ffff,
        match urgency {
            Urgency::Nmi => ", using NMIs",
            Urgency::Ordinary => "",
        }
    );
    Ok(())
}

/// Makes sure that no other device programs the PMUs of these CPUs.
fn claim(pdev: &platform::Device<Core<'_>>, cpus: &Cpumask) -> Result<Claim> {
    static PMUS: Ownership = Ownership::new();

    PMUS.claim(cpus).inspect_err(|error| {
        dev_err!(
            pdev,
            "cannot have the PMU of CPUs {} ({error:?}): if the device tree has another node for \
             one of them, that has it\n",
            CpuList(cpus)
        );
    })
}

/// Reads the ID registers of one of the CPUs.
fn identify(pdev: &platform::Device<Core<'_>>, cpus: &Cpumask) -> Result<Identity> {
    let identity = smp::call_any(cpus, Identity::of).inspect_err(|error| {
        dev_err!(pdev, "no CPU of this PMU is on line ({error:?})\n");
    })?;
    identity.ok_or_else(|| {
        dev_err!(
            pdev,
            "the CPU has no PMUv3, or its hypervisor hides it: there is nothing to drive\n"
        );
        ENODEV
    })
}

fn request(
    pdev: &platform::Device<Core<'_>>,
    irq: &Arc<PerCpuIrq>,
    pmu: &Arc<Pmu<Pmuv3>>,
    statistics: Option<Arc<Statistics>>,
) -> Result<Urgency> {
    let (dev, name, urgency) = (pdev.as_ref(), c"arm-pmu", Urgency::Nmi);
    let (handler, hotplug) = (OverflowHandler(pmu.clone()), Hotplug(pmu.clone()));
    match statistics {
        None => percpu_irq::request(dev, irq, name, urgency, handler, hotplug),
        Some(statistics) => {
            let handler = CountingHandler::new(handler, statistics);
            percpu_irq::request(dev, irq, name, urgency, handler, hotplug)
        }
    }
    .inspect_err(|error| {
        dev_err!(
            pdev,
            "cannot have interrupt {irq} ({error:?}): if another driver has it, see \
             /proc/interrupts; initcall_blacklist=armv8_pmu_driver_init keeps the C driver away\n"
        );
    })
}

fn register(pdev: &platform::Device<Core<'_>>, pmu: &Arc<Pmu<Pmuv3>>, name: &CStr) -> Result {
    let capabilities = match pmu.irq() {
        Some(_) => Capabilities::NONE,
        None => Capabilities::NO_INTERRUPT,
    };
    perf::register(pdev.as_ref(), pmu, name, capabilities).inspect_err(|error| {
        dev_err!(
            pdev,
            "cannot register {name:?} ({error:?}): if another driver has registered a PMU by that \
             name, it is in /sys/bus/event_source/devices\n"
        );
    })
}
