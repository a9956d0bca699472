// SPDX-License-Identifier: GPL-2.0

//! Counters and sets of counters, free of the kernel's types.
//!
//! PMUv3 has up to 31 event counters, one cycle counter and, with FEAT_PMUv3_ICNTR, one
//! instruction counter. Its set registers (PMCNTENSET_EL0, PMINTENSET_EL1, PMOVSCLR_EL0, ...) give
//! each of them the same bit, which is the counter's index here: 0 to 30, 31 and 32.

/// One counter of the PMU.
///
/// # Invariants
///
/// The index is at most 32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counter(u8);

impl Counter {
    /// The most event counters that the architecture allows; their indexes are 0 to 30.
    pub(crate) const MAX_EVENT_COUNTERS: u8 = 31;

    /// How many counters there can be.
    pub(crate) const COUNT: usize = 33;

    /// The cycle counter, PMCCNTR_EL0.
    pub(crate) const CYCLE: Self = Self(31);

    /// The instruction counter, PMICNTR_EL0.
    pub(crate) const INSTRUCTION: Self = Self(32);

    /// Returns the index, which is the counter's bit in the set registers.
    #[inline]
    pub(crate) const fn index(self) -> u8 {
        self.0
    }

    /// Returns whether this is one of the counters that can count any event.
    #[inline]
    pub(crate) const fn counts_any_event(self) -> bool {
        self.0 < Self::MAX_EVENT_COUNTERS
    }

    /// Returns the even event counter whose overflows this odd one can count (event CHAIN).
    #[inline]
    pub(crate) const fn chained_to(self) -> Option<Self> {
        if self.counts_any_event() && self.0 & 1 == 1 {
            // INVARIANT: Smaller than an index that is at most 32.
            Some(Self(self.0 - 1))
        } else {
            None
        }
    }
}

/// A set of counters, laid out like the set registers.
///
/// # Invariants
///
/// No bit above 32 is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CounterSet(u64);

impl CounterSet {
    /// No counter.
    pub(crate) const EMPTY: Self = Self(0);

    /// Every counter that the architecture knows.
    pub(crate) const ALL: Self = Self(0x1_ffff_ffff);

    /// The counters that count one event only.
    pub(crate) const FIXED: Self = Self(0x1_8000_0000);

    /// Returns the set with the bits of a set register; bits without a counter are dropped.
    #[inline]
    pub(crate) const fn from_bits(bits: u64) -> Self {
        Self(bits & Self::ALL.0)
    }

    /// Returns the set of the first `count` event counters; `count` above 31 counts as 31.
    pub(crate) const fn first_event_counters(count: u8) -> Self {
        if count >= Counter::MAX_EVENT_COUNTERS {
            Self(0x7fff_ffff)
        } else {
            Self((1 << count) - 1)
        }
    }

    /// Returns the set as the bits of a set register.
    #[inline]
    pub(crate) const fn bits(self) -> u64 {
        self.0
    }

    /// Returns the set with `counter` added.
    #[inline]
    pub(crate) const fn with(self, counter: Counter) -> Self {
        Self(self.0 | Self::from_counter(counter).0)
    }

    /// Returns the set with the counters below each of its counters added: with an odd event
    /// counter that is the even one that it is [chained to](Counter::chained_to).
    #[inline]
    pub(crate) const fn with_lower_neighbours(self) -> Self {
        Self(self.0 | self.0 >> 1)
    }

    /// Returns the counter with this index, if it is in the set.
    #[inline]
    pub(crate) const fn get(self, index: u8) -> Option<Counter> {
        if index < 64 && self.0 >> index & 1 != 0 {
            // INVARIANT: By that of the set no bit above 32 is set.
            Some(Counter(index))
        } else {
            None
        }
    }

    /// Returns whether `counter` is in the set.
    #[inline]
    pub(crate) const fn contains(self, counter: Counter) -> bool {
        self.0 & Self::from_counter(counter).0 != 0
    }

    /// Returns whether the set has one counter.
    #[inline]
    pub(crate) const fn is_one(self) -> bool {
        self.0 != 0 && self.0 & (self.0 - 1) == 0
    }

    /// Returns whether every counter of `other` is in this set.
    pub(crate) const fn covers(self, other: Self) -> bool {
        other.0 & !self.0 == 0
    }

    /// Returns whether the set has no counter.
    #[inline]
    pub(crate) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns how many counters the set has.
    pub(crate) const fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// Returns the counters that are in both sets.
    #[inline]
    pub(crate) const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Returns the counters that are in either set.
    #[inline]
    pub(crate) const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the counters of this set that are not in `other`.
    #[inline]
    pub(crate) const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Returns the counter with the lowest index.
    #[inline]
    pub(crate) const fn lowest(self) -> Option<Counter> {
        if self.0 == 0 {
            None
        } else {
            // INVARIANT: The lowest set bit of a set is at most bit 32. The number fits in a byte.
            Some(Counter(self.0.trailing_zeros() as u8))
        }
    }

    #[inline]
    const fn from_counter(counter: Counter) -> Self {
        // A counter's index is at most 32, so the shift never wraps.
        Self(1u64.wrapping_shl(counter.0 as u32))
    }
}

impl From<Counter> for CounterSet {
    #[inline]
    fn from(counter: Counter) -> Self {
        Self::from_counter(counter)
    }
}

/// Yields the counters from the lowest index to the highest.
pub(crate) struct Counters(CounterSet);

impl Iterator for Counters {
    type Item = Counter;

    #[inline]
    fn next(&mut self) -> Option<Counter> {
        let counter = self.0.lowest()?;
        self.0 = self.0.without(counter.into());
        Some(counter)
    }
}

impl IntoIterator for CounterSet {
    type Item = Counter;
    type IntoIter = Counters;

    #[inline]
    fn into_iter(self) -> Counters {
        Counters(self)
    }
}

#[cfg(any(CONFIG_KUNIT, test))]
#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(rust_pmuv3_counters))]
mod tests {
    use super::*;

    #[test]
    fn the_last_index_is_the_instruction_counter() {
        assert_eq!(CounterSet::ALL.get(32), Some(Counter::INSTRUCTION));
        assert_eq!(CounterSet::ALL.get(33), None);
        assert_eq!(CounterSet::ALL.get(64), None);
        assert_eq!(CounterSet::EMPTY.get(32), None);
    }

    #[test]
    fn only_odd_event_counters_chain() {
        assert_eq!(Counter(5).chained_to(), Some(Counter(4)));
        assert_eq!(Counter(4).chained_to(), None);
        assert_eq!(Counter::CYCLE.chained_to(), None);
    }

    #[test]
    fn a_set_yields_its_counters_in_order() {
        let set = CounterSet::from_bits(0x1_8000_0005);
        let mut counters = set.into_iter();
        assert_eq!(counters.next(), Some(Counter(0)));
        assert_eq!(counters.next(), Some(Counter(2)));
        assert_eq!(counters.next(), Some(Counter::CYCLE));
        assert_eq!(counters.next(), Some(Counter::INSTRUCTION));
        assert_eq!(counters.next(), None);
    }

    #[test]
    fn bits_without_a_counter_are_dropped() {
        assert_eq!(CounterSet::from_bits(u64::MAX), CounterSet::ALL);
        assert_eq!(CounterSet::ALL.len(), 33);
        assert_eq!(CounterSet::first_event_counters(6).bits(), 0x3f);
        assert_eq!(CounterSet::first_event_counters(31).len(), 31);
    }
}
