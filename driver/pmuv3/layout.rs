// SPDX-License-Identifier: GPL-2.0

//! Which counter takes an event and how the event's count lies in it, free of the kernel's types.

use crate::{
    counters::{
        Counter,
        CounterSet, //
    },
    events::{
        CPU_CYCLES,
        INST_RETIRED, //
    },
    evtyper::Pmevtyper,
    refusal::Refusal, //
};

/// The event counters of a PMU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum EventCounters {
    /// 32 bits; a pair makes 64.
    Bits32 = CounterSet::FIXED.bits(),
    /// 64 bits (FEAT_PMUv3p5, with PMCR_EL0.LP set).
    Bits64 = CounterSet::ALL.bits(),
}

impl EventCounters {
    /// Returns the counters that have 64 bits, whether the PMU has them or not.
    #[inline]
    const fn wide(self) -> CounterSet {
        // The numbers of the variants are just that: this is on the path of each context switch.
        CounterSet::from_bits(self as u64)
    }
}

/// Whether CPU_CYCLES may be counted in the cycle counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CycleCounter {
    /// PMCCNTR_EL0 counts what the event CPU_CYCLES counts.
    Use,
    /// PMCCNTR_EL0 may go on while the PE waits, so the event is counted in an event counter.
    Avoid,
}

/// How many bits of an event are counted before it overflows: the format field `long`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    /// 32 bits.
    Bits32,
    /// 64 bits.
    Bits64,
}

impl Length {
    /// Returns the largest count before the overflow. As a mask it leaves the count of what a
    /// counter holds.
    #[inline]
    pub(crate) const fn largest(self) -> u64 {
        match self {
            Self::Bits32 => 0xffff_ffff,
            Self::Bits64 => u64::MAX,
        }
    }
}

/// Who reads the counter: the format field `rdpmc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    /// The kernel only.
    Kernel,
    /// User space too, by its index, when the administrator lets it.
    User,
}

/// What an event needs from a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Need {
    /// What is counted.
    pub(crate) typer: Pmevtyper,
    /// How far.
    pub(crate) length: Length,
    /// For whom.
    pub(crate) reader: Reader,
}

/// How an event's count lies in the hardware.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fit {
    /// A 32-bit event in a 32-bit counter.
    Narrow,
    /// An event of either length in a 64-bit counter. The upper half of a 32-bit event is filled
    /// with ones, so that the counter overflows, and interrupts, when the lower half does.
    Wide,
    /// A 64-bit event in two 32-bit counters: the odd one counts the overflows of the even one.
    Pair,
}

impl Fit {
    /// Returns what a counter must hold for the event to overflow when `start`, the value of an
    /// imagined counter of 64 bits, does.
    #[inline]
    pub(crate) const fn to_hardware(self, start: u64) -> u64 {
        match self {
            Self::Narrow => start & Length::Bits32.largest(),
            Self::Wide | Self::Pair => start,
        }
    }
}

/// Where an event is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The counter that overflows; the odd one of a pair.
    pub(crate) counter: Counter,
    /// How the count lies in it.
    pub(crate) fit: Fit,
}

impl Place {
    /// Returns the even counter of a pair.
    #[inline]
    pub(crate) fn even(self) -> Option<Counter> {
        match self.fit {
            Fit::Pair => self.counter.chained_to(),
            Fit::Narrow | Fit::Wide => None,
        }
    }

    /// Returns the counters that the event occupies.
    #[inline]
    pub(crate) fn counters(self) -> CounterSet {
        let set = CounterSet::from(self.counter);
        match self.fit {
            Fit::Pair => set.with_lower_neighbours(),
            Fit::Narrow | Fit::Wide => set,
        }
    }
}

/// The counters of a PMU and how they may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// The counters that there are.
    pub(crate) counters: CounterSet,
    /// How wide the event counters are.
    pub(crate) event_counters: EventCounters,
    /// The use of the cycle counter.
    pub(crate) cycle_counter: CycleCounter,
}

impl Layout {
    /// Finds a counter for an event beside those that occupy `used`.
    ///
    /// Cycles and instructions go to their own counters as long as these are free, which leaves the
    /// event counters to events that have no other place.
    ///
    /// # Errors
    ///
    /// [`Refusal::NoCounter`] when every counter that could take the event is in use.
    #[inline]
    pub(crate) fn counter(&self, used: CounterSet, need: Need) -> Result<Counter, Refusal> {
        let free = self.counters.without(used);
        self.fixed_counter(free, need)
            .or_else(|| self.event_counter(free, need))
            .ok_or(Refusal::NoCounter)
    }

    /// Finds a [counter](Self::counter) and what else the event occupies.
    ///
    /// # Errors
    ///
    /// As that has.
    pub(crate) fn place(&self, used: CounterSet, need: Need) -> Result<Place, Refusal> {
        let counter = self.counter(used, need)?;
        Ok(Place {
            counter,
            fit: self.fit(counter, need.length),
        })
    }

    /// Returns how the count of an event lies in a counter that [`Layout::place`] chose for it.
    #[inline]
    pub(crate) fn fit(&self, counter: Counter, length: Length) -> Fit {
        match (self.event_counters.wide().contains(counter), length) {
            (true, _) => Fit::Wide,
            (false, Length::Bits32) => Fit::Narrow,
            (false, Length::Bits64) => Fit::Pair,
        }
    }

    /// The counter that can count only the event that is asked for, if it is free.
    fn fixed_counter(&self, free: CounterSet, need: Need) -> Option<Counter> {
        if need.typer.has_threshold() {
            return None;
        }
        let counter = match need.typer.event() {
            CPU_CYCLES if self.cycle_counter == CycleCounter::Use => Counter::CYCLE,
            // The user interface has no index for this counter.
            INST_RETIRED if need.reader == Reader::Kernel => Counter::INSTRUCTION,
            _ => return None,
        };
        free.contains(counter).then_some(counter)
    }

    /// An event counter, or the odd one of a pair.
    fn event_counter(&self, free: CounterSet, need: Need) -> Option<Counter> {
        let free = free.intersection(CounterSet::first_event_counters(
            Counter::MAX_EVENT_COUNTERS,
        ));
        match (need.length, self.event_counters, need.reader) {
            (Length::Bits32, ..) | (_, EventCounters::Bits64, _) => free.lowest(),
            (Length::Bits64, EventCounters::Bits32, Reader::Kernel) => odd_of_free_pair(free),
            // User space reads one register, and no event counter is wide enough.
            (Length::Bits64, EventCounters::Bits32, Reader::User) => None,
        }
    }
}

/// Returns the lowest odd counter in `free` whose even partner is in it too.
fn odd_of_free_pair(free: CounterSet) -> Option<Counter> {
    free.into_iter()
        .find(|odd| odd.chained_to().is_some_and(|even| free.contains(even)))
}

#[cfg(any(CONFIG_KUNIT, test))]
#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(rust_pmuv3_layout))]
mod tests {
    use super::*;
    use crate::evtyper::EventId;

    const CYCLES_32: Need = need(CPU_CYCLES, Length::Bits32);
    const CYCLES_64: Need = need(CPU_CYCLES, Length::Bits64);
    const CACHE_64: Need = need(EventId(0x04), Length::Bits64);

    const fn need(event: EventId, length: Length) -> Need {
        Need {
            typer: Pmevtyper::new(event),
            length,
            reader: Reader::Kernel,
        }
    }

    fn layout(bits: u64, event_counters: EventCounters) -> Layout {
        Layout {
            counters: CounterSet::from_bits(bits),
            event_counters,
            cycle_counter: CycleCounter::Use,
        }
    }

    fn counter_for(layout: &Layout, used: u64, need: Need) -> Option<u8> {
        let place = layout.place(CounterSet::from_bits(used), need);
        place.ok().map(|place| place.counter.index())
    }

    #[test]
    fn cycles_go_to_the_cycle_counter_first() {
        let layout = layout(0x8000_003f, EventCounters::Bits32);
        assert_eq!(counter_for(&layout, 0, CYCLES_32), Some(31));
        assert_eq!(counter_for(&layout, 0x8000_0000, CYCLES_32), Some(0));
        assert_eq!(counter_for(&layout, 0x8000_003f, CYCLES_32), None);
        let avoid = Layout {
            cycle_counter: CycleCounter::Avoid,
            ..layout
        };
        assert_eq!(counter_for(&avoid, 0, CYCLES_32), Some(0));
    }

    #[test]
    fn instructions_go_to_their_counter_where_there_is_one() {
        let instructions = need(INST_RETIRED, Length::Bits32);
        let with = layout(0x1_8000_003f, EventCounters::Bits64);
        assert_eq!(counter_for(&with, 0, instructions), Some(32));
        let without = layout(0x8000_003f, EventCounters::Bits64);
        assert_eq!(counter_for(&without, 0, instructions), Some(0));
        let user = Need {
            reader: Reader::User,
            ..instructions
        };
        assert_eq!(counter_for(&with, 0, user), Some(0));
    }

    #[test]
    fn a_64_bit_event_takes_a_pair_of_32_bit_counters() {
        let layout = layout(0x8000_003f, EventCounters::Bits32);
        assert_eq!(counter_for(&layout, 0, CACHE_64), Some(1));
        assert_eq!(counter_for(&layout, 0b01, CACHE_64), Some(3));
        assert_eq!(counter_for(&layout, 0b01_0110, CACHE_64), None);
        let place = layout.place(CounterSet::EMPTY, CACHE_64);
        assert_eq!(place.map(|place| place.counters().bits()), Ok(0b11));
        // The cycle counter has 64 bits by itself.
        assert_eq!(counter_for(&layout, 0, CYCLES_64), Some(31));
        assert_eq!(counter_for(&layout, 0x8000_0000, CYCLES_64), Some(1));
    }

    #[test]
    fn a_64_bit_event_takes_one_64_bit_counter() {
        let layout = layout(0x8000_003f, EventCounters::Bits64);
        assert_eq!(counter_for(&layout, 0, CACHE_64), Some(0));
    }

    #[test]
    fn user_space_reads_64_bits_from_one_counter_only() {
        let layout = layout(0x8000_003f, EventCounters::Bits32);
        let user = Need {
            reader: Reader::User,
            ..CYCLES_64
        };
        assert_eq!(counter_for(&layout, 0, user), Some(31));
        assert_eq!(counter_for(&layout, 0x8000_0000, user), None);
    }

    #[test]
    fn a_32_bit_event_overflows_at_32_bits() {
        let layout = layout(0x8000_003f, EventCounters::Bits32);
        let fit = layout.fit(Counter::CYCLE, Length::Bits32);
        assert_eq!(fit, Fit::Wide);
        assert_eq!(fit.to_hardware(0xffff_ffff_ffff_fffe).wrapping_add(2), 0);
        // The cycle counter is in use.
        let place = layout.place(CounterSet::from(Counter::CYCLE), CYCLES_32);
        assert_eq!(place.map(|place| place.fit), Ok(Fit::Narrow));
        assert_eq!(Fit::Narrow.to_hardware(0xffff_ffff_ffff_fffe), 0xffff_fffe);
    }
}
