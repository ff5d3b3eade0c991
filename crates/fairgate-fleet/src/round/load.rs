//! From rows to a scene, in a constant number of queries.
//!
//! Of each project only as many ready tasks are loaded as it is likely to start, and one more. What cannot start is left out by
//! the database: tasks whose workspace is taken, whose estimate is more than is left of a budget, or that wait for an agent.
//! A project that turns out to need more is loaded further, once, and the round is decided anew.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use fairgate_core::proportional::CreditWeight;
use fairgate_money::UnixMicros;
use fairgate_store::{Columns, Database, StoreError, Transaction, Value};
use serde_json::json;

use super::decide::Dry;
use super::scene::{ProjectRow, ReadyTask, Scene, Waiting};
use super::{Rules, forecast};
use crate::spent::{self, Account};
use crate::usage::Sums;
use crate::{json_rows, state};

/// How many tasks are loaded of a project whose tasks are in each other's way.
const FURTHER: u64 = 1_024;
/// How many tasks that wait for one of the agents are loaded.
const AWAITED_MAX: i64 = 1_000;
/// SQLite takes no limit from a column, so that projects are loaded in groups of about the same limit.
const LIMITS: [u64; 7] = [1, 2, 4, 8, 16, 64, FURTHER];

/// A task that an agent holds.
#[derive(Clone, Debug)]
pub(crate) struct HeldTask {
    pub(crate) id: String,
    pub(crate) project: String,
    pub(crate) agent: String,
    pub(crate) kind: String,
    pub(crate) epoch: u64,
}

/// The tasks that agents hold.
pub(crate) fn held(tx: &mut dyn Transaction) -> Result<Vec<HeldTask>, StoreError> {
    tx.list(
        "SELECT t.id, t.project, t.agent, COALESCE(a.kind, ''), t.epoch FROM fleet_tasks t \
         LEFT JOIN fleet_agents a ON a.id = t.agent WHERE t.state IN ('ASSIGNED', 'IN_PROGRESS')",
        &[],
        |row| {
            Ok(HeldTask {
                id: row.text(0)?,
                project: row.text(1)?,
                agent: row.text_or_null(2)?.unwrap_or_default(),
                kind: row.text(3)?,
                epoch: row.count(4)?,
            })
        },
    )
}

/// Everything but the tasks.
pub(crate) fn scene(
    tx: &mut dyn Transaction,
    rules: &Rules,
    held: &[HeldTask],
    waiting: Vec<Waiting>,
    now: UnixMicros,
) -> Result<Scene, StoreError> {
    let mut projects = projects(tx, rules, now)?;
    let set_aside = spent::held(tx)?;
    let mut places = HashMap::new();
    for (place, project) in projects.iter_mut().enumerate() {
        project.reserved = set_aside.get(&*project.id).copied().unwrap_or(0);
        places.insert(project.id.clone(), place);
    }
    for task in held {
        let Some(place) = places.get(task.project.as_str()) else { continue };
        projects[*place].running += 1;
        *projects[*place].running_by_kind.entry(task.kind.clone()).or_default() += 1;
    }
    workspaces(tx, &mut projects, &places)?;
    Ok(Scene {
        at: now,
        budget: rules.budget,
        min_task_guarantee: rules.min_task_guarantee,
        projects,
        tasks: Vec::new(),
        waiting,
    })
}

fn projects(
    tx: &mut dyn Transaction,
    rules: &Rules,
    now: UnixMicros,
) -> Result<Vec<ProjectRow>, StoreError> {
    let sql = format!(
        "SELECT id, status, weight, concurrency, exclusive, agent_max, budget, baseline, baseline_at, learned, {} \
         FROM fleet_projects WHERE status <> 'ARCHIVED' OR window_tokens > 0 OR window_oldest > 0 \
         ORDER BY made",
        Sums::COLUMNS
    );
    tx.list(&sql, &[], |row| {
        let account = Account {
            baseline: row.count(7)?,
            baseline_at: row.moment(8)?,
            sums: Sums::read(row, 10)?,
        };
        Ok(ProjectRow {
            id: row.text(0)?.into(),
            is_active: row.text(1)? == state::ProjectStatus::Active.word(),
            weight: weight(row.count(2)?)?,
            agents_max: if row.flag(4)? { row.count(3)?.min(1) } else { row.count(3)? },
            kind_max: kind_max(&row.text(5)?)?,
            budget: row.count_or_null(6)?,
            used: account.spent(rules.window, 0, now),
            reserved: 0,
            baseline: account.baseline(rules.window, now),
            learned: row.count_or_null(9)?,
            completed: account.sums.completed,
            running: 0,
            running_by_kind: BTreeMap::new(),
            free_workspaces: None,
            is_cut: false,
        })
    })
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

fn workspaces(
    tx: &mut dyn Transaction,
    projects: &mut [ProjectRow],
    places: &HashMap<Box<str>, usize>,
) -> Result<(), StoreError> {
    let sql = "SELECT project, COUNT(*), COUNT(task) FROM fleet_workspaces GROUP BY project";
    tx.each(sql, &[], &mut |row| {
        if let Some(place) = places.get(row.text(0)?.as_str()) {
            projects[*place].free_workspaces = Some(row.count(1)?.saturating_sub(row.count(2)?));
        }
        Ok(())
    })
}

/// The free workspaces of these projects.
pub(crate) fn free_workspaces(
    tx: &mut dyn Transaction,
    projects: &BTreeSet<&str>,
) -> Result<HashMap<String, Vec<String>>, StoreError> {
    let names = json_rows::texts(tx.database(), 1);
    let sql = format!(
        "SELECT project, id FROM fleet_workspaces WHERE task IS NULL AND project IN {names} ORDER BY id"
    );
    let mut free: HashMap<String, Vec<String>> = HashMap::new();
    tx.each(&sql, &[json_rows::names(projects.iter().copied())], &mut |row| {
        free.entry(row.text(0)?).or_default().push(row.text(1)?);
        Ok(())
    })?;
    Ok(free)
}

/// Loads the first ready tasks of every project that could start one of them, and those that wait for one of the agents.
pub(crate) fn tasks(
    tx: &mut dyn Transaction,
    rules: &Rules,
    scene: &mut Scene,
) -> Result<(), StoreError> {
    if scene.budget_left() == Some(0) {
        return Ok(());
    }
    let limits = forecast::limits(scene, rules.default_estimate);
    scene.tasks = first_ready(tx, rules, scene, &limits)?;
    mark_cut(scene, &limits);
    let mut awaited = awaited(tx, rules, scene)?;
    scene.tasks.append(&mut awaited);
    Ok(())
}

/// Loads further tasks of projects that ran dry.
pub(crate) fn more_tasks(
    tx: &mut dyn Transaction,
    rules: &Rules,
    scene: &mut Scene,
    dry: &[Dry],
) -> Result<(), StoreError> {
    let agents = scene.waiting.len() as u64;
    let mut limits = vec![None; scene.projects.len()];
    for Dry { project, has_rest } in dry {
        let most = scene.projects[*project].headroom().min(agents).saturating_add(1);
        limits[*project] = Some(if *has_rest { most.max(FURTHER) } else { most });
    }
    let more = first_ready(tx, rules, scene, &limits)?;
    let is_loaded_anew =
        |task: &ReadyTask| task.affinity.is_none() && limits[task.project].is_some();
    scene.tasks.retain(|task| !is_loaded_anew(task));
    scene.tasks.extend(more);
    mark_cut(scene, &limits);
    Ok(())
}

/// Notes which projects may have more tasks than were loaded.
fn mark_cut(scene: &mut Scene, limits: &[Option<u64>]) {
    let mut loaded = vec![0_u64; limits.len()];
    for task in scene.tasks.iter().filter(|task| task.affinity.is_none()) {
        loaded[task.project] += 1;
    }
    for ((project, limit), loaded) in scene.projects.iter_mut().zip(limits).zip(loaded) {
        if let Some(limit) = limit {
            project.is_cut = loaded >= *limit;
        }
    }
}

/// What a task must be to start, whoever takes it: `r` is the task; its project and what is left for it are in the SQL
/// expressions given. Times are compared with `$2`.
fn can_start(left: &str, estimate: &str) -> String {
    format!(
        "r.state = 'READY' AND (r.resume_after IS NULL OR r.resume_after <= $2) \
         AND (r.workspace IS NULL OR EXISTS (SELECT 1 FROM fleet_workspaces w \
           WHERE w.id = r.workspace AND w.project = r.project AND w.task IS NULL)) \
         AND COALESCE(r.estimate, {estimate}) <= {left}"
    )
}

/// Whether a task waits for an agent of its own: not when its time is over, nor when that agent is gone for good.
const AWAITS: &str = "r.affinity IS NOT NULL AND r.ready_at + r.affinity_wait > $2 AND EXISTS \
     (SELECT 1 FROM fleet_agents a WHERE a.id = r.affinity AND a.state <> 'RETIRED')";

/// The first tasks of each project that has a limit.
fn first_ready(
    tx: &mut dyn Transaction,
    rules: &Rules,
    scene: &Scene,
    limits: &[Option<u64>],
) -> Result<Vec<ReadyTask>, StoreError> {
    let global = scene.budget_left();
    let row = |place: usize, limit: u64| {
        let project = &scene.projects[place];
        let left = project.budget_left().unwrap_or(u64::MAX).min(global.unwrap_or(u64::MAX));
        let estimate = project.learned.unwrap_or(rules.default_estimate);
        json!([project.id, place, int(left), int(estimate), limit])
    };
    let (sql, values) = match tx.database() {
        Database::Sqlite => {
            let mut groups: [Vec<_>; LIMITS.len()] = Default::default();
            for (place, limit) in limits.iter().enumerate() {
                let Some(limit) = limit else { continue };
                let group = LIMITS.iter().position(|most| limit <= most);
                let group = group.unwrap_or(LIMITS.len() - 1);
                groups[group].push(row(place, *limit));
            }
            let values = groups.map(json_rows::value);
            (sqlite_first_ready(), with_now(values, scene.at))
        }
        Database::Postgres => {
            let rows = limits.iter().enumerate();
            let rows = rows.filter_map(|(place, limit)| Some(row(place, (*limit)?)));
            (postgres_first_ready(), with_now([json_rows::value(rows)], scene.at))
        }
    };
    tx.list(&sql, &values, |row| {
        let place = usize::try_from(row.count(0)?).unwrap_or(usize::MAX);
        ready_task(row, place, scene, rules)
    })
}

/// The values, with the moment as the second of them.
fn with_now<const N: usize>(values: [Value; N], now: UnixMicros) -> Vec<Value> {
    let mut values = Vec::from(values);
    values.insert(1, now.into());
    values
}

fn sqlite_first_ready() -> String {
    let can_start = can_start("p.column3", "p.column4");
    let types = ["TEXT", "BIGINT", "BIGINT", "BIGINT"];
    let mut projects = Vec::new();
    let mut groups = Vec::new();
    for (number, limit) in LIMITS.iter().enumerate() {
        // Their values are the first and those after the second.
        let place = if number == 0 { 1 } else { number + 2 };
        let table = json_rows::table(Database::Sqlite, place, &types);
        // The moment must appear before the second list.
        let moment = if number == 0 { ", moment AS (SELECT $2)" } else { "" };
        projects.push(format!("p{number} AS MATERIALIZED {table}{moment}"));
        groups.push(format!(
            "SELECT p.column2, t.id, t.priority, t.made, t.estimate, t.workspace, t.epoch, NULL \
             FROM p{number} AS p CROSS JOIN fleet_tasks AS t WHERE t.rowid IN \
             (SELECT r.rowid FROM fleet_tasks AS r WHERE r.project = p.column1 \
             AND {can_start} AND NOT ({AWAITS}) ORDER BY r.priority, r.made LIMIT {limit})"
        ));
    }
    format!("WITH {} {}", projects.join(", "), groups.join(" UNION ALL "))
}

fn postgres_first_ready() -> String {
    let types = ["TEXT", "BIGINT", "BIGINT", "BIGINT", "BIGINT"];
    let table = json_rows::table(Database::Postgres, 1, &types);
    let can_start = can_start("p.column3", "p.column4");
    format!(
        "SELECT p.column2, t.id, t.priority, t.made, t.estimate, t.workspace, t.epoch, NULL \
         FROM {table} AS p CROSS JOIN LATERAL \
         (SELECT r.id, r.priority, r.made, r.estimate, r.workspace, r.epoch FROM fleet_tasks AS r \
         WHERE r.project = p.column1 AND {can_start} AND NOT ({AWAITS}) \
         ORDER BY r.priority, r.made LIMIT p.column5) AS t"
    )
}

/// Tasks that wait for one of the agents that wait.
fn awaited(
    tx: &mut dyn Transaction,
    rules: &Rules,
    scene: &Scene,
) -> Result<Vec<ReadyTask>, StoreError> {
    let agents = json_rows::texts(tx.database(), 1);
    let can_start = can_start("$3", "0");
    let sql = format!(
        "SELECT r.project, r.id, r.priority, r.made, r.estimate, r.workspace, r.epoch, r.affinity \
         FROM fleet_tasks AS r WHERE r.affinity IN {agents} AND {AWAITS} AND {can_start} \
         ORDER BY r.priority, r.made LIMIT {AWAITED_MAX}"
    );
    let waiting = json_rows::names(scene.waiting.iter().map(|it| &*it.agent));
    let values = [waiting, scene.at.into(), int(scene.budget_left().unwrap_or(u64::MAX)).into()];
    let places: HashMap<&str, usize> =
        scene.projects.iter().enumerate().map(|(place, it)| (&*it.id, place)).collect();
    let mut tasks = Vec::new();
    tx.each(&sql, &values, &mut |row| {
        let place = places.get(row.text(0)?.as_str());
        if let Some(place) = place.filter(|place| scene.projects[**place].is_open()) {
            tasks.push(ready_task(row, *place, scene, rules)?);
        }
        Ok(())
    })?;
    Ok(tasks)
}

fn ready_task(
    row: &dyn Columns,
    place: usize,
    scene: &Scene,
    rules: &Rules,
) -> Result<ReadyTask, StoreError> {
    let unknown = || StoreError::Database("a task's project is not in the round".into());
    let project = scene.projects.get(place).ok_or_else(unknown)?;
    let expected = project.learned.unwrap_or(rules.default_estimate);
    Ok(ReadyTask {
        id: row.text(1)?.into(),
        project: place,
        priority: row.int(2)?,
        made: row.int(3)?,
        estimate: row.count_or_null(4)?.unwrap_or(expected),
        workspace: row.text_or_null(5)?.map(Into::into),
        epoch: row.count(6)?,
        affinity: row.text_or_null(7)?.map(Into::into),
    })
}

fn int(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
