//! Pseudo-random numbers from a seed, by splitmix64, which are the same on every machine.

use std::ops::RangeInclusive;

/// A stream of pseudo-random numbers.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// Creates the stream that belongs to a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next number of the stream.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Draws a number from a range, which must not be empty.
    pub fn range(&mut self, range: RangeInclusive<u64>) -> u64 {
        let (low, high) = range.into_inner();
        match (high - low).checked_add(1) {
            Some(count) => low + self.next_u64() % count,
            None => self.next_u64(),
        }
    }

    /// Draws an index below `length`, which must not be 0.
    pub fn index(&mut self, length: usize) -> usize {
        let last = u64::try_from(length - 1).expect("a length fits");
        usize::try_from(self.range(0..=last)).expect("an index below a length fits")
    }

    /// Draws a count from a range, which must not be empty.
    pub fn count(&mut self, range: RangeInclusive<usize>) -> usize {
        range.start() + self.index(range.end() - range.start() + 1)
    }

    /// Returns true with a probability of `percent` in 100.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.range(1..=100) <= percent
    }

    /// Draws one of the given choices, all with the same probability.
    pub fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.index(choices.len())]
    }

    /// Draws one of the given choices, with probabilities in proportion to their weights.
    pub fn weighted<T: Copy>(&mut self, choices: &[(u64, T)]) -> T {
        let total: u64 = choices.iter().map(|(weight, _)| weight).sum();
        let mut left = self.range(1..=total);
        for &(weight, choice) in choices {
            if left <= weight {
                return choice;
            }
            left -= weight;
        }
        choices[0].1
    }
}
