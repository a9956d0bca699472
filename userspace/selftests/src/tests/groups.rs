// SPDX-License-Identifier: MIT OR Apache-2.0
//! Events that share the PMU: groups, multiplexing, pinned events.

use anyhow::{Result, ensure};
use perfshim::{Attr, Event, EventConfig, Target};
use rustix::io::Errno;
use workloads::{INSTRUCTIONS_PER_ITERATION, run_loop};

use crate::counters::{self, CYCLES, Within, user};
use crate::guest::Pmu;
use crate::registry::Test;

pub const TESTS: &[Test] = &[
    Test::new(
        "group-atomic",
        "the members of a group count the same instructions, over many context switches",
        atomic,
    )
    .icount(),
    Test::new(
        "group-too-large",
        "a group takes every counter of the CPU, and one event more is refused",
        too_large,
    )
    .core(),
    Test::new(
        "group-long",
        "a group takes as many 64-bit events as there are 64-bit counters",
        || long_members(EVENT_COUNTERS),
    ),
    Test::new(
        "group-long-a57",
        "of 32-bit counters, each 64-bit event takes two: a group takes half as many",
        || long_members(EVENT_COUNTERS / 2),
    )
    .cpu("cortex-a57"),
    Test::new(
        "group-mixed",
        "a software event does not cost a group a counter",
        mixed,
    ),
    Test::new(
        "multiplex",
        "with twice as many events as counters, each scaled count is right within 5 %",
        multiplex,
    )
    .core()
    .icount()
    .timeout(120),
    Test::new(
        "multiplex-groups",
        "two groups that do not fit together take turns, each whole",
        multiplex_groups,
    )
    .icount()
    .timeout(120),
    Test::new(
        "pinned",
        "pinned events keep their counters; one that finds none reports the end of the file",
        pinned,
    ),
];

/// PMCR_EL0.N of QEMU's CPUs.
const EVENT_COUNTERS: usize = 6;

/// SW_INCR: needs an event counter, and nobody writes to PMSWINC_EL0.
fn filler(pmu: &Pmu) -> EventConfig {
    EventConfig::new(pmu.type_id(), 0x00)
}

fn atomic() -> Result<()> {
    let pmu = Pmu::find()?;
    pmu.need_instructions()?;
    let attrs = [(); EVENT_COUNTERS].map(|()| Attr::new(pmu.instructions()));
    let counts = counters::count_group(&attrs, Target::ThisThread, || {
        workloads::run_with_sleeps(50, 1_000, std::time::Duration::from_micros(100));
    })?;
    ensure!(
        counts.iter().all(|&count| count == counts[0]),
        "members of one group counted {counts:?} instructions"
    );
    ensure!(
        counts[0] >= 50 * 1_000 * INSTRUCTIONS_PER_ITERATION,
        "{} instructions are fewer than the loops have",
        counts[0]
    );
    Ok(())
}

fn too_large() -> Result<()> {
    let (leader, _members) = fill(&filler(&Pmu::find()?), EVENT_COUNTERS)?;
    // What was refused must have left the group as it was.
    run_loop(100_000);
    let reading = counters::read(&leader)?;
    ensure!(
        reading.running == reading.enabled && reading.value > 0,
        "the full group was not on its counters: {reading:?}"
    );
    Ok(())
}

fn long_members(room: usize) -> Result<()> {
    let long = EventConfig {
        config1: 1,
        ..filler(&Pmu::find()?)
    };
    fill(&long, room).map(drop)
}

/// Adds members to a group that cycles lead until one is refused. Fails unless there was room for
/// exactly so many. Returns the leader and the members.
fn fill(member: &EventConfig, room: usize) -> Result<(Event, Vec<Event>)> {
    // Enabled from the start: the kernel does not make room for members that are off.
    let leader = counters::open(&Attr::new(CYCLES).enabled(), Target::ThisThread)?;
    let member = Attr::new(member.clone()).enabled();
    let mut members = Vec::new();
    let refused = loop {
        match counters::open_member(&member, Target::ThisThread, &leader) {
            Ok(event) => members.push(event),
            Err(error) => break error,
        }
        ensure!(
            members.len() <= room,
            "beside the cycles {} events fit, there must be room for {room}",
            members.len()
        );
    };
    ensure!(
        members.len() == room,
        "beside the cycles {} events fit, not {room}: {refused:#}",
        members.len()
    );
    ensure!(
        counters::errno(&refused) == Some(Errno::INVAL),
        "one event too many: {refused:#}"
    );
    Ok((leader, members))
}

fn mixed() -> Result<()> {
    let pmu = Pmu::find()?;
    let leader = counters::open(
        &Attr::new(perfshim::Software::TaskClock).enabled(),
        Target::ThisThread,
    )?;
    let mut members = vec![counters::open_member(
        &Attr::new(CYCLES).enabled(),
        Target::ThisThread,
        &leader,
    )?];
    for _ in 0..EVENT_COUNTERS {
        let filler = Attr::new(filler(&pmu)).enabled();
        members.push(counters::open_member(&filler, Target::ThisThread, &leader)?);
    }
    run_loop(1_000_000);
    for event in &members {
        let reading = counters::read(event)?;
        ensure!(
            reading.running > 0 && reading.running == reading.enabled,
            "a member was not on its counter all the time: {reading:?}"
        );
    }
    Ok(())
}

/// Half a second of instructions: more than a hundred turns of 4 ms.
const LONG: u64 = 50_000_000;

fn multiplex() -> Result<()> {
    let pmu = Pmu::find()?;
    pmu.need_instructions()?;
    let events = (0..2 * EVENT_COUNTERS)
        .map(|_| counters::open(&user(pmu.instructions()), Target::ThisThread))
        .collect::<Result<Vec<_>>>()?;
    for event in &events {
        event.enable()?;
    }
    run_loop(LONG);
    let want = LONG * INSTRUCTIONS_PER_ITERATION;
    let mut shared = 0;
    for (index, event) in events.iter().enumerate() {
        event.disable()?;
        let reading = counters::read(event)?;
        let scaled = reading.scaled()?;
        ensure!(
            scaled.within(5.0, want),
            "event {index}: {reading:?} scales to {scaled}, the loop has {want}"
        );
        shared += u32::from(reading.running < reading.enabled);
    }
    ensure!(
        shared > 0,
        "twice as many events as counters, and none shared a counter"
    );
    Ok(())
}

fn multiplex_groups() -> Result<()> {
    let pmu = Pmu::find()?;
    pmu.need_instructions()?;
    let attrs = [(); 4].map(|()| user(pmu.instructions()));
    let groups = [
        counters::open_group(&attrs, Target::ThisThread)?,
        counters::open_group(&attrs, Target::ThisThread)?,
    ];
    for group in &groups {
        group.enable()?;
    }
    run_loop(LONG);
    let want = LONG * INSTRUCTIONS_PER_ITERATION;
    for group in &groups {
        group.disable()?;
        let readings = counters::read_group(group)?;
        let first = readings[0];
        ensure!(
            readings.iter().all(|reading| *reading == first),
            "the members of a group were not on their counters together: {readings:?}"
        );
        let scaled = first.scaled()?;
        ensure!(
            scaled.within(5.0, want),
            "{first:?} scales to {scaled}, the loop has {want}"
        );
        ensure!(
            first.running * 4 > first.enabled && first.running * 4 < 3 * first.enabled,
            "two groups took turns, but one ran {} of {} ns",
            first.running,
            first.enabled
        );
    }
    Ok(())
}

fn pinned() -> Result<()> {
    let pmu = Pmu::find()?;
    let attr = Attr::new(filler(&pmu)).pinned().enabled();
    let kept = (0..EVENT_COUNTERS)
        .map(|_| counters::open(&attr, Target::ThisThread))
        .collect::<Result<Vec<_>>>()?;
    let extra = counters::open(&attr, Target::ThisThread)?;
    // Not pinned: it has to wait for a counter, without an error.
    let waiting = counters::open(&Attr::new(filler(&pmu)).enabled(), Target::ThisThread)?;
    run_loop(1_000_000);
    for event in &kept {
        let reading = counters::read(event)?;
        ensure!(
            reading.running > 0 && reading.running == reading.enabled,
            "a pinned event was not on its counter all the time: {reading:?}"
        );
    }
    let answer = extra.read();
    ensure!(
        matches!(answer, Err(perfshim::Error::NotOnCounter)),
        "a pinned event without a counter must report the end of the file, not {answer:?}"
    );
    let reading = counters::read(&waiting)?;
    ensure!(
        reading.running == 0,
        "there was no counter for it: {reading:?}"
    );
    // Room again: the error state ends when the event is enabled anew.
    drop(kept);
    extra.disable()?;
    extra.enable()?;
    run_loop(1_000_000);
    let reading = counters::read(&extra)?;
    ensure!(
        reading.running > 0,
        "with room again it still does not run: {reading:?}"
    );
    Ok(())
}
