//! A token bucket that fills evenly with time, computed in whole numbers.

use std::time::Duration;

use tokio::time::Instant;

/// Number of parts that make one unit, which is a request or a token. At a rate of one unit per minute, the level rises
/// by one part each microsecond.
const UNIT: i128 = 60_000_000;

#[derive(Clone, Debug)]
pub(crate) struct RateBucket {
    per_minute: u64,
    /// Greatest level, in parts.
    top: i128,
    /// Current level, in parts. The level is negative if a request used more than it was charged on arrival.
    level: i128,
    filled_at: Instant,
}

impl RateBucket {
    /// Creates a full bucket that holds the quota of the time `burst`, but at least one unit.
    pub(crate) fn new(per_minute: u64, burst: Duration, now: Instant) -> Self {
        let per_minute = per_minute.max(1);
        let burst_us = i128::try_from(burst.as_micros()).unwrap_or(i128::MAX);
        let top = i128::from(per_minute).saturating_mul(burst_us).max(UNIT);
        Self { per_minute, top, level: top, filled_at: now }
    }

    /// Adds the quota of the time since the bucket was last filled, up to the greatest level.
    pub(crate) fn fill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.filled_at);
        let micros = passed.as_micros();
        let came = i128::try_from(micros).unwrap_or(i128::MAX);
        self.level =
            self.level.saturating_add(came.saturating_mul(self.per_minute.into())).min(self.top);
        // Only whole microseconds were counted. The remainder counts the next time.
        let counted = Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX));
        self.filled_at = self.filled_at.checked_add(counted).unwrap_or(now);
    }

    /// Returns the time until the bucket holds `units`; `None` if a full bucket holds fewer.
    pub(crate) fn wait_for(&self, units: u64) -> Option<Duration> {
        let needed = parts(units);
        (needed <= self.top).then(|| self.rise(needed))
    }

    /// Takes `units` out of the bucket. If the bucket holds fewer, the level becomes negative.
    pub(crate) fn take(&mut self, units: u64) {
        self.level = self.level.saturating_sub(parts(units));
    }

    /// Puts `units` back, up to the greatest level.
    pub(crate) fn give_back(&mut self, units: u64) {
        self.level = self.level.saturating_add(parts(units)).min(self.top);
    }

    /// Returns the state of the bucket in whole units.
    pub(crate) fn level(&self) -> BucketLevel {
        let whole = |parts: i128| u64::try_from(parts / UNIT).unwrap_or(0);
        BucketLevel {
            per_minute: self.per_minute,
            depth: whole(self.top),
            remaining: whole(self.level),
            full_after: self.rise(self.top),
        }
    }

    fn rise(&self, to: i128) -> Duration {
        let missing = to.saturating_sub(self.level).max(0).unsigned_abs();
        let micros = missing.div_ceil(self.per_minute.into());
        Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
    }
}

fn parts(units: u64) -> i128 {
    i128::from(units) * UNIT
}

/// State of a bucket at one moment, in whole units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BucketLevel {
    pub(crate) per_minute: u64,
    /// Greatest level of the bucket, in units.
    pub(crate) depth: u64,
    /// Current level in units, rounded down; 0 if it is negative.
    pub(crate) remaining: u64,
    /// Time until the bucket is full again, if nothing is taken out.
    pub(crate) full_after: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_fills_evenly_up_to_its_top() {
        let start = Instant::now();
        let mut bucket = RateBucket::new(600, Duration::from_secs(60), start);
        bucket.take(600);
        let level = bucket.level();
        assert_eq!((level.remaining, level.full_after), (0, Duration::from_secs(60)));
        assert_eq!(bucket.wait_for(1), Some(Duration::from_millis(100)));
        bucket.fill(start + Duration::from_millis(250));
        assert_eq!(bucket.level().remaining, 2);
        assert_eq!(bucket.wait_for(2), Some(Duration::ZERO));
        bucket.fill(start + Duration::from_secs(3600));
        assert_eq!(bucket.level().remaining, 600);
        bucket.give_back(5);
        assert_eq!(bucket.level().remaining, 600);
    }

    #[test]
    fn its_depth_follows_from_its_burst() {
        let now = Instant::now();
        let depth = |per_minute, seconds| {
            RateBucket::new(per_minute, Duration::from_secs(seconds), now).level().depth
        };
        assert_eq!((depth(600, 60), depth(600, 10), depth(6, 1), depth(0, 0)), (600, 100, 1, 1));
        assert_eq!(RateBucket::new(60, Duration::from_secs(10), now).wait_for(11), None);
        assert_eq!(RateBucket::new(u64::MAX, Duration::MAX, now).wait_for(1), Some(Duration::ZERO));
    }

    #[test]
    fn what_was_used_beyond_the_charge_is_owed() {
        let start = Instant::now();
        let mut bucket = RateBucket::new(60, Duration::from_secs(60), start);
        bucket.take(90);
        assert_eq!(bucket.level().remaining, 0);
        assert_eq!(bucket.wait_for(1), Some(Duration::from_secs(31)));
    }

    #[test]
    fn parts_of_a_microsecond_are_not_lost() {
        let start = Instant::now();
        let mut bucket = RateBucket::new(60, Duration::from_secs(60), start);
        bucket.take(60);
        for step in 1..=2_000 {
            bucket.fill(start + Duration::from_nanos(500_500) * step);
        }
        assert_eq!(bucket.level().remaining, 1);
    }
}
