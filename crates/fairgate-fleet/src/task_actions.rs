//! Actions of operators on tasks: cancel, pause, resume, restart, skip and answer.

use fairgate_api::fleet::TaskState;
use fairgate_api::fleet::{TaskAction, TaskView};
use fairgate_store::Transaction;
use serde_json::json;

use crate::call_context::CallContext;
use crate::error::FleetError;
use crate::tasks;
use crate::transition::{self, TaskRow, TaskTransition};
use crate::unfit_tasks;
use crate::validate;

/// Maximum length of an answer to an agent's question, in bytes.
const ANSWER_MAX: usize = 64 << 10;

pub(crate) fn apply_action(
    tx: &mut dyn Transaction,
    call: &CallContext,
    id: &str,
    action: TaskAction,
) -> Result<TaskView, FleetError> {
    let from = transition::load_task(tx, id)?;
    let word = match action {
        TaskAction::Cancel { reason } => {
            cancel(tx, call, &from, reason.as_deref())?;
            "task.cancel"
        }
        TaskAction::Pause { until, reason } => {
            if let Some(until) = until {
                validate::check_moment("until", until)?;
                if until <= call.now {
                    let hint = "leave it out to pause until it is resumed";
                    return Err(FleetError::Passed { field: "until", hint });
                }
            }
            let next = TaskTransition {
                resume_after: until,
                reason: validate::note(reason.as_deref()),
                ..TaskTransition::to(TaskState::Paused, &from)
            };
            transition::apply(
                tx,
                call,
                &from,
                &next,
                "only a task that is not over can be paused; one that is PAUSED is resumed first",
            )?;
            "task.pause"
        }
        TaskAction::Resume => {
            let to = if from.open_needs > 0 { TaskState::Defined } else { TaskState::Ready };
            only(
                &from,
                &[TaskState::Paused],
                to,
                "only a PAUSED task can be resumed; a BLOCKED or FAILED one is restarted",
            )?;
            transition::apply(tx, call, &from, &TaskTransition::to(to, &from), "")?;
            "task.resume"
        }
        TaskAction::Restart => {
            restart(tx, call, &from)?;
            "task.restart"
        }
        TaskAction::Skip { reason } => {
            let to = TaskState::Completed;
            only(
                &from,
                &[TaskState::Blocked, TaskState::Failed],
                to,
                "only a BLOCKED or FAILED task can be skipped; cancel it first",
            )?;
            let reason = validate::note(reason.as_deref()).map(|reason| format!(": {reason}"));
            let reason = format!("skipped{}", reason.unwrap_or_default());
            let next = TaskTransition { reason: Some(reason), ..TaskTransition::to(to, &from) };
            transition::apply(tx, call, &from, &next, "")?;
            "task.skip"
        }
        TaskAction::Answer { text } => {
            answer(tx, call, &from, &text)?;
            "task.answer"
        }
    };
    // A person may meanwhile have created the folder, or moved the workspace.
    unfit_tasks::forget(tx, id)?;
    let after = tasks::view(tx, call, id)?;
    let before = json!({ "state": from.state, "reason": from.reason });
    let mut now = json!({ "state": after.line.state, "reason": after.line.reason });
    if word == "task.answer" {
        now["answer"] =
            json!(after.answer.as_deref().map(|answer| validate::cut(answer, validate::NOTE_MAX)));
    }
    call.audit(tx, word, id, Some(&before), Some(&now))?;
    Ok(after)
}

/// Fails with the error that the task cannot go to the state `to`, unless the task is in one of
/// `states`.
fn only(from: &TaskRow, states: &[TaskState], to: TaskState, hint: &str) -> Result<(), FleetError> {
    match states.contains(&from.state) {
        true => Ok(()),
        false => Err(transition::illegal(from, to, hint)),
    }
}

fn cancel(
    tx: &mut dyn Transaction,
    call: &CallContext,
    from: &TaskRow,
    reason: Option<&str>,
) -> Result<(), FleetError> {
    let reason = validate::note(reason).map(|reason| format!(": {reason}")).unwrap_or_default();
    let waiting = tasks::dependents_suffix(tx, &from.id)?;
    let reason = Some(format!("cancelled{reason}{waiting}"));
    let next = TaskTransition { reason, ..TaskTransition::to(TaskState::Failed, from) };
    transition::apply(tx, call, from, &next, "it is over")
}

fn restart(tx: &mut dyn Transaction, call: &CallContext, from: &TaskRow) -> Result<(), FleetError> {
    let to = if from.open_needs > 0 { TaskState::Defined } else { TaskState::Ready };
    let hint = "only a BLOCKED or FAILED task can be restarted; a PAUSED one is resumed";
    only(from, &[TaskState::Blocked, TaskState::Failed], to, hint)?;
    tx.run(
        "UPDATE fleet_tasks SET progress = NULL, question = NULL, answer = NULL, result = NULL WHERE id = $1",
        &[from.id.as_str().into()],
    )?;
    transition::apply(
        tx,
        call,
        from,
        &TaskTransition { retries: 0, put_offs: 0, ..TaskTransition::to(to, from) },
        hint,
    )
}

fn answer(
    tx: &mut dyn Transaction,
    call: &CallContext,
    from: &TaskRow,
    text: &str,
) -> Result<(), FleetError> {
    let hint = "only a task in WAITING_INPUT can be answered";
    only(from, &[TaskState::WaitingInput], TaskState::Ready, hint)?;
    validate::check_text("text", text, ANSWER_MAX)?;
    tx.run(
        "UPDATE fleet_tasks SET answer = $1 WHERE id = $2",
        &[text.into(), from.id.as_str().into()],
    )?;
    let next = TaskTransition {
        reason: Some("answered".to_owned()),
        ..TaskTransition::to(TaskState::Ready, from)
    };
    transition::apply(tx, call, from, &next, hint)
}
