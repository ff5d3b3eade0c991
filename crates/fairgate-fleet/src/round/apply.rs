//! Writes the decision of a round to the database: claims with their epochs, keys, leases and workspaces.

use std::collections::HashMap;

use fairgate_api::agents::Claim;
use fairgate_store::{StoreError, Transaction};
use fairgate_time::UnixMicros;
use serde_json::json;

use super::GrantedClaim;
use super::load::HeldTask;
use super::round_input::ReadyTask;
use super::{AgentRow, ClaimingAgent, RoundOptions};
use crate::transition::write::{self, NewClaim};
use crate::{json_rows, task_key};

/// A claim that an agent gets in this round, or that it already holds.
#[derive(Debug)]
pub(super) struct TaskGrant {
    /// Index of the agent in the list of waiting agents.
    place: usize,
    agent: String,
    task: String,
    epoch: u64,
    /// Task key of the claim; `None` for agents that report their usage themselves.
    key: Option<String>,
    reserved: u64,
    workspace: Option<String>,
}

impl TaskGrant {
    /// Creates the grant of a task that starts now, with the next epoch.
    pub(super) fn new(
        place: usize,
        asker: &ClaimingAgent,
        task: &ReadyTask,
        workspace: Option<String>,
        agents: &HashMap<String, AgentRow>,
    ) -> Self {
        let grant = Self::of(place, asker, &task.id, task.epoch + 1, agents);
        Self { reserved: task.estimate, workspace, ..grant }
    }

    /// Creates the grant of a task that the agent already holds, with the same epoch.
    pub(super) fn again(
        place: usize,
        asker: &ClaimingAgent,
        task: &HeldTask,
        agents: &HashMap<String, AgentRow>,
    ) -> Self {
        Self::of(place, asker, &task.id, task.epoch, agents)
    }

    fn of(
        place: usize,
        asker: &ClaimingAgent,
        task: &str,
        epoch: u64,
        agents: &HashMap<String, AgentRow>,
    ) -> Self {
        let reports = agents.get(&asker.agent).is_some_and(|agent| agent.reports);
        Self {
            place,
            agent: asker.agent.clone(),
            task: task.to_owned(),
            epoch,
            key: (!reports).then(|| task_key::task_key(&asker.seed, task, epoch)),
            reserved: 0,
            workspace: None,
        }
    }

    fn claim(&self) -> NewClaim<'_> {
        NewClaim {
            task: &self.task,
            epoch: self.epoch,
            agent: &self.agent,
            key_hash: self.key_hash(),
            reserved: self.reserved,
            workspace: self.workspace.as_deref(),
        }
    }

    /// Returns the hash of the task key in hexadecimal digits; `None` if the claim has no key.
    fn key_hash(&self) -> Option<String> {
        let hash = task_key::hash_of(self.key.as_deref()?);
        Some(hash.0.iter().map(|byte| format!("{byte:02x}")).collect())
    }
}

/// Renews the leases of agents that ask for a task although they hold one. Writes the hashes of
/// their task keys again, because these keys change when an agent's token is replaced.
pub(super) fn renew(
    tx: &mut dyn Transaction,
    rules: &RoundOptions,
    grants: &[TaskGrant],
    now: UnixMicros,
) -> Result<(), StoreError> {
    if grants.is_empty() {
        return Ok(());
    }
    let database = tx.database();
    let rows = grants.iter().map(|it| json!([it.task, it.key_hash()]));
    let table = json_rows::table(database, 3, &["TEXT", "TEXT"]);
    let hash = json_rows::unhex(database, "v.column2");
    // `TaskRow::renewed_lease` as SQL: a lease ends at most one length after the task's timeout.
    let latest = "claimed_at + timeout + $1";
    let sql = format!(
        "UPDATE fleet_tasks SET lease_until = CASE WHEN timeout IS NULL OR {latest} >= $2 THEN $2 \
         WHEN lease_until > {latest} THEN lease_until ELSE {latest} END, key_hash = {hash} \
         FROM {table} AS v WHERE id = v.column1"
    );
    let lease = i64::try_from(rules.lease.as_micros()).unwrap_or(i64::MAX / 4);
    let values = [lease.into(), rules.lease_end(now).into(), json_rows::value(rows)];
    tx.run(&sql, &values)?;
    Ok(())
}

/// Writes the claims of tasks that start, their workspaces and their history.
pub(super) fn start(
    tx: &mut dyn Transaction,
    rules: &RoundOptions,
    grants: &[TaskGrant],
    now: UnixMicros,
) -> Result<(), StoreError> {
    if grants.is_empty() {
        return Ok(());
    }
    let claims: Vec<_> = grants.iter().map(TaskGrant::claim).collect();
    write::begin_claims(tx, now, rules.lease_end(now), &claims)?;
    lock_workspaces(tx, grants)
}

fn lock_workspaces(tx: &mut dyn Transaction, grants: &[TaskGrant]) -> Result<(), StoreError> {
    let locks =
        grants.iter().filter_map(|it| Some(json!([it.workspace.as_ref()?, it.task, it.agent])));
    let locks: Vec<_> = locks.collect();
    if locks.is_empty() {
        return Ok(());
    }
    let table = json_rows::table(tx.database(), 1, &["TEXT", "TEXT", "TEXT"]);
    let sql = format!(
        "UPDATE fleet_workspaces SET task = v.column2, agent = v.column3 FROM {table} AS v \
         WHERE id = v.column1 AND task IS NULL"
    );
    let count = locks.len();
    match tx.run(&sql, &[json_rows::value(locks)])? {
        locked if locked == count as u64 => Ok(()),
        locked => Err(StoreError::Database(format!(
            "{locked} of {count} workspaces could be taken in a round"
        ))),
    }
}

/// Returns the claims in the form that agents get, each with the agent's index in the list of
/// waiting agents.
pub(super) fn claims(
    tx: &mut dyn Transaction,
    rules: &RoundOptions,
    grants: &[TaskGrant],
) -> Result<Vec<(usize, GrantedClaim)>, StoreError> {
    if grants.is_empty() {
        return Ok(Vec::new());
    }
    let tasks = json_rows::texts(tx.database(), 1);
    let sql = format!(
        "SELECT t.id, t.project, p.tenant, t.epoch, t.title, m.prompt, t.question, t.answer, t.in_workspace, \
         w.path, t.reserved, t.lease_until, t.timeout, t.claimed_at + t.timeout, \
         EXISTS (SELECT 1 FROM fleet_needs n WHERE n.task = t.id) FROM fleet_tasks t JOIN fleet_projects p ON p.id = t.project \
         JOIN fleet_prompts m ON m.task = t.id LEFT JOIN fleet_workspaces w ON w.id = t.in_workspace WHERE t.id IN {tasks}"
    );
    let by_task: HashMap<&str, &TaskGrant> =
        grants.iter().map(|it| (it.task.as_str(), it)).collect();
    let mut claims = Vec::new();
    let names = json_rows::names(grants.iter().map(|it| it.task.as_str()));
    tx.each(&sql, &[names], &mut |row| {
        let task = row.text(0)?;
        let Some(grant) = by_task.get(task.as_str()) else { return Ok(()) };
        let claim = Claim {
            project: row.text(1)?,
            tenant: row.text(2)?,
            epoch: row.count(3)?,
            title: row.text(4)?,
            prompt: row.text(5)?,
            question: row.text_or_null(6)?,
            answer: row.text_or_null(7)?,
            workspace: row.text_or_null(8)?,
            workspace_path: row.text_or_null(9)?,
            reserved: row.count(10)?,
            key: grant.key.clone(),
            lease_until: row.moment(11)?,
            heartbeat_s: rules.heartbeat_s(),
            timeout_s: row.count_or_null(12)?.map(|micros| micros / 1_000_000),
            timeout_at: row.moment_or_null(13)?,
            results: Vec::new(),
            task,
        };
        let has_needs = row.flag(14)?;
        claims.push((grant.place, GrantedClaim { claim, has_needs }));
        Ok(())
    })?;
    Ok(claims)
}
