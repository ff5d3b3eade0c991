//! Adds, changes and lists agents for operators, and identifies agents by their tokens.

use fairgate_api::fleet::{AgentPatch, AgentView, AgentWithToken, NewAgent};
use fairgate_api::fleet::{FleetAgentState, TaskState};
use fairgate_store::{KeyHash, KeyRights, KeySecret, SqlValue, StoreError, Transaction};
use serde_json::json;

use crate::agent_access::{self, AgentAccess};
use crate::agent_id::AgentId;
use crate::call_context::{CallContext, bump_version, not_found};
use crate::error::FleetError;
use crate::task_key::TaskKey;
use crate::transition::{self, TaskTransition};
use crate::validate;

/// Type of an agent that was added without a type.
const KIND: &str = "default";
/// Prefix of every agent token.
const PREFIX: &str = "fga-";
/// Number of bytes at the end of a token that are stored and shown as the token's hint.
const HINT: usize = 4;
/// Context string for deriving the seed of an agent's task keys from the agent's token (blake3 key
/// derivation).
const SEED: &str = "fairgate 2026-11-16 fleet: the seed of an agent's task keys, from its token";

/// A new agent token: `fga-` and 43 characters that carry 256 random bits.
struct AgentToken(String);

impl AgentToken {
    fn generate() -> Result<Self, FleetError> {
        let secret = KeySecret::generate().map_err(|problem| {
            StoreError::Database(format!("the system gives no random numbers: {problem}"))
        })?;
        let random = secret.expose();
        Ok(Self(format!("{PREFIX}{}", random.strip_prefix("fg-").unwrap_or(random))))
    }

    fn hash(&self) -> SqlValue {
        KeyHash::of(self.0.as_bytes()).0.to_vec().into()
    }

    fn hint(&self) -> String {
        self.0[self.0.len() - HINT..].to_owned()
    }
}

pub(crate) fn add(
    tx: &mut dyn Transaction,
    call: &CallContext,
    agent: NewAgent,
) -> Result<AgentWithToken, FleetError> {
    let NewAgent { id, kind, reports_tokens, labels, tenants } = agent;
    let labels = agent_access::checked_agent_labels(labels)?;
    let tenants = tenants.map(|tenants| known_tenants(tx, tenants)).transpose()?;
    let kind = kind.unwrap_or_else(|| KIND.to_owned());
    validate::check_name("id", &id, validate::NAME_MAX)?;
    validate::check_name("type", &kind, validate::NAME_MAX)?;
    if view(tx, &id)?.is_some() {
        return Err(FleetError::Exists { what: "agent", id });
    }
    let token = AgentToken::generate()?;
    tx.run(
        "INSERT INTO fleet_agents (id, kind, hash, hint, state, reports, created_at, labels, tenants) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
        &[
            id.as_str().into(),
            kind.as_str().into(),
            token.hash(),
            token.hint().into(),
            <&str>::from(FleetAgentState::Active).into(),
            reports_tokens.into(),
            call.now.into(),
            agent_access::stored(&labels).into(),
            tenants.as_deref().map(agent_access::stored).into(),
        ],
    )?;
    let agent = view(tx, &id)?.ok_or_else(|| not_found("agent", &id))?;
    call.audit(tx, "agent.add", &id, None, Some(&settings(&agent)))?;
    bump_version(tx)?;
    Ok(AgentWithToken { agent, token: token.0 })
}

/// Returns an agent's settings as the audit trail shows them.
fn settings(agent: &AgentView) -> serde_json::Value {
    json!({
        "type": agent.kind,
        "state": agent.state,
        "reports_tokens": agent.reports_tokens,
        "labels": agent.labels,
        "tenants": agent.tenants,
        "token_hint": agent.token_hint,
    })
}

pub(crate) fn patch(
    tx: &mut dyn Transaction,
    call: &CallContext,
    id: &str,
    patch: AgentPatch,
) -> Result<AgentView, FleetError> {
    let before = view(tx, id)?.ok_or_else(|| not_found("agent", id))?;
    let kind = patch.kind.unwrap_or_else(|| before.kind.clone());
    validate::check_name("type", &kind, validate::NAME_MAX)?;
    let state = patch.state.unwrap_or(before.state);
    if before.state == FleetAgentState::Retired && state != before.state {
        return Err(retired(id, "is RETIRED for good; make a new one"));
    }
    let labels = patch.labels.map(agent_access::checked_agent_labels).transpose()?;
    let labels = labels.unwrap_or_else(|| before.labels.clone());
    let tenants = match patch.tenants {
        None => before.tenants.clone(),
        Some(tenants) => tenants.map(|tenants| known_tenants(tx, tenants)).transpose()?,
    };
    let unchanged = (&before.kind, before.state, &before.labels, &before.tenants);
    if (&kind, state, &labels, &tenants) == unchanged {
        return Ok(before);
    }
    tx.run(
        "UPDATE fleet_agents SET kind = $1, state = $2, labels = $3, tenants = $4 WHERE id = $5",
        &[
            kind.into(),
            <&str>::from(state).into(),
            agent_access::stored(&labels).into(),
            tenants.as_deref().map(agent_access::stored).into(),
            id.into(),
        ],
    )?;
    if state == FleetAgentState::Retired
        && let Some(task) = &before.task
    {
        let from = transition::load_task(tx, task)?;
        let reason = Some(format!("agent {id} was retired"));
        let next = TaskTransition { reason, ..TaskTransition::to(TaskState::Ready, &from) };
        transition::apply(tx, call, &from, &next, "its agent is retired")?;
    }
    let after = view(tx, id)?.ok_or_else(|| not_found("agent", id))?;
    call.audit(tx, "agent.patch", id, Some(&settings(&before)), Some(&settings(&after)))?;
    bump_version(tx)?;
    Ok(after)
}

/// Replaces an agent's token. Task keys that were derived from the old token are refused at once.
/// An agent that holds a task gets a new task key with its next claim.
pub(crate) fn rotate(
    tx: &mut dyn Transaction,
    call: &CallContext,
    id: &str,
) -> Result<AgentWithToken, FleetError> {
    let before = view(tx, id)?.ok_or_else(|| not_found("agent", id))?;
    if before.state == FleetAgentState::Retired {
        return Err(retired(id, "is RETIRED for good; make a new one"));
    }
    let token = AgentToken::generate()?;
    tx.run(
        "UPDATE fleet_agents SET hash = $1, hint = $2 WHERE id = $3",
        &[token.hash(), token.hint().into(), id.into()],
    )?;
    tx.run(
        "UPDATE fleet_tasks SET key_hash = NULL WHERE agent = $1 AND key_hash IS NOT NULL",
        &[id.into()],
    )?;
    let agent = view(tx, id)?.ok_or_else(|| not_found("agent", id))?;
    call.audit(tx, "agent.rotate", id, Some(&settings(&before)), Some(&settings(&agent)))?;
    bump_version(tx)?;
    Ok(AgentWithToken { agent, token: token.0 })
}

fn retired(agent: &str, why: &str) -> FleetError {
    let (agent, why) = (agent.to_owned(), why.to_owned());
    FleetError::Agent { agent, state: FleetAgentState::Retired, why }
}

const VIEW: &str = concat!(
    "SELECT a.id, a.kind, a.state, a.reports, a.hint, t.id, a.last_seen, a.created_at, a.labels, a.tenants FROM fleet_agents a \
     LEFT JOIN fleet_tasks t ON t.agent = a.id AND t.state IN ",
    fairgate_usage::held_states!()
);

fn read(row: &dyn fairgate_store::RowColumns) -> Result<AgentView, StoreError> {
    Ok(AgentView {
        id: row.text(0)?,
        kind: row.text(1)?,
        state: state(&row.text(2)?)?,
        reports_tokens: row.flag(3)?,
        token_hint: row.text(4)?,
        task: row.text_or_null(5)?,
        last_seen: row.moment_or_null(6)?,
        created_at: row.moment(7)?,
        labels: agent_access::read_list(&row.text(8)?)?,
        tenants: row.text_or_null(9)?.map(|text| agent_access::read_list(&text)).transpose()?,
    })
}

/// Checks that all these tenants exist, and returns them sorted.
fn known_tenants(
    tx: &mut dyn Transaction,
    tenants: Vec<String>,
) -> Result<Vec<String>, FleetError> {
    let tenants = agent_access::checked_tenants(tenants)?;
    for tenant in &tenants {
        let has = "SELECT 1 FROM tenants WHERE name = $1";
        if tx.first(has, &[tenant.as_str().into()], |_| Ok(()))?.is_none() {
            let problem = format!("there is no tenant {:?}", validate::cut(tenant, 80));
            return Err(validate::unknown("tenants", problem));
        }
    }
    Ok(tenants)
}

fn state(word: &str) -> Result<FleetAgentState, StoreError> {
    let unknown = || StoreError::Database(format!("an agent is in the unknown state {word:?}"));
    word.parse::<FleetAgentState>().map_err(|_| unknown())
}

fn view(tx: &mut dyn Transaction, id: &str) -> Result<Option<AgentView>, StoreError> {
    tx.first(&format!("{VIEW} WHERE a.id = $1"), &[id.into()], read)
}

/// Returns the labels and tenants of all active agents.
pub(crate) fn active_access(tx: &mut dyn Transaction) -> Result<Vec<AgentAccess>, StoreError> {
    let sql = "SELECT DISTINCT kind, labels, tenants FROM fleet_agents WHERE state = 'ACTIVE'";
    tx.list(sql, &[], |row| {
        let labels = agent_access::read_list(&row.text(1)?)?;
        let tenants =
            row.text_or_null(2)?.map(|text| agent_access::read_list(&text)).transpose()?;
        Ok(AgentAccess::new(&row.text(0)?, &labels, tenants.as_deref()))
    })
}

/// Returns all agents, ordered by name.
pub(crate) fn list(tx: &mut dyn Transaction) -> Result<Vec<AgentView>, StoreError> {
    tx.list(&format!("{VIEW} ORDER BY a.id"), &[], read)
}

/// Returns the agent with this token; `None` if no agent has it. Fails if the agent is retired.
pub(crate) fn of_token(
    tx: &mut dyn Transaction,
    token: &str,
) -> Result<Option<AgentId>, FleetError> {
    let hash = KeyHash::of(token.as_bytes());
    let sql = "SELECT id, state FROM fleet_agents WHERE hash = $1";
    let found =
        tx.first(sql, &[hash.0.to_vec().into()], |row| Ok((row.text(0)?, state(&row.text(1)?)?)))?;
    match found {
        None => Ok(None),
        Some((agent, FleetAgentState::Retired)) => {
            Err(retired(&agent, "is RETIRED: its token opens nothing"))
        }
        Some((id, FleetAgentState::Active | FleetAgentState::Paused)) => {
            let seed = blake3::derive_key(SEED, token.as_bytes());
            Ok(Some(AgentId { id, seed, token: Some(hash) }))
        }
    }
}

/// Returns the claim of a task key; `None` if the claim is over. A claim whose lease has run out is
/// over only when the next round takes the task back.
pub(crate) fn of_task_key(
    tx: &mut dyn Transaction,
    hash: KeyHash,
) -> Result<Option<TaskKey>, StoreError> {
    tx.first(
        concat!(
            "SELECT p.tenant, t.project, t.id, t.epoch, t.agent, p.rights, t.money_max IS NOT NULL FROM fleet_tasks t \
             JOIN fleet_projects p ON p.id = t.project \
             WHERE t.key_hash = $1 AND t.state IN ",
            fairgate_usage::held_states!()
        ),
        &[hash.0.to_vec().into()],
        |row| {
            Ok(TaskKey {
                tenant: row.text(0)?,
                project: row.text(1)?,
                task: row.text(2)?,
                epoch: row.count(3)?,
                agent: row.text(4)?,
                rights: KeyRights::from_stored_text(&row.text(5)?)?,
                has_money_max: row.flag(6)?,
            })
        },
    )
}
