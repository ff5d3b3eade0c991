//! Runs one round in one transaction. It ends expired leases and pauses, loads the input, lets
//! `proportional` decide, and applies the decision. The number of SQL statements does not depend on
//! the number of projects, tasks and agents.

mod apply;
mod assign_workspaces;
pub(crate) mod decide;
mod expire;
mod forecast;
pub(crate) mod load;
pub(crate) mod round_input;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::time::Duration;

use fairgate_journal::schedule::ScheduleRound;
use fairgate_store::{KeyHash, StoreError, Transaction};
use fairgate_time::UnixMicros;

use crate::agent_access::{self, AgentAccess};
use crate::credit::CreditTerms;
use crate::lease_outage::{self, LeaseOutage};
use crate::options::{FleetOptions, FleetShare};
use crate::project_baseline::BaselineTerms;
use crate::webhooks::WebhookSubscriptions;
use crate::window_usage::{self, UsageWindow};
use crate::{json_rows, retry_policy};
use decide::TaskStart;
use fairgate_api::agents::Claim;
use fairgate_api::fleet::FleetAgentState;
use load::HeldTask;
use round_input::RoundAgent;

/// Interval of the rounds that check whether budgets have room again. They run while an agent waits
/// and a budget is set.
const FADE_LOOK: Duration = Duration::from_secs(10);
/// Minimum time to the next round if that round runs because a bucket of the window ends.
const ROLL_MIN: Duration = Duration::from_secs(1);

/// Options of the fleet that a round needs.
#[derive(Clone, Debug)]
pub(crate) struct RoundOptions {
    pub(crate) window: UsageWindow,
    pub(crate) budget: Option<u64>,
    pub(crate) min_task_guarantee: bool,
    pub(crate) default_estimate: u64,
    pub(crate) credit: CreditTerms,
    pub(crate) share: FleetShare,
    lease: Duration,
    /// Pause of a task after its first failure, and its maximum pause.
    backoff: (Duration, Duration),
    /// Webhooks that get events about lost agents and blocked tasks.
    webhooks: WebhookSubscriptions,
}

impl RoundOptions {
    pub(crate) fn new(options: &FleetOptions) -> Self {
        Self {
            window: UsageWindow::new(options.window),
            budget: options.budget,
            min_task_guarantee: options.min_task_guarantee,
            default_estimate: options.default_estimate,
            credit: CreditTerms::new(options),
            share: options.share,
            lease: options.lease,
            backoff: options.backoff,
            webhooks: options.webhooks.clone(),
        }
    }

    fn terms(&self) -> BaselineTerms {
        BaselineTerms { window: self.window, share: self.share }
    }

    fn lease_end(&self, now: UnixMicros) -> UnixMicros {
        retry_policy::later(now, self.lease)
    }

    /// Returns the interval of heartbeats in seconds: a third of the lease, but at least 1.
    pub(crate) fn heartbeat_s(&self) -> u32 {
        u32::try_from((self.lease / 3).as_secs().max(1)).unwrap_or(u32::MAX)
    }
}

/// An agent that waits for a task, with the seed of its task keys.
#[derive(Clone, Debug)]
pub(crate) struct ClaimingAgent {
    pub(crate) agent: String,
    pub(crate) seed: [u8; 32],
    /// Hash of the token with which the agent authenticated; `None` if the caller guarantees the
    /// agent's identity.
    pub(crate) token: Option<KeyHash>,
}

impl ClaimingAgent {
    fn refused(&self, state: FleetAgentState, why: String) -> ClaimReply {
        ClaimReply::Refused { agent: self.agent.clone(), state, why }
    }
}

/// Result of a round.
#[derive(Debug, Default)]
pub(crate) struct RoundOutcome {
    /// Version of the fleet after the round.
    pub(crate) version: i64,
    /// Time at which the next round must run even if nothing changes, because a lease, pause, wait
    /// or bucket ends or budgets are checked again; `None` if there is no such time.
    pub(crate) due: Option<UnixMicros>,
    /// Reply to each waiting agent, in the order of the agents; `None` for an agent that continues
    /// to wait.
    pub(crate) replies: Vec<Option<ClaimReply>>,
    /// Calls of the scheduler in this round, for the journal.
    pub(crate) calls: Vec<ScheduleRound>,
    /// True if another round must follow at once.
    pub(crate) again: bool,
}

/// A claim that a round gives to an agent.
#[derive(Clone, Debug)]
pub(crate) struct GrantedClaim {
    /// The claim, without the results of the tasks that its task needs.
    pub(crate) claim: Claim,
    /// True if the task needs other tasks, so that it may have results.
    pub(crate) has_needs: bool,
}

/// Reply to a waiting agent.
#[derive(Clone, Debug)]
pub(crate) enum ClaimReply {
    /// Task that the agent gets.
    Task(Box<GrantedClaim>),
    /// The agent may take no task because it is paused, retired or missing.
    Refused {
        /// Name of the agent.
        agent: String,
        /// State of the agent; a missing agent counts as retired.
        state: FleetAgentState,
        /// End of the error message, which follows the agent's name, such as `is PAUSED`.
        why: String,
    },
}

/// Runs a round. If there was an outage, leases are extended by it before any lease is ended.
pub(crate) fn round(
    tx: &mut dyn Transaction,
    rules: &RoundOptions,
    askers: &[ClaimingAgent],
    outage: Option<LeaseOutage>,
    now: UnixMicros,
) -> Result<RoundOutcome, StoreError> {
    if let Some(outage) = outage {
        lease_outage::extend_leases(tx, outage, rules.lease, now)?;
    }
    let expired = expire::expire(tx, rules, now)?;
    let mut outcome = RoundOutcome { again: expired.has_more, ..RoundOutcome::default() };
    outcome.replies.resize_with(askers.len(), || None);
    window_usage::roll(tx, rules.window, now)?;
    let mut has_changed = expired.any;
    if !askers.is_empty() {
        has_changed |= serve(tx, rules, askers, now, &mut outcome)?;
    }
    outcome.version = version(tx, has_changed)?;
    let fades = outcome.due.take();
    // The buckets of a short window are shorter than `ROLL_MIN`, and a round for each of them would
    // be too many.
    let rolls = rules.window.bucket_end(now).max(retry_policy::later(now, ROLL_MIN));
    outcome.due = next_due(tx, rules, now)?.into_iter().chain(fades).chain([rolls]).min();
    Ok(outcome)
}

/// Gives tasks to the waiting agents `askers`, and adds the replies to `outcome`. Returns true if
/// any agent got a new task, or got the task that it already holds.
fn serve(
    tx: &mut dyn Transaction,
    rules: &RoundOptions,
    askers: &[ClaimingAgent],
    now: UnixMicros,
    outcome: &mut RoundOutcome,
) -> Result<bool, StoreError> {
    let agents = agents(tx, askers, now)?;
    let held = load::held(tx)?;
    let holding: HashMap<&str, &HeldTask> = held.iter().map(|it| (it.agent.as_str(), it)).collect();
    // Indexes in `askers`: of agents that hold a task, and of agents that wait for one.
    let (mut again, mut free) = (Vec::new(), Vec::new());
    let mut waiting = Vec::new();
    for (place, asker) in askers.iter().enumerate() {
        match agents.get(&asker.agent) {
            None => {
                let reply = asker.refused(FleetAgentState::Retired, "is not there any more".into());
                outcome.replies[place] = Some(reply);
            }
            // The agent's token was replaced while it waited. The agent learns this at its next
            // call.
            Some(agent) if asker.token.is_some_and(|token| token.0 != *agent.hash) => {}
            Some(agent) => match holding.get(asker.agent.as_str()) {
                // A paused agent may finish the task that it holds.
                Some(task) if agent.state != FleetAgentState::Retired => again.push((place, *task)),
                _ if agent.state != FleetAgentState::Active => {
                    outcome.replies[place] =
                        Some(asker.refused(agent.state, format!("is {}", agent.state)));
                }
                _ => {
                    free.push(place);
                    waiting.push(RoundAgent {
                        agent: asker.agent.as_str().into(),
                        kind: agent.kind.as_str().into(),
                        access: agent.access.clone(),
                    });
                }
            },
        }
    }
    let mut grants: Vec<apply::TaskGrant> = again
        .iter()
        .map(|(place, task)| apply::TaskGrant::again(*place, &askers[*place], task, &agents))
        .collect();
    apply::renew(tx, rules, &grants, now)?;
    if !waiting.is_empty() {
        let mut input = load::round_input(tx, rules, &held, waiting, now)?;
        load::tasks(tx, rules, &mut input)?;
        let mut decision = decide::decide(&input).map_err(wrong)?;
        if !decision.out_of_loaded_tasks.is_empty() {
            load::more_tasks(tx, rules, &mut input, &decision.out_of_loaded_tasks)?;
            decision = decide::decide(&input).map_err(wrong)?;
        }
        let is_short = decision.starts.len() < input.waiting.len();
        let is_limited =
            input.budget.is_some() || input.projects.iter().any(|it| it.budget.is_some());
        // Usage fades with time. This may make room for a task, but no event wakes the loop.
        outcome.due = (is_short && is_limited).then(|| retry_policy::later(now, FADE_LOOK));
        outcome.again |=
            decision.is_unfinished || (is_short && !decision.out_of_loaded_tasks.is_empty());
        let workspaces = assign_workspaces::workspaces(tx, &input, &decision.starts)?;
        let grant = |(start, workspace): (&TaskStart, Option<String>)| {
            let (place, task) = (free[start.agent], &input.tasks[start.task]);
            apply::TaskGrant::new(place, &askers[place], task, workspace, &agents)
        };
        let started: Vec<_> = decision.starts.iter().zip(workspaces).map(grant).collect();
        apply::start(tx, rules, &started, now)?;
        grants.extend(started);
        outcome.calls = decision.calls;
    }
    for (place, claim) in apply::claims(tx, rules, &grants)? {
        outcome.replies[place] = Some(ClaimReply::Task(Box::new(claim)));
    }
    Ok(!grants.is_empty())
}

fn wrong(error: fairgate_core::proportional::ScheduleSnapshotError) -> StoreError {
    StoreError::Database(format!("the rows of the fleet contradict each other: {error}"))
}

/// The database row of a waiting agent.
#[derive(Clone, Debug)]
struct AgentRow {
    kind: String,
    state: FleetAgentState,
    reports: bool,
    /// Hash of the agent's current token.
    hash: Vec<u8>,
    access: AgentAccess,
}

/// Returns the rows of the waiting agents by name, and updates their `last_seen`.
fn agents(
    tx: &mut dyn Transaction,
    askers: &[ClaimingAgent],
    now: UnixMicros,
) -> Result<HashMap<String, AgentRow>, StoreError> {
    let names = json_rows::texts(tx.database(), 2);
    let sql = format!(
        "UPDATE fleet_agents SET last_seen = $1 WHERE id IN {names} RETURNING id, kind, state, reports, hash, labels, tenants"
    );
    let values = [now.into(), json_rows::names(askers.iter().map(|it| it.agent.as_str()))];
    let rows = tx.list(&sql, &values, |row| {
        let word = row.text(2)?;
        let unknown = || StoreError::Database(format!("an agent is in the unknown state {word:?}"));
        let state = word.parse::<FleetAgentState>().map_err(|_| unknown())?;
        let (kind, reports, hash) = (row.text(1)?, row.flag(3)?, row.bytes(4)?);
        let labels = agent_access::read_list(&row.text(5)?)?;
        let tenants =
            row.text_or_null(6)?.map(|text| agent_access::read_list(&text)).transpose()?;
        let access = AgentAccess::new(&kind, &labels, tenants.as_deref());
        Ok((row.text(0)?, AgentRow { kind, state, reports, hash, access }))
    })?;
    Ok(rows.into_iter().collect())
}

/// Returns the fleet's version. Increments the version first if `has_changed` is true.
fn version(tx: &mut dyn Transaction, has_changed: bool) -> Result<i64, StoreError> {
    let sql = if has_changed {
        "UPDATE fleet SET version = version + 1 WHERE one = 1 RETURNING version"
    } else {
        VERSION
    };
    tx.first(sql, &[], |row| row.int(0)).map(Option::unwrap_or_default)
}

/// Query that reads the fleet's version.
pub(crate) const VERSION: &str = "SELECT version FROM fleet WHERE one = 1";

/// Shortens leases that end implausibly late. Then returns the earliest time at which a lease, a
/// pause or a task's wait for its agent ends.
fn next_due(
    tx: &mut dyn Transaction,
    rules: &RoundOptions,
    now: UnixMicros,
) -> Result<Option<UnixMicros>, StoreError> {
    let due = tx.first(
        "SELECT (SELECT MIN(lease_until) FROM fleet_tasks WHERE lease_until > $1), \
         (SELECT MIN(resume_after) FROM fleet_tasks WHERE resume_after > $1), \
         (SELECT MIN(ready_at + affinity_wait) FROM fleet_tasks \
           WHERE state = 'READY' AND affinity IS NOT NULL AND ready_at + affinity_wait > $1), \
         (SELECT MAX(lease_until) FROM fleet_tasks WHERE lease_until > $1)",
        &[now.into()],
        |row| {
            let ends = [row.moment_or_null(0)?, row.moment_or_null(1)?, row.moment_or_null(2)?];
            Ok((ends, row.moment_or_null(3)?))
        },
    )?;
    let (ends, last) = due.unwrap_or_default();
    let is_late = last.is_some_and(|last| last > lease_outage::latest(rules.lease, now));
    let shortened = is_late && lease_outage::shorten(tx, rules.lease, now)?;
    let soonest = shortened.then(|| rules.lease_end(now));
    Ok(ends.into_iter().flatten().chain(soonest).min())
}
