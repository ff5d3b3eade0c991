//! Why a task stands where it does: one sentence, a stable code, and the numbers.

mod ready;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

use fairgate_money::UnixMicros;
use fairgate_store::{Columns, Database, StoreError, Transaction};
use serde_json::json;

use crate::call::{Call, not_found};
use crate::error::FleetError;
use crate::model::{Fact, Why};
use crate::round::Rules;
use crate::round::load::{self, HeldTask};
use crate::round::scene::{Scene, Waiting};
use crate::state::{AgentState, TaskState};
use crate::words::{listed, many, moment, span};
use crate::{agents, history, json_rows, text};

/// How many tasks that one waits for a sentence names.
const NAMED: usize = 3;
/// How much of what others wrote a sentence repeats, in bytes.
const REPEATED: usize = 300;
/// The name of the agent that is assumed to come next.
const NEXT: &str = "(the next agent)";

/// What explaining needs to know about the rest of the fleet.
pub(crate) struct Context {
    pub(super) now: UnixMicros,
    rules: Rules,
    /// As the next round would see it, if one agent came now that may do anything.
    scene: Scene,
    /// What would become of the first ready tasks then.
    turns: HashMap<Box<str>, ready::Turn>,
    held: Vec<HeldTask>,
    /// The agents that may take tasks: name, type, whether one waits, in this process.
    agents: Vec<(String, String, bool)>,
}

impl Context {
    pub(crate) fn load(
        tx: &mut dyn Transaction,
        call: &Call,
        waiting: &[String],
    ) -> Result<Self, StoreError> {
        let rules = Rules::new(&call.options);
        let held = load::held(tx)?;
        let next = Waiting { agent: NEXT.into(), kind: NEXT.into() };
        let mut scene = load::scene(tx, &rules, &held, vec![next], call.now)?;
        load::tasks(tx, &rules, &mut scene)?;
        let agents = agents::list(tx)?.into_iter();
        let agents = agents.filter(|agent| agent.state == AgentState::Active).map(|agent| {
            let is_waiting = waiting.contains(&agent.id);
            (agent.id, agent.kind, is_waiting)
        });
        let (now, turns, agents) = (call.now, ready::turns(&scene), agents.collect());
        Ok(Self { now, rules, scene, turns, held, agents })
    }

    /// How many agents work, and how many wait.
    fn busy_and_waiting(&self) -> (u64, u64) {
        let waiting = self.agents.iter().filter(|(_, _, is_waiting)| *is_waiting).count();
        (self.held.len() as u64, waiting as u64)
    }

    fn project(&self, id: &str) -> Option<usize> {
        self.scene.projects.iter().position(|project| &*project.id == id)
    }
}

/// A task, as far as it matters here.
#[derive(Clone, Debug)]
struct Subject {
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
    agent: Option<String>,
    epoch: u64,
    lease_until: Option<UnixMicros>,
    claimed_at: Option<UnixMicros>,
    question: Option<String>,
    progress: Option<String>,
}

/// The columns of a subject.
const COLUMNS: &str = "t.id, t.project, t.state, t.reason, t.estimate, t.retries, t.retries_max, \
    t.resume_after, t.workspace, t.affinity, t.ready_at + t.affinity_wait, t.agent, t.epoch, t.lease_until, t.claimed_at, \
    t.question, t.progress";

fn subject(row: &dyn Columns) -> Result<Subject, StoreError> {
    Ok(Subject {
        id: row.text(0)?,
        project: row.text(1)?,
        state: history::state(&row.text(2)?)?,
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
    })
}

/// Why this task stands where it does.
pub(crate) fn of(
    tx: &mut dyn Transaction,
    call: &Call,
    id: &str,
    waiting: &[String],
) -> Result<Why, FleetError> {
    let found = tx.first(
        &format!("SELECT {COLUMNS} FROM fleet_tasks t WHERE t.id = $1"),
        &[id.into()],
        subject,
    )?;
    let subject = found.ok_or_else(|| not_found("task", id))?;
    let context = Context::load(tx, call, waiting)?;
    Ok(explain(tx, &context, &subject)?)
}

/// Why the first ready tasks of these projects wait: so many of each, and so many in all.
pub(crate) fn of_many(
    tx: &mut dyn Transaction,
    context: &Context,
    projects: &[&str],
    (each, all): (usize, usize),
) -> Result<Vec<Why>, StoreError> {
    let projects = &projects[..projects.len().min(all)];
    let first = match tx.database() {
        Database::Sqlite => format!(
            "CROSS JOIN fleet_tasks t WHERE t.rowid IN (SELECT r.rowid FROM fleet_tasks r \
             WHERE r.project = p.column1 AND r.state = 'READY' ORDER BY r.priority, r.made LIMIT {each})"
        ),
        Database::Postgres => format!(
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

/// An explanation as it is put together.
struct Said {
    code: &'static str,
    sentence: String,
    facts: Vec<Fact>,
}

impl Said {
    fn new(code: &'static str, sentence: impl Into<String>) -> Self {
        Self { code, sentence: sentence.into(), facts: Vec::new() }
    }

    fn fact(mut self, name: &str, value: impl Into<String>) -> Self {
        self.facts.push(Fact { name: name.to_owned(), value: value.into() });
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
    context: &Context,
    subject: &Subject,
) -> Result<Why, StoreError> {
    let said = match subject.state {
        TaskState::Defined => needs(tx, context, subject)?,
        TaskState::Ready => ready::explain(tx, context, subject)?,
        TaskState::Assigned | TaskState::InProgress => held(context, subject),
        TaskState::WaitingInput => asked(subject),
        TaskState::Paused => paused(context, subject),
        TaskState::Completed => Said::new("completed", "It is completed."),
        TaskState::Failed => {
            Said::new("failed", format!("It ended without success{}.", because(subject)))
        }
        TaskState::Blocked => blocked(subject),
    };
    let Said { code, sentence, facts } = said;
    let (task, state) = (subject.id.clone(), subject.state);
    Ok(Why { task, state, sentence, code: code.to_owned(), facts })
}

/// `: its reason`, or nothing.
fn because(subject: &Subject) -> String {
    let reason = subject.reason.as_deref().map(|reason| format!(": {}", repeated(reason)));
    reason.unwrap_or_default()
}

fn repeated(text: &str) -> String {
    text::cut(text.trim_end_matches('.'), REPEATED).replace(['\n', '\r'], " ")
}

fn needs(
    tx: &mut dyn Transaction,
    context: &Context,
    subject: &Subject,
) -> Result<Said, StoreError> {
    let open = tx.list(
        "SELECT t.id, t.state FROM fleet_needs n JOIN fleet_tasks t ON t.id = n.needs \
         WHERE n.task = $1 AND t.state <> 'COMPLETED' ORDER BY t.made",
        &[subject.id.as_str().into()],
        |row| Ok((row.text(0)?, history::state(&row.text(1)?)?)),
    )?;
    let named: Vec<_> = open.iter().map(|(id, state)| format!("{id} ({state})")).collect();
    let stuck: Vec<_> = (open.iter())
        .filter(|(_, state)| matches!(state, TaskState::Blocked | TaskState::Failed))
        .map(|(id, _)| id.clone())
        .collect();
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
    Ok(Said::new(code, sentence).fact("waits for", named.join(", ")).maybe("and not before", later))
}

fn held(context: &Context, subject: &Subject) -> Said {
    let agent = subject.agent.as_deref().unwrap_or("?");
    let since = subject.claimed_at.map(|at| span(at, context.now)).unwrap_or_default();
    let said = if subject.state == TaskState::Assigned {
        let sentence = format!("Agent {agent} was given it {since} ago and has not begun yet.");
        Said::new("assigned", sentence)
    } else {
        Said::new("running", format!("Agent {agent} has worked on it for {since}."))
    };
    said.fact("agent", agent)
        .fact("claim", subject.epoch.to_string())
        .maybe("lease ends in", subject.lease_until.map(|at| span(context.now, at)))
        .maybe("progress", subject.progress.as_deref().map(repeated))
}

fn asked(subject: &Subject) -> Said {
    let agent = subject.agent.as_deref().unwrap_or("?");
    let question = subject.question.as_deref().map(repeated).unwrap_or_default();
    Said::new(
        "waiting_input",
        format!("It waits for an answer to what agent {agent} asked: {question}"),
    )
    .fact("answer it with", format!("fairgate task answer {} TEXT", subject.id))
}

fn paused(context: &Context, subject: &Subject) -> Said {
    let (now, because) = (context.now, because(subject));
    let Some(until) = subject.resume_after else {
        return Said::new("paused", format!("It is paused until somebody resumes it{because}."));
    };
    let (at, left) = (moment(until), span(now, until));
    if subject.retries == 0 {
        return Said::new(
            "paused_until",
            format!("It is paused for another {left}, until {at}{because}."),
        );
    }
    let retry = format!("{} of {}", subject.retries, subject.retries_max);
    Said::new("retry", format!("It is tried again in {left}, at {at} (retry {retry}){because}."))
        .fact("retry", retry)
}

fn blocked(subject: &Subject) -> Said {
    let sentence = format!(
        "It failed as often as it may, and waits for somebody to restart or skip it{}.",
        because(subject)
    );
    Said::new("blocked", sentence)
        .fact("retries used", format!("{} of {}", subject.retries, subject.retries_max))
}
