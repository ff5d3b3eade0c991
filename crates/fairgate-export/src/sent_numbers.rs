//! Row numbers that were sent and may be read again, as ranges.

use std::collections::BTreeMap;

/// Set of row numbers. Numbers that follow each other take one entry, so the size is bounded by the gaps between them.
#[derive(Debug, Default)]
pub(crate) struct SentNumbers {
    /// Last number of each range, by its first.
    ranges: BTreeMap<i64, i64>,
}

impl SentNumbers {
    /// Adds a number that was sent.
    pub(crate) fn insert(&mut self, number: i64) {
        if self.contains(number) {
            return;
        }
        let mut range = (number, number);
        if let Some((&first, &last)) = self.ranges.range(..number).next_back()
            && last + 1 == number
        {
            range.0 = first;
        }
        if let Some(last) = self.ranges.remove(&(number + 1)) {
            range.1 = last;
        }
        self.ranges.insert(range.0, range.1);
    }

    /// Returns whether a number was added.
    pub(crate) fn contains(&self, number: i64) -> bool {
        self.ranges.range(..=number).next_back().is_some_and(|(_, last)| number <= *last)
    }

    /// Forgets the ranges that end at `number` or before.
    pub(crate) fn forget_through(&mut self, number: i64) {
        while let Some(range) = self.ranges.first_entry() {
            if *range.get() > number {
                return;
            }
            range.remove();
        }
    }

    /// Forgets all numbers at once.
    pub(crate) fn clear(&mut self) {
        self.ranges.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_follow_each_other_take_one_entry() {
        let mut sent = SentNumbers::default();
        for number in [1, 2, 3, 7, 5, 6, 6] {
            sent.insert(number);
        }
        assert_eq!(sent.ranges, BTreeMap::from([(1, 3), (5, 7)]));
        assert!(!sent.contains(4) && !sent.contains(8) && sent.contains(5) && sent.contains(1));
        sent.insert(4);
        assert_eq!(sent.ranges, BTreeMap::from([(1, 7)]));
    }

    #[test]
    fn what_cannot_come_again_is_forgotten() {
        let mut sent = SentNumbers::default();
        (1..=3).chain(5..=9).for_each(|number| sent.insert(number));
        sent.forget_through(4);
        assert!(!sent.contains(3) && sent.contains(5));
        // A range that reaches further is kept whole.
        sent.forget_through(7);
        assert!(sent.contains(5) && sent.contains(9));
        sent.forget_through(9);
        assert!(sent.ranges.is_empty());
    }
}
