//! What agents say of the tasks that they hold.
//!
//! Each call names the claim by its epoch. An agent that no longer holds the task as that claim is told who has it now, and
//! changes nothing. What ends a claim may be said twice: the second time finds in the history that this agent ended this
//! claim in this very way, and is answered with how the task stands.

use fairgate_store::{StoreError, Transaction};

use crate::call::{Call, bump_version};
use crate::error::FleetError;
use crate::history::{self, Step};
use crate::model::{Completion, Failure, Heartbeat, Held, Question, Release, TaskLine};
use crate::retry;
use crate::state::TaskState;
use crate::step::{self, Next, Standing};
use crate::tasks;
use crate::text;
use crate::usage;

/// How long a result may be, in bytes.
const RESULT_MAX: usize = 64 << 10;
/// How long a question may be, in bytes.
const QUESTION_MAX: usize = 16 << 10;

/// Which claim an agent speaks of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Named<'a> {
    pub(crate) agent: &'a str,
    pub(crate) task: &'a str,
    pub(crate) epoch: u64,
}

impl Named<'_> {
    /// Whether the agent holds the task as this claim.
    fn is_held(self, standing: &Standing) -> bool {
        standing.state.is_held() && self.is_last(standing)
    }

    /// Whether this is the task's last claim, held or over.
    pub(crate) fn is_last(self, standing: &Standing) -> bool {
        standing.epoch == self.epoch && standing.agent.as_deref() == Some(self.agent)
    }

    /// What became of the claim.
    pub(crate) fn lost(self, standing: &Standing) -> FleetError {
        let Standing { state, epoch, reason, .. } = standing;
        let holder = standing.agent.as_deref().unwrap_or("another agent");
        let claim = self.epoch;
        let why = if state.is_held() && holder == self.agent {
            format!("you hold it as claim {epoch}, and this is about claim {claim}")
        } else if state.is_held() {
            format!("agent {holder:?} holds it as claim {epoch}; yours was claim {claim}")
        } else {
            let reason = reason.as_deref().map(|reason| format!(" ({reason})"));
            format!("it is {state}{}, and claim {claim} is over", reason.unwrap_or_default())
        };
        FleetError::LeaseLost { task: self.task.to_owned(), why }
    }
}

/// The claim, where it is held.
fn held(tx: &mut dyn Transaction, named: Named<'_>) -> Result<Standing, FleetError> {
    let standing = step::standing(tx, named.task)?;
    match named.is_held(&standing) {
        true => Ok(standing),
        false => Err(named.lost(&standing)),
    }
}

/// The claim, where it is held; none where its agent ended it before, in one of these states.
fn held_or_ended(
    tx: &mut dyn Transaction,
    call: &Call,
    named: Named<'_>,
    ends: &[TaskState],
) -> Result<Option<Standing>, FleetError> {
    let standing = step::standing(tx, named.task)?;
    if named.is_held(&standing) {
        return Ok(Some(standing));
    }
    if standing.ended_epoch < named.epoch {
        return Err(named.lost(&standing));
    }
    let is_it = |step: &crate::model::TaskStep| {
        step.epoch == named.epoch
            && step.from.is_held()
            && ends.contains(&step.to)
            && step.actor == call.actor
    };
    match history::of(tx, named.task)?.iter().any(is_it) {
        true => Ok(None),
        false => Err(named.lost(&standing)),
    }
}

/// Takes a report of what a claim used, of an agent that reports. Only what is more than before is charged, so that a report
/// may come twice and late.
fn report(
    tx: &mut dyn Transaction,
    standing: &mut Standing,
    named: Named<'_>,
    tokens: Option<u64>,
) -> Result<(), FleetError> {
    let Some(tokens) = tokens else { return Ok(()) };
    let value = text::tokens("tokens", tokens, text::TASK_TOKENS_MAX)?;
    let sql = "SELECT reports FROM fleet_agents WHERE id = $1";
    let reports = tx.first(sql, &[named.agent.into()], |row| row.flag(0))?.unwrap_or(false);
    let more = tokens.saturating_sub(standing.used);
    if !reports || more == 0 {
        return Ok(());
    }
    standing.used = tokens;
    tx.run("UPDATE fleet_tasks SET used = $1 WHERE id = $2", &[value.into(), named.task.into()])?;
    usage::charge(tx, &standing.project, more)?;
    bump_version(tx)?;
    Ok(())
}

fn seen(tx: &mut dyn Transaction, call: &Call, agent: &str) -> Result<(), StoreError> {
    let sql = "UPDATE fleet_agents SET last_seen = $1 WHERE id = $2";
    tx.run(sql, &[call.now.into(), agent.into()])?;
    Ok(())
}

/// A sign of life: the lease is new, and a task that was only assigned is begun.
pub(crate) fn heartbeat(
    tx: &mut dyn Transaction,
    call: &Call,
    named: Named<'_>,
    heartbeat: &Heartbeat,
) -> Result<Held, FleetError> {
    let mut standing = held(tx, named)?;
    report(tx, &mut standing, named, heartbeat.tokens)?;
    let lease_until = retry::later(call.now, call.options.lease);
    let progress = text::note(heartbeat.progress.as_deref());
    tx.run(
        "UPDATE fleet_tasks SET state = 'IN_PROGRESS', lease_until = $1, progress = COALESCE($2, progress) WHERE id = $3",
        &[lease_until.into(), progress.into(), named.task.into()],
    )?;
    seen(tx, call, named.agent)?;
    if standing.state == TaskState::Assigned {
        let step = Step {
            task: named.task,
            from: standing.state,
            to: TaskState::InProgress,
            epoch: named.epoch,
            reason: None,
        };
        history::add(tx, &call.actor, call.now, &[step])?;
        bump_version(tx)?;
    }
    Ok(Held { lease_until, used: standing.used, reserved: standing.reserved })
}

pub(crate) fn complete(
    tx: &mut dyn Transaction,
    call: &Call,
    named: Named<'_>,
    completion: &Completion,
) -> Result<TaskLine, FleetError> {
    let ends = [TaskState::Completed];
    if let Some(mut standing) = held_or_ended(tx, call, named, &ends)? {
        if let Some(result) = completion.result.as_deref().filter(|result| !result.is_empty()) {
            text::text("result", result, RESULT_MAX)?;
        }
        report(tx, &mut standing, named, completion.tokens)?;
        tx.run(
            "UPDATE fleet_tasks SET result = $1 WHERE id = $2",
            &[completion.result.clone().into(), named.task.into()],
        )?;
        let next = Next { by_agent: true, ..Next::to(TaskState::Completed, &standing) };
        step::go(tx, call, &standing, &next, "")?;
        usage::count_completed(tx, &standing.project)?;
        learn(tx, &standing)?;
        seen(tx, call, named.agent)?;
    }
    tasks::one_line(tx, call, named.task)
}

/// What a project's tasks are expected to use follows what they use: each completed one moves it a quarter of the way.
fn learn(tx: &mut dyn Transaction, completed: &Standing) -> Result<(), StoreError> {
    let used = completed.used.saturating_add(completed.used_before);
    let sql = "SELECT learned FROM fleet_projects WHERE id = $1";
    let project = completed.project.as_str();
    let before = tx.first(sql, &[project.into()], |row| row.count_or_null(0))?.flatten();
    let learned = i64::try_from(learned(before, used)).unwrap_or(i64::MAX);
    tx.run(
        "UPDATE fleet_projects SET learned = $1 WHERE id = $2",
        &[learned.into(), project.into()],
    )?;
    Ok(())
}

/// Never 0, so that a task always sets something aside.
fn learned(before: Option<u64>, used: u64) -> u64 {
    let mean = before
        .map_or(u128::from(used), |before| (3 * u128::from(before) + u128::from(used) + 2) / 4);
    u64::try_from(mean).unwrap_or(u64::MAX).max(1)
}

pub(crate) fn fail(
    tx: &mut dyn Transaction,
    call: &Call,
    named: Named<'_>,
    failure: &Failure,
) -> Result<TaskLine, FleetError> {
    let ends = [TaskState::Paused, TaskState::Blocked];
    if let Some(mut standing) = held_or_ended(tx, call, named, &ends)? {
        report(tx, &mut standing, named, failure.tokens)?;
        let next = after(tx, call, &standing, failure)?;
        step::go(tx, call, &standing, &next, "")?;
        seen(tx, call, named.agent)?;
    }
    tasks::one_line(tx, call, named.task)
}

fn after(
    tx: &mut dyn Transaction,
    call: &Call,
    standing: &Standing,
    failure: &Failure,
) -> Result<Next, FleetError> {
    let said = text::note(failure.reason.as_deref());
    let or = |words: &str| said.clone().unwrap_or_else(|| words.to_owned());
    if let Some(until) = failure.limited_until {
        text::moment("limited_until", until)?;
        return Ok(Next {
            reason: Some(or("the provider's limit is reached")),
            resume_after: Some(until),
            by_agent: true,
            ..Next::to(TaskState::Paused, standing)
        });
    }
    let (retries, most) = (standing.retries, standing.retries_max);
    let after = retry::after_failure(retries, most, call.options.backoff, call.now);
    let reason = match after.state {
        TaskState::Blocked => blocked(tx, standing, &or("it gave no reason"))?,
        _ => format!("failed: {}", or("it gave no reason")),
    };
    Ok(Next {
        state: after.state,
        reason: Some(reason),
        resume_after: after.resume_after,
        retries: after.retries,
        by_agent: true,
    })
}

/// Why a task is blocked that failed as often as it may, and who waits for it.
pub(crate) fn blocked(
    tx: &mut dyn Transaction,
    standing: &Standing,
    last: &str,
) -> Result<String, StoreError> {
    let waiting = tasks::and_who_waits(tx, &standing.id)?;
    let times = match standing.retries_max {
        0 => "failed and may not be tried again".to_owned(),
        retries => format!("failed and was tried again {retries} times"),
    };
    Ok(format!("{times}; the last time: {last}{waiting}"))
}

pub(crate) fn ask(
    tx: &mut dyn Transaction,
    call: &Call,
    named: Named<'_>,
    question: &Question,
) -> Result<TaskLine, FleetError> {
    let ends = [TaskState::WaitingInput];
    if let Some(mut standing) = held_or_ended(tx, call, named, &ends)? {
        text::text("question", &question.question, QUESTION_MAX)?;
        report(tx, &mut standing, named, question.tokens)?;
        tx.run(
            "UPDATE fleet_tasks SET question = $1, answer = NULL WHERE id = $2",
            &[question.question.as_str().into(), named.task.into()],
        )?;
        let reason = Some("its agent asked a question".to_owned());
        let next = Next { by_agent: true, reason, ..Next::to(TaskState::WaitingInput, &standing) };
        step::go(tx, call, &standing, &next, "")?;
        seen(tx, call, named.agent)?;
    }
    tasks::one_line(tx, call, named.task)
}

pub(crate) fn release(
    tx: &mut dyn Transaction,
    call: &Call,
    named: Named<'_>,
    release: &Release,
) -> Result<TaskLine, FleetError> {
    if let Some(standing) = held_or_ended(tx, call, named, &[TaskState::Ready])? {
        let said = text::note(release.reason.as_deref()).map(|reason| format!(": {reason}"));
        let reason = Some(format!("given back{}", said.unwrap_or_default()));
        let next = Next { by_agent: true, reason, ..Next::to(TaskState::Ready, &standing) };
        step::go(tx, call, &standing, &next, "")?;
        seen(tx, call, named.agent)?;
    }
    tasks::one_line(tx, call, named.task)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimates_follow_what_tasks_use() {
        assert_eq!(learned(None, 700), 700);
        assert_eq!(learned(Some(1_000), 2_000), 1_250);
        assert_eq!(learned(None, 0), 1);
        assert_eq!(learned(Some(u64::MAX), u64::MAX), u64::MAX);
        // From anywhere it comes to what is used, within the rounding.
        for start in [1, 10, 1_000_000] {
            let last = (0..100).fold(start, |before, _| learned(Some(before), 5_000));
            assert!(last.abs_diff(5_000) <= 2, "{last}");
        }
    }
}
