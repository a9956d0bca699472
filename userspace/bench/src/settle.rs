// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a boot leaves to chance, and the path of a CPU that goes and comes depends on.

use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use rustix::mount::{MountFlags, mount};
use rustix::thread::{CpuSet, sched_setaffinity};

/// From now on this thread runs on `cpu`.
pub fn run_on(cpu: u32) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu as usize);
    Ok(sched_setaffinity(None, &set)?)
}

/// Makes each round of `cpu` going and coming much like the next, and like those after another boot. Leaves
/// this thread on CPU 0.
pub fn settle(cpu: u32) -> Result<()> {
    fill()?;
    two_workers(cpu)
}

/// Fills the holes between the kernel's per-CPU allocations, of which a CPU that comes needs some small
/// ones: looking for room would take longer or shorter, by what was allocated since the boot in which order.
fn fill() -> Result<()> {
    let on = "/tmp/bench";
    fs::create_dir_all(on)?;
    // Each is a handful of counters, of 4 and 8 bytes for each CPU.
    for _ in 0..100 {
        mount("bench", on, "tmpfs", MountFlags::empty(), None)?;
    }
    Ok(())
}

/// Makes `cpu` have two workers for its work queue, each of which is moved when it goes and comes. After a boot
/// there may be more. The kernel sends away those beyond two that have had no work for five minutes, when
/// it next handles timers, for which a CPU does not wake: the pool's timer is on `cpu`, or on CPU 0
/// since `cpu` went last.
fn two_workers(cpu: u32) -> Result<()> {
    // A piece of work for each CPU, which brings a second one.
    fs::write("/proc/sys/vm/stat_refresh", "1")?;
    for _ in 0..20 {
        for busy in [cpu, 0] {
            run_on(busy)?;
            let start = Instant::now();
            while start.elapsed() < Duration::from_millis(50) {}
        }
        if workers(cpu)? == 2 {
            return Ok(());
        }
        sleep(Duration::from_secs(60));
    }
    bail!("CPU {cpu} still has {} workers", workers(cpu)?)
}

/// The kernel's threads that do the ordinary work of `cpu`.
fn workers(cpu: u32) -> Result<usize> {
    let prefix = format!("kworker/{cpu}:");
    let mut number = 0;
    for process in fs::read_dir("/proc")? {
        // What is no process has none, and a process may have ended.
        let name = fs::read_to_string(process?.path().join("comm")).unwrap_or_default();
        // "kworker/1:0-events", "+" while it works; with an H those that do the urgent work.
        if let Some(rest) = name.strip_prefix(&prefix) {
            let id = rest.trim_end().split(['-', '+']).next().unwrap_or_default();
            number += usize::from(!id.ends_with('H'));
        }
    }
    Ok(number)
}
