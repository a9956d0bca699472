// SPDX-License-Identifier: GPL-2.0

//! Properties that hold for every input, each with the reason that it matters.

use proptest::prelude::*;

use crate::{
    caps::Pmceid,
    counters::{
        Counter,
        CounterSet, //
    },
    events::{
        Offer,
        Selection,
        Target,
        Wish, //
    },
    evtyper::{
        EventId,
        Exclude,
        Filter,
        KernelLevel,
        Pmevtyper,
        Threshold, //
    },
    layout::{
        CycleCounter,
        EventCounters,
        Fit,
        Layout,
        Length,
        Need,
        Place,
        Reader, //
    },
    models,
    period::{
        CounterWidth,
        Period,
        Round, //
    },
    refusal::Refusal, //
};

fn event_counters() -> impl Strategy<Value = EventCounters> {
    prop_oneof![Just(EventCounters::Bits32), Just(EventCounters::Bits64)]
}

fn cycle_counter() -> impl Strategy<Value = CycleCounter> {
    prop_oneof![Just(CycleCounter::Use), Just(CycleCounter::Avoid)]
}

fn length() -> impl Strategy<Value = Length> {
    prop_oneof![Just(Length::Bits32), Just(Length::Bits64)]
}

fn reader() -> impl Strategy<Value = Reader> {
    prop_oneof![Just(Reader::Kernel), Just(Reader::User)]
}

/// Events that have a counter of their own, and others.
fn event() -> impl Strategy<Value = EventId> {
    prop_oneof![Just(0x11), Just(0x08), Just(0x04), any::<u16>()].prop_map(EventId)
}

prop_compose! {
    fn need()(event in event(), length in length(), reader in reader()) -> Need {
        Need { typer: Pmevtyper::new(event), length, reader }
    }
}

prop_compose! {
    /// Any number of event counters, with and without the instruction counter.
    fn layout()(
        count in 0u8..=31,
        instruction in any::<bool>(),
        event_counters in event_counters(),
        cycle_counter in cycle_counter(),
    ) -> Layout {
        let mut counters = CounterSet::first_event_counters(count).with(Counter::CYCLE);
        if instruction {
            counters = counters.with(Counter::INSTRUCTION);
        }
        Layout { counters, event_counters, cycle_counter }
    }
}

/// Adds the events one after the other, as a group is scheduled, and returns where they went.
fn place_all(layout: &Layout, needs: &[Need]) -> Vec<(Need, Place)> {
    let mut used = CounterSet::EMPTY;
    let mut placed = Vec::new();
    for need in needs {
        if let Ok(place) = layout.place(used, *need) {
            used = used.union(place.counters());
            placed.push((*need, place));
        }
    }
    placed
}

proptest! {
    /// Two events in one counter would count each other's events.
    #[test]
    fn events_never_share_a_counter(
        layout in layout(),
        needs in prop::collection::vec(need(), 0..40),
    ) {
        let mut used = CounterSet::EMPTY;
        for (_, place) in place_all(&layout, &needs) {
            prop_assert!(used.intersection(place.counters()).is_empty());
            prop_assert!(layout.counters.covers(place.counters()));
            used = used.union(place.counters());
        }
    }

    /// A register that the PE does not have traps when it is touched.
    #[test]
    fn a_fixed_counter_counts_only_its_own_event(
        layout in layout(),
        needs in prop::collection::vec(need(), 0..40),
    ) {
        for (need, place) in place_all(&layout, &needs) {
            if place.counter == Counter::CYCLE {
                prop_assert_eq!(need.typer.event(), EventId(0x11));
                prop_assert_eq!(layout.cycle_counter, CycleCounter::Use);
            }
            if place.counter == Counter::INSTRUCTION {
                prop_assert_eq!(need.typer.event(), EventId(0x08));
                prop_assert_eq!(need.reader, Reader::Kernel);
            }
        }
    }

    /// The place is worked out again from the counter whenever the event is touched.
    #[test]
    fn the_fit_follows_from_the_counter(layout in layout(), need in need()) {
        if let Ok(place) = layout.place(CounterSet::EMPTY, need) {
            prop_assert_eq!(layout.fit(place.counter, need.length), place.fit);
        }
    }

    /// User space reads a single register.
    #[test]
    fn what_user_space_reads_is_never_in_a_pair(
        layout in layout(),
        used in any::<u64>(),
        need in need(),
    ) {
        if let Ok(place) = layout.place(CounterSet::from_bits(used), need) {
            if need.reader == Reader::User {
                prop_assert_ne!(place.fit, Fit::Pair);
            }
        }
    }

    /// A pair is an odd counter and the even one below it.
    #[test]
    fn pairs_are_aligned(layout in layout(), used in any::<u64>(), need in need()) {
        if let Ok(place) = layout.place(CounterSet::from_bits(used), need) {
            let expected = if place.fit == Fit::Pair { 2 } else { 1 };
            prop_assert_eq!(place.counters().len(), expected);
            if place.fit == Fit::Pair {
                prop_assert_eq!(place.counter.index() % 2, 1);
            }
        }
    }

    /// As long as a counter that could count it is free, an event is not refused.
    #[test]
    fn a_32_bit_event_fits_while_an_event_counter_is_free(
        layout in layout(),
        used in any::<u64>(),
        need in need(),
    ) {
        let used = CounterSet::from_bits(used);
        let free = layout.counters.without(used);
        let general = free.intersection(CounterSet::first_event_counters(31));
        let place = layout.place(used, Need { length: Length::Bits32, ..need });
        if !general.is_empty() {
            prop_assert!(place.is_ok());
        }
        if free.is_empty() {
            prop_assert_eq!(place, Err(Refusal::NoCounter));
        }
    }

    /// The width of the event, not of the counter, decides when it overflows.
    #[test]
    fn a_32_bit_event_overflows_after_2_to_the_32(
        layout in layout(),
        need in need(),
        count in any::<u32>(),
        step in any::<u32>(),
    ) {
        let need = Need { length: Length::Bits32, ..need };
        if let Ok(place) = layout.place(CounterSet::EMPTY, need) {
            let wide = layout.event_counters == EventCounters::Bits64
                || !place.counter.counts_any_event();
            let before = place.fit.to_hardware(u64::from(count) | 0xffff_ffff_0000_0000);
            let (after, wrapped) = if wide {
                before.overflowing_add(u64::from(step))
            } else {
                let (after, wrapped) = (before as u32).overflowing_add(step);
                (u64::from(after), wrapped)
            };
            prop_assert_eq!(wrapped, count.checked_add(step).is_none());
            prop_assert_eq!(
                after & need.length.largest(),
                u64::from(count.wrapping_add(step))
            );
        }
    }

    /// Excluding more never counts more, except EL2, whose bit is inverted.
    #[test]
    fn what_is_excluded_does_not_count(
        user in any::<bool>(),
        kernel in any::<bool>(),
        hv in any::<bool>(),
        host in any::<bool>(),
        guest in any::<bool>(),
        event in event(),
        vhe in any::<bool>(),
    ) {
        let level = if vhe { KernelLevel::El2 } else { KernelLevel::El1 };
        let exclude = Exclude { user, kernel, hv, host, guest, idle: false };
        let filter = Filter::new(exclude, level).unwrap();
        let typer = Pmevtyper::new(event).with_filter(filter);
        let (p, u, nsh) = (
            typer.bits() >> 31 & 1 == 1,
            typer.bits() >> 30 & 1 == 1,
            typer.bits() >> 27 & 1 == 1,
        );
        prop_assert_eq!(typer.event(), event);
        // User space of the host runs at EL0 in either case.
        prop_assert!(!user || u);
        // The kernel runs at EL2 under VHE, at EL1 otherwise.
        let kernel_counts = if vhe { nsh } else { !p };
        prop_assert!(!kernel || !kernel_counts);
        // A guest's kernel runs at EL1; only a VHE host tells it from the host's.
        prop_assert!(!(vhe && guest) || p);
        prop_assert_eq!(Pmevtyper::from_bits(typer.bits()), typer);
        prop_assert_eq!(typer.filter_bits() & 0xffff, 0);
    }

    /// A threshold does not spill into the other fields.
    #[test]
    fn a_threshold_stays_in_its_fields(
        event in event(),
        value in 0u64..=0xfff,
        compare in 0u64..=3,
        count in 0u64..=1,
        width in 0u32..=12,
    ) {
        let max = ((1u32 << width) - 1) as u16;
        match Threshold::new(value, compare, count, max) {
            Err(refusal) => {
                prop_assert_eq!(refusal, Refusal::Invalid);
                prop_assert!(value > u64::from(max));
            }
            Ok(None) => prop_assert_eq!(value, 0),
            Ok(Some(threshold)) => {
                let bits = Pmevtyper::new(event).with_threshold(threshold).bits();
                prop_assert_eq!(bits & 0xffff_ffff, u64::from(event.0));
                prop_assert_eq!(bits >> 32 & 0xfff, value);
                prop_assert_eq!(bits >> 61, compare << 1 | count);
            }
        }
    }

    /// A generic event is never counted as something that the PE does not implement or its model
    /// does not have, and CHAIN never alone.
    #[test]
    fn a_generic_event_is_implemented_or_refused(
        pmceid0 in any::<u64>(),
        pmceid1 in any::<u64>(),
        kind in 0u8..4,
        config in prop_oneof![0u64..12, 0u64..0x30_0000, any::<u64>()],
        length in length(),
        reader in reader(),
        on_task in any::<bool>(),
        event_counters in event_counters(),
        cycle_counter in cycle_counter(),
        cache in prop_oneof![
            Just(models::COMMON),
            Just(models::CORTEX_A57),
            Just(models::THUNDERX),
        ],
    ) {
        let pmceid = Pmceid::new(pmceid0, pmceid1);
        let selection = match kind {
            0 => Selection::Hardware(config),
            1 => Selection::HwCache(config),
            2 => Selection::Raw(config),
            _ => Selection::Other,
        };
        let target = if on_task { Target::Task } else { Target::Cpu };
        let offer = Offer { pmceid, cache, event_counters, cycle_counter };
        let wish = Wish { selection, length, reader, target };
        if let Ok(event) = offer.event(wish) {
            prop_assert_ne!(event, EventId(0x1e));
            prop_assert!(reader == Reader::Kernel || on_task);
            match selection {
                Selection::Raw(config) => prop_assert_eq!(u64::from(event.0), config & 0xffff),
                _ => prop_assert!(
                    pmceid.has(event) || cache.iter().any(|own| own.3 == event)
                ),
            }
        }
    }

    /// PMCEID<n>_EL0 bits and event numbers correspond one to one.
    #[test]
    fn each_pmceid_bit_is_one_event(register in 0u32..2, bit in 0u32..64) {
        let mut registers = [0u64; 2];
        registers[register as usize] = 1 << bit;
        let pmceid = Pmceid::new(registers[0], registers[1]);
        let events: Vec<u16> = (0..=u16::MAX).filter(|n| pmceid.has(EventId(*n))).collect();
        let base = if bit < 32 { 0 } else { 0x4000 };
        let expected = base + (register * 32 + bit % 32) as u16;
        prop_assert_eq!(events, vec![expected]);
    }

    /// However the events fall into rounds and however late each interrupt is served, every period
    /// that has passed gives a sample, except when a whole period passed unseen, and none is early.
    #[test]
    fn samples_follow_the_count(
        bits in 8u32..=64,
        period in 1i64..1 << 40,
        late in prop::collection::vec(0u64..100, 1..50),
    ) {
        let width = CounterWidth::new(bits).unwrap();
        let mut left = period;
        let mut counted = 0u64;
        let mut samples = 0u64;
        let mut skipped = false;
        let mut round = Round::next(left, period, width);
        for late in late {
            // The counter runs to its overflow and a little further, until it is read.
            let late = late.min(width.max_round());
            let events = width.max().wrapping_sub(round.start & width.max()).wrapping_add(1);
            let events = events.wrapping_add(late) & width.max();
            let seen = width.events_between(round.start, round.start.wrapping_add(events));
            prop_assert_eq!(seen, events);
            counted += events;
            left -= events as i64;
            skipped |= left <= -period;
            round = Round::next(left, period, width);
            left = round.left;
            samples += u64::from(round.period == Period::Elapsed);
            prop_assert!(samples <= counted / period as u64);
            if !skipped {
                prop_assert_eq!(samples, counted / period as u64);
            }
            prop_assert!(left > 0 && left <= period);
        }
    }

    /// A round is at most half of what the counter can hold, so that the value that is read after
    /// a late interrupt cannot be taken for one before the overflow.
    #[test]
    fn a_round_leaves_half_of_the_range(
        bits in 1u32..=64,
        left in any::<i64>(),
        period in 0i64..=i64::MAX,
    ) {
        let width = CounterWidth::new(bits).unwrap();
        let round = Round::next(left, period, width);
        let length = round.start.wrapping_neg();
        prop_assert!(length <= width.max_round().max(1) || round.left <= 0);
    }

    /// The difference of two values is right even when the counter has wrapped in between.
    #[test]
    fn events_between_wraps(bits in 1u32..=64, start in any::<u64>(), events in any::<u64>()) {
        let width = CounterWidth::new(bits).unwrap();
        let events = events & width.max();
        prop_assert_eq!(width.events_between(start, start.wrapping_add(events)), events);
    }
}
