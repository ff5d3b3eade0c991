//! Quantiles of waits in one byte: the bucket, and the position in the bucket.

use fairgate_runtime::{WAIT_BOUNDS, WaitCounts};

/// Parts of a bucket that have codes of their own. 18 buckets of 14 parts fit a byte.
const PARTS: u64 = 14;
const NONE: u8 = u8::MAX;
/// Code of a wait that is longer than the last bound.
const BEYOND: u8 = 252;

/// A quantile of waits, to a fourteenth of a bucket. Within a bucket, waits are taken to be spread evenly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitQuantile(u8);

impl WaitQuantile {
    /// The quantile of no waits.
    pub const NONE: Self = Self(NONE);

    /// Returns the wait that `percent` of these waits do not exceed.
    pub fn of(waits: &WaitCounts, percent: u64) -> Self {
        let total = waits.total();
        if total == 0 {
            return Self(NONE);
        }
        // In hundredths of a wait, so that nothing is rounded.
        let rank = total * percent;
        let mut below = 0;
        for (bucket, count) in waits.0.iter().enumerate().take(WAIT_BOUNDS.len()) {
            let count = u64::from(*count) * 100;
            if count > 0 && below + count >= rank {
                let part = ((rank - below) * PARTS / count).min(PARTS - 1);
                return Self(u8::try_from(bucket as u64 * PARTS + part).unwrap_or(BEYOND));
            }
            below += count;
        }
        Self(BEYOND)
    }

    /// Returns the wait in milliseconds; `None` if there was none. A wait beyond the last bound counts as that bound.
    pub fn milliseconds(self) -> Option<u64> {
        if self.0 == NONE {
            return None;
        }
        let bucket = usize::from(self.0) / usize::try_from(PARTS).unwrap_or(1);
        let part = u64::from(self.0) % PARTS;
        let Some(upper) = WAIT_BOUNDS.get(bucket) else {
            return WAIT_BOUNDS.last().map(|last| last.0 / 1000);
        };
        let lower = bucket.checked_sub(1).map_or(0, |before| WAIT_BOUNDS[before].0);
        let micros = lower + (upper.0 - lower) * (2 * part + 1) / (2 * PARTS);
        Some((micros + 500) / 1000)
    }

    pub(crate) fn code(self) -> u8 {
        self.0
    }

    pub(crate) fn from_code(code: u8) -> Self {
        Self(code)
    }

    /// Returns the longer one of two quantiles.
    pub(crate) fn longer(self, other: Self) -> Self {
        match (self.0, other.0) {
            (NONE, _) => other,
            (_, NONE) => self,
            (a, b) => Self(a.max(b)),
        }
    }
}

#[cfg(test)]
mod tests {
    use fairgate_core::units::Micros;

    use super::*;

    fn waits(of: &[u64]) -> WaitCounts {
        let mut waits = WaitCounts::default();
        of.iter().for_each(|ms| waits.note(Micros(ms * 1000)));
        waits
    }

    #[test]
    fn it_is_within_a_fourteenth_of_the_bucket() {
        assert_eq!(WaitQuantile::of(&WaitCounts::default(), 50).milliseconds(), None);
        assert_eq!(WaitQuantile::of(&waits(&[0; 10]), 95).milliseconds(), Some(1));
        // Ten waits in the bucket from 1 to 2.5 s, one beyond all bounds.
        let mut of: Vec<u64> = vec![2_000; 19];
        of.push(700_000);
        let p50 = WaitQuantile::of(&waits(&of), 50).milliseconds().unwrap();
        assert!((1_700..1_860).contains(&p50), "{p50}");
        assert_eq!(WaitQuantile::of(&waits(&of), 100).milliseconds(), Some(600_000));
    }

    #[test]
    fn every_code_is_a_wait_and_they_rise() {
        let all: Vec<Option<u64>> =
            (0..=BEYOND).map(|code| WaitQuantile::from_code(code).milliseconds()).collect();
        assert!(all.iter().all(Option::is_some));
        assert!(all.is_sorted());
    }
}
