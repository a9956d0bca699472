// SPDX-License-Identifier: MIT OR Apache-2.0
//! Short forms of what most tests do with perfshim.

use anyhow::{Context, Result, ensure};
use perfshim::{Attr, Count, Event, EventConfig, Exclude, Group, Hardware, ReadFormat, Target};
use rustix::io::Errno;

/// CPU cycles, which get the cycle counter while it is free and an event counter otherwise.
pub const CYCLES: Hardware = Hardware::CpuCycles;

/// Attributes that count `event` in user mode only.
pub fn user(event: impl Into<EventConfig>) -> Attr {
    Attr::new(event).exclude(Exclude::KERNEL | Exclude::HV)
}

/// Opens an event whose reads return its times too.
pub fn open(attr: &Attr, target: Target<'_>) -> Result<Event> {
    Ok(Event::open(
        &attr.clone().read_format(ReadFormat::TIMES),
        target,
    )?)
}

/// Opens an event as a member of `leader`'s group; reads return its own count and times.
pub fn open_member(attr: &Attr, target: Target<'_>, leader: &Event) -> Result<Event> {
    let attr = attr.clone().read_format(ReadFormat::TIMES);
    Ok(Event::open_in_group(&attr, target, leader)?)
}

/// Opens a group of these events.
pub fn open_group(attrs: &[Attr], target: Target<'_>) -> Result<Group> {
    let (leader, members) = attrs.split_first().context("a group has a leader")?;
    let mut group = Group::open(leader, target)?;
    for member in members {
        group.add(member, target)?;
    }
    Ok(group)
}

/// What the kernel answers to an open that it refuses; `None` if it opens.
pub fn refusal(attr: &Attr, target: Target<'_>) -> Result<Option<Errno>> {
    match Event::open(attr, target) {
        Ok(_) => Ok(None),
        Err(error) => match error.errno() {
            Some(errno) => Ok(Some(errno)),
            None => Err(error.into()),
        },
    }
}

/// The errno in an error of perfshim.
pub fn errno(error: &anyhow::Error) -> Option<Errno> {
    error.downcast_ref::<perfshim::Error>()?.errno()
}

/// A count with its times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// How often the event was counted.
    pub value: u64,
    /// Nanoseconds enabled.
    pub enabled: u64,
    /// Nanoseconds on a counter.
    pub running: u64,
}

impl Reading {
    fn new(count: &Count) -> Result<Self> {
        Ok(Self {
            value: count.value,
            enabled: count
                .time_enabled
                .context("a read without the time enabled")?,
            running: count
                .time_running
                .context("a read without the time running")?,
        })
    }

    /// What the count would be had the event been on a counter all the time.
    pub fn scaled(&self) -> Result<u64> {
        ensure!(
            self.running > 0,
            "the event was never on a counter: {self:?}"
        );
        let scaled = u128::from(self.value) * u128::from(self.enabled) / u128::from(self.running);
        Ok(u64::try_from(scaled)?)
    }
}

/// Reads an event opened by [`open`].
pub fn read(event: &Event) -> Result<Reading> {
    Reading::new(&event.read()?)
}

/// Reads a group opened by [`open_group`], the leader first.
pub fn read_group(group: &Group) -> Result<Vec<Reading>> {
    group.read()?.iter().map(Reading::new).collect()
}

/// What `event` counts while `work` runs.
#[inline(never)]
pub fn count(event: &Event, work: impl FnOnce()) -> Result<u64> {
    event.reset()?;
    event.enable()?;
    work();
    event.disable()?;
    Ok(read(event)?.value)
}

/// What the members of a group of these events count while `work` runs.
pub fn count_group<const MEMBERS: usize>(
    attrs: &[Attr; MEMBERS],
    target: Target<'_>,
    work: impl FnOnce(),
) -> Result<[u64; MEMBERS]> {
    let group = open_group(attrs, target)?;
    group.enable()?;
    work();
    group.disable()?;
    let readings = read_group(&group)?;
    ensure!(
        readings
            .iter()
            .all(|reading| reading.running == reading.enabled),
        "the group shared its counters: {readings:?}"
    );
    let values: Vec<u64> = readings.iter().map(|reading| reading.value).collect();
    let found = values.len();
    values
        .try_into()
        .ok()
        .with_context(|| format!("a group of {MEMBERS} events read as {found}"))
}

/// Whether two numbers are near each other.
pub trait Within {
    /// Whether this differs from `other` by at most so many percent of it.
    fn within(self, percent: f64, other: u64) -> bool;
}

impl Within for u64 {
    fn within(self, percent: f64, other: u64) -> bool {
        self.abs_diff(other) as f64 <= other as f64 * percent / 100.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn within_is_of_the_other_number() {
        assert!(95.within(5.0, 100));
        assert!(105.within(5.0, 100));
        assert!(!94.within(5.0, 100));
        assert!(!106.within(5.0, 100));
        assert!(!0.within(5.0, 100));
        assert!(0.within(5.0, 0));
    }

    #[test]
    fn a_reading_scales_by_its_times() {
        let reading = |value, enabled, running| Reading {
            value,
            enabled,
            running,
        };
        assert_eq!(reading(10, 400, 100).scaled().unwrap(), 40);
        assert_eq!(reading(u64::MAX / 2, 4, 2).scaled().unwrap(), u64::MAX - 1);
        assert!(reading(0, 400, 0).scaled().is_err());
    }
}
