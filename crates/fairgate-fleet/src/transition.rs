//! Transition of one task to another state, and the consequences for its claim and for the tasks that need it.

use fairgate_money::UnixMicros;
use fairgate_store::{SqlValue, StoreError, Transaction};

use crate::call_context::{CallContext, bump_version, not_found};
use crate::error::FleetError;
use crate::project_baseline;
use crate::sql_placeholders;
use crate::state::TaskState;
use crate::task_history::{self, NewTaskStep};

/// Fields of a task's row that transitions depend on.
#[derive(Clone, Debug)]
pub(crate) struct TaskRow {
    pub(crate) id: String,
    pub(crate) project: String,
    pub(crate) state: TaskState,
    pub(crate) reason: Option<String>,
    pub(crate) agent: Option<String>,
    pub(crate) epoch: u64,
    pub(crate) ended_epoch: u64,
    pub(crate) open_needs: u64,
    pub(crate) retries: u32,
    pub(crate) retries_max: u32,
    /// Earliest time at which the task may start. For a held task, this is the time until which a provider's limit
    /// stops its requests.
    pub(crate) resume_after: Option<UnixMicros>,
    pub(crate) reserved: u64,
    /// Tokens that the latest claim of the task used.
    pub(crate) used: u64,
    /// Tokens that all earlier claims of the task used.
    pub(crate) used_before: u64,
}

pub(crate) fn load_task(tx: &mut dyn Transaction, id: &str) -> Result<TaskRow, FleetError> {
    let sql = "SELECT project, state, reason, agent, epoch, ended_epoch, open_needs, retries, retries_max, reserved, \
               used, used_before, resume_after FROM fleet_tasks WHERE id = $1";
    let found = tx.first(sql, &[id.into()], |row| {
        let small = |column| row.int(column).map(|number| u32::try_from(number).unwrap_or(0));
        let count = |column| row.int(column).map(|number| u64::try_from(number).unwrap_or(0));
        Ok(TaskRow {
            id: id.to_owned(),
            project: row.text(0)?,
            state: task_history::state(&row.text(1)?)?,
            reason: row.text_or_null(2)?,
            agent: row.text_or_null(3)?,
            epoch: row.count(4)?,
            ended_epoch: row.count(5)?,
            open_needs: row.count(6)?,
            retries: small(7)?,
            retries_max: small(8)?,
            reserved: count(9)?,
            used: count(10)?,
            used_before: count(11)?,
            resume_after: row.moment_or_null(12)?,
        })
    })?;
    found.ok_or_else(|| not_found("task", id))
}

/// New state of a task, and the fields of the task that change with the state.
#[derive(Clone, Debug)]
pub(crate) struct TaskTransition {
    pub(crate) state: TaskState,
    pub(crate) reason: Option<String>,
    pub(crate) resume_after: Option<UnixMicros>,
    pub(crate) retries: u32,
    /// If true, the task's agent ends the claim. The epoch of the claim is then stored, so that the agent may repeat
    /// the operation.
    pub(crate) by_agent: bool,
}

impl TaskTransition {
    /// Creates a transition to `state` that keeps the retries and clears the reason and `resume_after`.
    pub(crate) fn to(state: TaskState, from: &TaskRow) -> Self {
        Self { state, reason: None, resume_after: None, retries: from.retries, by_agent: false }
    }
}

/// Moves a task to a state in which no agent holds it. The task's claim ends, its workspace is freed, and its task key
/// stops working. If the task is completed, the tasks that waited only for this task can start.
pub(crate) fn apply(
    tx: &mut dyn Transaction,
    call: &CallContext,
    from: &TaskRow,
    next: &TaskTransition,
    hint: &str,
) -> Result<(), FleetError> {
    if !from.state.may_become(next.state) {
        return Err(illegal(from, next.state, hint));
    }
    let is = |state| next.state == state;
    let ended_epoch = if next.by_agent { from.epoch } else { from.ended_epoch };
    let ended_at = next.state.is_ended().then_some(call.now.0);
    tx.run(
        "UPDATE fleet_tasks SET state = $1, reason = $2, resume_after = $3, retries = $4, ended_epoch = $5, \
         ended_at = $6, ready_at = COALESCE($7, ready_at), key_hash = NULL, lease_until = NULL, in_workspace = NULL, \
         reserved = 0, used_before = used_before + used, used = 0 WHERE id = $8",
        &[
            next.state.word().into(),
            next.reason.clone().into(),
            next.resume_after.map(|moment| moment.0).into(),
            next.retries.into(),
            i64::try_from(ended_epoch).unwrap_or(i64::MAX).into(),
            ended_at.into(),
            is(TaskState::Ready).then_some(call.now.0).into(),
            from.id.as_str().into(),
        ],
    )?;
    if from.state.is_held() {
        free_workspace(tx, &from.id)?;
    }
    let step = NewTaskStep {
        task: &from.id,
        from: from.state,
        to: next.state,
        epoch: from.epoch,
        reason: next.reason.as_deref(),
    };
    task_history::add(tx, &call.actor, call.now, &[step])?;
    let mut projects = vec![from.project.clone()];
    if is(TaskState::Completed) {
        projects.extend(promote(tx, call, &from.id)?);
    }
    projects.sort_unstable();
    projects.dedup();
    let projects: Vec<_> = projects.iter().map(String::as_str).collect();
    project_baseline::update_busy(tx, call.terms(), &projects, call.now)?;
    bump_version(tx)?;
    Ok(())
}

/// Returns the error that the state machine does not allow the task's transition to `to`.
pub(crate) fn illegal(from: &TaskRow, to: TaskState, hint: &str) -> FleetError {
    let (task, from) = (from.id.clone(), from.state);
    FleetError::Transition { task, from, to, hint: hint.to_owned() }
}

pub(crate) fn free_workspace(tx: &mut dyn Transaction, task: &str) -> Result<(), StoreError> {
    tx.run(
        "UPDATE fleet_workspaces SET task = NULL, agent = NULL WHERE task = $1",
        &[task.into()],
    )?;
    Ok(())
}

/// Updates the tasks that need a task that was just completed. Each of them has one open need less, and those without
/// open needs become ready. Returns the projects of the tasks that became ready. Runs a constant number of SQL
/// statements per 500 such tasks.
fn promote(
    tx: &mut dyn Transaction,
    call: &CallContext,
    completed: &str,
) -> Result<Vec<String>, StoreError> {
    let fewer = tx.run(
        "UPDATE fleet_tasks SET open_needs = open_needs - 1 WHERE id IN \
         (SELECT task FROM fleet_needs WHERE needs = $1)",
        &[completed.into()],
    )?;
    if fewer == 0 {
        return Ok(Vec::new());
    }
    let free = tx.list(
        "SELECT t.id, t.project, t.resume_after FROM fleet_needs n JOIN fleet_tasks t ON t.id = n.task \
         WHERE n.needs = $1 AND t.state = 'DEFINED' AND t.open_needs = 0 ORDER BY t.made",
        &[completed.into()],
        |row| Ok((row.text(0)?, row.text(1)?, row.moment_or_null(2)?)),
    )?;
    // Some must also wait for a moment.
    let waits = |after: &Option<UnixMicros>| after.is_some_and(|after| after > call.now);
    let (later, now): (Vec<_>, Vec<_>) = free.iter().partition(|(_, _, after)| waits(after));
    for (state, tasks) in [(TaskState::Ready, now), (TaskState::Paused, later)] {
        let ids: Vec<&str> = tasks.iter().map(|(id, _, _)| id.as_str()).collect();
        start(tx, call, state, &ids)?;
    }
    Ok(free.into_iter().map(|(_, project, _)| project).collect())
}

fn start(
    tx: &mut dyn Transaction,
    call: &CallContext,
    state: TaskState,
    tasks: &[&str],
) -> Result<(), StoreError> {
    let is_ready = state == TaskState::Ready;
    let set = match is_ready {
        true => "state = $1, ready_at = $2, resume_after = NULL",
        false => "state = $1, ready_at = COALESCE($2, ready_at)",
    };
    for some in tasks.chunks(sql_placeholders::ROWS_MAX) {
        let mut values: Vec<SqlValue> =
            vec![state.word().into(), is_ready.then_some(call.now.0).into()];
        values.extend(some.iter().map(|id| SqlValue::from(*id)));
        let ids = sql_placeholders::list(3, some.len());
        tx.run(&format!("UPDATE fleet_tasks SET {set} WHERE id IN ({ids})"), &values)?;
    }
    let step = |&task| NewTaskStep {
        task,
        from: TaskState::Defined,
        to: state,
        epoch: 0,
        reason: Some("all that it needs is completed"),
    };
    let steps: Vec<_> = tasks.iter().map(step).collect();
    task_history::add(tx, "fleet", call.now, &steps)
}
