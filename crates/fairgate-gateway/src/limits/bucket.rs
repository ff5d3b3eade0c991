//! A token bucket in exact integers.

use std::time::{Duration, Instant};

/// The longest that anybody is told to wait.
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 60 * 60);

/// What one whole request or token is in a bucket: it fills by `rate` each nanosecond, and so by `rate` wholes in a
/// minute.
const WHOLE: i128 = 60 * 1_000_000_000;

/// A bucket that holds one minute's worth and fills continuously. It may be below zero, which is a debt.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bucket {
    /// In sixty-billionths of a whole; full where absent, because nothing was taken yet.
    level: Option<i128>,
    /// When that was its level.
    at: Instant,
}

impl Bucket {
    pub(super) fn new(now: Instant) -> Self {
        Self { level: None, at: now }
    }

    /// Fills it up to now, at `rate` a minute. An earlier `now` than the last changes nothing.
    pub(super) fn fill(&mut self, rate: u64, now: Instant) {
        let elapsed = now.saturating_duration_since(self.at).as_nanos();
        let gained = i128::try_from(elapsed).unwrap_or(i128::MAX).saturating_mul(i128::from(rate));
        let full = full(rate);
        let level = self.level.map_or(full, |level| level.saturating_add(gained).min(full));
        *self = Self { level: Some(level), at: self.at.max(now) };
    }

    /// Takes that many wholes, or gives them back where `wholes` is below zero; never beyond full.
    pub(super) fn take(&mut self, rate: u64, wholes: i128) {
        let level = self.level.unwrap_or_else(|| full(rate));
        self.level = Some(level.saturating_sub(wholes.saturating_mul(WHOLE)).min(full(rate)));
    }

    /// Whether a whole is in it; else how long until then.
    pub(super) fn has_one(&self, rate: u64) -> Result<(), Duration> {
        self.has(rate, WHOLE)
    }

    /// Whether anything is in it; else how long until then.
    pub(super) fn has_any(&self, rate: u64) -> Result<(), Duration> {
        self.has(rate, 1)
    }

    fn has(&self, rate: u64, wanted: i128) -> Result<(), Duration> {
        let missing = wanted.saturating_sub(self.level.unwrap_or_else(|| full(rate)));
        if missing <= 0 {
            return Ok(());
        }
        // Rounded up; nothing fills a bucket of rate 0.
        let nanos = match i128::from(rate) {
            0 => return Err(LONGEST_WAIT),
            rate => missing / rate + i128::from(missing % rate != 0),
        };
        let wait = u64::try_from(nanos).map_or(LONGEST_WAIT, Duration::from_nanos);
        Err(wait.min(LONGEST_WAIT))
    }

    /// The wholes in it, rounded down; below zero is a debt.
    pub(super) fn wholes(&self, rate: u64) -> i64 {
        let wholes = self.level.unwrap_or_else(|| full(rate)).div_euclid(WHOLE);
        i64::try_from(wholes).unwrap_or(if wholes < 0 { i64::MIN } else { i64::MAX })
    }
}

fn full(rate: u64) -> i128 {
    i128::from(rate) * WHOLE
}
