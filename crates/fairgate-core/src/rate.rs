//! A worker's rates: requests and tokens a minute, as a level that fills with time and that grants draw from.
//!
//! A level is counted in units of which [`UNIT`] are one request or one token, because then a rate of r a minute adds
//! exactly r units with every microsecond. It never rises above its top, `burst_seconds` of the rate and at least one
//! request or token, and never falls below a minute's worth of debt. While it holds less than one request or token,
//! the worker is busy.
//!
//! # The bound
//! A grant needs a level of at least one unit and takes its cost. So in any minute, without a level that was set from
//! outside, what is granted less what is refunded is at most what the level held at its start (its top), plus what came
//! in (a minute's rate), plus the one grant that took it below 0: rate + burst + the largest cost.

use crate::units::{BurstSeconds, Micros, PerMinute};

/// The units of one request or one token.
pub(crate) const UNIT: i128 = 60_000_000;

/// One rate of one worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rate {
    pub(crate) per_minute: PerMinute,
    /// As of `at`.
    pub(crate) level: i128,
    pub(crate) at: Micros,
    /// Which filling this is: corrections of what was taken from an earlier one no longer count.
    pub(crate) epoch: u64,
}

/// What a grant took from a worker's token rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    /// The filling it was taken from.
    pub(crate) epoch: u64,
    /// In units; less than was asked where the level was at its lowest.
    pub(crate) units: i128,
}

impl Rate {
    /// A rate that starts full.
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

    /// Brings the level up to a time.
    pub(crate) fn advance(&mut self, now: Micros, burst: BurstSeconds) {
        let elapsed = i128::from(now.0 - self.at.0);
        let risen = i128::from(self.per_minute.get()).saturating_mul(elapsed);
        self.level = self.level.saturating_add(risen).min(self.top(burst));
        self.at = now;
    }

    /// Takes units off, or adds them where below 0, within the bounds; says how many it really took.
    pub(crate) fn take(&mut self, units: i128, burst: BurstSeconds) -> i128 {
        let before = self.level;
        self.level = before.saturating_sub(units).clamp(self.lowest(), self.top(burst));
        before - self.level
    }

    /// Keeps the level within the bounds, after they changed.
    pub(crate) fn confine(&mut self, burst: BurstSeconds) {
        self.level = self.level.clamp(self.lowest(), self.top(burst));
    }

    /// Whether there is less than one request or token.
    pub(crate) fn is_short(&self) -> bool {
        self.level < UNIT
    }

    /// When there is one again; the level must be up to date.
    pub(crate) fn fills_at(&self) -> Micros {
        let short = u128::try_from(UNIT - self.level).unwrap_or(0);
        let wait = short.div_ceil(u128::from(self.per_minute.get()));
        Micros(self.at.0.saturating_add(u64::try_from(wait).unwrap_or(u64::MAX)))
    }
}
