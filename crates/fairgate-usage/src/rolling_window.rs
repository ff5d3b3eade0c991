//! The rolling window in which the usage of projects counts.
//!
//! A window is divided into 24 buckets, and one more bucket is being filled. A bucket is identified
//! by the time at which it begins, in microseconds since 1970. An index would change its meaning
//! whenever the length of the window changes. Let `b` be the bucket that contains `now`, let `e` be
//! the time since `b` began, and let `b − 24` be the bucket that began 24 bucket lengths before
//! `b`. The window before `now` then consists of all buckets after `b − 24`, and of `b − 24`
//! without its first part of length `e`. So
//!
//! `used = tokens of the buckets after b − 24  +  tokens of b − 24 × (1 − e ÷ bucket length)`
//!
//! The result has no jumps, because a bucket has faded to zero when it leaves the window.

use std::time::Duration;

use fairgate_time::UnixMicros;

use crate::database::UsageColumns;

/// Number of buckets in a window.
const BUCKETS: i64 = 24;
/// Longest window, a hundred years in microseconds. The limit ensures that no sum of times overflows.
const LENGTH_US_MAX: i64 = 36_500 * 86_400 * 1_000_000;
/// Number of window lengths for which buckets are kept. They are kept for more than one window, so that past usage is
/// still known after a clock ran ahead and was set back.
const WINDOWS_KEPT: i64 = 8;

/// The rolling window over which usage is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsageWindow {
    bucket_us: i64,
}

/// The usage of a project in the window: its columns `window_bucket`, `window_tokens`, `window_oldest` and
/// `window_completed`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WindowSums {
    /// Bucket that was current when the other fields were computed, as its beginning in microseconds since 1970.
    pub bucket: i64,
    /// Tokens used in all buckets that count in full.
    pub tokens: u64,
    /// Tokens used in the oldest bucket, which counts less and less.
    pub oldest: u64,
    /// Number of times that an agent brought a task to an end, completed or failed, in the oldest bucket and in the
    /// buckets that count in full.
    pub completed: u64,
}

impl WindowSums {
    /// Names of the columns, in the order in which [`WindowSums::read`] takes them.
    pub const COLUMNS: &str = "window_bucket, window_tokens, window_oldest, window_completed";

    /// Reads the sums from a database row, starting at column `first`. A negative sum is read as 0. A sum is
    /// negative if the usage that was assumed for a lost request was added in one bucket and, when the
    /// request turned out to be alive, subtracted in another.
    pub fn read<R: UsageColumns + ?Sized>(row: &R, first: usize) -> Result<Self, R::Error> {
        let count = |column| row.int(column).map(|number| u64::try_from(number).unwrap_or(0));
        Ok(Self {
            bucket: row.int(first)?,
            tokens: count(first + 1)?,
            oldest: count(first + 2)?,
            completed: count(first + 3)?,
        })
    }
}

impl UsageWindow {
    /// Creates a window of this length, rounded down to 24 buckets of whole microseconds. A bucket has at least 1 µs.
    pub fn new(length: Duration) -> Self {
        let length_us = i64::try_from(length.as_micros()).unwrap_or(i64::MAX);
        Self { bucket_us: (length_us / BUCKETS).clamp(1, LENGTH_US_MAX / BUCKETS) }
    }

    /// Returns the bucket that contains a moment, as its beginning in microseconds since 1970.
    pub fn bucket(self, at: UnixMicros) -> i64 {
        at.0.div_euclid(self.bucket_us).saturating_mul(self.bucket_us)
    }

    /// Returns the tokens that a project used in the window before a moment, rounded up. If the sums were not rolled
    /// and so belong to an earlier bucket, the result is an upper bound.
    pub fn used(self, sums: &WindowSums, at: UnixMicros) -> u64 {
        sums.tokens.saturating_add(self.fading_part(sums.oldest, sums.bucket, at))
    }

    /// Returns how much of `amount`, the usage in the oldest bucket, still counts at the time `at`, rounded up. It
    /// falls linearly to 0 over the length of one bucket, from the time `bucket`: the beginning of the bucket that was
    /// current when `amount` was computed.
    pub(crate) fn fading_part(self, amount: u64, bucket: i64, at: UnixMicros) -> u64 {
        let past_us = at.0.saturating_sub(bucket).clamp(0, self.bucket_us);
        part(amount, self.bucket_us - past_us, self.bucket_us)
    }

    /// Returns the part of `amount` that is left at `at`, rounded up. The amount is whole until `since`, and then falls
    /// linearly to 0 over the length of the window.
    pub fn fade(self, amount: u64, since: UnixMicros, at: UnixMicros) -> u64 {
        let length_us = self.bucket_us * BUCKETS;
        let past_us = at.0.saturating_sub(since.0).clamp(0, length_us);
        part(amount, length_us - past_us, length_us)
    }

    /// Returns the time at which a further `needed` tokens of the oldest bucket will have left the
    /// window. If the oldest bucket has fewer tokens left, returns the time at which the next
    /// bucket begins to leave it.
    pub(crate) fn faded_at(self, sums: &WindowSums, needed: u64, at: UnixMicros) -> UnixMicros {
        let next = sums.bucket.saturating_add(self.bucket_us).max(at.0);
        if sums.oldest == 0 {
            return UnixMicros(next);
        }
        let bucket_us = u128::from(self.bucket_us.unsigned_abs());
        let wait_us = (u128::from(needed) * bucket_us).div_ceil(u128::from(sums.oldest));
        let wait_us = i64::try_from(wait_us).unwrap_or(i64::MAX);
        UnixMicros(at.0.saturating_add(wait_us).min(next))
    }

    /// Returns the end of the bucket that contains a moment.
    pub fn bucket_end(self, at: UnixMicros) -> UnixMicros {
        UnixMicros(self.bucket(at).saturating_add(self.bucket_us))
    }

    /// Returns the time at which a total of `tokens` tokens will have left the window after `at`; `None` if the window
    /// has fewer. `used` lists the buckets, oldest first: the beginning of each and its tokens.
    pub fn all_faded_at(
        self,
        used: &[(i64, u64)],
        mut tokens: u64,
        at: UnixMicros,
    ) -> Option<UnixMicros> {
        for (bucket, amount) in used {
            let begins = bucket.saturating_add(BUCKETS * self.bucket_us).max(at.0);
            let ends = bucket.saturating_add((BUCKETS + 1) * self.bucket_us);
            let span = ends.saturating_sub(begins);
            if span <= 0 {
                continue;
            }
            let amount = part(*amount, span.min(self.bucket_us), self.bucket_us);
            if tokens <= amount {
                let after =
                    part(span.unsigned_abs(), tokens.cast_signed(), amount.cast_signed().max(1));
                return Some(UnixMicros(begins.saturating_add(after.cast_signed())));
            }
            tokens -= amount;
        }
        None
    }

    /// Returns four buckets: the one that contains a moment, the one that fades at that moment, the one before the
    /// fading one, and the oldest one that is kept.
    pub fn edges(self, at: UnixMicros) -> [i64; 4] {
        let bucket = self.bucket(at);
        let before = |buckets: i64| bucket.saturating_sub(self.bucket_us.saturating_mul(buckets));
        [bucket, before(BUCKETS), before(BUCKETS + 1), before(BUCKETS * WINDOWS_KEPT)]
    }
}

/// Returns amount × left ÷ whole, rounded up.
fn part(amount: u64, left: i64, whole: i64) -> u64 {
    let (left, whole) = (u128::from(left.unsigned_abs()), u128::from(whole.unsigned_abs()));
    u64::try_from((u128::from(amount) * left).div_ceil(whole)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000_000;

    fn day() -> UsageWindow {
        UsageWindow::new(Duration::from_secs(24 * 3600))
    }

    #[test]
    fn buckets_are_called_by_their_first_moment() {
        let window = day();
        assert_eq!(window.bucket(UnixMicros(0)), 0);
        assert_eq!(window.bucket(UnixMicros(HOUR - 1)), 0);
        assert_eq!(window.bucket(UnixMicros(HOUR)), HOUR);
        assert_eq!(window.bucket(UnixMicros(-1)), -HOUR);
        let edges = window.edges(UnixMicros(300 * HOUR + 7));
        assert_eq!(edges.map(|edge| edge / HOUR), [300, 276, 275, 108]);
    }

    #[test]
    fn the_oldest_bucket_fades_without_a_jump() {
        let window = day();
        let sums = WindowSums { bucket: 24 * HOUR, tokens: 100, oldest: 60, completed: 0 };
        let used = |at| window.used(&sums, UnixMicros(at));
        assert_eq!(used(24 * HOUR), 160);
        assert_eq!(used(24 * HOUR + HOUR / 2), 130);
        assert_eq!(used(24 * HOUR + HOUR / 2 + 1), 130, "rounded up");
        assert_eq!(used(25 * HOUR), 100);
        // Not rolled yet, or a clock that went back.
        assert_eq!(used(40 * HOUR), 100);
        assert_eq!(used(3 * HOUR), 160);
        let most = WindowSums { tokens: u64::MAX, oldest: u64::MAX, ..sums };
        assert_eq!(window.used(&most, UnixMicros(0)), u64::MAX);
    }

    #[test]
    fn what_fades_over_a_window_is_gone_after_it() {
        let window = day();
        let left = |hours| window.fade(240, UnixMicros(0), UnixMicros(hours * HOUR));
        assert_eq!([left(0), left(6), left(24), left(99), left(-9)], [240, 180, 0, 0, 240]);
    }

    #[test]
    fn room_comes_as_the_oldest_bucket_fades() {
        let window = day();
        let sums = WindowSums { bucket: 24 * HOUR, tokens: 0, oldest: 60, completed: 0 };
        let at = |needed| window.faded_at(&sums, needed, UnixMicros(24 * HOUR)).0;
        assert_eq!(at(30), 24 * HOUR + HOUR / 2);
        assert_eq!(at(61), 25 * HOUR);
        assert_eq!(at(u64::MAX), 25 * HOUR);
        let none = WindowSums { oldest: 0, ..sums };
        assert_eq!(window.faded_at(&none, 1, UnixMicros(24 * HOUR)).0, 25 * HOUR);
    }

    #[test]
    fn no_length_and_no_moment_is_too_large() {
        for length in [Duration::ZERO, Duration::from_nanos(1), Duration::MAX] {
            let window = UsageWindow::new(length);
            for at in [UnixMicros(i64::MIN), UnixMicros(i64::MAX)] {
                assert!(window.edges(at).is_sorted_by(|later, earlier| later >= earlier));
                window.fade(u64::MAX, UnixMicros(i64::MIN), at);
                window.used(&WindowSums { bucket: i64::MIN, ..WindowSums::default() }, at);
            }
        }
    }
}
