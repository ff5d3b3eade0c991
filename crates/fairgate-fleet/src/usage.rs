//! What projects used in the rolling window.
//!
//! The window is cut into 24 buckets. A row of `fleet_usage` holds what a project used in one of them; a bucket is named by
//! the moment at which it begins, so that rows keep their meaning when the window's length is changed. Let L be a bucket's
//! length and c the beginning of the bucket that `now` lies in. The 24 buckets from c − 23·L to c count in full. The one
//! before them, at c − 24·L, is leaving the window: it counts with the part of it that the window still covers,
//!
//! ```text
//!     used = full + oldest × (L − (now − c)) ÷ L          rounded up
//! ```
//!
//! At the end of a bucket that part reaches 0, and the next bucket begins to leave with the whole of its amount: ageing
//! usage makes no jumps.
//!
//! `fleet_projects` keeps `full` (`window_tokens`), `oldest` and the number of tasks completed in all 25 buckets, as of the
//! bucket `window_bucket`. What is charged is added to these columns at once; [`roll`] finds them anew from the rows when a
//! new bucket begins.

use std::time::Duration;

use fairgate_money::UnixMicros;
use fairgate_store::{Columns, StoreError, Transaction, Value};

/// How many buckets the window has.
const BUCKETS: i64 = 24;
/// After how many windows a bucket's rows are removed. More than one, so that a clock that went ahead and came back finds
/// what was used.
const WINDOWS_KEPT: i64 = 8;

/// The rolling window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    bucket_us: i64,
}

/// A project's columns `window_bucket`, `window_tokens`, `window_oldest` and `window_completed`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sums {
    pub(crate) bucket: i64,
    pub(crate) tokens: u64,
    pub(crate) oldest: u64,
    pub(crate) completed: u64,
}

impl Sums {
    /// The names of the columns, in the order in which [`Sums::read`] takes them.
    pub(crate) const COLUMNS: &str =
        "window_bucket, window_tokens, window_oldest, window_completed";

    /// Reads them from a row, beginning with this column. What was guessed and taken back in another bucket may leave a sum
    /// below 0 until the next bucket begins.
    pub(crate) fn read(row: &dyn Columns, first: usize) -> Result<Self, StoreError> {
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
    pub(crate) fn new(length: Duration) -> Self {
        let length = i64::try_from(length.as_micros()).unwrap_or(i64::MAX);
        // A hundred years, so that no sum of moments leaves its range.
        Self { bucket_us: (length / BUCKETS).clamp(1, 36_500 * 86_400 * 1_000_000 / BUCKETS) }
    }

    /// Where the bucket begins that a moment lies in.
    pub(crate) fn bucket(self, now: UnixMicros) -> i64 {
        now.0.div_euclid(self.bucket_us).saturating_mul(self.bucket_us)
    }

    /// Where the oldest bucket begins that still counts in part.
    fn oldest(self, bucket: i64) -> i64 {
        bucket.saturating_sub(BUCKETS * self.bucket_us)
    }

    /// What a project used in the window that ends now. Where its columns are of another bucket, because nothing rolled them,
    /// it is the most that it can be.
    pub(crate) fn used(self, sums: &Sums, now: UnixMicros) -> u64 {
        let bucket = self.bucket(now);
        let oldest = match sums.bucket.cmp(&bucket) {
            std::cmp::Ordering::Less => 0,
            std::cmp::Ordering::Greater => sums.oldest,
            std::cmp::Ordering::Equal => {
                let left = self.bucket_us - (now.0 - bucket).min(self.bucket_us);
                part(sums.oldest, left, self.bucket_us)
            }
        };
        sums.tokens.saturating_add(oldest)
    }

    /// When the bucket ends that a moment lies in.
    pub(crate) fn bucket_end(self, now: UnixMicros) -> UnixMicros {
        UnixMicros(self.bucket(now).saturating_add(self.bucket_us))
    }

    /// When so many tokens of these will have left the window; never where there are not so many. `used` has what was used in
    /// each bucket, the oldest first.
    pub(crate) fn faded_at(
        self,
        used: &[(i64, u64)],
        mut tokens: u64,
        now: UnixMicros,
    ) -> Option<UnixMicros> {
        for (bucket, amount) in used {
            let begins = bucket.saturating_add(BUCKETS * self.bucket_us).max(now.0);
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

    /// What is left of an amount that fades in one window from a moment on, rounded up.
    pub(crate) fn fade(self, amount: u64, since: UnixMicros, now: UnixMicros) -> u64 {
        let window = BUCKETS * self.bucket_us;
        let past = now.0.saturating_sub(since.0).clamp(0, window);
        part(amount, window - past, window)
    }
}

/// amount × left ÷ whole, rounded up.
fn part(amount: u64, left: i64, whole: i64) -> u64 {
    let (left, whole) = (u128::from(left.unsigned_abs()), u128::from(whole.unsigned_abs()));
    u64::try_from((u128::from(amount) * left).div_ceil(whole)).unwrap_or(u64::MAX)
}

/// Adds tokens to what a project used.
pub(crate) fn charge(
    tx: &mut dyn Transaction,
    window: Window,
    project: &str,
    tokens: u64,
    now: UnixMicros,
) -> Result<(), StoreError> {
    if tokens == 0 {
        return Ok(());
    }
    add(tx, window, project, i64::try_from(tokens).unwrap_or(i64::MAX), 0, now)
}

/// Counts one more task that ended well.
pub(crate) fn count_completed(
    tx: &mut dyn Transaction,
    window: Window,
    project: &str,
    now: UnixMicros,
) -> Result<(), StoreError> {
    add(tx, window, project, 0, 1, now)
}

fn add(
    tx: &mut dyn Transaction,
    window: Window,
    project: &str,
    tokens: i64,
    completed: i64,
    now: UnixMicros,
) -> Result<(), StoreError> {
    tx.run(
        "INSERT INTO fleet_usage (project, bucket, tokens, completed) VALUES ($1, $2, $3, $4) \
         ON CONFLICT (project, bucket) DO UPDATE SET tokens = fleet_usage.tokens + excluded.tokens, \
         completed = fleet_usage.completed + excluded.completed",
        &[project.into(), window.bucket(now).into(), tokens.into(), completed.into()],
    )?;
    tx.run(
        "UPDATE fleet_projects SET window_tokens = window_tokens + $1, \
         window_completed = window_completed + $2 WHERE id = $3",
        &[tokens.into(), completed.into(), project.into()],
    )?;
    Ok(())
}

/// Brings the columns of all projects to the bucket that `now` lies in; rows that no window needs any more are removed.
///
/// Rows of buckets after this one, which a clock that ran ahead left, count in full: usage must not be forgotten.
pub(crate) fn roll(
    tx: &mut dyn Transaction,
    window: Window,
    now: UnixMicros,
) -> Result<(), StoreError> {
    let bucket = window.bucket(now);
    let oldest = window.oldest(bucket);
    let before = oldest.saturating_sub(window.bucket_us);
    let values: [Value; 3] = [bucket.into(), oldest.into(), before.into()];
    // A row of another window's length that begins within the oldest bucket belongs to it.
    let rolled = tx.run(
        "UPDATE fleet_projects SET window_bucket = $1, \
         window_tokens = COALESCE((SELECT CAST(SUM(u.tokens) AS BIGINT) FROM fleet_usage u \
           WHERE u.project = fleet_projects.id AND u.bucket > $2), 0), \
         window_oldest = COALESCE((SELECT CAST(SUM(u.tokens) AS BIGINT) FROM fleet_usage u \
           WHERE u.project = fleet_projects.id AND u.bucket > $3 AND u.bucket <= $2), 0), \
         window_completed = COALESCE((SELECT CAST(SUM(u.completed) AS BIGINT) FROM fleet_usage u \
           WHERE u.project = fleet_projects.id AND u.bucket > $3), 0) \
         WHERE window_bucket <> $1",
        &values,
    )?;
    if rolled > 0 {
        let kept = window.bucket_us.saturating_mul(BUCKETS * WINDOWS_KEPT);
        let gone = bucket.saturating_sub(kept);
        tx.run("DELETE FROM fleet_usage WHERE bucket < $1", &[gone.into()])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
