//! A token bucket in exact integers over cluster time.

use serde::{Deserialize, Serialize};

use crate::units::ClusterMicros;

/// Maximum wait that is proposed to a caller before it tries again.
const LONGEST_WAIT: ClusterMicros = ClusterMicros::seconds(24 * 60 * 60);

/// One request or token, in the unit of a bucket's level. A bucket gains `rate` units in each
/// microsecond, which is `rate` requests or tokens per minute.
const WHOLE: i128 = 60 * 1_000_000;

/// A bucket that holds the limit of one minute and fills continuously. A level below zero is a debt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterMinuteBucket {
    /// Level in sixty-millionths of a whole request or token; `None` means full, because nothing was taken yet.
    level: Option<i128>,
    /// Time up to which `level` was filled.
    at: ClusterMicros,
}

impl ClusterMinuteBucket {
    /// Creates a full bucket.
    pub(super) fn new(now: ClusterMicros) -> Self {
        Self { level: None, at: now }
    }

    /// Returns the level at `now`, at `rate` per minute.
    fn level(&self, rate: u64, now: ClusterMicros) -> i128 {
        let gained = i128::from(now.since(self.at).0).saturating_mul(i128::from(rate));
        let full = full(rate);
        self.level.map_or(full, |level| level.saturating_add(gained).min(full))
    }

    /// Takes `wholes` requests or tokens out of the bucket. A negative number puts them back, but never above full.
    pub(super) fn take(&mut self, rate: u64, wholes: i128, now: ClusterMicros) {
        let level = self.level(rate, now).saturating_sub(wholes.saturating_mul(WHOLE));
        *self = Self { level: Some(level.min(full(rate))), at: self.at.max(now) };
    }

    /// Changes the rate. The number of taken requests or tokens does not change. A bucket without a
    /// rate before becomes full.
    pub(super) fn change_rate(&mut self, old: Option<u64>, new: Option<u64>, now: ClusterMicros) {
        if old == new {
            return;
        }
        let level = match (old, new) {
            (Some(old), Some(new)) => {
                let taken = full(old).saturating_sub(self.level(old, now));
                Some(full(new).saturating_sub(taken))
            }
            _ => None,
        };
        *self = Self { level, at: now };
    }

    /// Checks that the bucket holds at least one whole request or token; otherwise returns the time until it does.
    pub(super) fn need_one(&self, rate: u64, now: ClusterMicros) -> Result<(), ClusterMicros> {
        self.need(rate, WHOLE, now)
    }

    /// Checks that the level is above zero; otherwise returns the time until it is.
    pub(super) fn need_any(&self, rate: u64, now: ClusterMicros) -> Result<(), ClusterMicros> {
        self.need(rate, 1, now)
    }

    fn need(&self, rate: u64, wanted: i128, now: ClusterMicros) -> Result<(), ClusterMicros> {
        let missing = wanted.saturating_sub(self.level(rate, now));
        if missing <= 0 {
            return Ok(());
        }
        // Rounded up. A bucket of rate 0 never fills.
        let micros = match i128::from(rate) {
            0 => return Err(LONGEST_WAIT),
            rate => missing / rate + i128::from(missing % rate != 0),
        };
        let wait = u64::try_from(micros).map_or(LONGEST_WAIT, ClusterMicros);
        Err(wait.min(LONGEST_WAIT))
    }

    /// Returns the whole requests or tokens in the bucket at `now`, rounded down; a number below zero is a debt.
    pub fn wholes(&self, rate: u64, now: ClusterMicros) -> i64 {
        let wholes = self.level(rate, now).div_euclid(WHOLE);
        i64::try_from(wholes).unwrap_or(if wholes < 0 { i64::MIN } else { i64::MAX })
    }
}

fn full(rate: u64) -> i128 {
    i128::from(rate) * WHOLE
}
