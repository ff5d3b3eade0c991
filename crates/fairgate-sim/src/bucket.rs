//! One rate: a level that fills evenly with time, in whole units.

use std::time::Duration;

use tokio::time::Instant;

/// How many parts one request or token has: at one a minute, the level rises by one part each microsecond.
const UNIT: i128 = 60_000_000;

#[derive(Clone, Debug)]
pub(crate) struct Bucket {
    per_minute: u64,
    /// The most it can hold, in parts.
    top: i128,
    /// May fall below 0 where more was used than was charged before.
    level: i128,
    filled_at: Instant,
}

impl Bucket {
    /// A full bucket that holds what comes in `burst`, and at least one unit.
    pub(crate) fn new(per_minute: u64, burst: Duration, now: Instant) -> Self {
        let per_minute = per_minute.max(1);
        let burst_us = i128::try_from(burst.as_micros()).unwrap_or(i128::MAX);
        let top = i128::from(per_minute).saturating_mul(burst_us).max(UNIT);
        Self { per_minute, top, level: top, filled_at: now }
    }

    /// Lets time pass.
    pub(crate) fn fill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.filled_at);
        let micros = passed.as_micros();
        let came = i128::try_from(micros).unwrap_or(i128::MAX);
        self.level =
            self.level.saturating_add(came.saturating_mul(self.per_minute.into())).min(self.top);
        // Only whole microseconds were counted; the rest of one counts the next time.
        let counted = Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX));
        self.filled_at = self.filled_at.checked_add(counted).unwrap_or(now);
    }

    /// How long until it holds so many; `None` where it never can.
    pub(crate) fn wait_for(&self, units: u64) -> Option<Duration> {
        let needed = parts(units);
        (needed <= self.top).then(|| self.rise(needed))
    }

    /// Takes out so many, even where it holds fewer.
    pub(crate) fn take(&mut self, units: u64) {
        self.level = self.level.saturating_sub(parts(units));
    }

    /// Puts back so many.
    pub(crate) fn give_back(&mut self, units: u64) {
        self.level = self.level.saturating_add(parts(units)).min(self.top);
    }

    /// What it says about itself.
    pub(crate) fn level(&self) -> Level {
        let whole = |parts: i128| u64::try_from(parts / UNIT).unwrap_or(0);
        Level {
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

/// How a bucket stands at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Level {
    pub(crate) per_minute: u64,
    /// The most it can hold.
    pub(crate) depth: u64,
    /// What it holds, rounded down.
    pub(crate) remaining: u64,
    /// When it is full again.
    pub(crate) full_after: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_fills_evenly_up_to_its_top() {
        let start = Instant::now();
        let mut bucket = Bucket::new(600, Duration::from_secs(60), start);
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
            Bucket::new(per_minute, Duration::from_secs(seconds), now).level().depth
        };
        assert_eq!((depth(600, 60), depth(600, 10), depth(6, 1), depth(0, 0)), (600, 100, 1, 1));
        assert_eq!(Bucket::new(60, Duration::from_secs(10), now).wait_for(11), None);
        assert_eq!(Bucket::new(u64::MAX, Duration::MAX, now).wait_for(1), Some(Duration::ZERO));
    }

    #[test]
    fn what_was_used_beyond_the_charge_is_owed() {
        let start = Instant::now();
        let mut bucket = Bucket::new(60, Duration::from_secs(60), start);
        bucket.take(90);
        assert_eq!(bucket.level().remaining, 0);
        assert_eq!(bucket.wait_for(1), Some(Duration::from_secs(31)));
    }

    #[test]
    fn parts_of_a_microsecond_are_not_lost() {
        let start = Instant::now();
        let mut bucket = Bucket::new(60, Duration::from_secs(60), start);
        bucket.take(60);
        for step in 1..=2_000 {
            bucket.fill(start + Duration::from_nanos(500_500) * step);
        }
        assert_eq!(bucket.level().remaining, 1);
    }
}
