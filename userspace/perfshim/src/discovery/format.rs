// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where a PMU wants the fields of its events: one file each in the PMU's `format` folder.

use std::fmt;
use std::str::FromStr;

/// A word of `perf_event_attr` that a PMU gives its own meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConfigWord {
    /// `config`
    Config,
    /// `config1`
    Config1,
    /// `config2`
    Config2,
    /// `config3`
    Config3,
    /// `config4`
    Config4,
}

impl ConfigWord {
    /// All words, in the order of their numbers; [`ConfigWord::index`] is the place in it.
    pub const ALL: [Self; 5] = [
        Self::Config,
        Self::Config1,
        Self::Config2,
        Self::Config3,
        Self::Config4,
    ];

    /// 0 for `config`, 1 for `config1` and so on.
    pub fn index(self) -> usize {
        self as usize
    }

    /// The name in sysfs and in event descriptions: `config`, `config1`...
    pub fn name(self) -> &'static str {
        ["config", "config1", "config2", "config3", "config4"][self.index()]
    }

    /// The word of that name, if there is one.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|word| word.name() == name)
    }
}

/// The place of a field: some bits of one config word, such as `config:0-7,32-35`.
///
/// The lowest bit of a value goes to the lowest bit of the field, whatever the order in which the
/// file lists the ranges; so does perf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    /// The word that holds the field.
    pub word: ConfigWord,
    /// The field's bits in that word; never 0.
    pub mask: u64,
}

impl Format {
    /// The largest value that fits.
    pub fn max(&self) -> u64 {
        u64::MAX >> (64 - self.mask.count_ones().max(1))
    }

    /// The field's bits for `value`, in their place in the word; `None` when it does not fit.
    pub fn encode(&self, value: u64) -> Option<u64> {
        if value > self.max() {
            return None;
        }
        let places = bits(self.mask);
        Some(
            places
                .enumerate()
                .map(|(from, to)| ((value >> from) & 1) << to)
                .sum(),
        )
    }

    /// The field's value in `word`.
    pub fn decode(&self, word: u64) -> u64 {
        let places = bits(self.mask);
        places
            .enumerate()
            .map(|(to, from)| ((word >> from) & 1) << to)
            .sum()
    }
}

/// The numbers of the bits that are set in `mask`, ascending.
fn bits(mask: u64) -> impl Iterator<Item = u32> {
    (0..u64::BITS).filter(move |bit| (mask >> bit) & 1 == 1)
}

impl FromStr for Format {
    type Err = FormatError;

    fn from_str(text: &str) -> Result<Self, FormatError> {
        parse(text.trim()).ok_or_else(|| FormatError {
            text: text.trim().to_owned(),
        })
    }
}

fn parse(text: &str) -> Option<Format> {
    let (word, ranges) = text.split_once(':')?;
    let word = ConfigWord::from_name(word.trim())?;
    let mut mask = 0;
    for range in ranges.split(',') {
        let (low, high) = range.split_once('-').unwrap_or((range, range));
        let (low, high) = (bit_number(low)?, bit_number(high)?);
        if low > high {
            return None;
        }
        mask |= (u64::MAX >> (63 - (high - low))) << low;
    }
    Some(Format { word, mask })
}

fn bit_number(text: &str) -> Option<u32> {
    let text = text.trim();
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let bit = digits.then(|| text.parse().ok())??;
    (bit < u64::BITS).then_some(bit)
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.word.name())?;
        let mut rest = self.mask;
        while rest != 0 {
            let low = rest.trailing_zeros();
            let length = (rest >> low).trailing_ones();
            let high = low + length - 1;
            rest &= !((u64::MAX >> (64 - length)) << low);
            let comma = if rest == 0 { "" } else { "," };
            if low == high {
                write!(f, "{low}{comma}")?;
            } else {
                write!(f, "{low}-{high}{comma}")?;
            }
        }
        Ok(())
    }
}

/// A text that describes no field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is not a field of an event; one looks like config1:0-7,32-35", .text.escape_debug())]
pub struct FormatError {
    /// The text.
    pub text: String,
}
