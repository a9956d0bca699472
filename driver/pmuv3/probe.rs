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
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    }, //
};

use crate::{
    cpu_pm,
    cpuhp,
    hotplug::Hotplug,
    interrupt::OverflowHandler,
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
        Pmuv3, //
    },
    power::Power,
    smp::{
        self,
        Claim,
        CpuList,
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
        // None: the device was given to this driver by `driver_override`.
        let model = model.ok_or(ENODEV)?;
        set_up(pdev, *model).map(|()| Self)
    }
}

fn set_up(pdev: &platform::Device<Core<'_>>, model: Model) -> Result {
    let irq = interrupt(pdev)?;
    let cpus = irq.as_deref().map_or(smp::possible(), PerCpuIrq::affinity);
    let claim = claim(pdev, cpus)?;
    let identity = identify(pdev, cpus)?;
    let counters = identity.counters();
    let statistics = if module_parameters::statistics.value() {
        Some(Statistics::new(counters)?)
    } else {
        None
    };
    let pmu = Pmu::new(Pmuv3::new(
        model,
        identity,
        claim,
        irq.clone(),
        statistics.clone(),
    ))?;

    let urgency = match &irq {
        Some(irq) => request(pdev, irq, &pmu, statistics.clone())?,
        None => Urgency::Ordinary,
    };
    cpuhp::register(
        pdev.as_ref(),
        c"perf/arm/rust_pmuv3:online",
        Hotplug(pmu.clone()),
    )?;
    cpu_pm::register(pdev.as_ref(), Power(pmu.clone()))?;
    register(pdev, &pmu, model.name)?;
    if let Some(statistics) = statistics {
        statistics.show(pdev.as_ref(), model.name)?;
    }
    dev_info!(
        pdev,
        "enabled with {} PMU driver, {} ({:x},{:08x}) counters available{}\n",
        model.name,
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

/// Looks the interrupt up. `None` when the PMU has none.
fn interrupt(pdev: &platform::Device<Core<'_>>) -> Result<Option<Arc<PerCpuIrq>>> {
    let irq = percpu_irq::of_platform(pdev)?;
    if irq.is_none() {
        dev_warn!(pdev, "no irqs for PMU, sampling events not supported\n");
    }
    Ok(irq)
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
    let handler = OverflowHandler(pmu.clone());
    match statistics {
        None => percpu_irq::request(dev, irq, name, urgency, handler),
        Some(statistics) => {
            let handler = CountingHandler::new(handler, statistics);
            percpu_irq::request(dev, irq, name, urgency, handler)
        }
    }
    .inspect_err(|error| {
        dev_err!(
            pdev,
            "cannot have interrupt {irq} ({error:?}): if another driver has it, see \
             /proc/interrupts\n"
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
