// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ring under load: everything there when the reader keeps up, and the exact number of lost
//! records when it does not.

use std::collections::HashMap;

use anyhow::{Context, Result, bail, ensure};
use perfshim::record::{Decoder, Record, Sample};
use perfshim::{Attr, Event, OverwriteRing, Rate, ReadFormat, Ring, SampleFields, Target};
use workloads::{INSTRUCTIONS_PER_ITERATION, run_loop};

use crate::counters::{CYCLES, user};
use crate::guest;
use crate::registry::Test;

pub const TESTS: &[Test] = &[
    Test::new(
        "ring-wrap",
        "a million records wrap the ring many times, none lost or torn while they are read",
        || wrap(1_000_000),
    )
    .kernels("release,stock")
    .icount()
    .timeout(180),
    Test::new(
        "ring-wrap-debug",
        "the same with fewer records, since this kernel is slow",
        || wrap(20_000),
    )
    .kernels("debug")
    .icount(),
    Test::new(
        "ring-lost",
        "when nobody reads, the lost samples are counted exactly, in the ring and by read",
        lost,
    )
    .icount(),
    Test::new(
        "ring-overwrite",
        "a ring that is overwritten holds the newest samples without a gap",
        overwrite,
    )
    .icount(),
];

/// The smallest ring: one page.
const SMALL: usize = 4096;

/// Fields that let a missing or torn sample be seen: the event's count grows with each.
fn telling_fields() -> SampleFields {
    SampleFields::IP
        | SampleFields::TID
        | SampleFields::TIME
        | SampleFields::CPU
        | SampleFields::PERIOD
        | SampleFields::IDENTIFIER
        | SampleFields::READ
}

/// User cycles, sampled each `period` with fields that tell.
fn telling(period: u64) -> Attr {
    user(CYCLES)
        .sample(Rate::Period(period), telling_fields())
        .read_format(ReadFormat::ID | ReadFormat::LOST)
}

/// The number of an event's samples, and the time of the last one.
#[derive(Default)]
struct Seen {
    samples: u64,
    time: u64,
}

/// Checks samples one after the other.
struct Checker {
    period: u64,
    tid: u32,
    events: HashMap<u64, Seen>,
    lost: u64,
    /// Size of all records.
    bytes: u64,
}

impl Checker {
    fn new(period: u64) -> Self {
        Self {
            period,
            tid: rustix::thread::gettid()
                .as_raw_nonzero()
                .get()
                .unsigned_abs(),
            events: HashMap::new(),
            lost: 0,
            bytes: 0,
        }
    }

    /// Samples of all events.
    fn samples(&self) -> u64 {
        self.events.values().map(|seen| seen.samples).sum()
    }

    /// Reads all that is unread, and fails at what cannot be.
    fn drain(&mut self, ring: &mut Ring, decoder: &Decoder) -> Result<()> {
        let mut unread = ring.read()?;
        while let Some(raw) = unread.next_record()? {
            self.bytes += u64::from(raw.header().size);
            match decoder.decode(raw)?.record {
                Record::Sample(sample) => self.check(&sample)?,
                Record::Lost(lost) => self.lost += lost.lost,
                other => bail!("a record that nobody asked for: {other:?}"),
            }
        }
        Ok(())
    }

    fn check(&mut self, sample: &Sample<'_>) -> Result<()> {
        let id = sample
            .identifier
            .context("a sample without an identifier")?;
        let count = sample.counts.and_then(|counts| counts.first());
        let count = count.context("a sample without a count")?;
        ensure!(
            count.id == Some(id),
            "the sample of event {id} holds the count of {:?}",
            count.id
        );
        ensure!(
            sample.period == Some(self.period),
            "period {:?}",
            sample.period
        );
        ensure!(
            sample.thread.is_some_and(|thread| thread.tid == self.tid),
            "thread {:?}, not {}",
            sample.thread,
            self.tid
        );
        // User code is in the lower half. 0 stands for an address in the kernel that an event of
        // user code alone must not tell: an interrupt that came late.
        ensure!(
            sample.ip.is_some_and(|ip| ip >> 63 == 0),
            "IP {:x?}",
            sample.ip
        );
        let time = sample.time.context("a sample without a time")?;
        let seen = self.events.entry(id).or_default();
        ensure!(
            time > seen.time,
            "a sample at {time} ns after one at {} ns",
            seen.time
        );
        seen.samples += 1;
        ensure!(
            count.value / self.period == seen.samples,
            "sample {} of event {id} came at a count of {}, with a period of {}",
            seen.samples,
            count.value,
            self.period
        );
        seen.time = time;
        Ok(())
    }
}

fn wrap(least: u64) -> Result<()> {
    // Seven events that overflow together: seven records an interrupt.
    const EVENTS: usize = 7;
    const PERIOD: u64 = 10_000;
    let _rate = guest::SampleRate::unlimited()?;
    let attr = telling(PERIOD);
    let mut events = vec![Event::open(&attr, Target::ThisThread)?];
    let mut ring = Ring::map(&events[0], 2 * SMALL)?;
    for _ in 1..EVENTS {
        let member = attr.clone().enabled();
        let event = Event::open_in_group(&member, Target::ThisThread, &events[0])?;
        ring.take_output_of(&event)?;
        events.push(event);
    }
    let decoder = Decoder::new(&attr);
    let mut checker = Checker::new(PERIOD);
    events[0].enable()?;
    while checker.samples() < least {
        // A period: what comes meanwhile is a part of the ring.
        run_loop(PERIOD / INSTRUCTIONS_PER_ITERATION);
        checker.drain(&mut ring, &decoder)?;
    }
    events[0].disable()?;
    checker.drain(&mut ring, &decoder)?;
    ensure!(
        checker.lost == 0,
        "{} records were lost while they were read",
        checker.lost
    );
    // The head counts every byte that the kernel has ever written.
    let written = ring.page().data_head();
    ensure!(
        checker.bytes == written,
        "{} bytes of records were read, {written} were written",
        checker.bytes
    );
    ensure!(
        written > 100 * ring.size() as u64,
        "{written} bytes hardly wrap a ring of {}",
        ring.size()
    );
    for event in &events {
        let seen = checker.events.get(&event.id()?);
        let seen = seen.context("an event without samples")?;
        let count = event.read()?;
        ensure!(
            seen.samples == count.value / PERIOD && count.lost == Some(0),
            "{} samples of {count:?} at a period of {PERIOD}",
            seen.samples
        );
    }
    Ok(())
}

fn lost() -> Result<()> {
    const PERIOD: u64 = 20_000;
    let _rate = guest::SampleRate::unlimited()?;
    let attr = telling(PERIOD);
    let event = Event::open(&attr, Target::ThisThread)?;
    let mut ring = Ring::map(&event, SMALL)?;
    let decoder = Decoder::new(&attr);
    event.enable()?;
    run_loop(2_000_000);
    event.disable()?;
    let mut kept = 0;
    let mut told = 0;
    let mut drain = |ring: &mut Ring| -> Result<()> {
        let mut unread = ring.read()?;
        while let Some(raw) = unread.next_record()? {
            match decoder.decode(raw)?.record {
                Record::Sample(_) => kept += 1,
                Record::Lost(lost) => told += lost.lost,
                other => bail!("a record that nobody asked for: {other:?}"),
            }
        }
        Ok(())
    };
    drain(&mut ring)?;
    // With room again, the next record says how many are missing.
    event.enable()?;
    run_loop(PERIOD / 4);
    event.disable()?;
    drain(&mut ring)?;
    let count = event.read()?;
    let lost = count.lost.context("a read without the lost samples")?;
    ensure!(lost > 0, "a full ring lost nothing");
    ensure!(
        told == lost,
        "the ring tells of {told} lost records, read of {lost}"
    );
    ensure!(
        kept + lost == count.value / PERIOD,
        "{kept} samples and {lost} lost ones are not the {} of {} cycles",
        count.value / PERIOD,
        count.value
    );
    Ok(())
}

fn overwrite() -> Result<()> {
    const PERIOD: u64 = 20_000;
    let _rate = guest::SampleRate::unlimited()?;
    let attr = telling(PERIOD).write_backward();
    let event = Event::open(&attr, Target::ThisThread)?;
    let mut ring = OverwriteRing::map(&event, SMALL)?;
    event.enable()?;
    run_loop(2_000_000);
    event.disable()?;
    let total = event.read()?.value / PERIOD;
    let decoder = Decoder::new(&attr);
    let snapshot = ring.snapshot()?;
    let mut periods = Vec::new();
    snapshot.for_each(|raw| -> Result<()> {
        let Record::Sample(sample) = decoder.decode(raw)?.record else {
            bail!("a record that nobody asked for");
        };
        let count = sample.counts.and_then(|counts| counts.first());
        periods.push(count.context("a sample without a count")?.value / PERIOD);
        Ok(())
    })?;
    ensure!(
        periods.len() > 10,
        "only {} samples in a page",
        periods.len()
    );
    // The newest first.
    let want: Vec<u64> = (0..periods.len() as u64).map(|back| total - back).collect();
    ensure!(periods == want, "of {total} samples there are {periods:?}");
    Ok(())
}
