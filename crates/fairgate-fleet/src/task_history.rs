//! The history of tasks. Each change of a task's state is a step. The last 200 steps of each task
//! are kept.

use fairgate_api::fleet::{TaskState, TaskStep};
use fairgate_store::{StoreError, Transaction};
use fairgate_time::UnixMicros;
use serde_json::json;

use crate::json_rows;

/// Number of steps that are kept for each task.
const STEPS_MAX: i64 = 200;

/// A step to be written to the history.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewTaskStep<'a> {
    pub(crate) task: &'a str,
    pub(crate) from: TaskState,
    pub(crate) to: TaskState,
    pub(crate) epoch: u64,
    /// Name of the actor who takes the step, such as `agent:NAME`.
    pub(crate) actor: &'a str,
    pub(crate) reason: Option<&'a str>,
}

/// Writes steps, each of a different task. Runs one SQL statement, and a second one if a history is too long.
pub(crate) fn add(
    tx: &mut dyn Transaction,
    now: UnixMicros,
    steps: &[NewTaskStep<'_>],
) -> Result<(), StoreError> {
    let types = ["TEXT", "TEXT", "TEXT", "BIGINT", "TEXT", "TEXT"];
    let table = json_rows::table(tx.database(), 2, &types);
    let sql = format!(
        "INSERT INTO fleet_history (at, task, from_state, to_state, epoch, actor, reason, step) \
         SELECT CAST($1 AS BIGINT), v.column1, v.column2, v.column3, v.column4, v.column5, v.column6, \
         COALESCE((SELECT MAX(h.step) FROM fleet_history h WHERE h.task = v.column1), 0) + 1 \
         FROM {table} AS v RETURNING task, step"
    );
    let row = |step: &NewTaskStep<'_>| {
        let epoch = i64::try_from(step.epoch).unwrap_or(i64::MAX);
        json!([step.task, step.from.word(), step.to.word(), epoch, step.actor, step.reason])
    };
    let values = [now.into(), json_rows::value(steps.iter().map(row))];
    let kept = tx.list(&sql, &values, |row| Ok((row.text(0)?, row.int(1)?)))?;
    let long: Vec<_> = kept.into_iter().filter(|(_, step)| *step > STEPS_MAX).collect();
    forget(tx, &long)
}

/// Deletes all but the last [`STEPS_MAX`] steps of the tasks `long`.
fn forget(tx: &mut dyn Transaction, long: &[(String, i64)]) -> Result<(), StoreError> {
    if long.is_empty() {
        return Ok(());
    }
    let sql = format!(
        "DELETE FROM fleet_history WHERE task IN {} AND step <= \
         (SELECT MAX(h.step) FROM fleet_history h WHERE h.task = fleet_history.task) - $2",
        json_rows::texts(tx.database(), 1)
    );
    let tasks = json_rows::names(long.iter().map(|(task, _)| task.as_str()));
    tx.run(&sql, &[tasks, STEPS_MAX.into()])?;
    Ok(())
}

/// Returns the steps of a task, oldest first.
pub(crate) fn of(tx: &mut dyn Transaction, task: &str) -> Result<Vec<TaskStep>, StoreError> {
    tx.list(
        "SELECT at, from_state, to_state, epoch, actor, reason FROM fleet_history WHERE task = $1 ORDER BY step",
        &[task.into()],
        |row| {
            Ok(TaskStep {
                at: row.moment(0)?,
                from: state(&row.text(1)?)?,
                to: state(&row.text(2)?)?,
                epoch: row.count(3)?,
                actor: row.text(4)?,
                reason: row.text_or_null(5)?,
            })
        },
    )
}

/// Parses the name of a task's state from the database. An unknown name is an error.
pub(crate) fn state(word: &str) -> Result<TaskState, StoreError> {
    let unknown = || StoreError::Database(format!("a task is in the unknown state {word:?}"));
    word.parse::<TaskState>().map_err(|_| unknown())
}
