// SPDX-License-Identifier: MIT OR Apache-2.0
//! CPUs that go off line and come back while events are open.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use perfshim::{Attr, Event, EventConfig, Rate, Ring, SampleFields, Target};
use rustix::io::Errno;
use workloads::el0;

use crate::counters::{self, CYCLES, user};
use crate::guest::{self, Online};
use crate::records::Records;
use crate::registry::Test;

pub const TESTS: &[Test] = &[
    Test::new(
        "hotplug-cpu-event",
        "an event on a CPU keeps its count when that CPU goes off line; new ones count after it",
        cpu_event,
    )
    .smp(2),
    Test::new(
        "hotplug-open",
        "an event cannot be opened on a CPU that is off line, and can when it is back",
        open,
    )
    .smp(2),
    Test::new(
        "hotplug-leader",
        "the group of an event takes no member after the event's CPU went off line and came back",
        leader,
    )
    .smp(2),
    Test::new(
        "hotplug-rolled-back",
        "a CPU samples after its going down has failed, and after its coming up has failed while \
         events were there",
        rolled_back,
    )
    .smp(2)
    .timeout(120),
    Test::new(
        "hotplug-user-access",
        "a thread that may read its counter may do so on a CPU that came back and has no event (C: not \
         where no event is)",
        user_access,
    )
    .drivers("rust")
    .icount()
    .smp(3),
    Test::new(
        "hotplug-task-event",
        "an event on a thread counts on where the thread goes when its CPU goes off line",
        task_event,
    )
    .smp(2),
    Test::new(
        "hotplug-storm",
        "CPUs go off line and on twenty times under load, with events of all kinds open",
        storm,
    )
    .core()
    .smp(4)
    .timeout(240),
];

/// Keeps `cpu` busy for a moment.
fn work_on(cpu: u32) -> Result<()> {
    let _stay = guest::Pinned::to(cpu)?;
    workloads::run_for(Duration::from_millis(50));
    Ok(())
}

/// Fails unless `event`, which counts on `cpu`, grows while that CPU works. Where events take turns,
/// a busy host may let it wait for its own.
fn check_counts_on(event: &Event, cpu: u32) -> Result<()> {
    let before = counters::read(event)?;
    let mut after = before;
    guest::wait_until("an event that counts", || {
        work_on(cpu)?;
        after = counters::read(event)?;
        Ok(after.value > before.value && after.running > before.running)
    })
    .with_context(|| format!("CPU {cpu} worked, and its event went from {before:?} to {after:?}"))
}

/// Opens an event that counts everything on `cpu`.
fn on_cpu(cpu: u32) -> Result<Event> {
    counters::open(&Attr::new(CYCLES).enabled(), Target::Cpu(cpu))
}

fn cpu_event() -> Result<()> {
    guest::need_cpus(2)?;
    let elsewhere = on_cpu(0)?;
    for _ in 0..3 {
        let event = on_cpu(1)?;
        check_counts_on(&event, 1)?;
        let before = counters::read(&event)?.value;
        guest::set_online(1, Online::No)?;
        let off = counters::read(&event)?.value;
        check_counts_on(&elsewhere, 0)?;
        let still_off = counters::read(&event)?.value;
        guest::set_online(1, Online::Yes)?;
        let back = counters::read(&event)?.value;
        ensure!(
            off >= before,
            "the count went from {before} to {off} when the CPU went"
        );
        ensure!(
            still_off == off,
            "CPU 1 is off line, and its count went from {off} to {still_off}"
        );
        // perf core takes a CPU's events off it for good.
        ensure!(
            back == off,
            "the count went from {off} to {back} when the CPU came back"
        );
    }
    check_counts_on(&on_cpu(1)?, 1)
}

fn open() -> Result<()> {
    guest::need_cpus(2)?;
    guest::set_online(1, Online::No)?;
    let answer = counters::refusal(&Attr::new(CYCLES), Target::Cpu(1));
    guest::set_online(1, Online::Yes)?;
    let answer = answer?;
    ensure!(
        answer == Some(Errno::NODEV),
        "off line, the open gave {answer:?}, not ENODEV"
    );
    check_counts_on(&on_cpu(1)?, 1)
}

/// perf core has taken the leader off its CPU, and out of its group, for good. Linux 7.3 as it is accepts
/// a member nevertheless, and forgets it when the leader is closed: what reads the member then
/// reads freed memory (docs/debugging.md). The lab kernels have our fix of that.
fn leader() -> Result<()> {
    guest::need_cpus(2)?;
    let attr = Attr::new(CYCLES).enabled();
    let leader = on_cpu(1)?;
    drop(counters::open_member(&attr, Target::Cpu(1), &leader)?);
    guest::set_online(1, Online::No)?;
    guest::set_online(1, Online::Yes)?;
    match counters::open_member(&attr, Target::Cpu(1), &leader) {
        Ok(member) => {
            // The other way round it would be left with a leader that is freed.
            drop(member);
            bail!("the member was accepted");
        }
        Err(error) => ensure!(
            counters::errno(&error) == Some(Errno::NODEV),
            "joining it is refused by other than ENODEV: {error:#}"
        ),
    }
    check_counts_on(&on_cpu(1)?, 1)
}

/// A state that a CPU comes to after perf core takes events there, and before drivers are told. It
/// is left in the reverse order.
const BETWEEN: &str = "workqueue:online";

/// Lets CPU 1 fail when it comes to that state, or leaves it, the next time.
fn fail_between() -> Result<()> {
    let states = guest::read("/sys/devices/system/cpu/hotplug/states")?;
    let number = states
        .lines()
        .filter_map(|line| line.split_once(": "))
        .find_map(|(number, name)| (name == BETWEEN).then_some(number.trim()))
        .with_context(|| format!("there is no hotplug state {BETWEEN}"))?;
    guest::write("/sys/devices/system/cpu/cpu1/hotplug/fail", number)
}

/// Fails unless a loop on CPU 1 gives the event samples, other than those that there are.
fn check_samples_on_1(event: &Event, ring: &mut Ring) -> Result<()> {
    let _stay = guest::Pinned::to(1)?;
    Records::default().drain(ring, event.attr())?;
    let mut records = Records::default();
    guest::wait_until("a sample of CPU 1", || {
        workloads::run_loop(1_000_000);
        records.drain(ring, event.attr())?;
        Ok(!records.samples.is_empty())
    })
}

/// Fails unless that is what the change comes to.
fn check_fails(online: Online) -> Result<()> {
    let result = guest::set_online(1, online);
    let error = result.err().context("CPU 1 did not fail")?;
    ensure!(
        guest::errno(&error) == Some(Errno::AGAIN),
        "CPU 1 failed by other than EAGAIN: {error:#}"
    );
    Ok(())
}

fn rolled_back() -> Result<()> {
    guest::need_cpus(2)?;
    let attr = user(CYCLES)
        .sample(Rate::Period(100_003), SampleFields::CPU)
        .enabled();
    let sampling = || -> Result<(Event, Ring)> {
        let event = counters::open(&attr, Target::Cpu(1))?;
        let ring = Ring::map(&event, 1 << 16)?;
        Ok((event, ring))
    };
    let (event, mut ring) = sampling()?;
    check_samples_on_1(&event, &mut ring)?;
    for _ in 0..3 {
        fail_between()?;
        check_fails(Online::No)?;
        check_samples_on_1(&event, &mut ring)?;
    }
    drop((event, ring));
    guest::set_online(1, Online::No)?;
    // Opens events on CPU 1 all the time: some while it is coming.
    let (stop, came) = (AtomicBool::new(false), AtomicU32::new(0));
    thread::scope(|scope| {
        let opening = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                if counters::open(&attr, Target::Cpu(1)).is_ok() {
                    came.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        // At least one event has to make it: the other thread may have no time in the first rounds.
        let rounds = (0..).take_while(|&round| round < 20 || came.load(Ordering::Relaxed) == 0);
        let failing = rounds.take(1000).try_for_each(|_| {
            fail_between()?;
            check_fails(Online::Yes)
        });
        stop.store(true, Ordering::Relaxed);
        opening
            .join()
            .map_err(|_| anyhow!("the thread that opens events died"))?;
        failing
    })?;
    let came = came.into_inner();
    ensure!(came > 0, "no event was on CPU 1 in between");
    println!("# {came} events were on CPU 1 in between");
    guest::set_online(1, Online::Yes)?;
    let (event, mut ring) = sampling()?;
    check_samples_on_1(&event, &mut ring)
}

/// The thread's event stays on CPU 2. That the thread may read counters is so wherever it runs: it may
/// just have read on CPU 2 which counter it has.
fn user_access() -> Result<()> {
    guest::need_cpus(3)?;
    let _allowed = guest::Sysctl::set("kernel/perf_user_access", 1)?;
    // config1:rdpmc
    let readable = EventConfig {
        config1: 1 << 1,
        ..CYCLES.into()
    };
    let _event = counters::open(&user(readable).enabled(), Target::ThisThreadOnCpu(2))?;
    for _ in 0..2 {
        guest::set_online(1, Online::No)?;
        guest::set_online(1, Online::Yes)?;
        for cpu in [2, 1, 0] {
            let _stay = guest::Pinned::to(cpu)?;
            // Ends the process if it is not allowed.
            el0::read_counter(el0::CYCLE_COUNTER);
        }
    }
    Ok(())
}

fn task_event() -> Result<()> {
    guest::need_cpus(2)?;
    let event = counters::open(&Attr::new(CYCLES).enabled(), Target::ThisThread)?;
    for _ in 0..3 {
        // Not a guard: with its only CPU gone, the kernel moves the thread and widens its set.
        let stay = guest::Pinned::to(1)?;
        guest::set_online(1, Online::No)?;
        let before = counters::read(&event)?;
        workloads::run_for(Duration::from_millis(50));
        let after = counters::read(&event)?;
        guest::set_online(1, Online::Yes)?;
        drop(stay);
        ensure!(
            after.value > before.value && after.running > before.running,
            "after its CPU went, the thread's event went from {before:?} to {after:?}"
        );
    }
    Ok(())
}

const CPUS: u32 = 4;
const ROUNDS: u32 = 20;

fn storm() -> Result<()> {
    guest::need_cpus(CPUS)?;
    let _rate = guest::SampleRate::unlimited()?;
    let stays = on_cpu(0)?;
    // More than fit, so that the kernel rotates them; and overflows all the time.
    let shared = (0..CPUS)
        .flat_map(|cpu| (0..8).map(move |_| cpu))
        .map(on_cpu)
        .collect::<Result<Vec<_>>>()?;
    let sampling = Attr::new(CYCLES)
        .sample(perfshim::Rate::Period(500_000), perfshim::SampleFields::IP)
        .enabled();
    let _sampled = (0..CPUS)
        .map(|cpu| counters::open(&sampling, Target::Cpu(cpu)))
        .collect::<Result<Vec<_>>>()?;
    let inherited = counters::open(&Attr::new(CYCLES).inherit().enabled(), Target::ThisThread)?;
    // The kernel takes a CPU's events away when that goes: by then each must have had its turn.
    guest::wait_until("events that take turns", || {
        let readings = shared.iter().map(counters::read);
        let readings = readings.collect::<Result<Vec<_>>>()?;
        Ok(readings.iter().all(|reading| reading.running > 0))
    })?;

    let stop = AtomicBool::new(false);
    let result = thread::scope(|scope| {
        for _ in 0..CPUS {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    workloads::run_loop(10_000);
                }
            });
        }
        let result = cycle_cpus(&inherited);
        stop.store(true, Ordering::Relaxed);
        result
    });
    result?;
    check_counts_on(&stays, 0)?;
    for cpu in 0..CPUS {
        check_counts_on(&on_cpu(cpu)?, cpu)?;
    }
    for event in &shared {
        let reading = counters::read(event)?;
        ensure!(
            reading.value > 0 && reading.running <= reading.enabled,
            "an event that shared its counter reads {reading:?}"
        );
    }
    guest::check_leaks_where_told()
}

/// Takes every CPU but the first off line and back, and sees that a count never goes back.
fn cycle_cpus(event: &Event) -> Result<()> {
    let mut last = 0;
    let mut last_round = Vec::new();
    for round in 0..ROUNDS {
        for cpu in 1..CPUS {
            guest::set_online(cpu, Online::No).with_context(|| format!("round {round}"))?;
        }
        for cpu in 1..CPUS {
            guest::set_online(cpu, Online::Yes).with_context(|| format!("round {round}"))?;
        }
        // These are open when the CPUs go the next time.
        for cpu in 0..CPUS {
            last_round.push(on_cpu(cpu)?);
        }
        last_round.drain(..last_round.len() - CPUS as usize);
        let now = counters::read(event)?.value;
        ensure!(
            now > last,
            "round {round}: the thread's count went from {last} to {now}"
        );
        last = now;
    }
    Ok(())
}
