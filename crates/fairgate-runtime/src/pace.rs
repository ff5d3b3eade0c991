//! How fast the pool drains: ends per time in which somebody waited, over the last minutes.
//!
//! Time in which nobody waits says nothing about how fast a backlog would go, so it is not counted. The window is
//! [`BUCKETS`] of [`BUCKET_US`] each; what is older is forgotten whole bucket by whole bucket.

use std::time::Duration;

use fairgate_core::units::Micros;

const BUCKETS: usize = 32;
const BUCKET_US: u64 = 10_000_000;
const LEAST: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    number: u64,
    busy_us: u64,
    ends: u64,
}

/// The rate at which slots become free for those who wait.
#[derive(Debug)]
pub(crate) struct Pace {
    buckets: [Bucket; BUCKETS],
    most: Duration,
    /// Up to when the time was counted.
    counted_to: u64,
    busy: bool,
}

impl Pace {
    /// Knows nothing yet; never tells anyone to come back later than `most` from now.
    pub(crate) fn new(now: Micros, most: Duration) -> Self {
        let buckets = [Bucket::default(); BUCKETS];
        Self { buckets, most: most.max(LEAST), counted_to: now.0, busy: false }
    }

    /// Notes that so many flights ended at this time, after which somebody waits or nobody does.
    pub(crate) fn observe(&mut self, at: Micros, ends: u64, waits: bool) {
        self.count_time(at.0);
        if self.busy {
            self.bucket(at.0).ends += ends;
        }
        self.busy = waits;
    }

    /// How long until that many requests have gone, at the rate observed. Where nothing has ended yet: as long again
    /// as somebody has waited.
    pub(crate) fn time_for(&mut self, ahead: u128, now: Micros) -> Duration {
        self.count_time(now.0);
        let oldest = (now.0 / BUCKET_US).saturating_sub(BUCKETS as u64 - 1);
        let live = self.buckets.iter().filter(|bucket| bucket.number >= oldest);
        let (busy_us, ends) = live.fold((0u128, 0u128), |(busy_us, ends), bucket| {
            (busy_us + u128::from(bucket.busy_us), ends + u128::from(bucket.ends))
        });
        let us = busy_us.saturating_mul(ahead).checked_div(ends).unwrap_or(busy_us);
        Duration::from_micros(u64::try_from(us).unwrap_or(u64::MAX)).clamp(LEAST, self.most)
    }

    fn count_time(&mut self, now: u64) {
        // What is older than the window need not be put into buckets that are forgotten at once.
        let window = BUCKET_US * (BUCKETS as u64 + 1);
        let mut from = self.counted_to.max(now.saturating_sub(window));
        self.counted_to = self.counted_to.max(now);
        while self.busy && from < now {
            let end = (from / BUCKET_US + 1).saturating_mul(BUCKET_US);
            self.bucket(from).busy_us += end.min(now) - from;
            from = end;
        }
    }

    fn bucket(&mut self, at: u64) -> &mut Bucket {
        let number = at / BUCKET_US;
        // The remainder of a division by 32 fits any index.
        let index = usize::try_from(number % BUCKETS as u64).unwrap_or_default();
        let bucket = &mut self.buckets[index];
        if bucket.number != number {
            *bucket = Bucket { number, ..Bucket::default() };
        }
        bucket
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000;

    fn pace() -> Pace {
        Pace::new(Micros(0), Duration::from_secs(600))
    }

    #[test]
    fn four_ends_a_second_take_twenty_five_seconds_for_a_hundred() {
        let mut pace = pace();
        pace.observe(Micros(0), 0, true);
        for second in 1..=40 {
            pace.observe(Micros(second * S), 4, true);
        }
        assert_eq!(pace.time_for(100, Micros(40 * S)), Duration::from_secs(25));
    }

    #[test]
    fn idle_time_is_not_counted() {
        let mut pace = pace();
        pace.observe(Micros(0), 0, true);
        pace.observe(Micros(10 * S), 10, false);
        pace.observe(Micros(100 * S), 50, false);
        pace.observe(Micros(110 * S), 0, true);
        assert_eq!(pace.time_for(30, Micros(110 * S)), Duration::from_secs(30));
    }

    #[test]
    fn without_an_end_it_is_as_long_again_as_somebody_waited() {
        let mut pace = pace();
        assert_eq!(pace.time_for(1_000_000, Micros(0)), LEAST);
        pace.observe(Micros(0), 0, true);
        assert_eq!(pace.time_for(1, Micros(7 * S)), Duration::from_secs(7));
    }

    #[test]
    fn it_is_bounded_whatever_happens() {
        let mut pace = Pace::new(Micros(0), Duration::from_secs(60));
        pace.observe(Micros(0), 0, true);
        pace.observe(Micros(u64::MAX), 1, true);
        assert_eq!(pace.time_for(u128::MAX, Micros(u64::MAX)), Duration::from_secs(60));
        assert_eq!(pace.time_for(0, Micros(u64::MAX)), LEAST);
    }

    #[test]
    fn what_is_older_than_the_window_is_forgotten() {
        let mut pace = pace();
        pace.observe(Micros(0), 0, true);
        pace.observe(Micros(S), 1_000_000, true);
        pace.observe(Micros(400 * S), 310, true);
        let after = pace.time_for(10, Micros(400 * S));
        assert!((9..=11).contains(&after.as_secs()), "{after:?}");
    }
}
