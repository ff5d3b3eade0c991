//! Updates the usage of projects in the [rolling window](crate::rolling_window), and of their tasks. The fleet and the
//! ledger both write these numbers, and both do it through this module.
//!
//! The table `fleet_projects` has the sums of each project as of the bucket `window_bucket`, and [`roll`] moves the
//! sums to the current bucket. Usage is added to the project's `window_bucket`, which is at most as old as the last
//! call of [`roll`]. So a writer of ledger rows need not know the length of the window, and sums and buckets always
//! agree.

use fairgate_money::UnixMicros;
use serde::{Deserialize, Serialize};

use crate::error::StoreError;
use crate::rolling_window::UsageWindow;
use crate::sql::SqlValue;
use crate::transaction::Transaction;

/// Task and claim for which a request was made.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TaskClaim {
    /// Id of the project.
    pub project: String,
    /// Id of the task.
    pub task: String,
    /// Number of the claim. The first claim of a task has the number 1.
    pub epoch: u64,
}

/// Moves the sums of all projects to bucket `$1`, unless they belong to it already. `$2` is the bucket that fades while
/// `$1` is filled, and `$3` the bucket before `$2`.
///
/// Rows of later buckets, which a clock that ran ahead has left, count in full, because usage must not be forgotten. A
/// row that was written with another window length belongs to the oldest bucket if it begins within that bucket.
pub(crate) const ROLL: &str = "UPDATE fleet_projects SET window_bucket = $1, \
     window_tokens = COALESCE((SELECT CAST(SUM(u.tokens) AS BIGINT) FROM fleet_usage u \
     WHERE u.project = fleet_projects.id AND u.bucket > $2), 0), \
     window_oldest = COALESCE((SELECT CAST(SUM(u.tokens) AS BIGINT) FROM fleet_usage u \
     WHERE u.project = fleet_projects.id AND u.bucket > $3 AND u.bucket <= $2), 0), \
     window_completed = COALESCE((SELECT CAST(SUM(u.completed) AS BIGINT) FROM fleet_usage u \
     WHERE u.project = fleet_projects.id AND u.bucket > $3), 0) \
     WHERE window_bucket <> $1";

/// Deletes the usage of all buckets before `$1`.
pub(crate) const FORGET: &str = "DELETE FROM fleet_usage WHERE bucket < $1";

/// Adds `$1` tokens and `$2` completed tasks to the usage of project `$3` in its bucket `window_bucket`.
pub(crate) const ADD_TO_BUCKET: &str = "INSERT INTO fleet_usage (project, bucket, tokens, completed) \
     SELECT id, window_bucket, CAST($1 AS BIGINT), CAST($2 AS BIGINT) FROM fleet_projects WHERE id = $3 \
     ON CONFLICT (project, bucket) DO UPDATE SET tokens = fleet_usage.tokens + excluded.tokens, \
     completed = fleet_usage.completed + excluded.completed";
/// Adds tokens and completed tasks to the sums of a project. Takes the same values as [`ADD_TO_BUCKET`].
pub(crate) const ADD_TO_PROJECT: &str = "UPDATE fleet_projects SET window_tokens = window_tokens + $1, \
     window_completed = window_completed + $2 WHERE id = $3";
/// Adds to task `$4` the `$2` tokens and `$3` requests of its claim `$1`.
pub(crate) const ADD_TO_TASK: &str = "UPDATE fleet_tasks SET \
     used = used + CASE WHEN epoch = $1 THEN CAST($2 AS BIGINT) ELSE 0 END, \
     used_before = used_before + CASE WHEN epoch = $1 THEN 0 ELSE CAST($2 AS BIGINT) END, \
     calls = calls + $3 WHERE id = $4";
/// Increments the fleet's version, by which processes notice that something changed.
pub(crate) const COUNT_CHANGE: &str = "UPDATE fleet SET version = version + 1 WHERE one = 1";

/// Moves the sums of all projects to the bucket that contains `at`. Returns the number of projects whose sums belonged
/// to another bucket. Must be called in a transaction of [`crate::Store::transact`].
pub fn roll(
    transaction: &mut dyn Transaction,
    window: UsageWindow,
    at: UnixMicros,
) -> Result<u64, StoreError> {
    let [bucket, oldest, before, kept] = window.edges(at);
    let rolled = transaction.run(ROLL, &[bucket.into(), oldest.into(), before.into()])?;
    if rolled > 0 {
        transaction.run(FORGET, &[kept.into()])?;
    }
    Ok(rolled)
}

/// Adds tokens and completed tasks to the usage of a project in the window. Must be called in a transaction of
/// [`crate::Store::transact`].
pub fn add_to_project(
    transaction: &mut dyn Transaction,
    project: &str,
    tokens: i64,
    completed: i64,
) -> Result<(), StoreError> {
    let values: [SqlValue; 3] = [tokens.into(), completed.into(), project.into()];
    transaction.run(ADD_TO_BUCKET, &values)?;
    transaction.run(ADD_TO_PROJECT, &values)?;
    Ok(())
}

/// Adds the tokens and requests of a claim to the claim's task, and the tokens to the project's usage in the window.
/// Must be called in a transaction of [`crate::Store::transact`].
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

/// Lists the weights of the projects that are not archived, in thousandths.
pub fn project_weights(
    transaction: &mut dyn Transaction,
) -> Result<Vec<(String, u64)>, StoreError> {
    let sql = "SELECT id, weight FROM fleet_projects WHERE status <> 'ARCHIVED' ORDER BY made";
    transaction.list(sql, &[], |row| Ok((row.text(0)?, row.count(1)?)))
}
