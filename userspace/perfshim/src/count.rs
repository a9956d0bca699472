// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counts: what a `read(2)` of an event returns, and what samples with the field `READ` hold.

use crate::flags::ReadFormat;
use crate::record::DecodeError;
use crate::record::cursor::{Cursor, Words};

/// The count of one event, with what its [`ReadFormat`] asked for beside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// How often the event was counted.
    pub value: u64,
    /// Nanoseconds for which the event was enabled.
    pub time_enabled: Option<u64>,
    /// Nanoseconds for which the event was on a counter.
    pub time_running: Option<u64>,
    /// Id of the event.
    pub id: Option<u64>,
    /// Number of samples that were lost because the ring was full.
    pub lost: Option<u64>,
}

impl Count {
    /// Estimates what the count would be had the event been on a counter whenever it was
    /// enabled: value × enabled ÷ running, rounded down.
    ///
    /// `None` where the times were not asked for, and where the event never ran, so that nothing
    /// is known. An event that was never enabled counted exactly 0.
    pub fn scaled(&self) -> Option<u64> {
        let enabled = self.time_enabled?;
        match self.time_running? {
            0 if enabled == 0 => Some(self.value),
            0 => None,
            running => {
                let scaled = u128::from(self.value) * u128::from(enabled) / u128::from(running);
                Some(u64::try_from(scaled).unwrap_or(u64::MAX))
            }
        }
    }

    /// Whether the event shared its counter, so that the count is a part only.
    pub fn was_multiplexed(&self) -> bool {
        match (self.time_enabled, self.time_running) {
            (Some(enabled), Some(running)) => running < enabled,
            _ => false,
        }
    }
}

/// Counts of one event or of a group, as the kernel laid them out (`struct read_format`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts<'a> {
    format: ReadFormat,
    time_enabled: Option<u64>,
    time_running: Option<u64>,
    /// Value, and id and lost count where asked for, of each member.
    members: Words<'a>,
}

impl<'a> Counts<'a> {
    /// Takes the counts off the front of `cursor`.
    pub(crate) fn take(format: ReadFormat, cursor: &mut Cursor<'a>) -> Result<Self, DecodeError> {
        let unknown = format.difference(ReadFormat::all());
        if !unknown.is_empty() {
            return Err(DecodeError::UnknownFields(unknown.bits()));
        }
        if format.contains(ReadFormat::GROUP) {
            // The group says how many members it has: it may have grown since it was opened.
            let members = cursor.u64("nr")?;
            let (time_enabled, time_running) = times(format, cursor)?;
            let words = members.saturating_mul(words_per_member(format));
            Ok(Self {
                format,
                time_enabled,
                time_running,
                members: cursor.words(words, "group members")?,
            })
        } else {
            // The value comes first here, so the words of the one member are not in one piece:
            // step over the times between them.
            let mut ahead = *cursor;
            let all = u64::from((format & ReadFormat::TIMES).bits().count_ones());
            let words = cursor.words(all + words_per_member(format), "counts")?;
            ahead.u64("value")?;
            let (time_enabled, time_running) = times(format, &mut ahead)?;
            Ok(Self {
                format,
                time_enabled,
                time_running,
                members: words,
            })
        }
    }

    /// Decodes what a `read(2)` of an event with this format returned.
    pub fn from_read(format: ReadFormat, bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut cursor = Cursor::new(bytes);
        let counts = Self::take(format, &mut cursor)?;
        match cursor.left() {
            0 => Ok(counts),
            left => Err(DecodeError::Trailing { left }),
        }
    }

    /// The events, the leader first.
    pub fn iter(self) -> impl Iterator<Item = Count> + 'a {
        let group = self.format.contains(ReadFormat::GROUP);
        let times = (self.format & ReadFormat::TIMES).bits().count_ones() as usize;
        let stride = words_per_member(self.format) as usize;
        let (members, behind_value) = if group {
            (self.members.len() / stride, 1)
        } else {
            (1, 1 + times)
        };
        (0..members).map(move |member| {
            let base = member * stride;
            let mut next = base + behind_value;
            let mut word_if = |flag| {
                self.format.contains(flag).then(|| {
                    next += 1;
                    self.members.get(next - 1).unwrap_or_default()
                })
            };
            Count {
                id: word_if(ReadFormat::ID),
                lost: word_if(ReadFormat::LOST),
                value: self.members.get(base).unwrap_or_default(),
                time_enabled: self.time_enabled,
                time_running: self.time_running,
            }
        })
    }

    /// The first event: the only one, or the leader of the group. A group is never empty, but a
    /// record may lie.
    pub fn first(self) -> Option<Count> {
        self.iter().next()
    }

    /// The event with this id; `None` where ids were not asked for.
    pub fn by_id(self, id: u64) -> Option<Count> {
        self.iter().find(|count| count.id == Some(id))
    }
}

fn words_per_member(format: ReadFormat) -> u64 {
    let beside = format & (ReadFormat::ID | ReadFormat::LOST);
    1 + u64::from(beside.bits().count_ones())
}

fn times(
    format: ReadFormat,
    cursor: &mut Cursor<'_>,
) -> Result<(Option<u64>, Option<u64>), DecodeError> {
    let mut take = |flag, field| match format.contains(flag) {
        true => cursor.u64(field).map(Some),
        false => Ok(None),
    };
    let enabled = take(ReadFormat::TOTAL_TIME_ENABLED, "time_enabled")?;
    let running = take(ReadFormat::TOTAL_TIME_RUNNING, "time_running")?;
    Ok((enabled, running))
}
