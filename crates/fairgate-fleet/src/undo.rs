//! Undoes changes of projects, and pauses and resumptions of tasks, from their entries in the audit trail.

use fairgate_api::fleet::{TaskAction, TaskState};
use fairgate_store::{AuditEntry, StoreError, Transaction};
use serde::Deserialize;

use crate::call_context::CallContext;
use crate::error::FleetError;
use crate::{projects, task_actions, transition};

/// State of a task in the audit entry of an action.
#[derive(Debug, Deserialize)]
struct TaskEntry {
    state: TaskState,
    #[serde(default)]
    reason: Option<String>,
}

/// Makes the inverse of an audited change. Fails with [`StoreError::ChangedSince`] if somebody has changed the same
/// since, and with [`StoreError::NotUndoable`] if changes of this kind have no inverse.
pub(crate) fn undo(
    tx: &mut dyn Transaction,
    call: &CallContext,
    entry: &AuditEntry,
) -> Result<(), FleetError> {
    match entry.action.as_str() {
        "project.patch" => projects::undo_patch(tx, call, entry),
        "task.pause" | "task.resume" => undo_action(tx, call, entry),
        _ => Err(StoreError::NotUndoable { entry: entry.id }.into()),
    }
}

/// Resumes a task that was paused, or pauses one that was resumed. What an agent did before a pause is not brought back:
/// the task is ready again.
fn undo_action(
    tx: &mut dyn Transaction,
    call: &CallContext,
    entry: &AuditEntry,
) -> Result<(), FleetError> {
    let (before, after) = (task(entry, &entry.before)?, task(entry, &entry.after)?);
    if transition::load_task(tx, &entry.subject)?.state != after.state {
        let subject = entry.subject.clone();
        return Err(StoreError::ChangedSince { subject, entry: entry.id }.into());
    }
    let action = match entry.action.as_str() {
        "task.pause" => TaskAction::Resume,
        _ => TaskAction::Pause { until: None, reason: before.reason },
    };
    task_actions::apply_action(tx, call, &entry.subject, action).map(drop)
}

fn task(entry: &AuditEntry, state: &Option<serde_json::Value>) -> Result<TaskEntry, StoreError> {
    let read = state.clone().and_then(|state| serde_json::from_value(state).ok());
    read.ok_or(StoreError::NotUndoable { entry: entry.id })
}
