// SPDX-License-Identifier: MIT OR Apache-2.0
//! Machines that are described by ACPI tables, where no device stands for the PMU.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Result, anyhow, ensure};
use perfshim::{Attr, Rate, Ring, SampleFields, Target};
use rustix::io::Errno;
use workloads::{INSTRUCTIONS_PER_ITERATION, run_loop};

use super::counting::check_exact;
use super::features::check_kinds;
use super::module::{self, Binding};
use super::sampling::{check_number, check_numbers, sample};
use super::sysfs;
use crate::counters::{self, CYCLES, user};
use crate::guest::{self, Online, Pmu};
use crate::records::Records;
use crate::registry::Test;

pub const TESTS: &[Test] = &[
    Test::new(
        "acpi-sysfs",
        "the PMU has a number in its name, and the files that it has where there is a device tree",
        contents,
    )
    .core()
    .smp(2)
    .acpi(),
    Test::new(
        "acpi-count",
        "N more loops count exactly N x k instructions more, and there are as many samples as periods",
        count,
    )
    .core()
    .icount()
    .acpi(),
    Test::new(
        "acpi-sample",
        "each CPU has as many samples as periods, after it was off line too",
        samples,
    )
    .core()
    .icount()
    .smp(2)
    .acpi(),
    Test::new(
        "acpi-sample-nmi",
        "the same where the interrupts are NMIs",
        samples_by_nmi,
    )
    .append("irqchip.gicv3_pseudo_nmi=1")
    .icount()
    .smp(2)
    .acpi(),
    Test::new(
        "acpi-late-cpu",
        "a CPU that comes on line for the first time joins the PMU of its kind, interrupt included",
        late_cpu,
    )
    .append("maxcpus=1")
    .core()
    .icount()
    .smp(2)
    .acpi(),
    Test::new(
        "acpi-two-kinds",
        "CPUs of two kinds are two PMUs, whose events count there and nowhere else",
        || check_kinds([("armv8_pmuv3_0", "0,2"), ("armv8_pmuv3_1", "1,3")]),
    )
    .cpu("max,midr-odd=0x001f0510")
    .icount()
    .smp(4)
    .acpi(),
    Test::new(
        "acpi-two-kinds-late",
        "a CPU that comes on line for the first time joins its own kind, not the other",
        late_kinds,
    )
    .cpu("max,midr-odd=0x001f0510")
    .append("maxcpus=2")
    .icount()
    .smp(4)
    .acpi(),
    Test::new(
        "acpi-two-kinds-rebind",
        "one kind's PMU is unbound and bound while the other, which has the same interrupt, samples \
         (C: cannot be unbound)",
        rebind_kinds,
    )
    .core()
    .drivers("rust")
    .cpu("max,midr-odd=0x001f0510")
    .smp(4)
    .timeout(120)
    .acpi(),
    Test::new(
        "acpi-two-kinds-rebind-nmi",
        "the same where the interrupts are NMIs (C: cannot be unbound)",
        || {
            guest::need_nmis()?;
            rebind_kinds()
        },
    )
    .append("irqchip.gicv3_pseudo_nmi=1")
    .drivers("rust")
    .cpu("max,midr-odd=0x001f0510")
    .smp(4)
    .timeout(120)
    .acpi(),
    Test::new(
        "acpi-rebind",
        "unbind and bind, also while a CPU is off line, which joins when it is back (C: cannot be \
         unbound)",
        rebind,
    )
    .core()
    .drivers("rust")
    .icount()
    .smp(2)
    .acpi(),
    Test::new(
        "acpi-beside-c",
        "loaded while the C driver has the PMU, the module leaves it alone (Rust: has the PMU)",
        module::beside_c,
    )
    .core()
    .drivers("c")
    .smp(2)
    .acpi(),
    Test::new(
        "acpi-reload",
        "rmmod takes the device away, and insmod brings it and the PMU back (C: built in)",
        reload,
    )
    .core()
    .drivers("rust")
    .smp(2)
    .acpi(),
];

/// The files as they are with a device tree, of the same CPUs.
const WITH_TREE: &str = include_str!("sysfs-max.txt");

fn contents() -> Result<()> {
    // The C driver's PMU has no device; ours has one that can be unbound.
    let of_the_place = |line: &&str| {
        !["#", "name ", "path ", "device "]
            .iter()
            .any(|start| line.starts_with(start))
    };
    let dump = sysfs::dump()?;
    let got: Vec<_> = dump.lines().filter(of_the_place).collect();
    let want: Vec<_> = WITH_TREE.lines().filter(of_the_place).collect();
    ensure!(got == want, "sysfs has {got:#?}, not {want:#?}");
    let pmu = Pmu::find()?;
    ensure!(
        pmu.name() == "armv8_pmuv3_0",
        "the PMU is called {}",
        pmu.name()
    );
    Ok(())
}

fn count() -> Result<()> {
    let pmu = Pmu::find()?;
    pmu.need_instructions()?;
    check_exact("instructions", &[user(pmu.instructions())])?;
    check_numbers(CYCLES.into())
}

/// Fails unless an event on `cpu` and one on this thread make samples there.
fn check_samples_on(cpu: u32) -> Result<()> {
    check_samples(cpu, Target::Cpu(cpu))?;
    check_samples(cpu, Target::ThisThread)
}

/// Fails unless an event on `target` makes samples while this thread works on `cpu`.
fn check_samples(cpu: u32, target: Target<'_>) -> Result<()> {
    // CPUs take turns, and time passes during the other's. No turn takes as long as this.
    const PERIOD: u64 = 5_000_000;
    let _stay = guest::Pinned::to(cpu)?;
    let attr = user(CYCLES).sample(Rate::Period(PERIOD), SampleFields::IP);
    let (count, records) = sample(&attr, target, || {
        run_loop(5 * PERIOD / INSTRUCTIONS_PER_ITERATION);
    })?;
    check_number(&records, count, PERIOD)
}

fn samples() -> Result<()> {
    guest::need_cpus(2)?;
    check_samples_on(0)?;
    check_samples_on(1)?;
    guest::set_online(1, Online::No)?;
    check_samples_on(0)?;
    guest::set_online(1, Online::Yes)?;
    check_samples_on(1)
}

fn samples_by_nmi() -> Result<()> {
    guest::need_nmis()?;
    samples()
}

/// Fails unless the PMU says that it is that of `want`, a list of CPUs.
fn check_cpus(want: &str) -> Result<()> {
    let got = guest::read(Pmu::find()?.folder().join("cpus"))?;
    ensure!(got == want, "the PMU is of the CPUs {got}, not {want}");
    Ok(())
}

fn late_cpu() -> Result<()> {
    check_cpus("0")?;
    check_samples_on(0)?;
    let on_cpu_1 = || counters::refusal(&Attr::new(CYCLES), Target::Cpu(1));
    let refused = on_cpu_1()?;
    ensure!(
        refused == Some(Errno::NOENT),
        "an event on a CPU that was never on line: {refused:?}, not ENOENT"
    );
    // An event of a thread that gets there counts on.
    let event = counters::open(&user(CYCLES).enabled(), Target::ThisThread)?;
    guest::set_online(1, Online::Yes)?;
    check_cpus("0-1")?;
    check_samples_on(1)?;
    let _stay = guest::Pinned::to(1)?;
    let before = counters::read(&event)?;
    run_loop(100_000);
    let after = counters::read(&event)?;
    ensure!(
        after.value - before.value >= 100_000 && after.running > before.running,
        "an event that moved to CPU 1 went from {before:?} to {after:?}"
    );
    // It is a member like the others.
    guest::set_online(1, Online::No)?;
    check_cpus("0-1")?;
    guest::set_online(1, Online::Yes)?;
    check_samples_on(1)
}

fn late_kinds() -> Result<()> {
    for cpu in [3, 2] {
        guest::set_online(cpu, Online::Yes)?;
    }
    check_kinds([("armv8_pmuv3_0", "0,2"), ("armv8_pmuv3_1", "1,3")])?;
    (0..4).try_for_each(|cpu| check_samples(cpu, Target::Cpu(cpu)))
}

fn rebind_kinds() -> Result<()> {
    const PERIOD: u64 = 200_000;
    let even = Binding {
        device: "rust_pmuv3.0".to_owned(),
        ..Binding::find()?
    };
    let attr = user(CYCLES)
        .sample(Rate::Period(PERIOD), SampleFields::CPU)
        .enabled();
    let _rate = guest::SampleRate::unlimited()?;
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let samplers = [1, 3].map(|cpu| {
            let (attr, stop) = (&attr, &stop);
            scope.spawn(move || -> Result<usize> {
                let _stay = guest::Pinned::to(cpu)?;
                let event = counters::open(attr, Target::Cpu(cpu))?;
                let mut ring = Ring::map(&event, 1 << 16)?;
                let mut records = Records::default();
                while !stop.load(Ordering::Relaxed) {
                    run_loop(1_000_000);
                    records.drain(&mut ring, event.attr())?;
                }
                Ok(records.samples.len())
            })
        });
        let rebinding = (0..50).try_for_each(|_| {
            even.unbind()?;
            even.bind()
        });
        stop.store(true, Ordering::Relaxed);
        for sampler in samplers {
            let samples = sampler.join().map_err(|_| anyhow!("a sampler died"))??;
            ensure!(
                samples > 100,
                "the other kind made {samples} samples meanwhile"
            );
        }
        rebinding
    })?;
    (0..4).try_for_each(|cpu| {
        let event = counters::open(&attr, Target::Cpu(cpu))?;
        let mut ring = Ring::map(&event, 1 << 16)?;
        let mut records = Records::default();
        let _stay = guest::Pinned::to(cpu)?;
        guest::wait_until("a sample on each CPU", || {
            run_loop(1_000_000);
            records.drain(&mut ring, event.attr())?;
            Ok(!records.samples.is_empty())
        })
    })?;
    guest::check_leaks_where_told()
}

fn rebind() -> Result<()> {
    guest::need_cpus(2)?;
    let device = Binding::find()?;
    let type_id = Pmu::find()?.type_id();
    device.unbind()?;
    module::check_gone(type_id)?;
    device.bind()?;
    check_cpus("0-1")?;
    check_samples_on(1)?;

    device.unbind()?;
    guest::set_online(1, Online::No)?;
    device.bind()?;
    check_cpus("0")?;
    check_samples_on(0)?;
    guest::set_online(1, Online::Yes)?;
    check_cpus("0-1")?;
    check_samples_on(1)?;
    // What has joined has to go as well.
    device.unbind()?;
    device.bind()?;
    check_samples_on(1)
}

fn reload() -> Result<()> {
    const DEVICE: &str = "/sys/bus/platform/devices/rust_pmuv3.0";
    let there = || std::path::Path::new(DEVICE).exists();
    ensure!(there(), "there is no {DEVICE}");
    for _ in 0..2 {
        module::unload_soon()?;
        ensure!(!there(), "without the module there is still {DEVICE}");
        module::load()?;
        ensure!(there(), "with the module there is no {DEVICE}");
        module::check_counts()?;
    }
    check_cpus("0-1")
}
