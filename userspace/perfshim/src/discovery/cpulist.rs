// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sets of CPUs as the kernel writes them: `0-3,7`.

use std::fmt;
use std::fs;
use std::io;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// A set of CPU numbers, kept as sorted ranges that neither overlap nor touch.
///
/// The text form is the kernel's list format (Documentation/admin-guide/cputopology.rst): numbers
/// and ranges separated by commas, an empty text for the empty set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuList {
    ranges: Vec<RangeInclusive<u32>>,
}

impl CpuList {
    /// The CPUs that are on line now, from `/sys/devices/system/cpu/online`.
    ///
    /// # Errors
    /// When the file cannot be read, or holds no CPU list (`InvalidData`).
    pub fn online() -> io::Result<Self> {
        let file = "/sys/devices/system/cpu/online";
        let in_file =
            |kind, what: &dyn fmt::Display| io::Error::new(kind, format!("{file}: {what}"));
        let text = fs::read_to_string(file).map_err(|e| in_file(e.kind(), &e))?;
        text.parse()
            .map_err(|e: CpuListError| in_file(io::ErrorKind::InvalidData, &e))
    }

    /// Every CPU number in the set, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.ranges.iter().cloned().flatten()
    }

    /// Whether `cpu` is in the set.
    pub fn contains(&self, cpu: u32) -> bool {
        self.ranges.iter().any(|range| range.contains(&cpu))
    }

    /// Whether no CPU is in the set.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The number of CPUs in the set; up to 2^32, hence the wide type.
    pub fn len(&self) -> u64 {
        self.ranges
            .iter()
            .map(|range| u64::from(*range.end()) - u64::from(*range.start()) + 1)
            .sum()
    }

    /// The CPUs that are in both sets.
    pub fn intersection(&self, other: &Self) -> Self {
        let mut ranges = Vec::new();
        for a in &self.ranges {
            for b in &other.ranges {
                let (start, end) = (*a.start().max(b.start()), *a.end().min(b.end()));
                if start <= end {
                    ranges.push(start..=end);
                }
            }
        }
        Self::from_ranges(ranges)
    }

    fn from_ranges(mut ranges: Vec<RangeInclusive<u32>>) -> Self {
        ranges.sort_by_key(|range| *range.start());
        let mut merged: Vec<RangeInclusive<u32>> = Vec::with_capacity(ranges.len());
        for range in ranges {
            match merged.last_mut() {
                Some(last) if *range.start() <= last.end().saturating_add(1) => {
                    *last = *last.start()..=*last.end().max(range.end());
                }
                _ => merged.push(range),
            }
        }
        Self { ranges: merged }
    }
}

impl FromIterator<u32> for CpuList {
    fn from_iter<I: IntoIterator<Item = u32>>(cpus: I) -> Self {
        Self::from_ranges(cpus.into_iter().map(|cpu| cpu..=cpu).collect())
    }
}

impl FromStr for CpuList {
    type Err = CpuListError;

    fn from_str(text: &str) -> Result<Self, CpuListError> {
        let text = text.trim();
        if text.is_empty() {
            return Ok(Self::default());
        }
        let ranges = text.split(',').map(|part| {
            parse_range(part.trim()).ok_or_else(|| CpuListError {
                part: part.to_owned(),
            })
        });
        Ok(Self::from_ranges(ranges.collect::<Result<_, _>>()?))
    }
}

fn parse_range(text: &str) -> Option<RangeInclusive<u32>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (decimal(first)?, decimal(last)?);
    (first <= last).then_some(first..=last)
}

/// Digits only: `u32::from_str` would also take a sign.
fn decimal(text: &str) -> Option<u32> {
    text.bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| text.parse().ok())?
}

impl fmt::Display for CpuList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, range) in self.ranges.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            if range.start() == range.end() {
                write!(f, "{comma}{}", range.start())?;
            } else {
                write!(f, "{comma}{}-{}", range.start(), range.end())?;
            }
        }
        Ok(())
    }
}

/// A text that is no CPU list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is not a CPU or a range of CPUs; a CPU list looks like 0-3,7", .part.escape_debug())]
pub struct CpuListError {
    /// The part between commas that is wrong.
    pub part: String,
}
