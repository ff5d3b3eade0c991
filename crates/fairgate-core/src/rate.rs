//! A worker's rates, in requests and in tokens per minute. Each rate is a token bucket: its *level* rises with time,
//! and grants lower it.
//!
//! The level is counted in units: one request or one token is [`UNIT`] units, so that a rate of r per minute adds
//! exactly r units per microsecond. The highest level, the top, is the inflow of `burst_seconds`, but at least one
//! request or token. The lowest level is minus the inflow of one minute. While the level is less than one request or
//! token, the worker is busy.
//!
//! # The bound
//! A grant needs a level of at least one request or token, and takes its cost. Take any minute in which no event sets
//! the level. In this minute, the cost of all grants minus all refunds is at most rate + burst + the largest cost. The
//! rate is the inflow of the minute, the burst is the level at its start (at most the top), and the largest cost is
//! that of the last grant, which may take the level below 0.

use crate::units::{BurstSeconds, Micros, PerMinute};

/// Number of units in one request or one token.
pub(crate) const UNIT: i128 = 60_000_000;

/// One rate of one worker, either of requests or of tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WorkerRate {
    pub(crate) per_minute: PerMinute,
    /// Units available at the time `at`; below 0 is debt.
    pub(crate) level: i128,
    pub(crate) at: Micros,
    /// Epoch of the level. Each time the level is set, by a new rate or by a stated remaining amount, it gets a higher
    /// epoch. An amount that was taken in an earlier epoch is no longer corrected.
    pub(crate) epoch: u64,
}

/// The amount that a grant took from a worker's token rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TakenQuota {
    /// Epoch of the rate's level from which the amount was taken.
    pub(crate) epoch: u64,
    /// Units taken. These are fewer than requested if the level reached its lowest value.
    pub(crate) units: i128,
}

impl WorkerRate {
    /// Creates a rate whose level is full.
    pub(crate) fn new(per_minute: PerMinute, burst: BurstSeconds, at: Micros, epoch: u64) -> Self {
        let mut rate = Self { per_minute, level: 0, at, epoch };
        rate.level = rate.top(burst);
        rate
    }

    fn top(&self, burst: BurstSeconds) -> i128 {
        let burst = i128::from(burst.get()) * 1_000_000;
        UNIT.max(i128::from(self.per_minute.get()).saturating_mul(burst))
    }

    fn lowest(&self) -> i128 {
        i128::from(self.per_minute.get()).saturating_mul(-UNIT)
    }

    /// Raises the level by the inflow up to this time.
    pub(crate) fn advance(&mut self, now: Micros, burst: BurstSeconds) {
        let elapsed = i128::from(now.0 - self.at.0);
        let risen = i128::from(self.per_minute.get()).saturating_mul(elapsed);
        self.level = self.level.saturating_add(risen).min(self.top(burst));
        self.at = now;
    }

    /// Takes this many units from the level, or adds units if `units` is below 0. The level stays between its lowest
    /// value and its top. Returns the number of units by which the level fell; below 0 if it rose.
    pub(crate) fn take(&mut self, units: i128, burst: BurstSeconds) -> i128 {
        let before = self.level;
        self.level = before.saturating_sub(units).clamp(self.lowest(), self.top(burst));
        before - self.level
    }

    /// Clamps the level to its bounds after the rate or the burst has changed.
    pub(crate) fn clamp_level(&mut self, burst: BurstSeconds) {
        self.level = self.level.clamp(self.lowest(), self.top(burst));
    }

    /// Returns true if the level holds less than one request or token.
    pub(crate) fn is_short(&self) -> bool {
        self.level < UNIT
    }

    /// Returns the time at which the level holds one request or token again. The level must be up to date.
    pub(crate) fn fills_at(&self) -> Micros {
        let short = u128::try_from(UNIT - self.level).unwrap_or(0);
        let wait = short.div_ceil(u128::from(self.per_minute.get()));
        Micros(self.at.0.saturating_add(u64::try_from(wait).unwrap_or(u64::MAX)))
    }
}
