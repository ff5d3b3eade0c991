//! Ends leases that ran out and pauses that are over.

use fairgate_money::UnixMicros;
use fairgate_store::{StoreError, Transaction};
use serde_json::json;

use super::RoundOptions;
use crate::retry_policy::{self, AfterFailure};
use crate::state::TaskState;
use crate::task_history::{self, NewTaskStep};
use crate::{json_rows, project_baseline};

/// Largest number of leases that one round ends, and also of pauses. If more are over, the next round follows at once.
const ENDS_MAX: i64 = 1_000;

/// Task whose lease or pause is over.
struct DueTask {
    task: String,
    project: String,
    from: TaskState,
    epoch: u64,
    agent: Option<String>,
    retries: u32,
    retries_max: u32,
    open_needs: u64,
}

/// New state of a task whose lease or pause is over.
struct ExpiryTransition {
    to: TaskState,
    reason: Option<String>,
    retries: u32,
    resume_after: Option<UnixMicros>,
}

/// Ends at most [`ENDS_MAX`] leases and [`ENDS_MAX`] pauses that are over at `now`.
pub(super) fn expire(
    tx: &mut dyn Transaction,
    rules: &RoundOptions,
    now: UnixMicros,
) -> Result<ExpiryResult, StoreError> {
    const COLUMNS: &str = "SELECT id, project, state, epoch, agent, retries, retries_max, open_needs FROM fleet_tasks";
    let values = [now.into(), ENDS_MAX.into()];
    let leases = format!(
        "{COLUMNS} WHERE lease_until <= $1 AND state IN ('ASSIGNED', 'IN_PROGRESS') \
         ORDER BY lease_until, id LIMIT $2"
    );
    let pauses = format!(
        "{COLUMNS} WHERE resume_after <= $1 AND state = 'PAUSED' ORDER BY resume_after, id LIMIT $2"
    );
    let mut due = tx.list(&leases, &values, read)?;
    let pauses = tx.list(&pauses, &values, read)?;
    let is_full = |list: &[DueTask]| i64::try_from(list.len()).unwrap_or(i64::MAX) >= ENDS_MAX;
    let has_more = is_full(&due) || is_full(&pauses);
    due.extend(pauses);
    if due.is_empty() {
        return Ok(ExpiryResult::default());
    }
    let ends: Vec<_> = due.iter().map(|it| end(it, rules, now)).collect();
    write(tx, &due, &ends, now)?;
    let mut projects: Vec<&str> = due.iter().map(|it| it.project.as_str()).collect();
    projects.sort_unstable();
    projects.dedup();
    project_baseline::update_busy(tx, rules.terms(), &projects, now)?;
    Ok(ExpiryResult { any: true, has_more })
}

/// Result of [`expire`]. `any` is true if a lease or pause was ended, and `has_more` if more of them may be over.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ExpiryResult {
    pub(super) any: bool,
    pub(super) has_more: bool,
}

fn read(row: &dyn fairgate_store::RowColumns) -> Result<DueTask, StoreError> {
    Ok(DueTask {
        task: row.text(0)?,
        project: row.text(1)?,
        from: task_history::state(&row.text(2)?)?,
        epoch: row.count(3)?,
        agent: row.text_or_null(4)?,
        retries: u32::try_from(row.int(5)?).unwrap_or(0),
        retries_max: u32::try_from(row.int(6)?).unwrap_or(0),
        open_needs: row.count(7)?,
    })
}

fn end(due: &DueTask, rules: &RoundOptions, now: UnixMicros) -> ExpiryTransition {
    let DueTask { retries, retries_max, .. } = *due;
    let agent = due.agent.as_deref().unwrap_or("its agent");
    let to = |to: TaskState, reason: Option<String>| ExpiryTransition {
        to,
        reason,
        retries,
        resume_after: None,
    };
    match due.from {
        TaskState::Assigned => {
            let reason = format!("agent {agent} did not begin before its lease ran out");
            to(TaskState::Ready, Some(reason))
        }
        TaskState::InProgress => {
            let next = retry_policy::after_failure(retries, retries_max, rules.backoff, now);
            let mut reason = format!("agent {agent} gave no sign of life, and its lease ran out");
            if next.state == TaskState::Blocked {
                reason
                    .push_str(&format!("; it was tried again {retries} times, as often as it may"));
            }
            let AfterFailure { state, retries, resume_after } = next;
            ExpiryTransition { to: state, reason: Some(reason), retries, resume_after }
        }
        _ if due.open_needs == 0 => to(TaskState::Ready, None),
        _ => to(TaskState::Defined, None),
    }
}

fn write(
    tx: &mut dyn Transaction,
    due: &[DueTask],
    ends: &[ExpiryTransition],
    now: UnixMicros,
) -> Result<(), StoreError> {
    let database = tx.database();
    let rows = due.iter().zip(ends).map(|(due, end)| {
        let ready_at = (end.to == TaskState::Ready).then_some(now.0);
        let resume_after = end.resume_after.map(|at| at.0);
        json!([due.task, end.to.word(), end.reason, end.retries, resume_after, ready_at])
    });
    let types = ["TEXT", "TEXT", "TEXT", "BIGINT", "BIGINT", "BIGINT"];
    let table = json_rows::table(database, 1, &types);
    tx.run(
        &format!(
            "UPDATE fleet_tasks SET state = v.column2, reason = v.column3, retries = v.column4, \
             resume_after = v.column5, ready_at = COALESCE(v.column6, ready_at), lease_until = NULL, \
             key_hash = NULL, in_workspace = NULL, reserved = 0, used_before = used_before + used, used = 0 FROM {table} AS v WHERE id = v.column1"
        ),
        &[json_rows::value(rows)],
    )?;
    let tasks = json_rows::names(due.iter().map(|it| it.task.as_str()));
    let texts = json_rows::texts(database, 1);
    let free =
        format!("UPDATE fleet_workspaces SET task = NULL, agent = NULL WHERE task IN {texts}");
    tx.run(&free, &[tasks])?;
    let steps: Vec<_> = (due.iter().zip(ends))
        .map(|(due, end)| NewTaskStep {
            task: &due.task,
            from: due.from,
            to: end.to,
            epoch: due.epoch,
            reason: end.reason.as_deref(),
        })
        .collect();
    task_history::add(tx, "fleet", now, &steps)
}
