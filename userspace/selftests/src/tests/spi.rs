// SPDX-License-Identifier: MIT OR Apache-2.0
//! A PMU with a shared interrupt for each CPU. QEMU does not wire its PMU to one, so the test makes it
//! come, by the interrupt controller's register, once a counter has overflowed: an overflow stays
//! flagged until its interrupt is handled.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use perfshim::{Rate, Ring, SampleFields, Target};
use workloads::{INSTRUCTIONS_PER_ITERATION, run_loop};

use super::module::Binding;
use crate::counters::{self, CYCLES, user};
use crate::guest::{self, Online};
use crate::records::Records;
use crate::registry::Test;

pub const TESTS: &[Test] = &[
    Test::new(
        "spi-sample",
        "the interrupt of each CPU makes samples of that CPU's overflows, after hotplug too",
        sample,
    )
    .icount()
    .smp(2)
    .dts("spi"),
    Test::new(
        "spi-sample-nmi",
        "the same where the interrupts are NMIs",
        sample_by_nmi,
    )
    .append("irqchip.gicv3_pseudo_nmi=1")
    .icount()
    .smp(2)
    .dts("spi"),
    Test::new(
        "spi-rebind",
        "unbinding frees the interrupts, also while a CPU is down, and binding gets them back (C: \
         cannot be unbound)",
        rebind,
    )
    .drivers("rust")
    .icount()
    .smp(2)
    .dts("spi"),
    Test::new(
        "spi-rebind-nmi",
        "the same where the interrupts are NMIs (C: cannot be unbound)",
        rebind_nmi,
    )
    .append("irqchip.gicv3_pseudo_nmi=1")
    .drivers("rust")
    .icount()
    .smp(2)
    .dts("spi"),
];

/// Makes the interrupt of `cpu` pending: SPI 100 or 101, as dts/spi.dts says, which the GIC counts
/// from 32. Its distributor has a word for 32 of them.
fn raise(cpu: u32) -> Result<()> {
    const GICD_ISPENDR: u32 = 0x0800_0200;
    let interrupt = 32 + 100 + cpu;
    let (address, bit) = (GICD_ISPENDR + interrupt / 32 * 4, 1u32 << (interrupt % 32));
    let status = Command::new("devmem")
        .args([address.to_string(), "32".to_owned(), bit.to_string()])
        .status()
        .context("devmem")?;
    ensure!(status.success(), "devmem: {status}");
    Ok(())
}

/// Fails unless an overflow on `cpu` is a sample as soon as the interrupt of that CPU has come, and
/// not before.
fn check_samples_on(cpu: u32) -> Result<()> {
    const PERIOD: u64 = 10_000_000;
    let _rate = guest::SampleRate::unlimited()?;
    let _stay = guest::Pinned::to(cpu)?;
    let attr = user(CYCLES)
        .sample(Rate::Period(PERIOD), SampleFields::IP | SampleFields::CPU)
        .enabled();
    let event = counters::open(&attr, Target::Cpu(cpu))?;
    let mut ring = Ring::map(&event, 1 << 16)?;
    let mut records = Records::default();
    let mut check = |want: usize, when: &str| -> Result<()> {
        records.drain(&mut ring, event.attr())?;
        let cpus: Vec<_> = records.samples.iter().map(|sample| sample.cpu).collect();
        ensure!(
            cpus == vec![Some(cpu); want],
            "on CPU {cpu}, {when}: samples of CPUs {cpus:?}, not {want}"
        );
        records.check_nothing_lost()
    };
    for samples in 0..4 {
        // One overflow, and what `devmem` takes is not another.
        run_loop(PERIOD * 5 / 4 / INSTRUCTIONS_PER_ITERATION);
        check(samples, "after an overflow")?;
        raise(1 - cpu)?;
        check(samples, "after the other CPU's interrupt")?;
        raise(cpu)?;
        check(samples + 1, "after the interrupt")?;
    }
    Ok(())
}

fn sample() -> Result<()> {
    guest::need_cpus(2)?;
    check_samples_on(0)?;
    check_samples_on(1)?;
    guest::set_online(1, Online::No)?;
    // Nobody is to get it while its CPU is away.
    raise(1)?;
    check_handlers()?;
    guest::set_online(1, Online::Yes)?;
    check_samples_on(1)?;
    check_samples_on(0)
}

fn sample_by_nmi() -> Result<()> {
    guest::need_nmis()?;
    sample()
}

/// The interrupts of the PMU that have a handler.
fn handlers() -> Result<usize> {
    let interrupts = guest::read("/proc/interrupts")?;
    Ok(interrupts.matches("arm-pmu").count())
}

/// Fails unless each CPU has its interrupt.
fn check_handlers() -> Result<()> {
    let handlers = handlers()?;
    ensure!(
        handlers == 2,
        "/proc/interrupts shows {handlers} interrupts of the PMU, not 2"
    );
    Ok(())
}

/// Unbinds the driver, sees that it left nothing, and binds it again.
fn bind_anew() -> Result<()> {
    check_handlers()?;
    let binding = Binding::find()?;
    binding.unbind()?;
    let left = handlers()?;
    ensure!(
        left == 0,
        "after unbinding there are {left} interrupts of the PMU in /proc/interrupts"
    );
    raise(0)?;
    binding.bind()?;
    check_handlers()
}

fn rebind() -> Result<()> {
    guest::need_cpus(2)?;
    for _ in 0..3 {
        bind_anew()?;
        check_samples_on(1)?;
    }
    guest::set_online(1, Online::No)?;
    bind_anew()?;
    check_samples_on(0)?;
    guest::set_online(1, Online::Yes)?;
    check_samples_on(1)
}

fn rebind_nmi() -> Result<()> {
    guest::need_nmis()?;
    rebind()?;
    // The GIC makes an interrupt an ordinary one only while it has it masked.
    let log = guest::log()?;
    ensure!(
        !log.contains("Cannot set NMI property"),
        "an interrupt was freed that the GIC had enabled"
    );
    Ok(())
}
