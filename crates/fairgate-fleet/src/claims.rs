//! Operations of agents on the tasks that they hold: heartbeat, complete, fail, ask, release.
//!
//! Each operation names the claim by its epoch. An agent that no longer holds the task under that
//! epoch gets an error that names the current holder, and changes nothing. An operation that ends a
//! claim may be repeated. The repetition finds in the history that this agent already ended this
//! claim in the same way, and returns the task's current state.
//!
//! Each claim of a task has the next epoch. A task stores the epoch of the last claim that ended (`ended_epoch`).
//!
//! The usage of a task is written only once, in the transaction that writes the row of each model
//! call. Usage that an agent reports counts only for agents with `reports_tokens`, which do not
//! call through the gateway and get no task keys.

use fairgate_api::agents::TaskLeaseBody;
use fairgate_api::fleet::{TaskLine, TaskState};
pub(crate) mod complete;
use fairgate_store::{SqlValue, StoreError, TaskClaim, Transaction};
use fairgate_time::UnixMicros;
use fairgate_usage::HELD_STATES;

use crate::agent_reports::{TaskFailure, TaskHeartbeat, TaskQuestion, TaskRelease};
use crate::call_context::{CallContext, bump_version};
use crate::claim_ref::{ClaimRef, held, not_held};
use crate::credit;
use crate::error::FleetError;
use crate::retry_policy;
use crate::task_history;
use crate::tasks;
use crate::transition::{self, TaskRow, TaskTransition, write};
use crate::unfit_tasks;
use crate::validate;
use crate::window_usage;

/// Maximum number of times in a row that a task may be put off. After that the task is blocked, so
/// that it is not retried forever.
const PUT_OFFS_MAX: u32 = 1_000;
/// Maximum length of a question to an operator, in bytes.
const QUESTION_MAX: usize = 16 << 10;

/// Returns the task if it is held under this claim. Returns `None` if the claim's agent already
/// ended the claim and the task thereby entered one of the states `ends`. Any other claim is an
/// error.
fn held_or_ended(
    tx: &mut dyn Transaction,
    actor: &str,
    named: ClaimRef<'_>,
    ends: &[TaskState],
) -> Result<Option<TaskRow>, FleetError> {
    let standing = transition::load_task(tx, named.task)?;
    if named.is_held(&standing) {
        return Ok(Some(standing));
    }
    if standing.ended_epoch < named.epoch {
        return Err(not_held(tx, named, &standing)?);
    }
    let is_it = |step: &fairgate_api::fleet::TaskStep| {
        step.epoch == named.epoch
            && step.from.is_held()
            && ends.contains(&step.to)
            && step.actor == actor
    };
    match task_history::of(tx, named.task)?.iter().any(is_it) {
        true => Ok(None),
        false => Err(not_held(tx, named, &standing)?),
    }
}

/// Records the token usage that an agent reports for its claim. Reports of agents without `reports_tokens` are ignored.
/// A report is the total usage of the claim, and only its increase is charged, so a report may arrive twice or late.
fn report(
    tx: &mut dyn Transaction,
    standing: &mut TaskRow,
    named: ClaimRef<'_>,
    tokens: Option<u64>,
) -> Result<(), FleetError> {
    let Some(tokens) = tokens else { return Ok(()) };
    let value = validate::check_tokens("tokens", tokens, validate::TASK_TOKENS_MAX)?;
    let sql = "SELECT reports FROM fleet_agents WHERE id = $1";
    let reports = tx.first(sql, &[named.agent.into()], |row| row.flag(0))?.unwrap_or(false);
    let more = tokens.saturating_sub(standing.used);
    if !reports || more == 0 {
        return Ok(());
    }
    standing.used = tokens;
    tx.run("UPDATE fleet_tasks SET used = $1 WHERE id = $2", &[value.into(), named.task.into()])?;
    window_usage::charge(tx, &standing.project, more)?;
    bump_version(tx)?;
    Ok(())
}

fn set_last_seen(
    tx: &mut dyn Transaction,
    call: &CallContext,
    agent: &str,
) -> Result<(), StoreError> {
    let sql = "UPDATE fleet_agents SET last_seen = $1 WHERE id = $2";
    tx.run(sql, &[call.now.into(), agent.into()])?;
    Ok(())
}

/// Renews the lease of a claim. The first heartbeat moves an ASSIGNED task to IN_PROGRESS.
pub(crate) fn heartbeat(
    tx: &mut dyn Transaction,
    call: &CallContext,
    named: ClaimRef<'_>,
    heartbeat: &TaskHeartbeat,
) -> Result<HeartbeatReply, FleetError> {
    let mut standing = held(tx, named)?;
    report(tx, &mut standing, named, heartbeat.tokens)?;
    let reported_max = standing.tokens_max.filter(|_| heartbeat.tokens.is_some());
    if reported_max.is_some_and(|most| standing.used.saturating_add(standing.used_before) >= most)
        && let Some(cap) = cap_reached(&standing)
    {
        let next = TaskTransition { by_agent: false, ..capped(tx, &standing, &cap, None)? };
        transition::apply(tx, call, &standing, &next, "")?;
        let blocked = transition::load_task(tx, named.task)?;
        return Ok(Err(named.lost(&blocked)));
    }
    let lease_until = standing.renewed_lease(call.options.lease, call.now);
    let progress = validate::note(heartbeat.progress.as_deref());
    tx.run(
        "UPDATE fleet_tasks SET lease_until = $1, progress = COALESCE($2, progress) WHERE id = $3",
        &[lease_until.into(), progress.into(), named.task.into()],
    )?;
    set_last_seen(tx, call, named.agent)?;
    if standing.state == TaskState::Assigned {
        write::begin_work(tx, &call.actor, call.now, &standing)?;
        bump_version(tx)?;
    }
    Ok(Ok(TaskLeaseBody { lease_until, used: standing.used, reserved: standing.reserved }))
}

/// Reply to a heartbeat: the renewed lease, or an error. The error means that the heartbeat
/// reported a reached cap, which ended the claim. In both cases the transaction is committed.
pub(crate) type HeartbeatReply = Result<TaskLeaseBody, FleetError>;

pub(crate) fn fail(
    tx: &mut dyn Transaction,
    call: &CallContext,
    named: ClaimRef<'_>,
    failure: &TaskFailure,
) -> Result<TaskLine, FleetError> {
    let ends = [TaskState::Paused, TaskState::Blocked];
    if let Some(mut standing) = held_or_ended(tx, &call.actor, named, &ends)? {
        report(tx, &mut standing, named, failure.tokens)?;
        let next = after(tx, call, &standing, failure)?;
        transition::apply(tx, call, &standing, &next, "")?;
        if next.is_failure(&standing) {
            window_usage::count_try(tx, &standing.project)?;
        }
        set_last_seen(tx, call, named.agent)?;
    }
    tasks::one_line(tx, call, named.task)
}

fn after(
    tx: &mut dyn Transaction,
    call: &CallContext,
    standing: &TaskRow,
    failure: &TaskFailure,
) -> Result<TaskTransition, FleetError> {
    let said = validate::note(failure.reason.as_deref());
    let or = |words: &str| said.clone().unwrap_or_else(|| words.to_owned());
    if let Some(until) = failure.limited_until {
        validate::check_moment("limited_until", until)?;
        return put_off(tx, call, standing, until, or(LimitCause::Provider.words()));
    }
    if let Some(cap) = cap_reached(standing) {
        return capped(tx, standing, &cap, said.as_deref());
    }
    if let Some((until, cause)) = limit(standing, call) {
        let said = said.map_or_else(String::new, |said| format!("; the agent says: {said}"));
        return Ok(limited(standing, until, format!("{cause}{said}")));
    }
    let (retries, most) = (standing.retries, standing.retries_max);
    let after = retry_policy::after_failure(retries, most, call.options.backoff, call.now);
    let reason = match after.state {
        TaskState::Blocked => blocked(tx, standing, &or("it gave no reason"))?,
        _ => format!("failed: {}", or("it gave no reason")),
    };
    Ok(TaskTransition {
        state: after.state,
        reason: Some(reason),
        resume_after: after.resume_after,
        retries: after.retries,
        put_offs: 0,
        by_agent: true,
    })
}

/// Returns the transition of a task that its agent puts off until `until`. If the gateway recorded
/// a limit for the task that ends later, the task waits until that limit ends. Otherwise the number
/// of times in a row is increased by one, and the task is blocked after [`PUT_OFFS_MAX`] times.
fn put_off(
    tx: &mut dyn Transaction,
    call: &CallContext,
    standing: &TaskRow,
    until: UnixMicros,
    reason: String,
) -> Result<TaskTransition, FleetError> {
    if let Some((noted, cause)) = limit(standing, call).filter(|(noted, _)| *noted >= until) {
        return Ok(limited(standing, noted, format!("{cause}; the agent says: {reason}")));
    }
    let put_offs = standing.put_offs.saturating_add(1);
    if put_offs > PUT_OFFS_MAX {
        let waiting = tasks::dependents_suffix(tx, &standing.id)?;
        let reason =
            format!("put off {PUT_OFFS_MAX} times in a row; the last time: {reason}{waiting}");
        let (reason, by_agent) = (Some(reason), true);
        let blocked = TaskTransition::to(TaskState::Blocked, standing);
        return Ok(TaskTransition { reason, by_agent, put_offs: 0, ..blocked });
    }
    let reason = match put_offs {
        1 => reason,
        times => format!("{reason} (put off {times} times in a row)"),
    };
    Ok(TaskTransition { put_offs, ..limited(standing, until, reason) })
}

/// A limit that stops the model calls of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitCause {
    /// A provider refuses requests because of a rate limit.
    Provider,
    /// The budget of the task's project, or of all projects together, is used up.
    ProjectBudget,
    /// A budget of the tenant or its group is used up.
    TenantBudget,
    /// The task's own cap of tokens or money is reached. This limit does not end by itself; the
    /// others do.
    TaskCap,
}

impl LimitCause {
    /// Returns the reason that is shown for a task that waits for the end of this limit.
    fn words(self) -> &'static str {
        match self {
            Self::Provider => "the provider's limit is reached",
            Self::ProjectBudget => "the project's or the fleet's budget is used up",
            Self::TenantBudget => "the tenant's budget is used up",
            Self::TaskCap => "the task's cap of tokens or money is reached",
        }
    }
}

/// Returns the reason if a cap of the held task is reached; `None` otherwise. A cap is reached if
/// the task has used as many tokens as it may, or if the gateway refused a call because of a cap.
/// In the second case, [`note_limit`] has recorded a reason without a time.
fn cap_reached(standing: &TaskRow) -> Option<String> {
    let used = standing.used.saturating_add(standing.used_before);
    if let Some(most) = standing.tokens_max.filter(|most| used >= *most) {
        return Some(format!("it used {used} of at most {most} tokens"));
    }
    standing.reason.clone().filter(|_| standing.resume_after.is_none())
}

/// Returns the transition to BLOCKED for a task whose cap is reached, because a retry would meet
/// the same cap.
fn capped(
    tx: &mut dyn Transaction,
    standing: &TaskRow,
    cap: &str,
    said: Option<&str>,
) -> Result<TaskTransition, FleetError> {
    let said = said.map_or_else(String::new, |said| format!("; the agent says: {said}"));
    let waiting = tasks::dependents_suffix(tx, &standing.id)?;
    let reason = format!("{cap}: raise the cap and restart it, or skip it{said}{waiting}");
    let (reason, by_agent) = (Some(reason), true);
    let blocked = TaskTransition::to(TaskState::Blocked, standing);
    Ok(TaskTransition { reason, by_agent, put_offs: 0, ..blocked })
}

/// Returns the time until which a limit stops the model calls of a held task, and the reason, as [`note_limit`] recorded
/// them; `None` if that time has passed.
fn limit<'a>(standing: &'a TaskRow, call: &CallContext) -> Option<(UnixMicros, &'a str)> {
    let until = standing.resume_after.filter(|until| *until > call.now)?;
    Some((until, standing.reason.as_deref().unwrap_or(LimitCause::Provider.words())))
}

/// Returns the transition to PAUSED for a task that waits until a limit ends. No failure is counted.
fn limited(standing: &TaskRow, until: UnixMicros, reason: String) -> TaskTransition {
    let (reason, resume_after) = (Some(reason), Some(until));
    TaskTransition {
        reason,
        resume_after,
        by_agent: true,
        ..TaskTransition::to(TaskState::Paused, standing)
    }
}

/// Records that a limit stops the model calls of a claim until `until`. Does nothing if the claim or the limit is over. Of
/// several limits that end, the one that ends last is kept. A limit without an end, which is a cap, replaces the recorded
/// limit, and a limit that is recorded later replaces the cap. A claim is not charged for the time of a provider's
/// limit. That time ends early if a call of the claim is completed. The time in which a budget is used up is charged,
/// because a tenant with a small budget could otherwise hold agents for free.
pub(crate) fn note_limit(
    tx: &mut dyn Transaction,
    call: &CallContext,
    claim: &TaskClaim,
    until: Option<UnixMicros>,
    cause: LimitCause,
) -> Result<(), FleetError> {
    let epoch = i64::try_from(claim.epoch).unwrap_or(i64::MAX);
    let task = claim.task.as_str();
    let Some(until) = until else {
        let sql = format!(
            "UPDATE fleet_tasks SET resume_after = NULL, reason = $1 WHERE id = $2 AND epoch = $3 \
             AND state IN {HELD_STATES}"
        );
        tx.run(&sql, &[cause.words().into(), task.into(), epoch.into()])?;
        return Ok(bump_version(tx)?);
    };
    validate::check_moment("until", until)?;
    if until <= call.now {
        // The limit ended before it could be noted, for instance because the database was away.
        if cause == LimitCause::ProjectBudget {
            call.budget_alerts().note_refusal(tx, &claim.project, call.now)?;
        }
        return Ok(());
    }
    let words = cause.words();
    let (sql, values): (String, Vec<SqlValue>) = match cause {
        LimitCause::Provider => {
            let wait = credit::note_wait("CAST($2 AS BIGINT)", "CAST($1 AS BIGINT)");
            let is_later = "resume_after > CAST($1 AS BIGINT)";
            let sql = format!(
                "UPDATE fleet_tasks SET resume_after = CASE WHEN {is_later} THEN resume_after \
                 ELSE CAST($1 AS BIGINT) END, {wait}, reason = CASE WHEN {is_later} THEN reason \
                 ELSE CAST($3 AS TEXT) END WHERE id = $4 AND epoch = $5 AND state IN {HELD_STATES} \
                 AND (resume_after IS NULL OR resume_after < $1 OR waited_until < $1)"
            );
            let now = call.now.into();
            (sql, vec![until.into(), now, words.into(), task.into(), epoch.into()])
        }
        _ => {
            let sql = format!(
                "UPDATE fleet_tasks SET resume_after = $1, reason = $2 WHERE id = $3 AND epoch = $4 \
                 AND state IN {HELD_STATES} AND (resume_after IS NULL OR resume_after < $1)"
            );
            (sql, vec![until.into(), words.into(), task.into(), epoch.into()])
        }
    };
    let noted = tx.run(&sql, &values)?;
    if noted > 0 {
        bump_version(tx)?;
        if cause == LimitCause::ProjectBudget {
            call.budget_alerts().note_refusal(tx, &claim.project, call.now)?;
        }
    }
    Ok(())
}

/// Returns the reason that is shown for a task without retries left. It contains the last failure and the tasks that
/// wait for this task.
pub(crate) fn blocked(
    tx: &mut dyn Transaction,
    standing: &TaskRow,
    last: &str,
) -> Result<String, StoreError> {
    let waiting = tasks::dependents_suffix(tx, &standing.id)?;
    let times = match standing.retries_max {
        0 => "failed and may not be tried again".to_owned(),
        retries => format!("failed and was tried again {retries} times"),
    };
    Ok(format!("{times}; the last time: {last}{waiting}"))
}

pub(crate) fn ask(
    tx: &mut dyn Transaction,
    call: &CallContext,
    named: ClaimRef<'_>,
    question: &TaskQuestion,
) -> Result<TaskLine, FleetError> {
    let ends = [TaskState::WaitingInput];
    if let Some(mut standing) = held_or_ended(tx, &call.actor, named, &ends)? {
        validate::check_text("question", &question.question, QUESTION_MAX)?;
        report(tx, &mut standing, named, question.tokens)?;
        tx.run(
            "UPDATE fleet_tasks SET question = $1, answer = NULL WHERE id = $2",
            &[question.question.as_str().into(), named.task.into()],
        )?;
        let reason = Some("its agent asked a question".to_owned());
        let next = TaskTransition {
            by_agent: true,
            reason,
            ..TaskTransition::to(TaskState::WaitingInput, &standing)
        };
        transition::apply(tx, call, &standing, &next, "")?;
        set_last_seen(tx, call, named.agent)?;
    }
    tasks::one_line(tx, call, named.task)
}

pub(crate) fn release(
    tx: &mut dyn Transaction,
    call: &CallContext,
    named: ClaimRef<'_>,
    release: &TaskRelease,
) -> Result<TaskLine, FleetError> {
    if let Some(standing) = held_or_ended(tx, &call.actor, named, &[TaskState::Ready])? {
        let said = validate::note(release.reason.as_deref()).map(|reason| format!(": {reason}"));
        let reason = Some(format!("given back{}", said.unwrap_or_default()));
        let next = TaskTransition {
            by_agent: true,
            reason,
            ..TaskTransition::to(TaskState::Ready, &standing)
        };
        transition::apply(tx, call, &standing, &next, "")?;
        if release.unfit {
            unfit_tasks::add(tx, named.agent, named.task)?;
        }
        if let Some((until, cause)) = limit(&standing, call) {
            // The next agent would meet the same limit.
            let given_back = transition::load_task(tx, named.task)?;
            let next = limited(&given_back, until, cause.to_owned());
            transition::apply(tx, call, &given_back, &next, "")?;
        }
        set_last_seen(tx, call, named.agent)?;
    }
    tasks::one_line(tx, call, named.task)
}
