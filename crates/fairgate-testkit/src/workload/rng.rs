//! Random numbers from a seed, the same on every machine: splitmix64.

use std::ops::RangeInclusive;

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from a range that is not empty.
    pub fn range(&mut self, range: RangeInclusive<u64>) -> u64 {
        let (low, high) = range.into_inner();
        match (high - low).checked_add(1) {
            Some(count) => low + self.next_u64() % count,
            None => self.next_u64(),
        }
    }

    /// An index below a length that is not 0.
    pub fn index(&mut self, length: usize) -> usize {
        let last = u64::try_from(length - 1).expect("a length fits");
        usize::try_from(self.range(0..=last)).expect("an index below a length fits")
    }

    /// A count from a range that is not empty.
    pub fn count(&mut self, range: RangeInclusive<usize>) -> usize {
        range.start() + self.index(range.end() - range.start() + 1)
    }

    /// True so many times in a hundred.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.range(1..=100) <= percent
    }

    /// One of these.
    pub fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.index(choices.len())]
    }

    /// One of these, each as often as its weight says.
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
