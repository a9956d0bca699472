// SPDX-License-Identifier: MIT OR Apache-2.0
//! What events follow: threads, children, programs, CPUs, the whole system.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use perfshim::{Attr, Target};
use workloads::{INSTRUCTIONS_PER_ITERATION, run_loop};

use crate::counters::{self, CYCLES, Within, user};
use crate::guest::{self, Pmu};
use crate::process::Stopped;
use crate::registry::Test;

pub const TESTS: &[Test] = &[
    Test::new(
        "inherit-fork",
        "an inherited event counts forked children, and one that is not does not",
        inherit_fork,
    )
    .core()
    .icount(),
    Test::new(
        "inherit-thread",
        "an inherited event counts new threads, and one that is not does not",
        inherit_thread,
    )
    .icount(),
    Test::new(
        "attach-process",
        "an event on another process counts that process exactly and nothing else",
        attach,
    )
    .icount(),
    Test::new(
        "enable-on-exec",
        "an event with enable_on_exec counts nothing before the exec and the program after it",
        enable_on_exec,
    )
    .core()
    .icount(),
    Test::new(
        "cpu-affine",
        "an event on one CPU counts what runs there, not what runs elsewhere",
        cpu_affine,
    )
    .icount()
    .smp(2),
    Test::new(
        "cpu-and-task",
        "an event on a thread and a CPU counts that thread on that CPU only",
        cpu_and_task,
    )
    .icount()
    .smp(2),
    Test::new(
        "system-wide",
        "events on all CPUs see the work of all threads",
        system_wide,
    )
    .core()
    .icount()
    .smp(4),
];

const N: u64 = 100_000;
const CHILDREN: u64 = 4;

/// What `children` loops of N iterations retire.
fn loops(children: u64) -> u64 {
    children * N * INSTRUCTIONS_PER_ITERATION
}

/// Counts `work` with and without inheritance. Returns both counts.
fn inherited_and_not(work: impl Fn() -> Result<()>) -> Result<(u64, u64)> {
    let pmu = Pmu::find()?;
    pmu.need_instructions()?;
    let mut counts = [0; 2];
    let attrs = [user(pmu.instructions()).inherit(), user(pmu.instructions())];
    for (count, attr) in counts.iter_mut().zip(attrs) {
        let event = counters::open(&attr, Target::ThisThread)?;
        let mut result = Ok(());
        *count = counters::count(&event, || result = work())?;
        result?;
    }
    Ok((counts[0], counts[1]))
}

/// Fails unless the children's loops are in the inherited count and not in the other, up to what
/// starting and ending children costs.
fn check_inherited((inherited, own): (u64, u64)) -> Result<()> {
    let want = loops(CHILDREN);
    ensure!(
        inherited
            .checked_sub(own)
            .is_some_and(|children| children.within(3.0, want)),
        "with inheritance {inherited}, without {own}: the children's loops have {want}"
    );
    ensure!(own < loops(1), "without inheritance it counted {own}");
    Ok(())
}

fn inherit_fork() -> Result<()> {
    check_inherited(inherited_and_not(|| {
        for _ in 0..CHILDREN {
            workloads::run_fork(N)?;
        }
        Ok(())
    })?)
}

fn inherit_thread() -> Result<()> {
    check_inherited(inherited_and_not(|| {
        workloads::run_threads(CHILDREN as usize, N);
        Ok(())
    })?)
}

fn attach() -> Result<()> {
    let pmu = Pmu::find()?;
    pmu.need_instructions()?;
    let count = |iterations| -> Result<u64> {
        let child = Stopped::new(iterations)?;
        let event = counters::open(&user(pmu.instructions()).enabled(), child.target())?;
        // Not the child's, so not counted.
        run_loop(N);
        child.run()?;
        Ok(counters::read(&event)?.value)
    };
    let (once, twice) = (count(N)?, count(2 * N)?);
    ensure!(
        twice.wrapping_sub(once) == loops(1),
        "a child with {N} iterations counted {once}, with twice as many {twice}: the difference \
         is not {}",
        loops(1)
    );
    Ok(())
}

fn enable_on_exec() -> Result<()> {
    let pmu = Pmu::find()?;
    pmu.need_instructions()?;
    let count = |iterations| -> Result<u64> {
        let child = Stopped::new_exec(iterations)?;
        let attr = user(pmu.instructions()).enable_on_exec();
        let event = counters::open(&attr, child.target())?;
        let before = counters::read(&event)?;
        ensure!(
            before.value == 0 && before.enabled == 0,
            "enabled before the exec: {before:?}"
        );
        child.run()?;
        Ok(counters::read(&event)?.value)
    };
    let (short, long) = (count(N)?, count(11 * N)?);
    // Ten times N apart. Starting the program differs by the digits of N in its arguments.
    let want = loops(10);
    ensure!(
        long.checked_sub(short)
            .is_some_and(|more| more.within(1.0, want)),
        "{N} iterations counted {short}, {} counted {long}: the difference is not about {want}",
        11 * N
    );
    Ok(())
}

/// How long CPUs are kept busy.
const BUSY: Duration = Duration::from_millis(100);

/// Opens an event that counts user cycles of everything on `cpu`.
fn on_cpu(cpu: u32) -> Result<perfshim::Event> {
    counters::open(&user(CYCLES).enabled(), Target::Cpu(cpu))
}

fn cpu_affine() -> Result<()> {
    guest::need_cpus(2)?;
    for busy in [0, 1] {
        let _stay = guest::Pinned::to(busy)?;
        let on_cpus = [on_cpu(0)?, on_cpu(1)?];
        // Counts a part of what the event on its CPU counts.
        let thread = counters::open(&user(CYCLES).enabled(), Target::ThisThread)?;
        workloads::run_for(BUSY);
        let thread = counters::read(&thread)?.value;
        let there = counters::read(&on_cpus[busy as usize])?.value;
        let elsewhere = counters::read(&on_cpus[1 - busy as usize])?.value;
        ensure!(thread > 0, "the thread counted nothing");
        ensure!(
            there >= thread,
            "the thread counted {thread} cycles, and the CPU {busy} that it ran on {there}"
        );
        ensure!(
            elsewhere < there / 4,
            "CPU {busy} was busy with {there} cycles, and the other counted {elsewhere}"
        );
    }
    Ok(())
}

fn cpu_and_task() -> Result<()> {
    guest::need_cpus(2)?;
    let attr = Attr::new(CYCLES).enabled();
    let events = [
        counters::open(&attr, Target::ThisThreadOnCpu(0))?,
        counters::open(&attr, Target::ThisThreadOnCpu(1))?,
    ];
    let _stay = guest::Pinned::to(1)?;
    // Whatever was counted on CPU 0 before the move stays as it is.
    let before = counters::read(&events[0])?.value;
    workloads::run_for(BUSY);
    let after = [counters::read(&events[0])?, counters::read(&events[1])?];
    ensure!(
        after[0].value == before,
        "the thread is on CPU 1, and CPU 0 went from {before} to {}",
        after[0].value
    );
    ensure!(
        after[1].value.within(1.0, after[1].running) && after[1].value > 0,
        "the thread was on CPU 1: {:?}",
        after[1]
    );
    Ok(())
}

fn system_wide() -> Result<()> {
    guest::need_cpus(4)?;
    let events = (0..4).map(on_cpu).collect::<Result<Vec<_>>>()?;
    let threads = std::thread::scope(|scope| {
        let worker = |cpu| {
            move || -> Result<u64> {
                let _stay = guest::Pinned::to(cpu)?;
                let event = counters::open(&user(CYCLES).enabled(), Target::ThisThread)?;
                workloads::run_for(BUSY);
                Ok(counters::read(&event)?.value)
            }
        };
        let workers: Vec<_> = (0..4).map(|cpu| scope.spawn(worker(cpu))).collect();
        let join = |worker: std::thread::ScopedJoinHandle<'_, Result<u64>>| {
            worker.join().ok().context("a worker ended early")?
        };
        workers.into_iter().map(join).collect::<Result<Vec<u64>>>()
    })?;
    for (cpu, (event, thread)) in events.iter().zip(threads).enumerate() {
        let all = counters::read(event)?.value;
        ensure!(thread > 0, "the thread on CPU {cpu} counted nothing");
        ensure!(
            all >= thread,
            "the thread on CPU {cpu} counted {thread} cycles, and the CPU {all}"
        );
    }
    Ok(())
}
