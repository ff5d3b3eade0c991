//! Loads the input of a round with a constant number of queries.
//!
//! For each project, a few more ready tasks are loaded than will probably start. The queries leave
//! out tasks that cannot start, because their workspace is in use, their estimate exceeds the rest
//! of a budget, or they are kept for an agent. If a project needs more tasks, more are loaded once,
//! and the round is decided again.
//!
//! Tasks that require labels are loaded separately, up to the same number for each list of labels.
//! So agents without these labels still find the tasks that come after them.

mod ready_tasks;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use fairgate_api::fleet::FleetProjectStatus;
use fairgate_core::proportional::CreditWeight;
use fairgate_price::TokenRate;
use fairgate_store::{DatabaseKind, StoreError, Transaction};
use fairgate_time::UnixMicros;
use fairgate_usage::{CreditSums, HELD_STATES};

use super::decide::OutOfLoadedTasks;
use super::round_input::{LabelGroup, ProjectRow, ReadyTask, RoundAgent, RoundInput};
use super::{RoundOptions, forecast};
use crate::agent_access;
use crate::credit::{self, ClaimTimes, ProjectWork};
use crate::json_rows;
use crate::options::{FleetCredit, FleetShare};
use crate::project_account::{self, ProjectAccount};
use crate::tenant_baseline;
use crate::unfit_tasks::UnfitTasks;
use crate::window_usage::WindowSums;

/// Payer for the price by which running tasks are compared. No tenant has this name, so this price
/// is learned from all tenants. When a claim ends, it is charged by the exact price instead, which
/// leaves out the work of the paying tenant.
const EVERYBODY: &str = "";
/// Number of tasks to load for a project if some of its loaded tasks cannot start because of others
/// that do.
const FURTHER: u64 = 1_024;
/// Maximum number of different lists of labels of ready tasks that a round considers.
const LABEL_GROUPS_MAX: u64 = 10_000;
/// Maximum number of different lists of labels of one project that a round considers.
const PROJECT_LABEL_GROUPS_MAX: usize = 64;

/// A task that an agent holds.
#[derive(Clone, Debug)]
pub(crate) struct HeldTask {
    pub(crate) id: String,
    pub(crate) project: String,
    pub(crate) agent: String,
    pub(crate) kind: String,
    pub(crate) epoch: u64,
    /// The reserved tokens of the claim or its used tokens, whichever are more.
    pub(crate) tokens: u64,
    pub(crate) times: ClaimTimes,
}

/// Returns all tasks that agents hold.
pub(crate) fn held(tx: &mut dyn Transaction) -> Result<Vec<HeldTask>, StoreError> {
    tx.list(
        &format!(
            "SELECT t.id, t.project, t.agent, COALESCE(a.kind, ''), t.epoch, t.reserved, t.used, {} FROM fleet_tasks t \
             LEFT JOIN fleet_agents a ON a.id = t.agent WHERE t.state IN {HELD_STATES}",
            ClaimTimes::COLUMNS
        ),
        &[],
        |row| {
            Ok(HeldTask {
                id: row.text(0)?,
                project: row.text(1)?,
                agent: row.text_or_null(2)?.unwrap_or_default(),
                kind: row.text(3)?,
                epoch: row.count(4)?,
                tokens: u64::try_from(row.int(5)?.max(row.int(6)?)).unwrap_or(0),
                times: ClaimTimes::read(row, 7)?,
            })
        },
    )
}

/// Loads the input of a round without its tasks.
pub(crate) fn round_input(
    tx: &mut dyn Transaction,
    rules: &RoundOptions,
    held: &[HeldTask],
    waiting: Vec<RoundAgent>,
    now: UnixMicros,
) -> Result<RoundInput, StoreError> {
    let (mut projects, works) = projects(tx, rules, now)?;
    let price = rules.credit.price(&credit::price_book(works), EVERYBODY);
    let set_aside = project_account::reserved_tokens(tx)?;
    let mut places = HashMap::new();
    for (place, project) in projects.iter_mut().enumerate() {
        project.reserved = set_aside.get(&*project.id).copied().unwrap_or(0);
        places.insert(project.id.clone(), place);
    }
    for task in held {
        let Some(place) = places.get(task.project.as_str()) else { continue };
        let project = &mut projects[*place];
        project.running += 1;
        project.extra =
            project.extra.saturating_add(running_extra(rules, price, project, task, now));
        *project.running_by_kind.entry(task.kind.clone()).or_default() += 1;
    }
    let RoundPlaces { machines, label_groups } = workspaces(tx, &mut projects, &places)?;
    let tenants = match rules.share {
        FleetShare::Tenant => Some(tenant_baseline::tenants(tx, rules.window, now)?),
        FleetShare::Project => None,
    };
    Ok(RoundInput {
        tenants,
        at: now,
        budget: rules.budget,
        min_task_guarantee: rules.min_task_guarantee,
        price: (rules.credit.unit != FleetCredit::Tokens).then_some(price),
        projects,
        tasks: Vec::new(),
        waiting,
        unfit: UnfitTasks::default(),
        machines,
        label_groups,
    })
}

/// The machines of workspaces, and the lists of labels of ready tasks.
#[derive(Default)]
struct RoundPlaces {
    machines: HashMap<Box<str>, Box<str>>,
    label_groups: Vec<LabelGroup>,
}

fn projects(
    tx: &mut dyn Transaction,
    rules: &RoundOptions,
    now: UnixMicros,
) -> Result<(Vec<ProjectRow>, Vec<ProjectWork>), StoreError> {
    // The tables have columns with the same names. SQLite keeps the order of a cross join, and
    // looks each tenant up once.
    let sql = format!(
        "SELECT id, status, weight, concurrency, exclusive, agent_max, budget, baseline, baseline_at, learned, {}, {}, \
         learned_credit, {}, t.disabled, tenant, fleet_projects.requires, t.requires FROM fleet_projects \
         CROSS JOIN (SELECT name, disabled, requires FROM tenants) AS t \
         WHERE t.name = tenant AND (status <> 'ARCHIVED' OR window_tokens > 0 OR window_oldest > 0) ORDER BY made",
        WindowSums::COLUMNS,
        CreditSums::COLUMNS,
        ProjectWork::COLUMNS
    );
    let rows = tx.list(&sql, &[], |row| {
        let account = ProjectAccount {
            baseline: row.count(7)?,
            baseline_at: row.moment(8)?,
            sums: WindowSums::read(row, 10)?,
            credit: CreditSums::read(row, 14)?,
        };
        // The gateway refuses every model call of a disabled tenant, so its tasks would fail one
        // after another.
        let is_disabled = row.flag(22)?;
        let project = ProjectRow {
            id: row.text(0)?.into(),
            tenant: row.text(23)?.into(),
            requires: agent_access::union(
                &agent_access::read_list(&row.text(24)?)?,
                &agent_access::read_list(&row.text(25)?)?,
            ),
            is_active: row.text(1)? == <&str>::from(FleetProjectStatus::Active) && !is_disabled,
            weight: weight(row.count(2)?)?,
            agents_max: if row.flag(4)? { row.count(3)?.min(1) } else { row.count(3)? },
            kind_max: kind_max(&row.text(5)?)?,
            budget: row.count_or_null(6)?,
            used: account.used(rules.window, now),
            reserved: 0,
            baseline: account.baseline(rules.window, now),
            extra: account.extra(rules.window, now),
            learned_credit: row.count_or_null(16)?,
            learned: row.count_or_null(9)?,
            completed: account.sums.completed,
            running: 0,
            running_by_kind: BTreeMap::new(),
            free_workspaces: None,
            has_unloaded_tasks: false,
        };
        Ok((project, ProjectWork::read(row, 17)?))
    })?;
    Ok(rows.into_iter().unzip())
}

/// Returns credit − tokens for a running task. The credit is the charge for its time so far, or the
/// expected credit of its project's tasks, whichever is more. The tokens are those that the
/// comparison counts for the task.
fn running_extra(
    rules: &RoundOptions,
    price: TokenRate,
    project: &ProjectRow,
    task: &HeldTask,
    now: UnixMicros,
) -> i64 {
    let so_far = rules.credit.extra(task.tokens, task.times.counted(now), price);
    let expected = rules.credit.expected(task.tokens, project.learned_credit);
    let expected = i128::from(expected) - i128::from(task.tokens);
    so_far.max(i64::try_from(expected).unwrap_or(i64::MAX))
}

fn weight(thousandths: u64) -> Result<CreditWeight, StoreError> {
    let wrong = |_| StoreError::Database(format!("a project has the weight {thousandths}"));
    CreditWeight::from_thousandths(thousandths).map_err(wrong)
}

fn kind_max(text: &str) -> Result<BTreeMap<String, u64>, StoreError> {
    if text == "{}" {
        return Ok(BTreeMap::new());
    }
    let wrong =
        |problem| StoreError::Database(format!("a project's agent_max is {text:?}: {problem}"));
    serde_json::from_str(text).map_err(wrong)
}

/// Loads three things with one statement: the numbers of free workspaces, the machines of
/// workspaces, and the labels that ready tasks require. A workspace that is bound to a machine is a
/// row of its own; the others are counted.
fn workspaces(
    tx: &mut dyn Transaction,
    projects: &mut [ProjectRow],
    places: &HashMap<Box<str>, usize>,
) -> Result<RoundPlaces, StoreError> {
    // SQLite would otherwise use the index of all ready tasks, and read each of them.
    let hint = match tx.database() {
        DatabaseKind::Sqlite => "INDEXED BY fleet_tasks_labels",
        DatabaseKind::Postgres => "",
    };
    let sql = format!(
        "SELECT project, machine, CASE WHEN machine IS NULL THEN NULL ELSE id END, COUNT(*), COUNT(task), NULL \
         FROM fleet_workspaces GROUP BY 1, 2, 3 \
         UNION ALL SELECT d.project, NULL, NULL, CAST(0 AS BIGINT), CAST(0 AS BIGINT), d.labels FROM \
         (SELECT DISTINCT project, labels FROM fleet_tasks {hint} WHERE state = 'READY' AND labels <> '[]' \
         LIMIT {LABEL_GROUPS_MAX}) AS d"
    );
    let mut found = RoundPlaces::default();
    tx.each(&sql, &[], &mut |row| {
        let Some(place) = places.get(row.text(0)?.as_str()).copied() else { return Ok(()) };
        if let Some(text) = row.text_or_null(5)? {
            let labels = agent_access::read_list(&text)?.into();
            found.label_groups.push(LabelGroup { project: place, text: text.into(), labels });
            return Ok(());
        }
        let (machine, name) = (row.text_or_null(1)?, row.text_or_null(2)?);
        let free = row.count(3)?.saturating_sub(row.count(4)?);
        let counts = projects[place].free_workspaces.get_or_insert_default();
        counts.add(machine.as_deref(), free);
        if let (Some(machine), Some(name)) = (machine, name) {
            found.machines.insert(name.into(), machine.into());
        }
        Ok(())
    })?;
    found
        .label_groups
        .sort_by(|one, other| (one.project, &one.text).cmp(&(other.project, &other.text)));
    Ok(found)
}

/// A workspace that no task uses.
#[derive(Clone, Debug)]
pub(crate) struct FreeWorkspace {
    pub(crate) id: String,
    /// Machine to which the workspace is bound; `None` if agents on all machines may use it.
    pub(crate) machine: Option<String>,
}

/// Returns the free workspaces of these projects, by project.
pub(crate) fn free_workspaces(
    tx: &mut dyn Transaction,
    projects: &BTreeSet<&str>,
) -> Result<HashMap<String, Vec<FreeWorkspace>>, StoreError> {
    let names = json_rows::texts(tx.database(), 1);
    let sql = format!(
        "SELECT project, id, machine FROM fleet_workspaces WHERE task IS NULL AND project IN {names}"
    );
    let mut free: HashMap<String, Vec<FreeWorkspace>> = HashMap::new();
    tx.each(&sql, &[json_rows::names(projects.iter().copied())], &mut |row| {
        let workspace = FreeWorkspace { id: row.text(1)?, machine: row.text_or_null(2)? };
        free.entry(row.text(0)?).or_default().push(workspace);
        Ok(())
    })?;
    Ok(free)
}

/// Loads the first ready tasks of every project that could start one of them. Also loads the tasks
/// that are kept for one of the waiting agents.
pub(crate) fn tasks(
    tx: &mut dyn Transaction,
    rules: &RoundOptions,
    input: &mut RoundInput,
) -> Result<(), StoreError> {
    if input.budget_left() == Some(0) {
        return Ok(());
    }
    input.unfit = UnfitTasks::load(tx, input.waiting.iter().map(|it| &*it.agent))?;
    let mut limits = forecast::limits(input, rules.default_estimate);
    for (project, limit) in input.projects.iter().zip(&mut limits) {
        // Tasks that no waiting agent may take are not loaded. For each task that some agent cannot
        // work on, one further task is loaded.
        let is_open = input.waiting.iter().any(|agent| project.is_open_to(&agent.access));
        let unfit = input.unfit.count_in(&project.id);
        *limit = limit.filter(|_| is_open).map(|limit| limit.saturating_add(unfit));
    }
    keep_label_groups(input);
    for group in &input.label_groups {
        // It depends on the labels of agents which of these tasks start, so the forecast does not
        // limit their number.
        let most = input.projects[group.project].headroom().min(input.waiting.len() as u64);
        let limit = &mut limits[group.project];
        *limit = limit.map(|limit| limit.max(most.saturating_add(1)));
    }
    input.tasks = ready_tasks::first_ready(tx, rules, input, &limits)?;
    mark_cut(input, &limits);
    let mut awaited = ready_tasks::awaited(tx, rules, input)?;
    input.tasks.append(&mut awaited);
    Ok(())
}

/// Removes the groups whose tasks no waiting agent may take, and the groups of a project beyond
/// [`PROJECT_LABEL_GROUPS_MAX`].
fn keep_label_groups(input: &mut RoundInput) {
    let RoundInput { label_groups, waiting, projects, .. } = input;
    label_groups.retain(|group| {
        let project = &projects[group.project];
        let may_take = |agent: &RoundAgent| {
            project.is_open_to(&agent.access) && agent.access.has_all(&group.labels)
        };
        project.is_open() && waiting.iter().any(may_take)
    });
    let mut kept = vec![0_usize; projects.len()];
    label_groups.retain(|group| {
        kept[group.project] += 1;
        kept[group.project] <= PROJECT_LABEL_GROUPS_MAX
    });
}

/// Loads further tasks of the projects `exhausted`, of which too few tasks were loaded.
pub(crate) fn more_tasks(
    tx: &mut dyn Transaction,
    rules: &RoundOptions,
    input: &mut RoundInput,
    exhausted: &[OutOfLoadedTasks],
) -> Result<(), StoreError> {
    let agents = input.waiting.len() as u64;
    let mut limits = vec![None; input.projects.len()];
    for OutOfLoadedTasks { project, has_rest } in exhausted {
        let most = input.projects[*project].headroom().min(agents).saturating_add(1);
        limits[*project] = Some(if *has_rest { most.max(FURTHER) } else { most });
    }
    let more = ready_tasks::first_ready(tx, rules, input, &limits)?;
    let is_loaded_anew =
        |task: &ReadyTask| task.affinity.is_none() && limits[task.project].is_some();
    input.tasks.retain(|task| !is_loaded_anew(task));
    input.tasks.extend(more);
    mark_cut(input, &limits);
    Ok(())
}

/// Sets `has_unloaded_tasks` of each project with a limit. It is true if, for one of the project's
/// lists of labels, as many tasks were loaded as the limit allows.
fn mark_cut(input: &mut RoundInput, limits: &[Option<u64>]) {
    let mut loaded: HashMap<(usize, &[String]), u64> = HashMap::new();
    for task in input.tasks.iter().filter(|task| task.affinity.is_none()) {
        *loaded.entry((task.project, &*task.labels)).or_default() += 1;
    }
    let mut most = vec![0_u64; limits.len()];
    for ((project, _), count) in loaded {
        most[project] = most[project].max(count);
    }
    for ((project, limit), loaded) in input.projects.iter_mut().zip(limits).zip(most) {
        if let Some(limit) = limit {
            project.has_unloaded_tasks = loaded >= *limit;
        }
    }
}
