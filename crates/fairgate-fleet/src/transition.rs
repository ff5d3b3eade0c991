//! Moves a task to another state, with the consequences for its claim and for the tasks that need
//! it. [`write`](mod@write) contains the SQL that writes the states.

pub(crate) mod write;

use std::collections::HashMap;
use std::time::Duration;

use fairgate_api::fleet::{TaskState, WebhookEventKind};
use fairgate_store::{RowColumns, StoreError, Transaction};
use fairgate_time::UnixMicros;

use crate::call_context::{CallContext, bump_version, not_found};
use crate::credit::{self, CreditTerms, EndingClaim};
use crate::error::FleetError;
use crate::json_rows;
use crate::project_baseline;
use crate::retry_policy;
use crate::task_history::{self, NewTaskStep};
use crate::webhooks::event_log::{self, WebhookEvent, WebhookSubject};

/// The fields of a task's row that determine transitions.
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
    /// Earliest time at which the task may start. For a held task, the time until which the limit
    /// of a provider or a budget stops its model calls.
    pub(crate) resume_after: Option<UnixMicros>,
    pub(crate) reserved: u64,
    /// Tokens that the latest claim of the task used.
    pub(crate) used: u64,
    /// Tokens that all earlier claims of the task used.
    pub(crate) used_before: u64,
    /// Maximum time from a claim to its end; `None` if there is no limit.
    pub(crate) timeout: Option<Duration>,
    /// Time at which the latest claim began.
    pub(crate) claimed_at: Option<UnixMicros>,
    pub(crate) lease_until: Option<UnixMicros>,
    /// Number of times in a row that the task's agent put it off.
    pub(crate) put_offs: u32,
    /// Maximum number of tokens that the task may use over all its claims; `None` if there is no
    /// limit.
    pub(crate) tokens_max: Option<u64>,
}

impl TaskRow {
    /// SQL columns of `fleet_tasks`, in the order in which [`TaskRow::read`] takes them.
    pub(crate) const COLUMNS: &str = "id, project, state, reason, agent, epoch, ended_epoch, open_needs, retries, \
        retries_max, reserved, used, used_before, resume_after, timeout, claimed_at, lease_until, put_offs, \
        tokens_max";

    pub(crate) fn read(row: &dyn RowColumns) -> Result<Self, StoreError> {
        let small = |column| row.int(column).map(|number| u32::try_from(number).unwrap_or(0));
        let count = |column| row.int(column).map(|number| u64::try_from(number).unwrap_or(0));
        Ok(Self {
            id: row.text(0)?,
            project: row.text(1)?,
            state: task_history::state(&row.text(2)?)?,
            reason: row.text_or_null(3)?,
            agent: row.text_or_null(4)?,
            epoch: row.count(5)?,
            ended_epoch: row.count(6)?,
            open_needs: row.count(7)?,
            retries: small(8)?,
            retries_max: small(9)?,
            reserved: count(10)?,
            used: count(11)?,
            used_before: count(12)?,
            resume_after: row.moment_or_null(13)?,
            timeout: row.count_or_null(14)?.map(Duration::from_micros),
            claimed_at: row.moment_or_null(15)?,
            lease_until: row.moment_or_null(16)?,
            put_offs: small(17)?,
            tokens_max: row.count_or_null(18)?,
        })
    }

    /// Returns an event about the task's latest claim.
    pub(crate) fn event(&self, kind: WebhookEventKind) -> WebhookEvent<'_> {
        let (task, agent) = (self.id.as_str(), self.agent.as_deref());
        let subject = WebhookSubject::Claim { task, agent, epoch: self.epoch };
        WebhookEvent { kind, project: Some(&self.project), subject }
    }

    /// Returns the time at which the timeout of the latest claim ends; `None` if the task has no
    /// timeout.
    pub(crate) fn timeout_at(&self) -> Option<UnixMicros> {
        Some(retry_policy::later(self.claimed_at?, self.timeout?))
    }

    /// Returns the end of the lease if it is renewed at `now`. The lease ends at most one length
    /// after the timeout. So an agent that is alive but hangs loses the task, and one that ends in
    /// time can still report that. A renewal never shortens a lease, which may end later after an
    /// outage.
    pub(crate) fn renewed_lease(&self, lease: Duration, now: UnixMicros) -> UnixMicros {
        let until = retry_policy::later(now, lease);
        match self.timeout_at() {
            None => until,
            Some(at) => {
                until.min(retry_policy::later(at, lease)).max(self.lease_until.unwrap_or(now))
            }
        }
    }
}

pub(crate) fn load_task(tx: &mut dyn Transaction, id: &str) -> Result<TaskRow, FleetError> {
    let sql = format!("SELECT {} FROM fleet_tasks WHERE id = $1", TaskRow::COLUMNS);
    let found = tx.first(&sql, &[id.into()], TaskRow::read)?;
    found.ok_or_else(|| not_found("task", id))
}

/// Returns the existing ones of these tasks, by id.
pub(crate) fn load_tasks<'a>(
    tx: &mut dyn Transaction,
    ids: impl Iterator<Item = &'a str>,
) -> Result<HashMap<String, TaskRow>, StoreError> {
    let list = json_rows::texts(tx.database(), 1);
    let sql = format!("SELECT {} FROM fleet_tasks WHERE id IN {list}", TaskRow::COLUMNS);
    let rows = tx.list(&sql, &[json_rows::names(ids)], TaskRow::read)?;
    Ok(rows.into_iter().map(|row| (row.id.clone(), row)).collect())
}

/// The new state of a task, with the fields that change together with the state.
#[derive(Clone, Debug)]
pub(crate) struct TaskTransition {
    pub(crate) state: TaskState,
    pub(crate) reason: Option<String>,
    pub(crate) resume_after: Option<UnixMicros>,
    pub(crate) retries: u32,
    /// Number of times in a row that the task's agent put it off.
    pub(crate) put_offs: u32,
    /// True if the task's agent ends the claim. The epoch of the claim is then stored, so that the
    /// agent may repeat the operation.
    pub(crate) by_agent: bool,
}

impl TaskTransition {
    /// Creates a transition to `state` that keeps the retries and put-offs, and clears the reason and `resume_after`.
    pub(crate) fn to(state: TaskState, from: &TaskRow) -> Self {
        let (retries, put_offs) = (from.retries, from.put_offs);
        Self { state, reason: None, resume_after: None, retries, put_offs, by_agent: false }
    }

    /// Returns true if this transition counts as a failure of the task, because it uses a retry or
    /// because no retry is left.
    pub(crate) fn is_failure(&self, from: &TaskRow) -> bool {
        from.state.is_held() && (self.state == TaskState::Blocked || self.retries > from.retries)
    }

    /// Returns the event for webhooks if a person must act on the task now; `None` otherwise.
    pub(crate) fn event<'a>(&self, from: &'a TaskRow) -> Option<WebhookEvent<'a>> {
        let kind = match self.state {
            TaskState::WaitingInput => WebhookEventKind::Question,
            TaskState::Blocked => WebhookEventKind::Blocked,
            _ => return None,
        };
        Some(from.event(kind))
    }

    /// Returns the step of the history for this transition. `actor` is the name of the actor who
    /// makes it.
    pub(crate) fn step<'a>(&'a self, from: &'a TaskRow, actor: &'a str) -> NewTaskStep<'a> {
        NewTaskStep {
            task: &from.id,
            from: from.state,
            to: self.state,
            epoch: from.epoch,
            actor,
            reason: self.reason.as_deref(),
        }
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
    let ending = EndingClaim { task: &from.id, is_completed: next.state == TaskState::Completed };
    if from.state.is_held() {
        credit::charge(tx, &CreditTerms::new(&call.options), &[ending], call.now)?;
    }
    write::release(tx, call.now, &[(next.step(from, &call.actor), next)])?;
    let events: Vec<_> = next.event(from).into_iter().collect();
    event_log::record(tx, &call.options.webhooks, call.now, &events)?;
    let mut projects = vec![from.project.clone()];
    if next.state == TaskState::Completed {
        projects.extend(promote(tx, call.now, &[&from.id])?);
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

/// Updates the tasks that need tasks that were just completed. Their number of open needs
/// decreases, and those without open needs become ready. Returns the projects of the tasks that
/// became ready. Runs a constant number of SQL statements.
pub(crate) fn promote(
    tx: &mut dyn Transaction,
    now: UnixMicros,
    completed: &[&str],
) -> Result<Vec<String>, StoreError> {
    let names = json_rows::texts(tx.database(), 1);
    let completed = [json_rows::names(completed.iter().copied())];
    let fewer = format!(
        "UPDATE fleet_tasks SET open_needs = open_needs - n.count FROM \
         (SELECT task, COUNT(*) AS count FROM fleet_needs WHERE needs IN {names} GROUP BY task) AS n WHERE id = n.task"
    );
    if tx.run(&fewer, &completed)? == 0 {
        return Ok(Vec::new());
    }
    // SQLite would otherwise start with the index of all tasks in this state, and read each of
    // them.
    let sql = format!(
        "SELECT {} FROM (SELECT DISTINCT task FROM fleet_needs WHERE needs IN {names}) AS n CROSS JOIN fleet_tasks \
         WHERE id = n.task AND state = 'DEFINED' AND open_needs = 0 ORDER BY made",
        TaskRow::COLUMNS
    );
    let free = tx.list(&sql, &completed, TaskRow::read)?;
    let next = |task: &TaskRow| {
        // A task may also have to wait for a certain time.
        let later = task.resume_after.filter(|after| *after > now);
        let state = if later.is_some() { TaskState::Paused } else { TaskState::Ready };
        TaskTransition { resume_after: later, ..TaskTransition::to(state, task) }
    };
    let next: Vec<_> = free.iter().map(next).collect();
    let changes: Vec<_> =
        free.iter().zip(&next).map(|(task, next)| (promoted(task, next), next)).collect();
    if !changes.is_empty() {
        write::release(tx, now, &changes)?;
    }
    Ok(free.into_iter().map(|task| task.project).collect())
}

/// Returns the step of the history for a task whose needed tasks are all completed.
fn promoted<'a>(task: &'a TaskRow, next: &'a TaskTransition) -> NewTaskStep<'a> {
    let reason = Some("all that it needs is completed");
    NewTaskStep { epoch: 0, reason, ..next.step(task, "fleet") }
}
