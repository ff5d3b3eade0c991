//! Projects and the fleet as a whole, as people see them.

use std::collections::{BTreeMap, HashMap};

use fairgate_core::proportional::CreditWeight;
use fairgate_store::{StoreError, Transaction, Value};

use crate::call::{Call, not_found};
use crate::error::FleetError;
use crate::model::{FleetView, ProjectView, Weight};
use crate::spent::{self, Account};
use crate::state::{AgentState, ProjectStatus, TaskState};
use crate::usage::Sums;
use crate::why::{self, Context};
use crate::{agents, history, tasks};

/// How many tasks of each project the fleet's view explains, and how many in all.
const EXPLAINED: (usize, usize) = (3, 60);
/// How many running tasks it shows.
const RUNNING_MAX: usize = 1_000;

/// All projects in the order in which they were made; of one tenant where it is named.
pub(crate) fn projects(
    tx: &mut dyn Transaction,
    call: &Call,
    tenant: Option<&str>,
) -> Result<Vec<ProjectView>, FleetError> {
    let mut views = all(tx, call)?;
    views.retain(|view| tenant.is_none_or(|tenant| view.tenant == tenant));
    count_tasks(tx, &mut views, None)?;
    Ok(views)
}

/// One of them.
pub(crate) fn project(
    tx: &mut dyn Transaction,
    call: &Call,
    id: &str,
) -> Result<ProjectView, FleetError> {
    let found = all(tx, call)?.into_iter().find(|view| view.id == id);
    let mut view = found.ok_or_else(|| not_found("project", id))?;
    count_tasks(tx, std::slice::from_mut(&mut view), Some(id))?;
    Ok(view)
}

/// All projects, without their tasks.
fn all(tx: &mut dyn Transaction, call: &Call) -> Result<Vec<ProjectView>, StoreError> {
    let (window, now) = (call.window(), call.now);
    let held = spent::held(tx)?;
    let sql = format!(
        "SELECT id, tenant, status, weight, concurrency, exclusive, agent_max, budget, learned, created_at, baseline, \
         baseline_at, {} FROM fleet_projects ORDER BY made",
        Sums::COLUMNS
    );
    let mut views = tx.list(&sql, &[], |row| {
        let id = row.text(0)?;
        let wrong = |what: &str| StoreError::Database(format!("project {id:?}: its {what}"));
        let account = Account {
            baseline: row.count(10)?,
            baseline_at: row.moment(11)?,
            sums: Sums::read(row, 12)?,
        };
        let weight = CreditWeight::from_thousandths(row.count(3)?).map_err(|_| wrong("weight"))?;
        Ok(ProjectView {
            tenant: row.text(1)?,
            status: ProjectStatus::from_word(&row.text(2)?).ok_or_else(|| wrong("status"))?,
            weight: Weight(weight),
            concurrency: u32::try_from(row.int(4)?).map_err(|_| wrong("concurrency"))?,
            exclusive: row.flag(5)?,
            agent_max: serde_json::from_str(&row.text(6)?).map_err(|_| wrong("agent_max"))?,
            budget: row.count_or_null(7)?,
            used: account.spent(window, 0, now),
            reserved: held.get(&id).copied().unwrap_or(0),
            baseline: account.baseline(window, now),
            learned_estimate: row.count_or_null(8)?,
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
    Ok(views)
}

/// Which part of the tokens each active project has, and which it should have.
fn set_shares(views: &mut [ProjectView]) {
    let active = || views.iter().filter(|view| view.status == ProjectStatus::Active);
    let used: u128 = active().map(|view| u128::from(view.used)).sum();
    let weight: u128 = active().map(|view| u128::from(view.weight.0.thousandths())).sum();
    let ppm = |part: u64, whole: u128| {
        let ppm = (u128::from(part) * 1_000_000).checked_div(whole);
        ppm.map(|ppm| u64::try_from(ppm).unwrap_or(u64::MAX))
    };
    for view in views.iter_mut().filter(|view| view.status == ProjectStatus::Active) {
        view.share_ppm = ppm(view.used, used);
        view.target_ppm = ppm(view.weight.0.thousandths(), weight);
    }
}

/// Counts the tasks of these projects by state.
fn count_tasks(
    tx: &mut dyn Transaction,
    views: &mut [ProjectView],
    only: Option<&str>,
) -> Result<(), StoreError> {
    let words: Vec<_> = TaskState::ALL.iter().map(|state| format!("'{state}'")).collect();
    let only: Vec<Value> = only.into_iter().map(Value::from).collect();
    let of_one = if only.is_empty() { "" } else { "AND project = $1" };
    // The states are all there are: with them the index is found.
    let sql = format!(
        "SELECT project, state, COUNT(*) FROM fleet_tasks WHERE state IN ({}) {of_one} GROUP BY project, state",
        words.join(", ")
    );
    let mut places: HashMap<String, &mut ProjectView> =
        views.iter_mut().map(|view| (view.id.clone(), view)).collect();
    tx.each(&sql, &only, &mut |row| {
        if let Some(view) = places.get_mut(&row.text(0)?) {
            view.tasks.insert(history::state(&row.text(1)?)?, row.count(2)?);
        }
        Ok(())
    })?;
    for view in views {
        let count = |state| view.tasks.get(&state).copied().unwrap_or(0);
        view.ready = count(TaskState::Ready);
        view.running = count(TaskState::Assigned) + count(TaskState::InProgress);
    }
    Ok(())
}

/// The fleet as a whole.
pub(crate) fn fleet(
    tx: &mut dyn Transaction,
    call: &Call,
    waiting: &[String],
) -> Result<FleetView, FleetError> {
    let mut projects = projects(tx, call, None)?;
    let sum = |of: fn(&ProjectView) -> u64| projects.iter().map(of).fold(0, u64::saturating_add);
    let (used, reserved) = (sum(|view| view.used), sum(|view| view.reserved));
    projects.retain(|view| view.status != ProjectStatus::Archived);
    sort_by_owed(&mut projects);
    let mut agents = agents::list(tx)?;
    agents.retain(|agent| agent.state != AgentState::Retired);
    let sql = format!(
        "SELECT {} {} WHERE t.state IN ('ASSIGNED', 'IN_PROGRESS') ORDER BY t.claimed_at, t.id LIMIT {RUNNING_MAX}",
        tasks::LINE,
        tasks::FROM
    );
    let running = tx.list(&sql, &[], |row| tasks::line(row, call.options.default_estimate))?;
    let context = Context::load(tx, call, waiting)?;
    let with_ready = projects.iter().filter(|view| view.ready > 0);
    let order: Vec<&str> = with_ready.map(|view| view.id.as_str()).collect();
    let waiting = why::of_many(tx, &context, &order, EXPLAINED)?;
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
    })
}

/// The most owed of the active projects first, as the scheduler compares them; then the others.
fn sort_by_owed(views: &mut [ProjectView]) {
    let is_active = |view: &ProjectView| view.status == ProjectStatus::Active;
    let spent = |view: &ProjectView| {
        i128::from(view.used) + i128::from(view.reserved) + i128::from(view.baseline)
    };
    let weight = |view: &ProjectView| i128::from(view.weight.0.thousandths());
    let active = || views.iter().filter(|view| is_active(view));
    let (weights, all): (i128, i128) = (active().map(weight).sum(), active().map(spent).sum());
    let gap = |view: &ProjectView| {
        spent(view).saturating_mul(weights).saturating_sub(weight(view).saturating_mul(all.max(1)))
    };
    views
        .sort_by_cached_key(|view| (!is_active(view), if is_active(view) { gap(view) } else { 0 }));
}
