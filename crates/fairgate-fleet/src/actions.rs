//! What people do with tasks.

use fairgate_store::Transaction;
use serde_json::json;

use crate::call::Call;
use crate::error::FleetError;
use crate::model::{TaskAction, TaskView};
use crate::state::TaskState;
use crate::step::{self, Next, Standing};
use crate::tasks;
use crate::text;

/// How long an answer may be, in bytes.
const ANSWER_MAX: usize = 64 << 10;

pub(crate) fn act(
    tx: &mut dyn Transaction,
    call: &Call,
    id: &str,
    action: TaskAction,
) -> Result<TaskView, FleetError> {
    let from = step::standing(tx, id)?;
    let word = match action {
        TaskAction::Cancel { reason } => {
            cancel(tx, call, &from, reason.as_deref())?;
            "task.cancel"
        }
        TaskAction::Pause { until, reason } => {
            if let Some(until) = until {
                text::moment("until", until)?;
                if until <= call.now {
                    let hint = "leave it out to pause until it is resumed";
                    return Err(FleetError::Passed { field: "until", hint });
                }
            }
            let next = Next {
                resume_after: until,
                reason: text::note(reason.as_deref()),
                ..Next::to(TaskState::Paused, &from)
            };
            step::go(
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
            step::go(tx, call, &from, &Next::to(to, &from), "")?;
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
            let reason = text::note(reason.as_deref()).map(|reason| format!(": {reason}"));
            let reason = format!("skipped{}", reason.unwrap_or_default());
            let next = Next { reason: Some(reason), ..Next::to(to, &from) };
            step::go(tx, call, &from, &next, "")?;
            "task.skip"
        }
        TaskAction::Answer { text } => {
            answer(tx, call, &from, &text)?;
            "task.answer"
        }
    };
    let after = tasks::view(tx, call, id)?;
    let before = json!({ "state": from.state, "reason": from.reason });
    let mut now = json!({ "state": after.line.state, "reason": after.line.reason });
    if word == "task.answer" {
        now["answer"] =
            json!(after.answer.as_deref().map(|answer| text::cut(answer, text::NOTE_MAX)));
    }
    call.audit(tx, word, id, Some(&before), Some(&now))?;
    Ok(after)
}

/// Refuses a task that is in none of these states.
fn only(
    from: &Standing,
    states: &[TaskState],
    to: TaskState,
    hint: &str,
) -> Result<(), FleetError> {
    match states.contains(&from.state) {
        true => Ok(()),
        false => Err(step::illegal(from, to, hint)),
    }
}

fn cancel(
    tx: &mut dyn Transaction,
    call: &Call,
    from: &Standing,
    reason: Option<&str>,
) -> Result<(), FleetError> {
    let reason = text::note(reason).map(|reason| format!(": {reason}")).unwrap_or_default();
    let waiting = tasks::and_who_waits(tx, &from.id)?;
    let reason = Some(format!("cancelled{reason}{waiting}"));
    let next = Next { reason, ..Next::to(TaskState::Failed, from) };
    step::go(tx, call, from, &next, "it is over")
}

fn restart(tx: &mut dyn Transaction, call: &Call, from: &Standing) -> Result<(), FleetError> {
    let to = if from.open_needs > 0 { TaskState::Defined } else { TaskState::Ready };
    let hint = "only a BLOCKED or FAILED task can be restarted; a PAUSED one is resumed";
    only(from, &[TaskState::Blocked, TaskState::Failed], to, hint)?;
    tx.run(
        "UPDATE fleet_tasks SET progress = NULL, question = NULL, answer = NULL, result = NULL WHERE id = $1",
        &[from.id.as_str().into()],
    )?;
    step::go(tx, call, from, &Next { retries: 0, ..Next::to(to, from) }, hint)
}

fn answer(
    tx: &mut dyn Transaction,
    call: &Call,
    from: &Standing,
    text: &str,
) -> Result<(), FleetError> {
    let hint = "only a task in WAITING_INPUT can be answered";
    only(from, &[TaskState::WaitingInput], TaskState::Ready, hint)?;
    text::text("text", text, ANSWER_MAX)?;
    tx.run(
        "UPDATE fleet_tasks SET answer = $1 WHERE id = $2",
        &[text.into(), from.id.as_str().into()],
    )?;
    let next = Next { reason: Some("answered".to_owned()), ..Next::to(TaskState::Ready, from) };
    step::go(tx, call, from, &next, hint)
}
