//! One step of the loop, in one transaction: what ran out ends, the scene is loaded, `proportional` decides, the decision is
//! applied. The number of statements does not depend on how many projects, tasks and agents there are.

mod allot;
mod apply;
pub(crate) mod decide;
mod expire;
mod forecast;
pub(crate) mod load;
pub(crate) mod scene;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::time::Duration;

use fairgate_journal::schedule::Round;
use fairgate_money::UnixMicros;
use fairgate_store::{StoreError, Transaction};

use crate::fleet::FleetOptions;
use crate::model::Claim;
use crate::state::AgentState;
use crate::usage::{self, Window};
use crate::{json_rows, retry};
use decide::Start;
use load::HeldTask;
use scene::Waiting;

/// How often a round looks whether budgets have room again, while an agent waits.
const FADE_LOOK: Duration = Duration::from_secs(10);
/// How soon after a round another one is made because a bucket of the window ends.
const ROLL_MIN: Duration = Duration::from_secs(1);

/// What of the options a round needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) window: Window,
    pub(crate) budget: Option<u64>,
    pub(crate) min_task_guarantee: bool,
    pub(crate) default_estimate: u64,
    lease: Duration,
    /// The pause after a first failure, and the longest.
    backoff: (Duration, Duration),
}

impl Rules {
    pub(crate) fn new(options: &FleetOptions) -> Self {
        Self {
            window: Window::new(options.window),
            budget: options.budget,
            min_task_guarantee: options.min_task_guarantee,
            default_estimate: options.default_estimate,
            lease: options.lease,
            backoff: options.backoff,
        }
    }

    fn lease_end(&self, now: UnixMicros) -> UnixMicros {
        retry::later(now, self.lease)
    }

    /// How often an agent should give a sign of life, in seconds: three times within its lease.
    pub(crate) fn heartbeat_s(&self) -> u32 {
        u32::try_from((self.lease / 3).as_secs().max(1)).unwrap_or(u32::MAX)
    }
}

/// An agent that waits for a task.
#[derive(Clone, Debug)]
pub(crate) struct Asker {
    pub(crate) agent: String,
    pub(crate) seed: [u8; 32],
}

impl Asker {
    fn refused(&self, state: AgentState, why: String) -> Reply {
        Reply::Refused { agent: self.agent.clone(), state, why }
    }
}

/// What a round came to.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// The fleet's version after it.
    pub(crate) version: i64,
    /// When something ends by itself next.
    pub(crate) due: Option<UnixMicros>,
    /// For each agent that asked: its task, or why it gets none whatever happens; absent where it waits on.
    pub(crate) replies: Vec<Option<Reply>>,
    /// Each call of the scheduler, for the journal.
    pub(crate) calls: Vec<Round>,
    /// Whether another round can do something at once.
    pub(crate) again: bool,
}

/// What an agent that asked is told.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    /// Its task.
    Task(Box<Claim>),
    /// It may take none.
    Refused {
        /// Its name.
        agent: String,
        /// Its state; an agent that is not there counts as retired.
        state: AgentState,
        /// What it is: `is paused`.
        why: String,
    },
}

/// Makes a round.
pub(crate) fn round(
    tx: &mut dyn Transaction,
    rules: &Rules,
    askers: &[Asker],
    now: UnixMicros,
) -> Result<Outcome, StoreError> {
    let expired = expire::expire(tx, rules, now)?;
    let mut outcome = Outcome { again: expired.has_more, ..Outcome::default() };
    outcome.replies.resize_with(askers.len(), || None);
    usage::roll(tx, rules.window, now)?;
    let mut has_changed = expired.any;
    if !askers.is_empty() {
        has_changed |= serve(tx, rules, askers, now, &mut outcome)?;
    }
    outcome.version = version(tx, has_changed)?;
    let fades = outcome.due.take();
    // A bucket of the shortest windows is over sooner than anybody could look.
    let rolls = rules.window.bucket_end(now).max(retry::later(now, ROLL_MIN));
    outcome.due = next_due(tx, now)?.into_iter().chain(fades).chain([rolls]).min();
    Ok(outcome)
}

/// Gives tasks to agents that wait. Says whether anything changed.
fn serve(
    tx: &mut dyn Transaction,
    rules: &Rules,
    askers: &[Asker],
    now: UnixMicros,
    outcome: &mut Outcome,
) -> Result<bool, StoreError> {
    let agents = agents(tx, askers, now)?;
    let held = load::held(tx)?;
    let holding: HashMap<&str, &HeldTask> = held.iter().map(|it| (it.agent.as_str(), it)).collect();
    // Places among the askers, of those who have a task and of those who wait for one.
    let (mut again, mut free) = (Vec::new(), Vec::new());
    let mut waiting = Vec::new();
    for (place, asker) in askers.iter().enumerate() {
        match agents.get(&asker.agent) {
            None => {
                let reply = asker.refused(AgentState::Retired, "is not there any more".into());
                outcome.replies[place] = Some(reply);
            }
            Some(agent) if agent.state != AgentState::Active => {
                outcome.replies[place] =
                    Some(asker.refused(agent.state, format!("is {}", agent.state)));
            }
            Some(agent) => match holding.get(asker.agent.as_str()) {
                Some(task) => again.push((place, *task)),
                None => {
                    free.push(place);
                    let (agent, kind) = (asker.agent.as_str().into(), agent.kind.as_str().into());
                    waiting.push(Waiting { agent, kind });
                }
            },
        }
    }
    let mut grants: Vec<apply::Grant> = again
        .iter()
        .map(|(place, task)| apply::Grant::again(*place, &askers[*place], task, &agents))
        .collect();
    apply::renew(tx, rules, &grants, now)?;
    if !waiting.is_empty() {
        let mut scene = load::scene(tx, rules, &held, waiting, now)?;
        load::tasks(tx, rules, &mut scene)?;
        let mut decision = decide::decide(&scene).map_err(wrong)?;
        if !decision.dry.is_empty() {
            load::more_tasks(tx, rules, &mut scene, &decision.dry)?;
            decision = decide::decide(&scene).map_err(wrong)?;
        }
        let is_short = decision.starts.len() < scene.waiting.len();
        let is_limited =
            scene.budget.is_some() || scene.projects.iter().any(|it| it.budget.is_some());
        // What was used fades without anything happening, and then there is room for a task.
        outcome.due = (is_short && is_limited).then(|| retry::later(now, FADE_LOOK));
        outcome.again |= decision.is_unfinished || (is_short && !decision.dry.is_empty());
        let workspaces = allot::workspaces(tx, &scene, &decision.starts)?;
        let grant = |(start, workspace): (&Start, Option<String>)| {
            let (place, task) = (free[start.agent], &scene.tasks[start.task]);
            apply::Grant::new(place, &askers[place], task, workspace, &agents)
        };
        let started: Vec<_> = decision.starts.iter().zip(workspaces).map(grant).collect();
        apply::start(tx, rules, &started, now)?;
        grants.extend(started);
        outcome.calls = decision.calls;
    }
    for (place, claim) in apply::claims(tx, rules, &grants)? {
        outcome.replies[place] = Some(Reply::Task(Box::new(claim)));
    }
    Ok(!grants.is_empty())
}

fn wrong(error: fairgate_core::proportional::SnapshotError) -> StoreError {
    StoreError::Database(format!("the rows of the fleet contradict each other: {error}"))
}

/// An agent that asked.
#[derive(Clone, Debug)]
struct AgentRow {
    kind: String,
    state: AgentState,
    reports: bool,
}

/// The agents that ask, by name; notes that they are alive.
fn agents(
    tx: &mut dyn Transaction,
    askers: &[Asker],
    now: UnixMicros,
) -> Result<HashMap<String, AgentRow>, StoreError> {
    let names = json_rows::texts(tx.database(), 2);
    let sql = format!(
        "UPDATE fleet_agents SET last_seen = $1 WHERE id IN {names} RETURNING id, kind, state, reports"
    );
    let values = [now.into(), json_rows::names(askers.iter().map(|it| it.agent.as_str()))];
    let rows = tx.list(&sql, &values, |row| {
        let word = row.text(2)?;
        let unknown = || StoreError::Database(format!("an agent is in the unknown state {word:?}"));
        let state = AgentState::from_word(&word).ok_or_else(unknown)?;
        Ok((row.text(0)?, AgentRow { kind: row.text(1)?, state, reports: row.flag(3)? }))
    })?;
    Ok(rows.into_iter().collect())
}

/// The fleet's version, one more where something changed.
fn version(tx: &mut dyn Transaction, has_changed: bool) -> Result<i64, StoreError> {
    let sql = if has_changed {
        "UPDATE fleet SET version = version + 1 WHERE one = 1 RETURNING version"
    } else {
        VERSION
    };
    tx.first(sql, &[], |row| row.int(0)).map(Option::unwrap_or_default)
}

/// The version, read.
pub(crate) const VERSION: &str = "SELECT version FROM fleet WHERE one = 1";

/// When the next lease, pause or wait for an agent ends.
fn next_due(tx: &mut dyn Transaction, now: UnixMicros) -> Result<Option<UnixMicros>, StoreError> {
    let due = tx.first(
        "SELECT (SELECT MIN(lease_until) FROM fleet_tasks WHERE lease_until > $1), \
         (SELECT MIN(resume_after) FROM fleet_tasks WHERE resume_after > $1), \
         (SELECT MIN(ready_at + affinity_wait) FROM fleet_tasks \
           WHERE state = 'READY' AND affinity IS NOT NULL AND ready_at + affinity_wait > $1)",
        &[now.into()],
        |row| Ok([row.moment_or_null(0)?, row.moment_or_null(1)?, row.moment_or_null(2)?]),
    )?;
    Ok(due.and_then(|due| due.into_iter().flatten().min()))
}
