//! What projects use: the rolling window that usage counts in, and what one use does to a project and its task. The fleet
//! and the ledger both write these numbers, so both do it through here.
//!
//! # The window
//!
//! A window is 24 buckets long, plus the one that is being filled. A bucket is called by the moment at which it begins, in
//! microseconds since 1970. (A number would mean another bucket in a window of another length.) Let `b` be the bucket that
//! `now` lies in and `e` the time since it began: the last 24 bucket lengths before `now` are the buckets after `b − 24`, and
//! of `b − 24` itself what lies after `e`. So
//!
//! `used = tokens of the buckets after b − 24  +  tokens of b − 24 × (1 − e ÷ bucket length)`
//!
//! which has no jump: a bucket that leaves has faded to nothing.
//!
//! `fleet_projects` has both sums for the bucket `window_bucket`; [`roll`] brings them to the bucket that it is now. What is
//! used goes to the bucket that its project stands at, which is at most as old as the last roll: so whoever writes a row
//! need not know how long the window is, and sums and buckets always agree.

use std::time::Duration;

use fairgate_money::UnixMicros;
use serde::{Deserialize, Serialize};

use crate::error::StoreError;
use crate::sql::Value;
use crate::transaction::Transaction;

/// How many buckets a window has.
const BUCKETS: i64 = 24;

/// The task that a call was made for, and which claim of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TaskClaim {
    /// The project.
    pub project: String,
    /// The task.
    pub task: String,
    /// The claim: how often the task had been claimed by then.
    pub epoch: u64,
}

/// The rolling window that usage counts in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    bucket_us: i64,
}

impl Window {
    /// A window of this length, in whole buckets of at least a microsecond.
    pub fn new(length: Duration) -> Self {
        let length_us = i64::try_from(length.as_micros()).unwrap_or(i64::MAX);
        Self { bucket_us: (length_us / BUCKETS).max(1) }
    }

    /// The bucket that a moment lies in.
    pub fn bucket(self, at: UnixMicros) -> i64 {
        at.0.div_euclid(self.bucket_us).saturating_mul(self.bucket_us)
    }

    /// The bucket that fades while `bucket` is filled.
    pub fn oldest(self, bucket: i64) -> i64 {
        bucket.saturating_sub(self.bucket_us.saturating_mul(BUCKETS))
    }

    /// What counts of a project's sums at a moment: `tokens` in the full buckets up to `bucket`, `oldest` in the one that fades.
    pub fn used(self, bucket: i64, tokens: i64, oldest: i64, at: UnixMicros) -> u64 {
        let past_us = at.0.saturating_sub(bucket).clamp(0, self.bucket_us);
        let left = i128::from(oldest.max(0)) * i128::from(self.bucket_us - past_us);
        let used = i128::from(tokens) + left / i128::from(self.bucket_us);
        u64::try_from(used.max(0)).unwrap_or(u64::MAX)
    }

    /// What is left at a moment of tokens that began to fade at `since` and are gone one window later.
    pub fn faded(self, tokens: u64, since: UnixMicros, at: UnixMicros) -> u64 {
        let length_us = self.bucket_us.saturating_mul(BUCKETS);
        let past_us = at.0.saturating_sub(since.0).clamp(0, length_us);
        let left = u128::from(tokens) * u128::from((length_us - past_us).unsigned_abs());
        u64::try_from(left / u128::from(length_us.unsigned_abs())).unwrap_or(u64::MAX)
    }

    /// When `needed` tokens will have faded; where the bucket that fades now has fewer, the moment at which the next one
    /// begins to.
    pub(crate) fn faded_at(
        self,
        bucket: i64,
        oldest: i64,
        needed: u64,
        at: UnixMicros,
    ) -> UnixMicros {
        let next = bucket.saturating_add(self.bucket_us).max(at.0);
        if oldest <= 0 {
            return UnixMicros(next);
        }
        let oldest = i128::from(oldest);
        let wait_us = (i128::from(needed) * i128::from(self.bucket_us) + oldest - 1) / oldest;
        let wait_us = i64::try_from(wait_us).unwrap_or(i64::MAX);
        UnixMicros(at.0.saturating_add(wait_us).min(next))
    }
}

/// Brings the sums of all projects to a bucket `$1`, where they stand at another. `$2` is the bucket that fades then, `$3` the
/// one before it.
pub(crate) const ROLL: &str = "UPDATE fleet_projects SET window_bucket = $1, \
     window_tokens = COALESCE((SELECT SUM(u.tokens) FROM fleet_usage u \
     WHERE u.project = fleet_projects.id AND u.bucket > $2), 0), \
     window_completed = COALESCE((SELECT SUM(u.completed) FROM fleet_usage u \
     WHERE u.project = fleet_projects.id AND u.bucket > $2), 0), \
     window_oldest = COALESCE((SELECT SUM(u.tokens) FROM fleet_usage u \
     WHERE u.project = fleet_projects.id AND u.bucket > $3 AND u.bucket <= $2), 0) \
     WHERE window_bucket <> $1";

/// Forgets buckets that count no more.
pub(crate) const FORGET: &str = "DELETE FROM fleet_usage WHERE bucket <= $1";

/// Adds to the bucket that a project stands at: `$1` tokens, `$2` tasks that ended well, of project `$3`.
pub(crate) const ADD_TO_BUCKET: &str = "INSERT INTO fleet_usage (project, bucket, tokens, completed) \
     SELECT id, window_bucket, CAST($1 AS BIGINT), CAST($2 AS BIGINT) FROM fleet_projects WHERE id = $3 \
     ON CONFLICT (project, bucket) DO UPDATE SET tokens = fleet_usage.tokens + excluded.tokens, \
     completed = fleet_usage.completed + excluded.completed";
/// Adds to the sums of a project, as [`ADD_TO_BUCKET`] to its bucket.
pub(crate) const ADD_TO_PROJECT: &str = "UPDATE fleet_projects SET window_tokens = window_tokens + $1, \
     window_completed = window_completed + $2 WHERE id = $3";
/// Adds to a task `$4`: `$2` tokens that its claim `$1` used, in `$3` calls.
pub(crate) const ADD_TO_TASK: &str = "UPDATE fleet_tasks SET \
     used = used + CASE WHEN epoch = $1 THEN CAST($2 AS BIGINT) ELSE 0 END, \
     used_before = used_before + CASE WHEN epoch = $1 THEN 0 ELSE CAST($2 AS BIGINT) END, \
     calls = calls + $3 WHERE id = $4";
/// Every change of the fleet is counted.
pub(crate) const COUNT_CHANGE: &str = "UPDATE fleet SET version = version + 1 WHERE one = 1";

/// Brings the window's sums of all projects to the bucket that `at` lies in; says how many stood at another. For a
/// transaction of [`crate::Store::transact`].
pub fn roll(
    transaction: &mut dyn Transaction,
    window: Window,
    at: UnixMicros,
) -> Result<u64, StoreError> {
    let [bucket, oldest, gone] = window.edges(at);
    let rolled = transaction.run(ROLL, &[bucket.into(), oldest.into(), gone.into()])?;
    if rolled > 0 {
        transaction.run(FORGET, &[gone.into()])?;
    }
    Ok(rolled)
}

impl Window {
    /// The bucket that a moment lies in, the one that fades then, and the last one that counts no more.
    pub(crate) fn edges(self, at: UnixMicros) -> [i64; 3] {
        let bucket = self.bucket(at);
        let oldest = self.oldest(bucket);
        [bucket, oldest, oldest.saturating_sub(self.bucket_us)]
    }
}

/// Adds what a project used, in tokens, and how many of its tasks ended well, to the window. For a transaction of
/// [`crate::Store::transact`].
pub fn add_to_project(
    transaction: &mut dyn Transaction,
    project: &str,
    tokens: i64,
    completed: i64,
) -> Result<(), StoreError> {
    let values: [Value; 3] = [tokens.into(), completed.into(), project.into()];
    transaction.run(ADD_TO_BUCKET, &values)?;
    transaction.run(ADD_TO_PROJECT, &values)?;
    Ok(())
}

/// Adds what a claim used, in tokens, to its task and to the window of its project. For a transaction of
/// [`crate::Store::transact`].
pub fn add_to_task(
    transaction: &mut dyn Transaction,
    claim: &TaskClaim,
    tokens: i64,
    calls: i64,
) -> Result<(), StoreError> {
    add_to_project(transaction, &claim.project, tokens, 0)?;
    let epoch = i64::try_from(claim.epoch).unwrap_or(i64::MAX);
    let values = [epoch.into(), tokens.into(), calls.into(), claim.task.as_str().into()];
    transaction.run(ADD_TO_TASK, &values)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000_000;

    fn day() -> Window {
        Window::new(Duration::from_secs(24 * 3600))
    }

    #[test]
    fn buckets_are_called_by_their_first_moment() {
        let window = day();
        assert_eq!(window.bucket(UnixMicros(0)), 0);
        assert_eq!(window.bucket(UnixMicros(HOUR - 1)), 0);
        assert_eq!(window.bucket(UnixMicros(HOUR)), HOUR);
        assert_eq!(window.bucket(UnixMicros(-1)), -HOUR);
        assert_eq!(window.edges(UnixMicros(30 * HOUR + 7)), [30 * HOUR, 6 * HOUR, 5 * HOUR]);
    }

    #[test]
    fn the_oldest_bucket_fades_without_a_jump() {
        let window = day();
        let used = |at| window.used(24 * HOUR, 100, 60, UnixMicros(at));
        assert_eq!(used(24 * HOUR), 160);
        assert_eq!(used(24 * HOUR + HOUR / 2), 130);
        assert_eq!(used(25 * HOUR - 1), 100);
        // Not rolled yet, or a clock that went back.
        assert_eq!(used(40 * HOUR), 100);
        assert_eq!(used(3 * HOUR), 160);
        // What was taken back may have been in a bucket that is gone.
        assert_eq!(window.used(0, -5, 0, UnixMicros(0)), 0);
        assert_eq!(window.used(0, i64::MAX, i64::MAX, UnixMicros(0)), 2 * i64::MAX.unsigned_abs());
    }

    #[test]
    fn what_fades_over_a_window_is_gone_after_it() {
        let window = day();
        let left = |hours| window.faded(240, UnixMicros(0), UnixMicros(hours * HOUR));
        assert_eq!([left(0), left(6), left(24), left(99), left(-9)], [240, 180, 0, 0, 240]);
    }

    #[test]
    fn room_comes_as_the_oldest_bucket_fades() {
        let window = day();
        let at = |needed| window.faded_at(24 * HOUR, 60, needed, UnixMicros(24 * HOUR)).0;
        assert_eq!(at(30), 24 * HOUR + HOUR / 2);
        assert_eq!(at(61), 25 * HOUR);
        assert_eq!(at(u64::MAX), 25 * HOUR);
        assert_eq!(window.faded_at(24 * HOUR, 0, 1, UnixMicros(24 * HOUR)).0, 25 * HOUR);
    }

    #[test]
    fn a_window_has_a_length() {
        for length in [Duration::ZERO, Duration::from_nanos(1), Duration::MAX] {
            let window = Window::new(length);
            window.edges(UnixMicros(i64::MAX));
            window.edges(UnixMicros(i64::MIN));
            window.faded(u64::MAX, UnixMicros(i64::MIN), UnixMicros(i64::MAX));
        }
    }
}
