//! Ends expired leases and pauses.

use fairgate_api::fleet::{TaskState, WebhookEventKind};
use fairgate_store::{DatabaseKind, StoreError, Transaction};
use fairgate_time::UnixMicros;
use fairgate_usage::HELD_STATES;

use super::RoundOptions;
use crate::credit::{self, EndingClaim};
use crate::project_baseline;
use crate::retry_policy::{self, AfterFailure};
use crate::transition::{TaskRow, TaskTransition, write};
use crate::webhooks::event_log::{self, WebhookEvent};
use crate::window_usage;

/// Maximum number of leases that one round ends, and also of pauses. If more have expired, the next
/// round follows at once.
const ENDS_MAX: i64 = 1_000;

/// Ends at most [`ENDS_MAX`] leases and [`ENDS_MAX`] pauses that have expired at `now`.
pub(super) fn expire(
    tx: &mut dyn Transaction,
    rules: &RoundOptions,
    now: UnixMicros,
) -> Result<ExpiryResult, StoreError> {
    let values = [now.into(), ENDS_MAX.into()];
    // SQLite would otherwise use the index of states, and read all tasks that are held or paused.
    let (by_lease, by_pause) = match tx.database() {
        DatabaseKind::Sqlite => ("INDEXED BY fleet_tasks_lease", "INDEXED BY fleet_tasks_resume"),
        DatabaseKind::Postgres => ("", ""),
    };
    let columns = TaskRow::COLUMNS;
    let leases = format!(
        "SELECT {columns} FROM fleet_tasks {by_lease} WHERE lease_until <= $1 AND state IN {HELD_STATES} \
         ORDER BY lease_until, id LIMIT $2"
    );
    let pauses = format!(
        "SELECT {columns} FROM fleet_tasks {by_pause} WHERE resume_after <= $1 AND state = 'PAUSED' \
         ORDER BY resume_after, id LIMIT $2"
    );
    let mut due = tx.list(&leases, &values, TaskRow::read)?;
    let pauses = tx.list(&pauses, &values, TaskRow::read)?;
    let is_full = |list: &[TaskRow]| i64::try_from(list.len()).unwrap_or(i64::MAX) >= ENDS_MAX;
    let has_more = is_full(&due) || is_full(&pauses);
    due.extend(pauses);
    if due.is_empty() {
        return Ok(ExpiryResult::default());
    }
    let ends: Vec<_> = due.iter().map(|it| end(it, rules, now)).collect();
    let held = due.iter().filter(|it| it.state.is_held());
    let held: Vec<_> = held.map(|it| EndingClaim { task: &it.id, is_completed: false }).collect();
    credit::charge(tx, &rules.credit, &held, now)?;
    let changes = due.iter().zip(&ends).map(|(due, end)| (end.step(due, "fleet"), end));
    write::release(tx, now, &changes.collect::<Vec<_>>())?;
    let events: Vec<_> =
        due.iter().zip(&ends).flat_map(|(due, end)| [lost(due, now), end.event(due)]).collect();
    let events: Vec<_> = events.into_iter().flatten().collect();
    event_log::record(tx, &rules.webhooks, now, &events)?;
    let failed = due.iter().zip(&ends).filter(|(due, end)| end.is_failure(due));
    let failed: Vec<&str> = failed.map(|(due, _)| due.project.as_str()).collect();
    window_usage::count_tries(tx, &failed)?;
    let mut projects: Vec<&str> = due.iter().map(|it| it.project.as_str()).collect();
    projects.sort_unstable();
    projects.dedup();
    project_baseline::update_busy(tx, rules.terms(), &projects, now)?;
    Ok(ExpiryResult { any: true, has_more })
}

/// Result of [`expire`]. `any` is true if a lease or pause was ended, and `has_more` if more of
/// them may have expired.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ExpiryResult {
    pub(super) any: bool,
    pub(super) has_more: bool,
}

/// Returns the event that an agent was lost, if its lease ran out before the task's timeout. After
/// the timeout, a lease can be renewed only for one more length, so its end does not show that the
/// agent is gone.
fn lost(due: &TaskRow, now: UnixMicros) -> Option<WebhookEvent<'_>> {
    let is_lost = due.state.is_held() && due.timeout_at().is_none_or(|at| at > now);
    is_lost.then(|| due.event(WebhookEventKind::AgentLost))
}

/// Returns the transition of a task whose lease or pause has expired.
fn end(due: &TaskRow, rules: &RoundOptions, now: UnixMicros) -> TaskTransition {
    let TaskRow { retries, retries_max, .. } = *due;
    let agent = due.agent.as_deref().unwrap_or("its agent");
    let to = |state: TaskState, reason: Option<String>| TaskTransition {
        reason,
        ..TaskTransition::to(state, due)
    };
    match due.state {
        TaskState::Assigned => {
            let reason = format!("agent {agent} did not begin before its lease ran out");
            to(TaskState::Ready, Some(reason))
        }
        TaskState::InProgress => {
            let next = retry_policy::after_failure(retries, retries_max, rules.backoff, now);
            let mut reason = match due.timeout.filter(|_| due.timeout_at() <= Some(now)) {
                Some(timeout) => {
                    let seconds = timeout.as_secs();
                    format!("agent {agent} did not end it within its timeout of {seconds} s")
                }
                None => format!("agent {agent} gave no sign of life, and its lease ran out"),
            };
            if next.state == TaskState::Blocked {
                reason
                    .push_str(&format!("; it was tried again {retries} times, as often as it may"));
            }
            let AfterFailure { state, retries, resume_after } = next;
            TaskTransition {
                state,
                reason: Some(reason),
                retries,
                resume_after,
                put_offs: 0,
                by_agent: false,
            }
        }
        _ if due.open_needs == 0 => to(TaskState::Ready, None),
        _ => to(TaskState::Defined, None),
    }
}
