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

    /// The value of an imagined counter of 64 bits, which started at most [half a
    /// round](Self::max_round) below its overflow, when the real one shows `value`.
    #[inline]
    pub(crate) const fn imagined(self, value: u64) -> u64 {
        // By the invariant the shift is below 64.
        let spare = 64 - self.0;
        ((value << spare) as i64 >> spare) as u64
    }

    /// How many events lie between two values of the counter, the first of which was read earlier.
    #[inline]
    pub const fn events_between(self, earlier: u64, later: u64) -> u64 {
        later.wrapping_sub(earlier) & self.max()
    }
}

/// Whether the period of an event is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Period {
    /// The counter overflowed in the midst of a period that is longer than the counter.
    Running,
    /// The period is over: a sample is due.
    Elapsed,
}

/// How to start the next round of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Round {
    /// Whether a period has ended.
    pub(crate) period: Period,
    /// How many events are left until the end of the (next) period.
    pub(crate) left: i64,
    /// The value of an imagined counter of 64 bits, whose low bits are those of the real one.
    pub(crate) start: u64,
}

impl Round {
    /// Plans the next round of an event with the period `period`, of which `left` events are left;
    /// zero or fewer when the period is over.
    pub(crate) const fn next(left: i64, period: i64, width: CounterWidth) -> Self {
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

#[cfg(any(CONFIG_KUNIT, test))]
#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(rust_perf_period))]
mod tests {
    use super::*;

    const W32: CounterWidth = CounterWidth::BITS_32;
    const W64: CounterWidth = CounterWidth::BITS_64;

    #[test]
    fn widths() {
        assert_eq!(W32.max(), 0xffff_ffff);
        assert_eq!(W32.max_round(), 0x7fff_ffff);
        assert_eq!(W64.max(), u64::MAX);
        assert_eq!(CounterWidth::new(1).map(CounterWidth::max), Some(1));
        assert_eq!(CounterWidth::new(0), None);
        // From where it started, across the overflow.
        let start = 0x8000_0001_u32 as i32 as i64 as u64;
        assert_eq!(W32.imagined(0x8000_0001), start);
        assert_eq!(W32.imagined(0xffff_ffff_8000_0001), start);
        assert_eq!(W32.imagined(0xffff_ffff), u64::MAX);
        assert_eq!(W32.imagined(5), 5);
        assert_eq!(W64.imagined(start), start);
        assert_eq!(CounterWidth::new(65), None);
    }

    #[test]
    fn a_counter_wraps() {
        assert_eq!(W32.events_between(0xffff_fff0, 0x10), 0x20);
        // `prev_count` has the high bits of an imagined counter of 64 bits.
        assert_eq!(W32.events_between(0xffff_ffff_ffff_fff0, 0x10), 0x20);
        assert_eq!(W64.events_between(u64::MAX, 1), 2);
    }

    #[test]
    fn a_period_runs_and_elapses() {
        // The event is new: the first period begins.
        let first = Round::next(0, 1000, W32);
        assert_eq!(first.period, Period::Elapsed);
        assert_eq!(first.left, 1000);
        assert_eq!(first.start & W32.max(), 0x1_0000_0000 - 1000);

        // In the midst of a period nothing is due.
        let within = Round::next(400, 1000, W32);
        assert_eq!(within.period, Period::Running);
        assert_eq!(within.left, 400);

        // The interrupt came 7 events late: these belong to the next period.
        let late = Round::next(-7, 1000, W32);
        assert_eq!(late.period, Period::Elapsed);
        assert_eq!(late.left, 993);

        // It came more than a period late: start afresh.
        let very_late = Round::next(-5000, 1000, W32);
        assert_eq!(very_late.period, Period::Elapsed);
        assert_eq!(very_late.left, 1000);
    }

    #[test]
    fn a_long_period_takes_several_rounds() {
        let long = Round::next(0, 0x1_8000_0000, W32);

        assert_eq!(long.left, 0x1_8000_0000);
        assert_eq!(long.start, 0u64.wrapping_sub(0x7fff_ffff));

        // After the first round of 2^31 - 1 events and 5 more until the interrupt was served.
        let next = Round::next(0x1_8000_0000 - 0x8000_0004, 0x1_8000_0000, W32);
        assert_eq!(next.period, Period::Running);
        assert_eq!(next.left, 0xffff_fffc);
    }
}
