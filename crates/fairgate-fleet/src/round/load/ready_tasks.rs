//! Loads ready tasks: the first ones of each project, and those that are kept for one of the
//! waiting agents.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use fairgate_store::{DatabaseKind, RowColumns, SqlValue, StoreError, Transaction};
use fairgate_time::UnixMicros;
use serde_json::{Map, Value as Json, json};

use super::super::RoundOptions;
use super::super::round_input::{ReadyTask, RoundInput};
use super::FURTHER;
use crate::agent_access;
use crate::json_rows;

/// Maximum total number of tasks to load that are kept for one of the waiting agents.
const AWAITED_MAX: i64 = 1_000;
/// Numbers of tasks that queries on SQLite load for a project. SQLite cannot take a `LIMIT` from a
/// column, so there is one group of projects for each of these numbers.
const LIMITS: [u64; 7] = [1, 2, 4, 8, 16, 64, FURTHER];

/// Labels of a task that requires none.
static NO_LABELS: LazyLock<Arc<[String]>> = LazyLock::new(|| Arc::new([]));

/// Returns the SQL condition that a task `r` can start, for any agent. `left` and `estimate` are
/// SQL expressions for the rest of the budget and the default estimate, in tokens. The current time
/// is `$2`.
fn can_start(left: &str, estimate: &str) -> String {
    format!("{CAN_START} AND COALESCE(r.estimate, {estimate}) <= {left}")
}

/// SQL condition that a task `r` can start, apart from budgets. The current time is `$2`.
const CAN_START: &str = "r.state = 'READY' AND (r.resume_after IS NULL OR r.resume_after <= $2) \
     AND (r.workspace IS NULL OR EXISTS (SELECT 1 FROM fleet_workspaces w \
       WHERE w.id = r.workspace AND w.project = r.project AND w.task IS NULL))";

/// SQL condition that a task `r` is kept for the agent in its `affinity`. The task is kept until
/// its wait for the agent is over, unless the agent is retired.
const AWAITS: &str = "r.affinity IS NOT NULL AND r.ready_at + r.affinity_wait > $2 AND EXISTS \
     (SELECT 1 FROM fleet_agents a WHERE a.id = r.affinity AND a.state <> 'RETIRED')";

/// Loads the first ready tasks of each project whose entry in `limits` is a number, in the order in
/// which they start. The number limits the tasks without labels; it also limits the tasks of each
/// list of labels.
pub(super) fn first_ready(
    tx: &mut dyn Transaction,
    rules: &RoundOptions,
    input: &RoundInput,
    limits: &[Option<u64>],
) -> Result<Vec<ReadyTask>, StoreError> {
    let global = input.budget_left().unwrap_or(u64::MAX);
    let row = |place: usize, number: usize, limit: u64, labels: &str| {
        let project = &input.projects[place];
        let left = project.budget_left().unwrap_or(u64::MAX).min(global);
        let estimate = project.learned.unwrap_or(rules.default_estimate);
        FirstReadyRow {
            limit,
            row: json!([project.id, number, int(left), int(estimate), limit, labels]),
        }
    };
    let plain = limits.iter().enumerate();
    let plain = plain.filter_map(|(place, limit)| Some((place, (*limit)?)));
    let (limited, unlimited): (Vec<_>, Vec<_>) =
        plain.partition(|(place, _)| input.is_limited(*place));
    let read =
        |row: &dyn RowColumns, place: usize| ready_task(row, place, input, rules, &NO_LABELS);
    let mut tasks = first_ready_unlimited(tx, input, &unlimited, &read)?;
    if !limited.is_empty() {
        let rows = limited.iter().map(|(place, limit)| row(*place, *place, *limit, "[]")).collect();
        tasks.extend(first_ready_of(tx, input, rows, NeededLabels::None, &read)?);
    }
    let groups = input.label_groups.iter().enumerate();
    let labelled: Vec<_> = groups
        .filter_map(|(number, group)| {
            Some(row(group.project, number, limits[group.project]?, &group.text))
        })
        .collect();
    if !labelled.is_empty() {
        let read = |row: &dyn RowColumns, number: usize| {
            let unknown = || StoreError::Database("a task has labels that it had not".into());
            let group = input.label_groups.get(number).ok_or_else(unknown)?;
            ready_task(row, group.project, input, rules, &group.labels)
        };
        tasks.extend(first_ready_of(tx, input, labelled, NeededLabels::Given, &read)?);
    }
    Ok(tasks)
}

/// A row of the table for which first ready tasks are selected. `row` has these columns: project,
/// number of the row, rest of the budget, expected tokens of a task, number of tasks to load,
/// labels.
struct FirstReadyRow {
    limit: u64,
    row: Json,
}

/// The labels of the tasks that a statement selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NeededLabels {
    /// Tasks that require no labels.
    None,
    /// Tasks that require the labels of their row. The statement finds them through a separate
    /// index.
    Given,
}

impl NeededLabels {
    /// Returns the SQL condition on the labels of a task `r`.
    fn condition(self) -> &'static str {
        match self {
            Self::None => "r.labels = '[]'",
            Self::Given => "r.labels = p.column6 AND r.labels <> '[]'",
        }
    }
}

/// Selects the first ready tasks for these rows. `read` reads a task, with the number of its row.
fn first_ready_of(
    tx: &mut dyn Transaction,
    input: &RoundInput,
    rows: Vec<FirstReadyRow>,
    labels: NeededLabels,
    read: &dyn Fn(&dyn RowColumns, usize) -> Result<ReadyTask, StoreError>,
) -> Result<Vec<ReadyTask>, StoreError> {
    let (sql, values) = match tx.database() {
        DatabaseKind::Sqlite => {
            let mut groups: [Vec<_>; LIMITS.len()] = Default::default();
            for FirstReadyRow { limit, row } in rows {
                let group = LIMITS.iter().position(|most| limit <= *most);
                groups[group.unwrap_or(LIMITS.len() - 1)].push(row);
            }
            let values = groups.map(json_rows::value);
            (sqlite_first_ready(labels), with_now(values, input.at))
        }
        DatabaseKind::Postgres => {
            let rows = json_rows::value(rows.into_iter().map(|it| it.row));
            (postgres_first_ready(labels), with_now([rows], input.at))
        }
    };
    tx.list(&sql, &values, |row| read(row, usize::try_from(row.count(0)?).unwrap_or(usize::MAX)))
}

/// Selects the first ready tasks that require no labels, for projects without a budget. `projects`
/// has the index of each project and the number of tasks to load. Nearly all projects are of this
/// kind, so this statement has fewer columns than the general one.
fn first_ready_unlimited(
    tx: &mut dyn Transaction,
    input: &RoundInput,
    projects: &[(usize, u64)],
    read: &dyn Fn(&dyn RowColumns, usize) -> Result<ReadyTask, StoreError>,
) -> Result<Vec<ReadyTask>, StoreError> {
    if projects.is_empty() {
        return Ok(Vec::new());
    }
    let id = |place: &usize| &*input.projects[*place].id;
    let (sql, values) = match tx.database() {
        DatabaseKind::Sqlite => {
            let mut groups: [Map<String, Json>; LIMITS.len()] = Default::default();
            for (place, limit) in projects {
                let group = LIMITS.iter().position(|most| limit <= most);
                let group = &mut groups[group.unwrap_or(LIMITS.len() - 1)];
                group.insert(id(place).to_owned(), (*place).into());
            }
            let values = groups.map(|group| Json::Object(group).to_string().into());
            (SQLITE_FIRST_READY_UNLIMITED.as_str(), with_now(values, input.at))
        }
        DatabaseKind::Postgres => {
            let rows = projects.iter().map(|(place, limit)| json!([id(place), place, limit]));
            let values = with_now([json_rows::value(rows)], input.at);
            (POSTGRES_FIRST_READY_UNLIMITED.as_str(), values)
        }
    };
    tx.list(sql, &values, |row| read(row, usize::try_from(row.count(0)?).unwrap_or(usize::MAX)))
}

/// SQL condition that a task `r` without labels can start, whatever its expected usage.
fn can_start_unlimited() -> String {
    format!("r.labels = '[]' AND {CAN_START} AND NOT ({AWAITS})")
}

static SQLITE_FIRST_READY_UNLIMITED: LazyLock<String> = LazyLock::new(|| {
    let can_start = can_start_unlimited();
    let group = |(number, limit): (usize, &u64)| {
        // The current time is the second value.
        let place = if number == 0 { 1 } else { number + 2 };
        // For `IN`, SQLite would build a temporary table for each project, even with a single row.
        let among = if *limit == 1 { "=" } else { "IN" };
        format!(
            "SELECT p.value, t.id, t.priority, t.made, t.estimate, t.workspace, t.epoch, NULL \
             FROM json_each(${place}) AS p CROSS JOIN fleet_tasks AS t WHERE t.rowid {among} \
             (SELECT r.rowid FROM fleet_tasks AS r WHERE r.project = p.key AND {can_start} \
             ORDER BY r.priority, r.made LIMIT {limit})"
        )
    };
    let groups: Vec<_> = LIMITS.iter().enumerate().map(group).collect();
    // The current time must appear before the second list.
    let moment = "WITH first AS (SELECT $1), moment AS (SELECT $2)";
    format!("{moment} {}", groups.join(" UNION ALL "))
});

static POSTGRES_FIRST_READY_UNLIMITED: LazyLock<String> = LazyLock::new(|| {
    let table = json_rows::table(DatabaseKind::Postgres, 1, &["TEXT", "BIGINT", "BIGINT"]);
    let can_start = can_start_unlimited();
    format!(
        "SELECT p.column2, t.id, t.priority, t.made, t.estimate, t.workspace, t.epoch, NULL \
         FROM {table} AS p CROSS JOIN LATERAL \
         (SELECT r.id, r.priority, r.made, r.estimate, r.workspace, r.epoch FROM fleet_tasks AS r \
         WHERE r.project = p.column1 AND {can_start} ORDER BY r.priority, r.made LIMIT p.column3) AS t"
    )
});

/// Returns the values with the current time inserted as the second one, which is the parameter `$2`.
fn with_now<const N: usize>(values: [SqlValue; N], now: UnixMicros) -> Vec<SqlValue> {
    let mut values = Vec::from(values);
    values.insert(1, now.into());
    values
}

/// SQL types of a [`FirstReadyRow`].
const FIRST_READY_TYPES: [&str; 6] = ["TEXT", "BIGINT", "BIGINT", "BIGINT", "BIGINT", "TEXT"];

fn sqlite_first_ready(needed: NeededLabels) -> String {
    let (can_start, labels) = (can_start("p.column3", "p.column4"), needed.condition());
    let types = match needed {
        NeededLabels::None => &FIRST_READY_TYPES[..4],
        NeededLabels::Given => &FIRST_READY_TYPES[..],
    };
    let mut projects = Vec::new();
    let mut groups = Vec::new();
    for (number, limit) in LIMITS.iter().enumerate() {
        // The first group uses the first value, and the others use the values after the second.
        let place = if number == 0 { 1 } else { number + 2 };
        let table = json_rows::table(DatabaseKind::Sqlite, place, types);
        // The current time must appear before the second list.
        let moment = if number == 0 { ", moment AS (SELECT $2)" } else { "" };
        projects.push(format!("p{number} AS MATERIALIZED {table}{moment}"));
        groups.push(format!(
            "SELECT p.column2, t.id, t.priority, t.made, t.estimate, t.workspace, t.epoch, NULL \
             FROM p{number} AS p CROSS JOIN fleet_tasks AS t WHERE t.rowid IN \
             (SELECT r.rowid FROM fleet_tasks AS r WHERE r.project = p.column1 \
             AND {labels} AND {can_start} AND NOT ({AWAITS}) ORDER BY r.priority, r.made LIMIT {limit})"
        ));
    }
    format!("WITH {} {}", projects.join(", "), groups.join(" UNION ALL "))
}

fn postgres_first_ready(labels: NeededLabels) -> String {
    let table = json_rows::table(DatabaseKind::Postgres, 1, &FIRST_READY_TYPES);
    let (can_start, labels) = (can_start("p.column3", "p.column4"), labels.condition());
    format!(
        "SELECT p.column2, t.id, t.priority, t.made, t.estimate, t.workspace, t.epoch, NULL \
         FROM {table} AS p CROSS JOIN LATERAL \
         (SELECT r.id, r.priority, r.made, r.estimate, r.workspace, r.epoch FROM fleet_tasks AS r \
         WHERE r.project = p.column1 AND {labels} AND {can_start} AND NOT ({AWAITS}) \
         ORDER BY r.priority, r.made LIMIT p.column5) AS t"
    )
}

/// Loads the tasks that are kept for one of the waiting agents.
pub(super) fn awaited(
    tx: &mut dyn Transaction,
    rules: &RoundOptions,
    input: &RoundInput,
) -> Result<Vec<ReadyTask>, StoreError> {
    let agents = json_rows::texts(tx.database(), 1);
    let can_start = can_start("$3", "0");
    let sql = format!(
        "SELECT r.project, r.id, r.priority, r.made, r.estimate, r.workspace, r.epoch, r.affinity, r.labels \
         FROM fleet_tasks AS r WHERE r.affinity IN {agents} AND {AWAITS} AND {can_start} \
         ORDER BY r.priority, r.made LIMIT {AWAITED_MAX}"
    );
    let waiting = json_rows::names(input.waiting.iter().map(|it| &*it.agent));
    let values = [waiting, input.at.into(), int(input.budget_left().unwrap_or(u64::MAX)).into()];
    let places: HashMap<&str, usize> =
        input.projects.iter().enumerate().map(|(place, it)| (&*it.id, place)).collect();
    let mut tasks = Vec::new();
    tx.each(&sql, &values, &mut |row| {
        let place = places.get(row.text(0)?.as_str());
        if let Some(place) = place.filter(|place| input.projects[**place].is_open()) {
            let labels: Arc<[String]> = agent_access::read_list(&row.text(8)?)?.into();
            tasks.push(ready_task(row, *place, input, rules, &labels)?);
        }
        Ok(())
    })?;
    Ok(tasks)
}

fn ready_task(
    row: &dyn RowColumns,
    place: usize,
    input: &RoundInput,
    rules: &RoundOptions,
    labels: &Arc<[String]>,
) -> Result<ReadyTask, StoreError> {
    let unknown = || StoreError::Database("a task's project is not in the round".into());
    let project = input.projects.get(place).ok_or_else(unknown)?;
    let expected = project.learned.unwrap_or(rules.default_estimate);
    let estimate = row.count_or_null(4)?.unwrap_or(expected);
    Ok(ReadyTask {
        id: row.text(1)?.into(),
        project: place,
        priority: row.int(2)?,
        made: row.int(3)?,
        estimate,
        credit: rules.credit.expected(estimate, project.learned_credit),
        workspace: row.text_or_null(5)?.map(Into::into),
        epoch: row.count(6)?,
        affinity: row.text_or_null(7)?.map(Into::into),
        labels: Arc::clone(labels),
    })
}

fn int(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
