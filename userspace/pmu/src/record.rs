// SPDX-License-Identifier: MIT OR Apache-2.0
//! Recording: takes samples of what is watched, and keeps them until it is over.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use perfshim::discovery::Pmus;
use perfshim::record::{Decoder, RawRecord, Record};
use perfshim::spec::{self, ResolvedEvent};
use perfshim::symbols::Symbolizer;
use perfshim::{Attr, Event, Rate, ReadFormat, Ring, SampleFields, SideBand, Target, Wakeup};
use rustix::io::Errno;

use crate::report::{self, Report};
use crate::until::{self, Until};
use crate::watch::{Request, Watch};
use crate::{interrupts, names};

/// What to sample, where, for how long, and where to write it.
pub struct Options {
    /// One event in perf's syntax.
    pub event: String,
    /// How often; the event's own `period=` or `freq=` comes first.
    pub rate: Rate,
    /// Whether to keep call chains.
    pub call_chain: bool,
    /// Least size of each CPU's ring.
    pub ring_bytes: usize,
    /// What to watch.
    pub request: Request,
    /// When to stop at the latest.
    pub limit: Option<Duration>,
    /// The folder to write to.
    pub output: PathBuf,
}

/// What was recorded.
pub struct Recording {
    /// The records of samples, one behind the other.
    bytes: Vec<u8>,
    /// Where each sample begins and ends in `bytes`, with its time.
    samples: Vec<(u64, std::ops::Range<usize>)>,
    decoder: Decoder,
    /// What the other records told of processes.
    pub symbolizer: Symbolizer,
    /// Records that the kernel could not write because a ring was full.
    pub lost: u64,
    /// How often the kernel stopped sampling for a while.
    pub throttled: u64,
}

/// Records, and writes the results into the folder.
///
/// # Errors
/// When the event is not understood or cannot be opened, the command cannot be run, or the folder
/// cannot be written.
pub fn run(options: Options) -> Result<Report> {
    let pmus = Pmus::system()?;
    let events = resolve(&options.event, &pmus)?;
    std::fs::create_dir_all(&options.output)
        .with_context(|| format!("making the folder {}", options.output.display()))?;
    let mut until = Until::new(options.limit)?;
    let mut watch = Watch::new(options.request.clone())?;
    let (opened, mut rings) = open(&events, &watch, &options)?;
    let mut recording = Recording::new(opened.first().context("no event was opened")?.attr());
    match watch.process().or(watch.waiting()) {
        Some(pid) if watch.is_per_thread() => recording.symbolizer.load_process(pid)?,
        _ => recording.symbolizer.load_running()?,
    }

    let before = interrupts::count().ok().flatten();
    // Before the command runs, so that nothing of it is missed.
    if !watch.starts_by_itself() {
        for event in &opened {
            event.enable()?;
        }
    }
    let mut child = watch.start()?;
    if let Some(child) = &child {
        until.child(child)?;
    }
    if let Some(pid) = watch.process() {
        until.process(pid)?;
    }
    recording.collect(&mut rings, &until)?;
    let mut gone = false;
    for event in &opened {
        match event.disable() {
            Err(error) if is_gone(&error) => gone = true,
            result => result?,
        }
    }
    if gone {
        eprintln!("pmu: the PMU went away during the recording; what came before that is kept");
    }
    for ring in &mut rings {
        recording.drain(ring)?;
    }
    let after = interrupts::count().ok().flatten();
    recording.finish(&opened)?;
    let exit_status = match &mut child {
        Some(child) => until.end(child)?,
        None => None,
    };
    let machine = report::Machine::new(&pmus, &events, before.zip(after));
    let report = report::write(recording, machine, exit_status, &options.output)?;
    Ok(report)
}

/// Whether an event is dead because its PMU is gone, as when its driver is unbound. What it wrote
/// to its ring is still there.
fn is_gone(error: &perfshim::Error) -> bool {
    error.errno() == Some(Errno::NODEV)
}

/// The one event that was asked for; several where several PMUs serve it.
fn resolve(text: &str, pmus: &Pmus) -> Result<Vec<ResolvedEvent>> {
    let groups = spec::resolve(text, pmus).map_err(names::explain)?;
    let one_each = groups.iter().all(|group| group.events.len() == 1);
    let events: Vec<ResolvedEvent> = groups.into_iter().flat_map(|group| group.events).collect();
    let served_by_several = events.iter().all(|event| event.pmu.is_some());
    ensure!(
        one_each && (events.len() == 1 || served_by_several),
        "sampling takes one event, and {text:?} is {}",
        events.len()
    );
    Ok(events)
}

/// Opens the events on every target, with a ring for each CPU.
fn open(
    events: &[ResolvedEvent],
    watch: &Watch,
    options: &Options,
) -> Result<(Vec<Event>, Vec<Ring>)> {
    let mut opened = Vec::new();
    let mut rings: BTreeMap<Option<u32>, Ring> = BTreeMap::new();
    for event in events {
        let attr = watch.attr(attr(event, options), event);
        for target in watch.targets_with_ring() {
            if !serves(event, target) {
                continue;
            }
            let counter = Event::open(&attr, target)
                .with_context(|| format!("sampling {} on {target}", event.name))?;
            match rings.get(&target.cpu()) {
                Some(ring) => ring.take_output_of(&counter)?,
                None => {
                    rings.insert(target.cpu(), Ring::map(&counter, options.ring_bytes)?);
                }
            }
            opened.push(counter);
        }
    }
    Ok((opened, rings.into_values().collect()))
}

/// Whether the event's PMU counts on the target's CPU.
fn serves(event: &ResolvedEvent, target: Target<'_>) -> bool {
    match (&event.cpus, target.cpu()) {
        (Some(cpus), Some(cpu)) => cpus.contains(cpu),
        _ => true,
    }
}

fn attr(event: &ResolvedEvent, options: &Options) -> Attr {
    let mut fields = SampleFields::IP
        | SampleFields::TID
        | SampleFields::TIME
        | SampleFields::CPU
        | SampleFields::PERIOD;
    if options.call_chain {
        fields |= SampleFields::CALLCHAIN;
    }
    let quarter = u32::try_from(options.ring_bytes / 4).unwrap_or(u32::MAX);
    event
        .sampling(options.rate, fields)
        .read_format(ReadFormat::LOST)
        .side_band(SideBand::MMAP | SideBand::MMAP2 | SideBand::COMM | SideBand::COMM_EXEC)
        .side_band(SideBand::TASK)
        .wakeup(Wakeup::Bytes(quarter))
}

impl Recording {
    /// An empty recording of events with these attributes.
    pub fn new(attr: &Attr) -> Self {
        Self {
            bytes: Vec::new(),
            samples: Vec::new(),
            decoder: Decoder::new(attr),
            symbolizer: Symbolizer::new(),
            lost: 0,
            throttled: 0,
        }
    }

    /// Reads the rings until it is time to stop.
    fn collect(&mut self, rings: &mut [Ring], until: &Until) -> Result<()> {
        let mut live: Vec<usize> = (0..rings.len()).collect();
        loop {
            let fds: Vec<_> = live.iter().map(|&index| rings[index].as_fd()).collect();
            let until::Event::Look { ended } = until.wait(&fds)? else {
                return Ok(());
            };
            for ring in rings.iter_mut() {
                self.drain(ring)?;
            }
            for place in ended.into_iter().rev() {
                live.remove(place);
            }
        }
    }

    /// Keeps what is unread.
    fn drain(&mut self, ring: &mut Ring) -> Result<()> {
        let mut unread = ring.read()?;
        while let Some(raw) = unread.next_record()? {
            self.keep(raw)?;
        }
        Ok(())
    }

    /// Keeps a sample, or learns from another record.
    pub fn keep(&mut self, raw: RawRecord<'_>) -> Result<()> {
        let decoded = self.decoder.decode(raw)?;
        match &decoded.record {
            Record::Sample(sample) => {
                let start = self.bytes.len();
                self.bytes.extend_from_slice(raw.bytes());
                let time = sample.time.unwrap_or(0);
                self.samples.push((time, start..self.bytes.len()));
            }
            Record::Lost(lost) => self.lost = self.lost.saturating_add(lost.lost),
            Record::LostSamples { lost } => self.lost = self.lost.saturating_add(*lost),
            Record::Throttle(_) => self.throttled += 1,
            _ => self.symbolizer.learn(&decoded),
        }
        Ok(())
    }

    /// Adds the losses that no record told of: those since the last record was written.
    fn finish(&mut self, events: &[Event]) -> Result<()> {
        let mut lost = 0u64;
        for event in events {
            let count = match event.read() {
                Err(error) if is_gone(&error) => continue,
                count => count?,
            };
            lost = lost.saturating_add(count.lost.unwrap_or(0));
        }
        self.lost = self.lost.max(lost);
        // Each ring is in order; together they are not.
        self.samples.sort_by_key(|(time, _)| *time);
        Ok(())
    }

    /// The number of samples.
    pub fn len(&self) -> usize {
        self.samples.len()
    }

    /// Whether there is no sample.
    pub fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }

    /// Calls `f` for each sample with its frames, in the order of time.
    ///
    /// # Errors
    /// Those of `f`.
    pub fn for_each(&mut self, mut f: impl FnMut(report::Sample) -> Result<()>) -> Result<()> {
        for (number, (_, place)) in (1..).zip(&self.samples) {
            let raw = RawRecord::new(&self.bytes[place.clone()])?;
            let decoded = self.decoder.decode(raw)?;
            let Record::Sample(sample) = decoded.record else {
                continue;
            };
            let thread = sample.thread.unwrap_or_default();
            let time = sample.time.unwrap_or(0);
            f(report::Sample {
                number,
                program: self.program(thread.tid, time),
                ip: sample.ip.unwrap_or(0),
                pid: thread.pid,
                tid: thread.tid,
                time,
                cpu: sample.cpu.unwrap_or(0),
                period: sample.period.unwrap_or(0),
                frames: self.symbolizer.sample(decoded.misc, &sample),
            })?;
        }
        Ok(())
    }

    /// The name of the task. The kernel's idle task, one on each CPU, has the number 0 and is not
    /// in /proc.
    fn program(&self, tid: u32, time: u64) -> Arc<str> {
        match tid {
            0 => "[idle]".into(),
            tid => self
                .symbolizer
                .comm(tid, time)
                .unwrap_or_else(|| "?".into()),
        }
    }
}
