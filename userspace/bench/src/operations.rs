// SPDX-License-Identifier: MIT OR Apache-2.0
//! The operations. Events are opened before the first marker and closed after the last, and user space
//! does as little as it can between two.

use std::fs;
use std::io::{self, Read, Write};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use perfshim::discovery::Pmus;
use perfshim::{
    Attr, Event, EventConfig, Exclude, Group, Hardware, Rate, ReadFormat, Ring, SampleFields,
    Target,
};
use workloads::run_loop;

use crate::Intervals;
use crate::settle::{run_on, settle};

/// The argument with which this program is the other side of a pipe.
pub const ECHO: &str = "echo";

type Operation = fn(&mut Intervals) -> Result<()>;

/// Every operation by its name.
pub const ALL: &[(&str, Operation)] = &[
    ("empty", empty),
    ("read", read),
    ("read_group6", read_group6),
    ("disable_enable", disable_enable),
    ("open_close", open_close),
    ("loop", plain_loop),
    ("overflow_ip", overflow_ip),
    ("overflow_fields", overflow_fields),
    ("overflow_callchain", overflow_callchain),
    ("overflow_two_counters", overflow_two_counters),
    ("switch_0", |intervals| switch(intervals, "switch_0", 0)),
    ("switch_1", |intervals| switch(intervals, "switch_1", 1)),
    ("switch_6", |intervals| switch(intervals, "switch_6", 6)),
    ("switch_12", |intervals| switch(intervals, "switch_12", 12)),
    ("user_read", user_read),
    ("cpu_off_on", cpu_off_on),
];

/// Calls between two markers.
const CALLS: u64 = 50;

fn empty(intervals: &mut Intervals) -> Result<()> {
    intervals.rounds("empty", CALLS, || Ok(()))
}

/// Cycles in user mode and the kernel, on the cycle counter.
fn cycles() -> Attr {
    Attr::new(Hardware::CpuCycles).enabled()
}

fn read(intervals: &mut Intervals) -> Result<()> {
    let event = Event::open(&cycles(), Target::ThisThread)?;
    intervals.rounds("read", CALLS, || read_into::<8>(&event))
}

fn read_group6(intervals: &mut Intervals) -> Result<()> {
    let attr = cycles().read_format(ReadFormat::GROUP);
    let leader = Event::open(&attr, Target::ThisThread)?;
    let members = EVENTS[1..].iter().map(|&event| {
        let attr = Attr::new(pmu_event(event)?).read_format(ReadFormat::GROUP);
        Ok(Event::open_in_group(&attr, Target::ThisThread, &leader)?)
    });
    let _members: Vec<Event> = members.collect::<Result<_>>()?;
    // The number of members, and six counts.
    intervals.rounds("read_group6", CALLS, || read_into::<56>(&leader))
}

fn read_into<const BYTES: usize>(event: &Event) -> Result<()> {
    let mut bytes = [0; BYTES];
    let read = rustix::io::read(event, &mut bytes)?;
    ensure!(read == BYTES, "a read of {read} bytes, not {BYTES}");
    Ok(())
}

fn disable_enable(intervals: &mut Intervals) -> Result<()> {
    let event = Event::open(&cycles(), Target::ThisThread)?;
    intervals.rounds("disable_enable", CALLS, || {
        event.disable()?;
        Ok(event.enable()?)
    })
}

fn open_close(intervals: &mut Intervals) -> Result<()> {
    let attr = cycles();
    intervals.rounds("open_close", CALLS, || {
        drop(Event::open(&attr, Target::ThisThread)?);
        Ok(())
    })
}

/// Cycles from one overflow to the next.
const PERIOD: u64 = 20_011;
/// Iterations of the loop between two markers, 40 periods and a bit.
const ITERATIONS: u64 = 81_000;

fn plain_loop(intervals: &mut Intervals) -> Result<()> {
    intervals.rounds("loop", 1, || {
        run_loop(ITERATIONS);
        Ok(())
    })
}

fn overflow_ip(intervals: &mut Intervals) -> Result<()> {
    overflow(
        intervals,
        "overflow_ip",
        &[Hardware::CpuCycles],
        SampleFields::IP,
    )
}

/// The fields that a profile by thread has.
const FIELDS: SampleFields = SampleFields::IP
    .union(SampleFields::TID)
    .union(SampleFields::TIME)
    .union(SampleFields::CPU)
    .union(SampleFields::PERIOD);

fn overflow_fields(intervals: &mut Intervals) -> Result<()> {
    overflow(intervals, "overflow_fields", &[Hardware::CpuCycles], FIELDS)
}

fn overflow_callchain(intervals: &mut Intervals) -> Result<()> {
    let fields = FIELDS.union(SampleFields::CALLCHAIN);
    overflow(
        intervals,
        "overflow_callchain",
        &[Hardware::CpuCycles],
        fields,
    )
}

/// With an instruction a cycle, both overflow at once.
fn overflow_two_counters(intervals: &mut Intervals) -> Result<()> {
    let events = [Hardware::CpuCycles, Hardware::Instructions];
    overflow(
        intervals,
        "overflow_two_counters",
        &events,
        SampleFields::IP,
    )
}

/// Runs the loop while the events are sampled as one group, in user mode. Each sample of the leader
/// is one operation.
fn overflow(
    intervals: &mut Intervals,
    operation: &'static str,
    events: &[Hardware],
    fields: SampleFields,
) -> Result<()> {
    let attrs: Vec<_> = events
        .iter()
        .map(|&event| {
            let attr = Attr::new(event).exclude(Exclude::KERNEL | Exclude::HV);
            attr.sample(Rate::Period(PERIOD), fields)
        })
        .collect();
    let mut group = Group::open(&attrs[0], Target::ThisThread)?;
    for member in &attrs[1..] {
        group.add(member, Target::ThisThread)?;
    }
    let mut rings = group
        .events()
        .map(|event| Ring::map(event, 1 << 20))
        .collect::<Result<Vec<_>, _>>()?;
    for _ in 0..crate::ROUNDS {
        group.enable()?;
        intervals.measure(operation, 0, || {
            run_loop(ITERATIONS);
            Ok(())
        })?;
        // Off while the rings are read, or an overflow would be in one and not in another.
        group.disable()?;
        // How many samples there will be is known when there have been.
        intervals.0.last_mut().context("no interval")?.1 = samples(&mut rings)?;
    }
    Ok(())
}

/// The samples in each of the rings, which are emptied.
fn samples(rings: &mut [Ring]) -> Result<u64> {
    let mut numbers = Vec::new();
    for ring in rings {
        let mut number = 0;
        let mut unread = ring.read()?;
        while let Some(record) = unread.next_record()? {
            ensure!(
                record.header().kind == perfshim::sys::PERF_RECORD_SAMPLE,
                "a record that is no sample: lost, or throttled"
            );
            number += 1;
        }
        unread.commit();
        numbers.push(number);
    }
    ensure!(
        numbers.iter().all(|&number| number == numbers[0]),
        "the events gave {numbers:?} samples"
    );
    Ok(numbers[0])
}

/// The events that QEMU's CPUs count: cycles, instructions, software increments, stalls.
const EVENTS: [u64; 6] = [0x11, 0x08, 0x00, 0x23, 0x24, 0x3c];

fn pmu_event(event: u64) -> Result<EventConfig> {
    let pmus = Pmus::system()?;
    let pmu = pmus.core().next().context("there is no CPU PMU")?;
    Ok(EventConfig::new(pmu.type_id, event))
}

/// A child on the other side of two pipes, on this CPU.
struct Echo(Child);

impl Echo {
    fn start() -> Result<Self> {
        run_on(0)?;
        let child = Command::new("/proc/self/exe")
            .arg(ECHO)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        Ok(Self(child))
    }

    /// A byte there and back: two switches.
    fn round_trip(&mut self) -> Result<()> {
        let (Some(to), Some(from)) = (&self.0.stdin, &self.0.stdout) else {
            anyhow::bail!("the child has no pipes");
        };
        let mut byte = [0];
        rustix::io::write(to, &byte)?;
        rustix::io::read(from, &mut byte)?;
        Ok(())
    }

    /// The end of its input ends it.
    fn stop(mut self) -> Result<()> {
        drop(self.0.stdin.take());
        let status = self.0.wait()?;
        ensure!(status.success(), "the child ended with {status}");
        Ok(())
    }
}

/// The child's part: sends each byte back, until there are no more.
pub fn echo() -> Result<()> {
    let (mut input, mut output) = (io::stdin().lock(), io::stdout().lock());
    let mut byte = [0];
    while input.read(&mut byte)? == 1 {
        output.write_all(&byte)?;
        output.flush()?;
    }
    Ok(())
}

/// Events on this thread, off and on the counters with every switch; more than six take turns.
fn switch(intervals: &mut Intervals, operation: &'static str, events: usize) -> Result<()> {
    let mut echo = Echo::start()?;
    let _events: Vec<Event> = EVENTS
        .iter()
        .cycle()
        .take(events)
        .map(|&event| {
            Ok(Event::open(
                &Attr::new(pmu_event(event)?).enabled(),
                Target::ThisThread,
            )?)
        })
        .collect::<Result<_>>()?;
    echo.round_trip()?;
    intervals.rounds(operation, CALLS, || echo.round_trip())?;
    echo.stop()
}

/// By instruction if the kernel allows it, else by a system call.
fn user_read(intervals: &mut Intervals) -> Result<()> {
    let allow = "/proc/sys/kernel/perf_user_access";
    if fs::exists(allow)? {
        fs::write(allow, "1")?;
    }
    let config = EventConfig {
        config1: 2, // rdpmc
        ..pmu_event(EVENTS[1])?
    };
    let event = match Event::open(&Attr::new(config).enabled(), Target::ThisThread) {
        Ok(event) => event,
        Err(_) => Event::open(
            &Attr::new(pmu_event(EVENTS[1])?).enabled(),
            Target::ThisThread,
        )?,
    };
    let ring = Ring::map(&event, 0)?;
    intervals.rounds("user_read", CALLS, || {
        std::hint::black_box(ring.count()?.value);
        Ok(())
    })
}

/// With an event on the CPU, which stays open.
fn cpu_off_on(intervals: &mut Intervals) -> Result<()> {
    const CPU: u32 = 1;
    let _event = Event::open(&cycles(), Target::Cpu(CPU))?;
    let online = format!("/sys/devices/system/cpu/cpu{CPU}/online");
    let off_on = || {
        fs::write(&online, "0")?;
        Ok(fs::write(&online, "1")?)
    };
    run_on(0)?;
    off_on()?;
    settle(CPU)?;
    intervals.rounds("cpu_off_on", 1, off_on)
}
