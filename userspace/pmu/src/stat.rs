// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counting: opens events on what is watched, and adds up what they counted.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use perfshim::discovery::Pmus;
use perfshim::spec::{self, ResolvedEvent, ResolvedGroup};
use perfshim::{Event, EventConfig, ReadFormat, Software, Target};
use rustix::io::Errno;
use serde::Serialize;

use crate::text::{grouped, percent};
use crate::until::{self, Until};
use crate::watch::{Request, Watch};
use crate::{names, system};

/// What is counted when nothing else is asked for. Those that a machine does not have are reported
/// as such.
pub const DEFAULT_EVENTS: &str =
    "task-clock,context-switches,cpu-migrations,page-faults,cycles,instructions";

/// What to count, where, and for how long.
pub struct Options {
    /// Events in perf's syntax; `None` for [`DEFAULT_EVENTS`].
    pub events: Option<String>,
    /// What to watch.
    pub request: Request,
    /// When to stop at the latest.
    pub limit: Option<Duration>,
}

/// What was counted.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The kernel's release.
    pub kernel: String,
    /// The driver of the CPU's PMU.
    pub driver: Option<String>,
    /// Seconds from the start to the end.
    pub seconds: f64,
    /// A row for each event, in the order in which they were asked for.
    pub events: Vec<Row>,
    /// The exit status of the command, if there was one that ended by itself; 128 and the signal's
    /// number if a signal ended it.
    pub exit_status: Option<i32>,
}

/// One event's count, added up over threads and CPUs.
#[derive(Debug, Serialize)]
pub struct Row {
    /// The event as it was asked for.
    pub name: String,
    /// How often it happened, scaled up where it shared a counter; `None` where it could not be
    /// counted at all.
    pub count: Option<u64>,
    /// The count as it was read.
    pub counted: u64,
    /// Nanoseconds for which it was enabled.
    pub enabled: u64,
    /// Nanoseconds for which it was on a counter.
    pub running: u64,
    /// The unit of the count times [`Row::scale`].
    pub unit: Option<String>,
    /// What to multiply the count with to get that unit.
    pub scale: f64,
    /// Why there is no count.
    pub problem: Option<String>,
}

/// The open events of one row.
struct Counter {
    event: ResolvedEvent,
    open: Vec<Event>,
    problem: Option<String>,
}

/// Counts.
///
/// # Errors
/// When an event is not understood, cannot be opened (unless it is a default one that the machine
/// lacks), or the command cannot be run.
pub fn run(options: Options) -> Result<Report> {
    let text = options.events.as_deref().unwrap_or(DEFAULT_EVENTS);
    let pmus = Pmus::system()?;
    let groups = spec::resolve(text, &pmus).map_err(names::explain)?;
    let mut until = Until::new(options.limit)?;
    let mut watch = Watch::new(options.request)?;
    let mut counters = Vec::new();
    for group in groups {
        open(group, &watch, options.events.is_none(), &mut counters)?;
    }
    let start = Instant::now();
    // Before the command runs, so that nothing of it is missed.
    if !watch.starts_by_itself() {
        for event in counters.iter().flat_map(|counter| &counter.open) {
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
    while until.wait(&[])? != until::Event::Stop {}
    let seconds = start.elapsed().as_secs_f64();
    for event in counters.iter().flat_map(|counter| &counter.open) {
        event.disable()?;
    }
    let events = counters.iter().map(Counter::row).collect::<Result<_>>()?;
    let exit_status = match &mut child {
        Some(child) => until.end(child)?,
        None => None,
    };
    Ok(Report {
        kernel: system::kernel_release(),
        driver: system::driver(),
        seconds,
        events,
        exit_status,
    })
}

/// Opens a group on every target. Where `optional`, events that the machine lacks become rows that
/// say so.
fn open(
    group: ResolvedGroup,
    watch: &Watch,
    optional: bool,
    counters: &mut Vec<Counter>,
) -> Result<()> {
    let first = counters.len();
    counters.extend(group.events.into_iter().map(|event| Counter {
        event,
        open: Vec::new(),
        problem: None,
    }));
    let members = &mut counters[first..];
    for target in watch.targets() {
        // The leader's place in its own row, once it is open.
        let mut leader: Option<Event> = None;
        for member in members.iter_mut() {
            let attr = watch.attr(member.event.counting(), &member.event);
            let mut attr = attr.read_format(ReadFormat::TIMES);
            if leader.is_some() {
                // A member follows its leader.
                attr = attr.enabled();
            }
            let opened = match &leader {
                Some(leader) => Event::open_in_group(&attr, target, leader),
                None => Event::open(&attr, target),
            };
            match opened {
                Ok(event) if leader.is_none() => leader = Some(event),
                Ok(event) => member.open.push(event),
                Err(error) if optional && is_absent(&error) => {
                    member.problem = Some("this machine does not count it".to_owned());
                }
                Err(error) => return Err(error).context(describe(&member.event, target)),
            }
        }
        if let (Some(leader), Some(member)) = (leader, members.first_mut()) {
            member.open.push(leader);
        }
    }
    Ok(())
}

fn describe(event: &ResolvedEvent, target: Target<'_>) -> String {
    format!("counting {} on {target}", event.name)
}

/// Whether an event cannot be had on this machine at all.
fn is_absent(error: &perfshim::Error) -> bool {
    matches!(
        error.errno(),
        Some(Errno::NOENT | Errno::NODEV | Errno::OPNOTSUPP)
    )
}

impl Counter {
    fn row(&self) -> Result<Row> {
        let clocks = [Software::CpuClock, Software::TaskClock].map(EventConfig::from);
        let (unit, scale) = match clocks.contains(&self.event.config) {
            // They count nanoseconds, which sysfs does not say.
            true => (Some("ms".to_owned()), 1e-6),
            false => (self.event.unit.clone(), self.event.scale),
        };
        let mut row = Row {
            name: self.event.name.clone(),
            count: None,
            counted: 0,
            enabled: 0,
            running: 0,
            unit,
            scale,
            problem: self.problem.clone(),
        };
        let mut total = Some(0u64);
        for event in &self.open {
            let count = event.read()?;
            row.counted = row.counted.saturating_add(count.value);
            row.enabled = row.enabled.saturating_add(count.time_enabled.unwrap_or(0));
            row.running = row.running.saturating_add(count.time_running.unwrap_or(0));
            total = total
                .zip(count.scaled())
                .map(|(sum, more)| sum.saturating_add(more));
        }
        if !self.open.is_empty() {
            row.count = total;
            if total.is_none() {
                row.problem = Some("it was never on a counter".to_owned());
            }
        }
        Ok(row)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let driver = self.driver.as_deref().unwrap_or("none");
        writeln!(f, "kernel {}, PMU driver {driver}\n", self.kernel)?;
        for row in &self.events {
            let problem = row.problem.as_deref().unwrap_or("unknown");
            let Some(count) = row.count else {
                writeln!(f, "{:>20}  {:<28} ({problem})", "-", row.name)?;
                continue;
            };
            let value = match &row.unit {
                Some(unit) => format!("{:.2} {unit}", count as f64 * row.scale),
                None => grouped(count),
            };
            write!(f, "{value:>20}  {:<28}", row.name)?;
            if row.running < row.enabled {
                let share = percent(row.running, row.enabled);
                write!(f, " (estimated from {share} of the time)")?;
            }
            writeln!(f)?;
        }
        write!(f, "\n{:>20.6}  seconds", self.seconds)
    }
}
