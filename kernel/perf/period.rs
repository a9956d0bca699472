// SPDX-License-Identifier: GPL-2.0

//! Arithmetic of counters and sampling periods.
//!
//! A sampling event counts up to an overflow: its counter starts at minus what is left of the
//! period. A period can be longer than the counter, so it may take several rounds; and an interrupt
//! comes late, so part of the next period may be over already.
//!
//! Nothing here uses the kernel: it is tested on the host as well.

/// How many bits a counter has.
///
/// # Invariants
///
/// Between 1 and 64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CounterWidth(u32);

impl CounterWidth {
    /// 32 bits.
    pub const BITS_32: Self = Self(32);
    /// 64 bits.
    pub const BITS_64: Self = Self(64);

    /// A width of `bits`, if that is between 1 and 64.
    pub const fn new(bits: u32) -> Option<Self> {
        match bits {
            // INVARIANT: It was checked.
            1..=64 => Some(Self(bits)),
            _ => None,
        }
    }

    /// The number of bits.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// The largest value that the counter can have.
    #[inline]
    pub const fn max(self) -> u64 {
        // By the invariant the shift is below 64.
        u64::MAX >> (64 - self.0)
    }

    /// The most events that one round of the counter should take: half of its range, so that the
    /// new value cannot be taken for an old one however late the interrupt is served.
    #[inline]
    pub const fn max_round(self) -> u64 {
        self.max() >> 1
    }

    /// How many events lie between two values of the counter, the first of which was read earlier.
    #[inline]
    pub const fn events_between(self, earlier: u64, later: u64) -> u64 {
        later.wrapping_sub(earlier) & self.max()
    }
}

/// Whether the period of an event is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Period {
    /// The counter overflowed in the midst of a period that is longer than the counter.
    Running,
    /// The period is over: a sample is due.
    Elapsed,
}

/// How to start the next round of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Round {
    /// Whether a period has ended.
    pub period: Period,
    /// How many events are left until the end of the (next) period.
    pub left: i64,
    /// The value of an imagined counter of 64 bits, whose low bits are those of the real one.
    pub start: u64,
}

impl Round {
    /// Plans the next round of an event with the period `period`, of which `left` events are left;
    /// zero or fewer when the period is over.
    #[inline]
    pub const fn next(left: i64, period: i64, width: CounterWidth) -> Self {
        let mut elapsed = Period::Running;
        let mut left = left;

        // So late that the next period is over as well: it makes no sense to catch up.
        if left <= period.wrapping_neg() {
            left = period;
            elapsed = Period::Elapsed;
        }

        // The next period has begun when the last one ended, not now.
        if left <= 0 {
            left = left.wrapping_add(period);
            elapsed = Period::Elapsed;
        }

        let round = if left.unsigned_abs() > width.max_round() && left > 0 {
            width.max_round()
        } else {
            left as u64
        };

        Self {
            period: elapsed,
            left,
            start: round.wrapping_neg(),
        }
    }
}
