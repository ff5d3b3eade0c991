//! Statements that read and write the usage of tasks and projects. The fleet and the ledger both
//! write usage with this module.
//!
//! The table `fleet_projects` has the sums of each project as of the bucket `window_bucket`, and
//! [`roll`] moves the sums to the current bucket. Usage is always added to the bucket that the
//! project's `window_bucket` names, even if a newer bucket has begun since the last call of
//! [`roll`]. So a writer of ledger rows need not know the length of the window, and sums and
//! buckets always agree.
//!
//! Each statement about one task or project also exists in a form for PostgreSQL that takes arrays.

use fairgate_time::UnixMicros;

use crate::claim::{TaskClaim, task_balance};
use crate::claim_charges::ClaimUsage;
use crate::database::{UsageValue, UsageWriter};
use crate::rolling_window::UsageWindow;
use crate::set_aside::set_aside_sum;

/// Locks the one row of the table `fleet` in PostgreSQL. Each transaction that changes tasks, projects or their usage
/// does this first, so only one such transaction runs at a time, over all processes.
pub const LOCK: &str = "SELECT version FROM fleet WHERE one = 1 FOR UPDATE";

/// Selects the ids of the projects of tenant `$1`, in the order of their creation.
pub const PROJECTS_OF_TENANT: &str =
    "SELECT id FROM fleet_projects WHERE tenant = $1 ORDER BY made";

/// Selects the ids of the projects that are not archived, sorted.
pub const LIVE_PROJECTS: &str =
    "SELECT id FROM fleet_projects WHERE status <> 'ARCHIVED' ORDER BY id";

/// Expands to the beginning of the query for a project's balance, with columns in the order in which
/// [`crate::UsageBalances::put_project`] takes them. A condition on the id follows.
macro_rules! project_balance {
    () => {
        concat!(
            "SELECT p.id, p.window_bucket, p.window_tokens, p.window_oldest, p.window_completed, p.budget, ",
            set_aside_sum!(" AND t.project = p.id", " AND r.project = p.id"),
            " FROM fleet_projects p WHERE p.id = "
        )
    };
}

/// Expands to an SQL assignment of the sum of a column over the buckets of a project that match a condition.
macro_rules! rolled_sum {
    ($target:literal, $column:literal, $condition:literal) => {
        concat!(
            ", ",
            $target,
            " = COALESCE((SELECT CAST(SUM(u.",
            $column,
            ") AS BIGINT) FROM fleet_usage u WHERE u.project = fleet_projects.id AND ",
            $condition,
            "), 0)"
        )
    };
}

/// Selects the state and tokens of task `$1`, for [`crate::UsageBalances::put_task`].
pub const TASK: &str = concat!(task_balance!(), "$1");
/// Selects the states and tokens of the tasks in the array `$1`, like [`TASK`].
pub const TASKS: &str = concat!(task_balance!(), "ANY($1)");
/// Selects the balance of project `$1`, for [`crate::UsageBalances::put_project`].
pub const PROJECT: &str = concat!(project_balance!(), "$1");
/// Selects the balances of the projects in the array `$1`, like [`PROJECT`].
pub const PROJECTS: &str = concat!(project_balance!(), "ANY($1)");
/// Selects the balance of all projects together, for [`crate::UsageBalances::put_total`].
pub const TOTAL: &str = concat!(
    "SELECT COALESCE(MIN(window_bucket), 0), COALESCE(MAX(window_bucket), 0), \
     CAST(COALESCE(SUM(window_tokens), 0) AS BIGINT), CAST(COALESCE(SUM(window_oldest), 0) AS BIGINT), \
     CAST(0 AS BIGINT), ",
    set_aside_sum!("", ""),
    " FROM fleet_projects"
);

/// Moves the sums of all projects to bucket `$1`, unless they belong to it already. `$2` is the bucket that fades while
/// `$1` is filled, and `$3` the bucket before `$2`.
///
/// Rows of buckets after `$1` exist if a clock ran ahead and was set back. They count in full, because usage must not
/// be forgotten. Buckets that were written with another window length begin at other times. Such a bucket counts as
/// part of the fading bucket if it begins after `$3` and not after `$2`.
pub const ROLL: &str = concat!(
    "UPDATE fleet_projects SET window_bucket = $1",
    rolled_sum!("window_tokens", "tokens", "u.bucket > $2"),
    rolled_sum!("window_oldest", "tokens", "u.bucket > $3 AND u.bucket <= $2"),
    rolled_sum!("window_completed", "completed", "u.bucket > $3"),
    rolled_sum!("window_extra", "credit_extra", "u.bucket > $2"),
    rolled_sum!("window_extra_oldest", "credit_extra", "u.bucket > $3 AND u.bucket <= $2"),
    rolled_sum!("window_paid", "paid", "u.bucket > $3"),
    rolled_sum!("window_agent_us", "agent_us", "u.bucket > $3"),
    rolled_sum!("window_work_tokens", "work_tokens", "u.bucket > $3"),
    rolled_sum!("window_work_us", "work_us", "u.bucket > $3"),
    rolled_sum!("window_without_calls", "without_calls", "u.bucket > $3"),
    " WHERE window_bucket <> $1"
);

/// Deletes the usage of all buckets before `$1`.
pub const FORGET: &str = "DELETE FROM fleet_usage WHERE bucket < $1";

/// Adds `$1` tokens and `$2` ended tries to the usage of project `$3`, in the bucket that the project's column
/// `window_bucket` names.
pub const ADD_TO_BUCKET: &str = "INSERT INTO fleet_usage (project, bucket, tokens, completed) \
     SELECT id, window_bucket, CAST($1 AS BIGINT), CAST($2 AS BIGINT) FROM fleet_projects WHERE id = $3 \
     ON CONFLICT (project, bucket) DO UPDATE SET tokens = fleet_usage.tokens + excluded.tokens, \
     completed = fleet_usage.completed + excluded.completed";
/// Adds `$2[i]` tokens to the usage of each project `$1[i]`, in the bucket that the project's column `window_bucket`
/// names; see [`ADD_TO_BUCKET`].
pub const ADD_TO_BUCKETS: &str = "INSERT INTO fleet_usage (project, bucket, tokens, completed) \
     SELECT p.id, p.window_bucket, v.tokens, 0 FROM UNNEST($1::text[], $2::bigint[]) AS v (project, tokens) \
     JOIN fleet_projects p ON p.id = v.project \
     ON CONFLICT (project, bucket) DO UPDATE SET tokens = fleet_usage.tokens + excluded.tokens";
/// Adds tokens and ended tries to the sums of a project. Takes the same values as [`ADD_TO_BUCKET`].
pub const ADD_TO_PROJECT: &str = "UPDATE fleet_projects SET window_tokens = window_tokens + $1, \
     window_completed = window_completed + $2 WHERE id = $3";
/// Adds `$2[i]` tokens to the sums of each project `$1[i]`; see [`ADD_TO_PROJECT`].
pub const ADD_TO_PROJECTS: &str = "UPDATE fleet_projects p SET window_tokens = p.window_tokens + v.tokens \
     FROM UNNEST($1::text[], $2::bigint[]) AS v (project, tokens) WHERE p.id = v.project";
/// Adds to task `$6` the `$2` tokens, `$3` requests and `$4` micro-units of its claim `$1`. A request that was completed at
/// `$5` ends a wait of the claim that had begun before.
pub const ADD_TO_TASK: &str = "UPDATE fleet_tasks SET \
     used = used + CASE WHEN epoch = $1 THEN CAST($2 AS BIGINT) ELSE 0 END, \
     used_before = used_before + CASE WHEN epoch = $1 THEN 0 ELSE CAST($2 AS BIGINT) END, \
     calls = calls + $3, money = money + $4, waited_until = CASE WHEN epoch = $1 AND waited_from < CAST($5 AS BIGINT) \
     AND waited_until > CAST($5 AS BIGINT) THEN CAST($5 AS BIGINT) ELSE waited_until END WHERE id = $6";
/// Adds to tasks `$1` the `$3` tokens, `$4` requests and `$5` micro-units of their claims `$2`, whose last requests were
/// completed at `$6`; see [`ADD_TO_TASK`]. The arrays may contain several claims of one task.
pub const ADD_TO_TASKS: &str = "UPDATE fleet_tasks t SET used = t.used + d.used, \
     used_before = t.used_before + d.before, calls = t.calls + d.calls, money = t.money + d.money, \
     waited_until = CASE WHEN t.waited_from < d.answered AND t.waited_until > d.answered THEN d.answered \
     ELSE t.waited_until END FROM (SELECT v.task, CAST(SUM(CASE WHEN v.epoch = c.epoch THEN v.tokens ELSE 0 END) AS BIGINT) AS used, \
     CAST(SUM(CASE WHEN v.epoch = c.epoch THEN 0 ELSE v.tokens END) AS BIGINT) AS before, \
     CAST(SUM(v.calls) AS BIGINT) AS calls, CAST(SUM(v.money) AS BIGINT) AS money, \
     MAX(CASE WHEN v.epoch = c.epoch THEN v.answered ELSE 0 END) AS answered \
     FROM UNNEST($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[]) \
     AS v (task, epoch, tokens, calls, money, answered) \
     JOIN fleet_tasks c ON c.id = v.task GROUP BY v.task) d WHERE t.id = d.task";
/// Increments the fleet's version, by which processes notice that something changed.
pub const COUNT_CHANGE: &str = "UPDATE fleet SET version = version + 1 WHERE one = 1";

/// Moves the sums of all projects to the bucket that contains `at`. Returns the number of projects whose sums belonged
/// to another bucket.
pub fn roll<W: UsageWriter + ?Sized>(
    transaction: &mut W,
    window: UsageWindow,
    at: UnixMicros,
) -> Result<u64, W::Error> {
    use UsageValue::Int;
    let [bucket, oldest, before, kept] = window.edges(at);
    let rolled = transaction.run(ROLL, &[Int(bucket), Int(oldest), Int(before)])?;
    if rolled > 0 {
        transaction.run(FORGET, &[Int(kept)])?;
    }
    Ok(rolled)
}

/// Adds tokens and completed tasks to the usage of a project in the window.
pub fn add_to_project<W: UsageWriter + ?Sized>(
    transaction: &mut W,
    project: &str,
    tokens: i64,
    completed: i64,
) -> Result<(), W::Error> {
    let values = [UsageValue::Int(tokens), UsageValue::Int(completed), UsageValue::Text(project)];
    transaction.run(ADD_TO_BUCKET, &values)?;
    transaction.run(ADD_TO_PROJECT, &values)?;
    Ok(())
}

/// Adds the usage of a claim to the claim's task, and its tokens to the project's usage in the window.
pub fn add_to_task<W: UsageWriter + ?Sized>(
    transaction: &mut W,
    claim: &TaskClaim,
    usage: ClaimUsage,
) -> Result<(), W::Error> {
    use UsageValue::{Int, Text};
    let ClaimUsage { tokens, calls, money, answered_at } = usage;
    add_to_project(transaction, &claim.project, tokens, 0)?;
    let epoch = i64::try_from(claim.epoch).unwrap_or(i64::MAX);
    let numbers = [epoch, tokens, calls, money, answered_at].map(Int);
    let [epoch, tokens, calls, money, answered_at] = numbers;
    let values = [epoch, tokens, calls, money, answered_at, Text(&claim.task)];
    transaction.run(ADD_TO_TASK, &values)?;
    Ok(())
}

/// Increments the fleet's version, by which processes notice that something changed.
pub fn count_change<W: UsageWriter + ?Sized>(transaction: &mut W) -> Result<(), W::Error> {
    transaction.run(COUNT_CHANGE, &[]).map(drop)
}
