//! Views of projects and of the whole fleet.

use std::collections::{BTreeMap, HashMap};

use fairgate_api::fleet::{AgentView, FleetView, ProjectShareWeight, ProjectView};
use fairgate_api::fleet::{FleetAgentState, FleetProjectStatus, TaskState};
use fairgate_core::proportional::CreditWeight;
use fairgate_store::{KeyRights, SqlValue, StoreError, Transaction};
use fairgate_usage::{CreditSums, HELD_STATES};

use crate::call_context::{CallContext, not_found};
use crate::error::FleetError;
use crate::explain::{self, ExplanationContext};
use crate::options::FleetShare;
use crate::project_account::{self, ProjectAccount};
use crate::rights::rights_body;
use crate::window_usage::WindowSums;
use crate::{agent_access, agents, task_history, tasks};

/// Maximum number of waiting tasks that the fleet's view explains, for each project and in total.
const EXPLAINED: (usize, usize) = (3, 60);
/// Time for which an agent counts as connected after its last call, in microseconds. A waiting
/// agent makes a call at least once a minute, to any server.
const SEEN_US: i64 = 75_000_000;
/// Maximum number of running tasks in the fleet's view.
const RUNNING_MAX: usize = 1_000;

/// Returns the projects of `tenant`, or all projects if `tenant` is `None`, in the order of their creation.
pub(crate) fn projects(
    tx: &mut dyn Transaction,
    call: &CallContext,
    tenant: Option<&str>,
) -> Result<Vec<ProjectView>, FleetError> {
    let mut views = all(tx, call)?;
    views.retain(|view| tenant.is_none_or(|tenant| view.tenant == tenant));
    count_tasks(tx, &mut views, None)?;
    Ok(views)
}

/// Returns the project with this id.
pub(crate) fn project(
    tx: &mut dyn Transaction,
    call: &CallContext,
    id: &str,
) -> Result<ProjectView, FleetError> {
    let found = all(tx, call)?.into_iter().find(|view| view.id == id);
    let mut view = found.ok_or_else(|| not_found("project", id))?;
    count_tasks(tx, std::slice::from_mut(&mut view), Some(id))?;
    Ok(view)
}

/// Returns the views of all projects, without the counts of tasks.
fn all(tx: &mut dyn Transaction, call: &CallContext) -> Result<Vec<ProjectView>, StoreError> {
    let (window, now) = (call.window(), call.now);
    let held = project_account::reserved_tokens(tx)?;
    let sql = format!(
        "SELECT id, tenant, status, weight, concurrency, exclusive, agent_max, budget, learned, created_at, baseline, \
         baseline_at, rights, {}, {}, window_without_calls, requires FROM fleet_projects ORDER BY made",
        WindowSums::COLUMNS,
        CreditSums::COLUMNS
    );
    let mut views = tx.list(&sql, &[], |row| {
        let id = row.text(0)?;
        let wrong = |what: &str| StoreError::Database(format!("project {id:?}: its {what}"));
        let account = ProjectAccount {
            baseline: row.count(10)?,
            baseline_at: row.moment(11)?,
            sums: WindowSums::read(row, 13)?,
            credit: CreditSums::read(row, 17)?,
        };
        let weight = CreditWeight::from_thousandths(row.count(3)?).map_err(|_| wrong("weight"))?;
        Ok(ProjectView {
            tenant: row.text(1)?,
            status: row.text(2)?.parse::<FleetProjectStatus>().map_err(|_| wrong("status"))?,
            weight: ProjectShareWeight(weight),
            concurrency: u32::try_from(row.int(4)?).map_err(|_| wrong("concurrency"))?,
            exclusive: row.flag(5)?,
            agent_max: serde_json::from_str(&row.text(6)?).map_err(|_| wrong("agent_max"))?,
            requires: agent_access::read_list(&row.text(20)?)?,
            budget: row.count_or_null(7)?,
            rights: rights_body(&KeyRights::from_stored_text(&row.text(12)?)?),
            used: account.used(window, now),
            charged: account.charged(window, now),
            completed_without_calls: row.count(19)?,
            reserved: held.get(&id).copied().unwrap_or(0),
            baseline: account.baseline(window, now),
            learned_estimate: row.count_or_null(8)?,
            due_share: None,
            got_share: None,
            share_ppm: None,
            target_ppm: None,
            ready: 0,
            running: 0,
            tasks: BTreeMap::new(),
            created_at: row.moment(9)?,
            id,
        })
    })?;
    set_shares(&mut views);
    if call.options.share == FleetShare::Tenant {
        set_due_by_tenant(tx, &mut views)?;
    }
    Ok(views)
}

/// Sets the due share and the actual share of each active project. They are its weight and its
/// charged tokens, as parts of the sums over all active projects.
fn set_shares(views: &mut [ProjectView]) {
    let active = || views.iter().filter(|view| view.status == FleetProjectStatus::Active);
    let charged: u128 = active().map(|view| u128::from(view.charged)).sum();
    let weight: u128 = active().map(|view| u128::from(view.weight.0.thousandths())).sum();
    let ppm = |part: u64, whole: u128| {
        let ppm = (u128::from(part) * 1_000_000).checked_div(whole);
        ppm.map(|ppm| u64::try_from(ppm).unwrap_or(u64::MAX))
    };
    for view in views.iter_mut().filter(|view| view.status == FleetProjectStatus::Active) {
        set_got(view, ppm(view.charged, charged));
        set_due(view, ppm(view.weight.0.thousandths(), weight));
    }
}

fn set_got(view: &mut ProjectView, ppm: Option<u64>) {
    view.got_share = ppm.map(of_one);
    view.share_ppm = ppm;
}

fn set_due(view: &mut ProjectView, ppm: Option<u64>) {
    view.due_share = ppm.map(of_one);
    view.target_ppm = ppm;
}

/// Converts parts per million to a fraction of 1.
fn of_one(ppm: u64) -> f64 {
    ppm as f64 / 1e6
}

/// Sets the due share of each active project if tenants share agents first. It is the tenant's share among the tenants
/// with active projects × the project's share among the active projects of its tenant.
fn set_due_by_tenant(
    tx: &mut dyn Transaction,
    views: &mut [ProjectView],
) -> Result<(), StoreError> {
    let weights = tx.list("SELECT name, weight FROM tenants", &[], |row| {
        Ok((row.text(0)?, row.count(1)?.max(1)))
    })?;
    let weights: HashMap<String, u64> = weights.into_iter().collect();
    let mut sums: BTreeMap<String, u128> = BTreeMap::new();
    for view in views.iter().filter(|view| view.status == FleetProjectStatus::Active) {
        *sums.entry(view.tenant.clone()).or_default() += u128::from(view.weight.0.thousandths());
    }
    let weight_of = |tenant: &str| u128::from(weights.get(tenant).copied().unwrap_or(1));
    let all: u128 = sums.keys().map(|tenant| weight_of(tenant)).sum();
    for view in views.iter_mut().filter(|view| view.status == FleetProjectStatus::Active) {
        let own = u128::from(view.weight.0.thousandths());
        let of_tenant = weight_of(&view.tenant) * 1_000_000 / all.max(1);
        let ppm = own.saturating_mul(of_tenant) / sums[&view.tenant].max(1);
        set_due(view, u64::try_from(ppm).ok());
    }
    Ok(())
}

/// Counts the tasks by state, and writes the counts into the views of their projects. If `only` is
/// given, counts only the tasks of that project.
fn count_tasks(
    tx: &mut dyn Transaction,
    views: &mut [ProjectView],
    only: Option<&str>,
) -> Result<(), StoreError> {
    let words: Vec<_> = TaskState::ALL.iter().map(|state| format!("'{state}'")).collect();
    let only: Vec<SqlValue> = only.into_iter().map(SqlValue::from).collect();
    let of_one = if only.is_empty() { "" } else { "AND project = $1" };
    // The condition lists all states, so that the database uses the index.
    let sql = format!(
        "SELECT project, state, COUNT(*) FROM fleet_tasks WHERE state IN ({}) {of_one} GROUP BY project, state",
        words.join(", ")
    );
    let mut places: HashMap<String, &mut ProjectView> =
        views.iter_mut().map(|view| (view.id.clone(), view)).collect();
    tx.each(&sql, &only, &mut |row| {
        if let Some(view) = places.get_mut(&row.text(0)?) {
            view.tasks.insert(task_history::state(&row.text(1)?)?, row.count(2)?);
        }
        Ok(())
    })?;
    for view in views {
        view.ready = view.tasks.get(&TaskState::Ready).copied().unwrap_or(0);
        view.running =
            view.tasks.iter().filter(|(state, _)| state.is_held()).map(|(_, count)| count).sum();
    }
    Ok(())
}

/// Returns the overview of the whole fleet.
pub(crate) fn fleet(
    tx: &mut dyn Transaction,
    call: &CallContext,
    waiting: &[String],
) -> Result<FleetView, FleetError> {
    let mut projects = projects(tx, call, None)?;
    let sum = |of: fn(&ProjectView) -> u64| projects.iter().map(of).fold(0, u64::saturating_add);
    let (used, reserved) = (sum(|view| view.used), sum(|view| view.reserved));
    projects.retain(|view| view.status != FleetProjectStatus::Archived);
    let mut agents = agents::list(tx)?;
    agents.retain(|agent| agent.state != FleetAgentState::Retired);
    let is_connected = |agent: &AgentView| {
        let was_seen = agent.last_seen.is_some_and(|at| call.now.0.saturating_sub(at.0) < SEEN_US);
        agent.task.is_some() || waiting.contains(&agent.id) || was_seen
    };
    let connected = agents.iter().filter(|agent| is_connected(agent));
    let connected = connected.map(|agent| agent.id.clone()).collect();
    let sql = format!(
        "SELECT {} {} WHERE t.state IN {HELD_STATES} ORDER BY t.claimed_at, t.id LIMIT {RUNNING_MAX}",
        tasks::LINE,
        tasks::FROM
    );
    let running = tx.list(&sql, &[], |row| tasks::line(row, call.options.default_estimate))?;
    let context = ExplanationContext::load(tx, call, waiting)?;
    let with_ready = projects.iter().filter(|view| view.ready > 0);
    let order: Vec<&str> = with_ready.map(|view| view.id.as_str()).collect();
    let waiting = explain::of_many(tx, &context, &order, EXPLAINED)?;
    Ok(FleetView {
        at: call.now,
        window_s: call.options.window.as_secs(),
        budget: call.options.budget,
        used,
        reserved,
        projects,
        running,
        waiting,
        agents,
        connected,
    })
}
