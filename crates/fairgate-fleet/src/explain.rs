//! Explains why a task is in its state. An explanation consists of a sentence for people, a stable
//! code for programs, and the numbers in the sentence.

mod ready_task;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};

use fairgate_api::fleet::{ExplanationFact, TaskExplanation};
use fairgate_api::fleet::{FleetAgentState, TaskState};
use fairgate_store::{DatabaseKind, RowColumns, StoreError, Transaction};
use fairgate_time::UnixMicros;
use serde_json::json;

use crate::agent_access::{self, AgentAccess};
use crate::call_context::{CallContext, not_found};
use crate::error::FleetError;
use crate::human_format::{listed, many, moment, span};
use crate::round::RoundOptions;
use crate::round::load::{self, HeldTask};
use crate::round::round_input::{RoundAgent, RoundInput};
use crate::{agents, json_rows, task_history, validate};

/// Maximum number of tasks that the sentence of an explanation names.
const NAMED: usize = 3;
/// Maximum number of steps along `needs` in the search for the blocked tasks for which a task
/// waits.
const ROOT_STEPS_MAX: usize = 200;
/// Maximum number of tasks that this search visits.
const ROOT_TASKS_MAX: usize = 1_000;
const ROOTS_MAX: usize = 20;
/// Maximum length of a quoted text of an agent or operator in a sentence, in bytes.
const REPEATED: usize = 300;
/// Name of the hypothetical agent for which the next round is simulated.
const NEXT: &str = "(the next agent)";

/// Projects and tasks that the reader of an explanation may see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExplanationScope {
    /// The reader may see everything.
    Everything,
    /// The reader may see only the tenant of the explained task. Projects and tasks of other tenants are not named.
    ItsTenant,
}

/// An active agent, with the data that an explanation needs.
struct ActiveAgent {
    id: String,
    kind: String,
    /// True if the agent waits for a task in this process.
    is_waiting: bool,
    access: AgentAccess,
}

/// Everything that an explanation needs to know about the fleet besides the explained task.
pub(crate) struct ExplanationContext {
    pub(super) now: UnixMicros,
    rules: RoundOptions,
    /// Input of a round with one hypothetical waiting agent. That agent may take any task.
    input: RoundInput,
    /// Results of the round with the input `input`, by loaded ready task.
    turns: HashMap<Box<str>, ready_task::NextAgentOutcome>,
    held: Vec<HeldTask>,
    /// Projects that the explanation may name; `None` for all projects.
    named: Option<HashSet<String>>,
    agents: Vec<ActiveAgent>,
}

impl ExplanationContext {
    pub(crate) fn load(
        tx: &mut dyn Transaction,
        call: &CallContext,
        waiting: &[String],
    ) -> Result<Self, StoreError> {
        let rules = RoundOptions::new(&call.options);
        let held = load::held(tx)?;
        let access = AgentAccess::default();
        let next = RoundAgent { agent: NEXT.into(), kind: NEXT.into(), access };
        let mut input = load::round_input(tx, &rules, &held, vec![next], call.now)?;
        load::tasks(tx, &rules, &mut input)?;
        let agents = agents::list(tx)?.into_iter();
        let agents = agents.filter(|agent| agent.state == FleetAgentState::Active).map(|agent| {
            let is_waiting = waiting.contains(&agent.id);
            let access = AgentAccess::new(&agent.kind, &agent.labels, agent.tenants.as_deref());
            ActiveAgent { id: agent.id, kind: agent.kind, is_waiting, access }
        });
        let (now, turns, agents) =
            (call.now, ready_task::next_agent_outcomes(&input), agents.collect());
        Ok(Self { now, rules, input, turns, held, named: None, agents })
    }

    /// Restricts the explanation to the tenant of this project.
    fn within_tenant_of(
        mut self,
        tx: &mut dyn Transaction,
        project: &str,
    ) -> Result<Self, StoreError> {
        let sql = "SELECT id FROM fleet_projects WHERE tenant = (SELECT tenant FROM fleet_projects WHERE id = $1)";
        let named = tx.list(sql, &[project.into()], |row| row.text(0))?;
        self.named = Some(named.into_iter().collect());
        Ok(self)
    }

    /// Returns whether the explanation may name this project and its tasks.
    fn may_name(&self, project: &str) -> bool {
        self.named.as_ref().is_none_or(|named| named.contains(project))
    }

    /// Returns the number of agents that hold a task, and the number of agents that wait for one in this process.
    fn busy_and_waiting(&self) -> (u64, u64) {
        let waiting = self.agents.iter().filter(|agent| agent.is_waiting).count();
        (self.held.len() as u64, waiting as u64)
    }

    fn project(&self, id: &str) -> Option<usize> {
        self.input.projects.iter().position(|project| &*project.id == id)
    }
}

/// Fields of a task that its explanation needs.
#[derive(Clone, Debug)]
struct ExplainedTask {
    id: String,
    project: String,
    state: TaskState,
    reason: Option<String>,
    estimate: Option<u64>,
    retries: u64,
    retries_max: u64,
    resume_after: Option<UnixMicros>,
    workspace: Option<String>,
    affinity: Option<String>,
    affinity_until: Option<UnixMicros>,
    /// Labels that an agent must have, in addition to those of the project.
    labels: Vec<String>,
    agent: Option<String>,
    epoch: u64,
    lease_until: Option<UnixMicros>,
    claimed_at: Option<UnixMicros>,
    question: Option<String>,
    progress: Option<String>,
    calls: u64,
    /// True if the task's latest agent reports its tokens itself.
    reports: bool,
}

/// SQL columns of an [`ExplainedTask`], for a table `t` of tasks.
const COLUMNS: &str = "t.id, t.project, t.state, t.reason, t.estimate, t.retries, t.retries_max, \
    t.resume_after, t.workspace, t.affinity, t.ready_at + t.affinity_wait, t.agent, t.epoch, t.lease_until, t.claimed_at, \
    t.question, t.progress, t.calls, \
    EXISTS (SELECT 1 FROM fleet_agents a WHERE a.id = t.agent AND a.reports), t.labels";

fn subject(row: &dyn RowColumns) -> Result<ExplainedTask, StoreError> {
    Ok(ExplainedTask {
        id: row.text(0)?,
        project: row.text(1)?,
        state: task_history::state(&row.text(2)?)?,
        reason: row.text_or_null(3)?,
        estimate: row.count_or_null(4)?,
        retries: row.count(5)?,
        retries_max: row.count(6)?,
        resume_after: row.moment_or_null(7)?,
        workspace: row.text_or_null(8)?,
        affinity: row.text_or_null(9)?,
        affinity_until: row.moment_or_null(10)?,
        agent: row.text_or_null(11)?,
        epoch: row.count(12)?,
        lease_until: row.moment_or_null(13)?,
        claimed_at: row.moment_or_null(14)?,
        question: row.text_or_null(15)?,
        progress: row.text_or_null(16)?,
        calls: row.count(17)?,
        reports: row.flag(18)?,
        labels: agent_access::read_list(&row.text(19)?)?,
    })
}

/// Explains why this task is in its state.
pub(crate) fn of(
    tx: &mut dyn Transaction,
    call: &CallContext,
    id: &str,
    waiting: &[String],
    for_whom: ExplanationScope,
) -> Result<TaskExplanation, FleetError> {
    let found = tx.first(
        &format!("SELECT {COLUMNS} FROM fleet_tasks t WHERE t.id = $1"),
        &[id.into()],
        subject,
    )?;
    let subject = found.ok_or_else(|| not_found("task", id))?;
    let mut context = ExplanationContext::load(tx, call, waiting)?;
    if for_whom == ExplanationScope::ItsTenant {
        context = context.within_tenant_of(tx, &subject.project)?;
    }
    Ok(explain(tx, &context, &subject)?)
}

/// Explains why the first ready tasks of these projects wait. Explains at most `each` tasks of each
/// project, and `all` tasks in total.
pub(crate) fn of_many(
    tx: &mut dyn Transaction,
    context: &ExplanationContext,
    projects: &[&str],
    (each, all): (usize, usize),
) -> Result<Vec<TaskExplanation>, StoreError> {
    let projects = &projects[..projects.len().min(all)];
    let first = match tx.database() {
        DatabaseKind::Sqlite => format!(
            "CROSS JOIN fleet_tasks t WHERE t.rowid IN (SELECT r.rowid FROM fleet_tasks r \
             WHERE r.project = p.column1 AND r.state = 'READY' ORDER BY r.priority, r.made LIMIT {each})"
        ),
        DatabaseKind::Postgres => format!(
            "CROSS JOIN LATERAL (SELECT * FROM fleet_tasks r \
             WHERE r.project = p.column1 AND r.state = 'READY' ORDER BY r.priority, r.made LIMIT {each}) AS t"
        ),
    };
    let table = json_rows::table(tx.database(), 1, &["TEXT", "BIGINT"]);
    let sql = format!(
        "SELECT {COLUMNS} FROM {table} AS p {first} ORDER BY p.column2, t.priority, t.made LIMIT {all}"
    );
    let rows = projects.iter().enumerate().map(|(place, id)| json!([id, place]));
    let subjects = tx.list(&sql, &[json_rows::value(rows)], subject)?;
    subjects.iter().map(|subject| explain(tx, context, subject)).collect()
}

/// An explanation that is not complete yet.
struct ExplanationDraft {
    code: &'static str,
    sentence: String,
    facts: Vec<ExplanationFact>,
}

impl ExplanationDraft {
    fn new(code: &'static str, sentence: impl Into<String>) -> Self {
        Self { code, sentence: sentence.into(), facts: Vec::new() }
    }

    fn fact(mut self, name: &str, value: impl Into<String>) -> Self {
        self.facts.push(ExplanationFact { name: name.to_owned(), value: value.into() });
        self
    }

    fn maybe(self, name: &str, value: Option<impl Into<String>>) -> Self {
        match value {
            Some(value) => self.fact(name, value),
            None => self,
        }
    }
}

fn explain(
    tx: &mut dyn Transaction,
    context: &ExplanationContext,
    subject: &ExplainedTask,
) -> Result<TaskExplanation, StoreError> {
    let draft = match subject.state {
        TaskState::Defined => needs(tx, context, subject)?,
        TaskState::Ready => ready_task::explain(tx, context, subject)?,
        TaskState::Assigned => held(context, subject, false),
        TaskState::InProgress => held(context, subject, true),
        TaskState::WaitingInput => asked(subject),
        TaskState::Paused => paused(context, subject),
        TaskState::Completed => completed(subject),
        TaskState::Failed => ExplanationDraft::new(
            "failed",
            format!("It ended without success{}.", because(subject)),
        ),
        TaskState::Blocked => blocked(subject),
    };
    let ExplanationDraft { code, sentence, facts } = draft;
    let (task, state) = (subject.id.clone(), subject.state);
    Ok(TaskExplanation { task, state, sentence, code: code.to_owned(), facts })
}

/// Returns `: REASON` with the reason of the task's state, or an empty string if the task has no reason.
fn because(subject: &ExplainedTask) -> String {
    let reason = subject.reason.as_deref().map(|reason| format!(": {}", repeated(reason)));
    reason.unwrap_or_default()
}

fn repeated(text: &str) -> String {
    validate::cut(text.trim_end_matches('.'), REPEATED).replace(char::is_control, " ")
}

fn needs(
    tx: &mut dyn Transaction,
    context: &ExplanationContext,
    subject: &ExplainedTask,
) -> Result<ExplanationDraft, StoreError> {
    let open = tx.list(
        "SELECT t.id, t.state FROM fleet_needs n JOIN fleet_tasks t ON t.id = n.needs \
         WHERE n.task = $1 AND t.state <> 'COMPLETED' ORDER BY t.made",
        &[subject.id.as_str().into()],
        |row| Ok((row.text(0)?, task_history::state(&row.text(1)?)?)),
    )?;
    let named: Vec<_> = open.iter().map(|(id, state)| format!("{id} ({state})")).collect();
    let stuck: Vec<_> = (open.iter())
        .filter(|(_, state)| matches!(state, TaskState::Blocked | TaskState::Failed))
        .map(|(id, _)| id.clone())
        .collect();
    let stuck = if stuck.is_empty() { stuck_roots(tx, &open)? } else { stuck };
    let listed_names = listed(&named, NAMED);
    let sentence = if stuck.is_empty() {
        format!("It waits for {}: {listed_names}.", many(open.len() as u64, "task"))
    } else {
        format!(
            "It waits for {}: {listed_names}; it cannot start until somebody restarts or skips {}.",
            many(open.len() as u64, "task"),
            listed(&stuck, NAMED)
        )
    };
    let code = if stuck.is_empty() { "needs" } else { "needs_stuck" };
    let later = subject.resume_after.filter(|at| *at > context.now).map(moment);
    let roots = (!stuck.is_empty()).then(|| listed(&stuck, ROOTS_MAX));
    Ok(ExplanationDraft::new(code, sentence)
        .fact("waits for", named.join(", "))
        .maybe("stuck at", roots)
        .maybe("and not before", later))
}

/// Returns the blocked and failed tasks for which these open tasks wait, directly or through other
/// tasks, the nearest first. Visits at most [`ROOT_STEPS_MAX`] steps and [`ROOT_TASKS_MAX`] tasks.
/// All tasks in the result belong to one tenant, because tasks may need only tasks of their own
/// tenant.
fn stuck_roots(
    tx: &mut dyn Transaction,
    open: &[(String, TaskState)],
) -> Result<Vec<String>, StoreError> {
    let mut seen: HashSet<String> = open.iter().map(|(id, _)| id.clone()).collect();
    let mut next: Vec<String> = seen.iter().cloned().collect();
    let mut roots = Vec::new();
    for _ in 0..ROOT_STEPS_MAX {
        if next.is_empty() || seen.len() > ROOT_TASKS_MAX {
            break;
        }
        let names = json_rows::texts(tx.database(), 1);
        let sql = format!(
            "SELECT DISTINCT t.id, t.state, t.made FROM fleet_needs n JOIN fleet_tasks t ON t.id = n.needs \
             WHERE n.task IN {names} AND t.state <> 'COMPLETED' ORDER BY t.made"
        );
        let values = [json_rows::names(next.iter().map(String::as_str))];
        let found =
            tx.list(&sql, &values, |row| Ok((row.text(0)?, task_history::state(&row.text(1)?)?)))?;
        next = Vec::new();
        for (id, state) in found {
            if !seen.insert(id.clone()) {
                continue;
            }
            match state {
                TaskState::Blocked | TaskState::Failed => roots.push(id),
                _ => next.push(id),
            }
        }
    }
    Ok(roots)
}

fn held(
    context: &ExplanationContext,
    subject: &ExplainedTask,
    has_begun: bool,
) -> ExplanationDraft {
    let agent = subject.agent.as_deref().unwrap_or("?");
    let since = subject.claimed_at.map(|at| span(at, context.now)).unwrap_or_default();
    let limit = subject.resume_after.filter(|until| *until > context.now);
    let limited = limit.map_or_else(String::new, |until| {
        let limit = subject.reason.as_deref().unwrap_or("the provider's limit is reached");
        format!("; its calls are stopped for another {}: {limit}", span(context.now, until))
    });
    let draft = match has_begun {
        false => ExplanationDraft::new(
            "assigned",
            format!("Agent {agent} was given it {since} ago and has not begun yet{limited}."),
        ),
        true => ExplanationDraft::new(
            "running",
            format!("Agent {agent} has worked on it for {since}{limited}."),
        ),
    };
    draft
        .fact("agent", agent)
        .fact("claim", subject.epoch.to_string())
        .maybe("limited until", limit.map(moment))
        .maybe("lease ends in", subject.lease_until.map(|at| span(context.now, at)))
        .maybe("progress", subject.progress.as_deref().map(repeated))
}

fn asked(subject: &ExplainedTask) -> ExplanationDraft {
    let agent = subject.agent.as_deref().unwrap_or("?");
    let question = subject.question.as_deref().map(repeated).unwrap_or_default();
    ExplanationDraft::new(
        "waiting_input",
        format!("It waits for an answer to what agent {agent} asked: {question}"),
    )
    .fact("answer it with", format!("fairgate task answer {} TEXT", subject.id))
}

fn paused(context: &ExplanationContext, subject: &ExplainedTask) -> ExplanationDraft {
    let (now, because) = (context.now, because(subject));
    let Some(until) = subject.resume_after else {
        return ExplanationDraft::new(
            "paused",
            format!("It is paused until somebody resumes it{because}."),
        );
    };
    let (at, left) = (moment(until), span(now, until));
    if subject.retries == 0 {
        return ExplanationDraft::new(
            "paused_until",
            format!("It is paused for another {left}, until {at}{because}."),
        );
    }
    let retry = format!("{} of {}", subject.retries, subject.retries_max);
    ExplanationDraft::new(
        "retry",
        format!("It is tried again in {left}, at {at} (retry {retry}){because}."),
    )
    .fact("retry", retry)
}

/// Explains that a task is completed. If its agent made no call through the gateway, the
/// explanation says so: the work needed no model, or the agent calls a model without the gateway.
fn completed(subject: &ExplainedTask) -> ExplanationDraft {
    // A skipped task had no claim, so it could not make calls.
    if subject.calls > 0 || subject.reports || subject.epoch == 0 {
        return ExplanationDraft::new("completed", "It is completed.");
    }
    let sentence = "It is completed, and no call was made through the gateway for it.";
    ExplanationDraft::new("completed", sentence).fact("calls", "0")
}

fn blocked(subject: &ExplainedTask) -> ExplanationDraft {
    let sentence = format!(
        "It failed as often as it may, and waits for somebody to restart or skip it{}.",
        because(subject)
    );
    ExplanationDraft::new("blocked", sentence)
        .fact("retries used", format!("{} of {}", subject.retries, subject.retries_max))
}
