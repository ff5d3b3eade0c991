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
use crate::transaction::{Columns, Transaction};

/// How many buckets a window has.
const BUCKETS: i64 = 24;
/// The longest window: a hundred years, so that no sum of moments leaves its range.
const LENGTH_US_MAX: i64 = 36_500 * 86_400 * 1_000_000;
/// For how many windows buckets are kept. More than one, so that a clock that went ahead and came back finds what was used.
const WINDOWS_KEPT: i64 = 8;

/// The task that a call was made for, and which claim of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
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

/// A project's columns `window_bucket`, `window_tokens`, `window_oldest` and `window_completed`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// The bucket that the others are as of.
    pub bucket: i64,
    /// What was used in the buckets that count in full, in tokens.
    pub tokens: u64,
    /// What was used in the bucket that fades, in tokens.
    pub oldest: u64,
    /// How many tasks ended well in all of these buckets.
    pub completed: u64,
}

impl Sums {
    /// The names of the columns, in the order in which [`Sums::read`] takes them.
    pub const COLUMNS: &str = "window_bucket, window_tokens, window_oldest, window_completed";

    /// Reads them from a row, beginning with this column. A guess that was taken back in another bucket may leave a sum below
    /// 0: it counts as 0.
    pub fn read(row: &dyn Columns, first: usize) -> Result<Self, StoreError> {
        let count = |column| row.int(column).map(|number| u64::try_from(number).unwrap_or(0));
        Ok(Self {
            bucket: row.int(first)?,
            tokens: count(first + 1)?,
            oldest: count(first + 2)?,
            completed: count(first + 3)?,
        })
    }
}

impl Window {
    /// A window of this length, in whole buckets of at least a microsecond.
    pub fn new(length: Duration) -> Self {
        let length_us = i64::try_from(length.as_micros()).unwrap_or(i64::MAX);
        Self { bucket_us: (length_us / BUCKETS).clamp(1, LENGTH_US_MAX / BUCKETS) }
    }

    /// The bucket that a moment lies in.
    pub fn bucket(self, at: UnixMicros) -> i64 {
        at.0.div_euclid(self.bucket_us).saturating_mul(self.bucket_us)
    }

    /// What counts of a project's sums at a moment, rounded up. Where they are as of an earlier bucket, because nothing rolled
    /// them, it is the most that it can be.
    pub fn used(self, sums: &Sums, at: UnixMicros) -> u64 {
        let past_us = at.0.saturating_sub(sums.bucket).clamp(0, self.bucket_us);
        sums.tokens.saturating_add(part(sums.oldest, self.bucket_us - past_us, self.bucket_us))
    }

    /// What is left of an amount that fades in one window from a moment on, rounded up.
    pub fn fade(self, amount: u64, since: UnixMicros, at: UnixMicros) -> u64 {
        let length_us = self.bucket_us * BUCKETS;
        let past_us = at.0.saturating_sub(since.0).clamp(0, length_us);
        part(amount, length_us - past_us, length_us)
    }

    /// When `needed` tokens will have faded; where the bucket that fades now has fewer, the moment at which the next one
    /// begins to.
    pub(crate) fn faded_at(self, sums: &Sums, needed: u64, at: UnixMicros) -> UnixMicros {
        let next = sums.bucket.saturating_add(self.bucket_us).max(at.0);
        if sums.oldest == 0 {
            return UnixMicros(next);
        }
        let bucket_us = u128::from(self.bucket_us.unsigned_abs());
        let wait_us = (u128::from(needed) * bucket_us).div_ceil(u128::from(sums.oldest));
        let wait_us = i64::try_from(wait_us).unwrap_or(i64::MAX);
        UnixMicros(at.0.saturating_add(wait_us).min(next))
    }

    /// When the bucket ends that a moment lies in.
    pub fn bucket_end(self, at: UnixMicros) -> UnixMicros {
        UnixMicros(self.bucket(at).saturating_add(self.bucket_us))
    }

    /// When so many tokens of these will have left the window; never where there are not so many. `used` has what was used in
    /// each bucket, the oldest first.
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

    /// The bucket that a moment lies in, the one that fades then, the one before that, and the first that is kept.
    pub(crate) fn edges(self, at: UnixMicros) -> [i64; 4] {
        let bucket = self.bucket(at);
        let before = |buckets: i64| bucket.saturating_sub(self.bucket_us.saturating_mul(buckets));
        [bucket, before(BUCKETS), before(BUCKETS + 1), before(BUCKETS * WINDOWS_KEPT)]
    }
}

/// amount × left ÷ whole, rounded up.
fn part(amount: u64, left: i64, whole: i64) -> u64 {
    let (left, whole) = (u128::from(left.unsigned_abs()), u128::from(whole.unsigned_abs()));
    u64::try_from((u128::from(amount) * left).div_ceil(whole)).unwrap_or(u64::MAX)
}

/// Brings the sums of all projects to a bucket `$1`, where they stand at another. `$2` is the bucket that fades then, `$3` the
/// one before it.
///
/// Rows of buckets after this one, which a clock that ran ahead left, count in full: usage must not be forgotten. A row of
/// another window's length that begins within the oldest bucket belongs to it.
pub(crate) const ROLL: &str = "UPDATE fleet_projects SET window_bucket = $1, \
     window_tokens = COALESCE((SELECT CAST(SUM(u.tokens) AS BIGINT) FROM fleet_usage u \
     WHERE u.project = fleet_projects.id AND u.bucket > $2), 0), \
     window_oldest = COALESCE((SELECT CAST(SUM(u.tokens) AS BIGINT) FROM fleet_usage u \
     WHERE u.project = fleet_projects.id AND u.bucket > $3 AND u.bucket <= $2), 0), \
     window_completed = COALESCE((SELECT CAST(SUM(u.completed) AS BIGINT) FROM fleet_usage u \
     WHERE u.project = fleet_projects.id AND u.bucket > $3), 0) \
     WHERE window_bucket <> $1";

/// Forgets the buckets before `$1`.
pub(crate) const FORGET: &str = "DELETE FROM fleet_usage WHERE bucket < $1";

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
    let [bucket, oldest, before, kept] = window.edges(at);
    let rolled = transaction.run(ROLL, &[bucket.into(), oldest.into(), before.into()])?;
    if rolled > 0 {
        transaction.run(FORGET, &[kept.into()])?;
    }
    Ok(rolled)
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

/// The weights of the projects that are not archived, in thousandths.
pub fn project_weights(
    transaction: &mut dyn Transaction,
) -> Result<Vec<(String, u64)>, StoreError> {
    let sql = "SELECT id, weight FROM fleet_projects WHERE status <> 'ARCHIVED' ORDER BY made";
    transaction.list(sql, &[], |row| Ok((row.text(0)?, row.count(1)?)))
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
        let edges = window.edges(UnixMicros(300 * HOUR + 7));
        assert_eq!(edges.map(|edge| edge / HOUR), [300, 276, 275, 108]);
    }

    #[test]
    fn the_oldest_bucket_fades_without_a_jump() {
        let window = day();
        let sums = Sums { bucket: 24 * HOUR, tokens: 100, oldest: 60, completed: 0 };
        let used = |at| window.used(&sums, UnixMicros(at));
        assert_eq!(used(24 * HOUR), 160);
        assert_eq!(used(24 * HOUR + HOUR / 2), 130);
        assert_eq!(used(24 * HOUR + HOUR / 2 + 1), 130, "rounded up");
        assert_eq!(used(25 * HOUR), 100);
        // Not rolled yet, or a clock that went back.
        assert_eq!(used(40 * HOUR), 100);
        assert_eq!(used(3 * HOUR), 160);
        let most = Sums { tokens: u64::MAX, oldest: u64::MAX, ..sums };
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
        let sums = Sums { bucket: 24 * HOUR, tokens: 0, oldest: 60, completed: 0 };
        let at = |needed| window.faded_at(&sums, needed, UnixMicros(24 * HOUR)).0;
        assert_eq!(at(30), 24 * HOUR + HOUR / 2);
        assert_eq!(at(61), 25 * HOUR);
        assert_eq!(at(u64::MAX), 25 * HOUR);
        let none = Sums { oldest: 0, ..sums };
        assert_eq!(window.faded_at(&none, 1, UnixMicros(24 * HOUR)).0, 25 * HOUR);
    }

    #[test]
    fn no_length_and_no_moment_is_too_large() {
        for length in [Duration::ZERO, Duration::from_nanos(1), Duration::MAX] {
            let window = Window::new(length);
            for at in [UnixMicros(i64::MIN), UnixMicros(i64::MAX)] {
                assert!(window.edges(at).is_sorted_by(|later, earlier| later >= earlier));
                window.fade(u64::MAX, UnixMicros(i64::MIN), at);
                window.used(&Sums { bucket: i64::MIN, ..Sums::default() }, at);
            }
        }
    }
}
