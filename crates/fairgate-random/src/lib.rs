#![doc = include_str!("../README.md")]
#![no_std]

use core::ops::RangeInclusive;

/// Step between two states of splitmix64: 2⁶⁴ ÷ the golden ratio, made odd.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// A stream of pseudo-random numbers (splitmix64: Steele, Lea and Flood, "Fast Splittable Pseudorandom Number
/// Generators", 2014).
#[derive(Clone, Debug)]
pub struct SeededRng(u64);

impl SeededRng {
    /// Creates the stream that belongs to a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next number of the stream.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Draws a number from 0 to `end` − 1. `end` must not be 0.
    #[inline]
    pub fn below(&mut self, end: u64) -> u64 {
        self.next_u64() % end
    }

    /// Draws a number from a range, which must not be empty.
    #[inline]
    pub fn range(&mut self, range: RangeInclusive<u64>) -> u64 {
        let (low, high) = range.into_inner();
        match (high - low).checked_add(1) {
            Some(count) => low + self.below(count),
            None => self.next_u64(),
        }
    }

    /// Draws an index below `length`, which must not be 0.
    #[inline]
    pub fn index(&mut self, length: usize) -> usize {
        let last = u64::try_from(length - 1).expect("a length fits");
        usize::try_from(self.range(0..=last)).expect("an index below a length fits")
    }

    /// Draws a count from a range, which must not be empty.
    pub fn count(&mut self, range: RangeInclusive<usize>) -> usize {
        range.start() + self.index(range.end() - range.start() + 1)
    }

    /// Returns true with a probability of `percent` in 100.
    #[inline]
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

/// Returns the number at this index, counted from 0, of the stream that belongs to a seed.
#[inline]
pub fn number_at(seed: u64, index: u64) -> u64 {
    SeededRng::new(seed.wrapping_add(index.wrapping_mul(STEP))).next_u64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_published_generator() {
        // The first outputs of the reference implementation in C for the seeds 0 and 1 234 567.
        let mut rng = SeededRng::new(0);
        assert_eq!(rng.next_u64(), 0xe220_a839_7b1d_cdaf);
        assert_eq!(rng.next_u64(), 0x6e78_9e6a_a1b9_65f4);
        let mut rng = SeededRng::new(1_234_567);
        assert_eq!(rng.next_u64(), 6_457_827_717_110_365_317);
        assert_eq!(rng.next_u64(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn a_number_by_index_is_the_streams() {
        for seed in [0, 7, u64::MAX] {
            let mut rng = SeededRng::new(seed);
            for index in 0..100 {
                assert_eq!(number_at(seed, index), rng.next_u64(), "{seed} {index}");
            }
        }
    }

    #[test]
    fn draws_stay_in_their_ranges() {
        let mut rng = SeededRng::new(3);
        for _ in 0..1000 {
            assert!((5..=9).contains(&rng.range(5..=9)) && rng.below(3) < 3);
            assert!((2..=4).contains(&rng.count(2..=4)));
            assert!(rng.percent(100) && !rng.percent(0));
            assert_eq!(rng.weighted(&[(0, 'a'), (2, 'b'), (0, 'c')]), 'b');
        }
        let before = rng.clone().next_u64();
        assert_eq!(rng.range(0..=u64::MAX), before, "the whole range is every number");
    }
}
