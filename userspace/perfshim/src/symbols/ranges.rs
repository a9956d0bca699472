// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which of many named address ranges an address is in.

/// A range with a name.
pub(super) struct Range<T> {
    /// The first address.
    pub(super) start: u64,
    /// The number of addresses; 0 where it is not known: then up to the next range.
    pub(super) size: u64,
    /// The address that a range of unknown size cannot reach.
    pub(super) limit: u64,
    /// Which of several ranges with the same start is kept: that of the highest rank.
    pub(super) rank: [u8; 4],
    /// What is there.
    pub(super) what: T,
}

impl<T> Range<T> {
    fn end(&self) -> u64 {
        self.start.saturating_add(self.size)
    }
}

/// Ranges by address, which may lie inside each other.
pub(super) struct Ranges<T> {
    /// By start; no two have the same.
    ranges: Vec<Range<T>>,
    /// For each the innermost of the ranges that it begins in.
    around: Vec<Option<usize>>,
}

impl<T> Ranges<T> {
    pub(super) fn new(mut ranges: Vec<Range<T>>) -> Self {
        // Of the same start the best comes first and stays: one with a size, then by rank.
        ranges.sort_by(|a, b| {
            let key = |range: &Range<T>| (range.start, range.size == 0);
            key(a).cmp(&key(b)).then(b.rank.cmp(&a.rank))
        });
        ranges.dedup_by_key(|range| range.start);
        drop_labels(&mut ranges);
        size_labels(&mut ranges);
        let around = around(&ranges);
        Self { ranges, around }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The innermost range that holds the address.
    pub(super) fn find(&self, address: u64) -> Option<&Range<T>> {
        let after = self.ranges.partition_point(|range| range.start <= address);
        let mut index = after.checked_sub(1)?;
        loop {
            let range = self.ranges.get(index)?;
            if address < range.end() {
                return Some(range);
            }
            index = (*self.around.get(index)?)?;
        }
    }
}

/// Drops ranges of unknown size that begin inside one of known size: labels in a function.
fn drop_labels<T>(ranges: &mut Vec<Range<T>>) {
    let mut end = 0;
    ranges.retain(|range| {
        let label = range.size == 0 && range.start < end;
        end = end.max(range.end());
        !label
    });
}

/// Lets the ranges of unknown size reach to the next one.
fn size_labels<T>(ranges: &mut [Range<T>]) {
    let mut next = u64::MAX;
    for range in ranges.iter_mut().rev() {
        if range.size == 0 {
            range.size = next.min(range.limit).saturating_sub(range.start);
        }
        next = range.start;
    }
}

fn around<T>(ranges: &[Range<T>]) -> Vec<Option<usize>> {
    let mut open: Vec<usize> = Vec::new();
    let enclosing = ranges.iter().enumerate().map(|(index, range)| {
        while open
            .last()
            .is_some_and(|&outer| ranges[outer].end() <= range.start)
        {
            open.pop();
        }
        let outer = open.last().copied();
        open.push(index);
        outer
    });
    enclosing.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn range(start: u64, size: u64, rank: u8, what: usize) -> Range<usize> {
        Range {
            start,
            size,
            limit: 1000,
            rank: [rank, 0, 0, 0],
            what,
        }
    }

    fn found(ranges: &Ranges<usize>, address: u64) -> Option<usize> {
        ranges.find(address).map(|range| range.what)
    }

    #[test]
    fn a_function_goes_on_after_one_inside_it() {
        let ranges = Ranges::new(vec![range(100, 100, 0, 1), range(120, 10, 0, 2)]);
        assert_eq!(found(&ranges, 99), None);
        assert_eq!(found(&ranges, 119), Some(1));
        assert_eq!(found(&ranges, 129), Some(2));
        assert_eq!(found(&ranges, 130), Some(1));
        assert_eq!(found(&ranges, 200), None);
    }

    #[test]
    fn a_label_reaches_to_the_next_and_the_last_to_the_limit() {
        let ranges = Ranges::new(vec![range(100, 0, 0, 1), range(200, 0, 0, 2)]);
        assert_eq!(found(&ranges, 199), Some(1));
        assert_eq!(found(&ranges, 999), Some(2));
        assert_eq!(found(&ranges, 1000), None);
    }

    #[test]
    fn a_label_inside_a_function_is_no_function() {
        let ranges = Ranges::new(vec![range(100, 50, 0, 1), range(120, 0, 9, 2)]);
        assert_eq!(found(&ranges, 120), Some(1));
    }

    #[test]
    fn of_two_names_the_one_with_a_size_and_then_the_rank_counts() {
        let ranges = Ranges::new(vec![
            range(100, 0, 9, 1),
            range(100, 8, 1, 2),
            range(100, 8, 2, 3),
        ]);
        assert_eq!(found(&ranges, 107), Some(3));
        assert_eq!(found(&ranges, 108), None);
    }

    proptest! {
        /// Against a search of all ranges; sizes above 0 so that none is a label.
        #[test]
        fn find_is_the_latest_start_that_covers(
            sizes in proptest::collection::btree_map(0u64..200, 1u64..60, 0..40),
            address in 0u64..300,
        ) {
            let all = || sizes.iter().map(|(&start, &size)| (start, size));
            let ranges = all().map(|(start, size)| range(start, size, 0, start as usize));
            let ranges = Ranges::new(ranges.collect());
            let covering = all().filter(|&(s, n)| (s..s + n).contains(&address));
            let expected = covering.map(|(start, _)| start as usize).max();
            prop_assert_eq!(found(&ranges, address), expected);
        }
    }
}
