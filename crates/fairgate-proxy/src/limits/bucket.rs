//! A token bucket in exact integers.

use std::time::{Duration, Instant};

/// Maximum wait that is proposed to a caller before it tries again.
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 60 * 60);

/// One request or token, in the unit of a bucket's level. A bucket gains `rate` units in each
/// nanosecond, which is `rate` requests or tokens per minute.
const WHOLE: i128 = 60 * 1_000_000_000;

/// A bucket that holds the limit of one minute and fills continuously. A level below zero is a debt.
#[derive(Clone, Copy, Debug)]
pub(super) struct MinuteBucket {
    /// Level in sixty-billionths of a whole request or token; `None` means full, because nothing was taken yet.
    level: Option<i128>,
    /// Time up to which `level` was filled.
    at: Instant,
}

impl MinuteBucket {
    pub(super) fn new(now: Instant) -> Self {
        Self { level: None, at: now }
    }

    /// Fills the bucket up to `now`, at `rate` per minute. Does nothing if `now` is before the last
    /// call's.
    pub(super) fn fill(&mut self, rate: u64, now: Instant) {
        let elapsed = now.saturating_duration_since(self.at).as_nanos();
        let gained = i128::try_from(elapsed).unwrap_or(i128::MAX).saturating_mul(i128::from(rate));
        let full = full(rate);
        let level = self.level.map_or(full, |level| level.saturating_add(gained).min(full));
        *self = Self { level: Some(level), at: self.at.max(now) };
    }

    /// Takes `wholes` requests or tokens out of the bucket. A negative number puts them back, but never above full.
    pub(super) fn take(&mut self, rate: u64, wholes: i128) {
        let level = self.level.unwrap_or_else(|| full(rate));
        self.level = Some(level.saturating_sub(wholes.saturating_mul(WHOLE)).min(full(rate)));
    }

    /// Checks that the bucket holds at least one whole request or token; otherwise returns the time until it does.
    pub(super) fn need_one(&self, rate: u64) -> Result<(), Duration> {
        self.need(rate, WHOLE)
    }

    /// Checks that the level is above zero; otherwise returns the time until it is.
    pub(super) fn need_any(&self, rate: u64) -> Result<(), Duration> {
        self.need(rate, 1)
    }

    fn need(&self, rate: u64, wanted: i128) -> Result<(), Duration> {
        let missing = wanted.saturating_sub(self.level.unwrap_or_else(|| full(rate)));
        if missing <= 0 {
            return Ok(());
        }
        // Rounded up. A bucket of rate 0 never fills.
        let nanos = match i128::from(rate) {
            0 => return Err(LONGEST_WAIT),
            rate => missing / rate + i128::from(missing % rate != 0),
        };
        let wait = u64::try_from(nanos).map_or(LONGEST_WAIT, Duration::from_nanos);
        Err(wait.min(LONGEST_WAIT))
    }

    /// Returns the whole requests or tokens in the bucket, rounded down; a number below zero is a debt.
    pub(super) fn wholes(&self, rate: u64) -> i64 {
        let wholes = self.level.unwrap_or_else(|| full(rate)).div_euclid(WHOLE);
        i64::try_from(wholes).unwrap_or(if wholes < 0 { i64::MIN } else { i64::MAX })
    }
}

fn full(rate: u64) -> i128 {
    i128::from(rate) * WHOLE
}
