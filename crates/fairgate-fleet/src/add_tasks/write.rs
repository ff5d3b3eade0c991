//! Writes new tasks to the database.

use std::collections::BTreeMap;

use fairgate_api::fleet::TaskState;
use fairgate_store::{SqlValue, Transaction};
use serde_json::json;

use super::TaskToAdd;
use super::content::prompt_bytes;
use crate::agent_access;
use crate::call_context::{CallContext, bump_version, reserve_creation_order};
use crate::error::FleetError;
use crate::project_baseline;
use crate::sql_placeholders;

/// Columns of a new task whose values differ between tasks, with their SQL types.
const COLUMNS: [(&str, &str); 20] = [
    ("id", "TEXT"),
    ("project", "TEXT"),
    ("made", "BIGINT"),
    ("title", "TEXT"),
    ("state", "TEXT"),
    ("priority", "BIGINT"),
    ("estimate", "BIGINT"),
    ("retries_max", "BIGINT"),
    ("open_needs", "BIGINT"),
    ("resume_after", "BIGINT"),
    ("workspace", "TEXT"),
    ("affinity", "TEXT"),
    ("affinity_wait", "BIGINT"),
    ("ready_at", "BIGINT"),
    ("timeout", "BIGINT"),
    ("tokens_max", "BIGINT"),
    ("money_max", "BIGINT"),
    ("requires", "TEXT"),
    ("labels", "TEXT"),
    ("prompt_bytes", "BIGINT"),
];

pub(super) fn write(
    tx: &mut dyn Transaction,
    call: &CallContext,
    tasks: &[TaskToAdd],
) -> Result<(), FleetError> {
    let mut made = reserve_creation_order(tx, i64::try_from(tasks.len()).unwrap_or(i64::MAX))?;
    for some in tasks.chunks(sql_placeholders::ROWS_MAX) {
        write_some(tx, call, some, made)?;
        made += i64::try_from(some.len()).unwrap_or(i64::MAX);
    }
    let needs: Vec<_> = tasks
        .iter()
        .flat_map(|task| task.content.needs.iter().map(|need| (task.id.as_str(), need.as_str())))
        .collect();
    for some in needs.chunks(sql_placeholders::ROWS_MAX) {
        let values: Vec<SqlValue> =
            some.iter().flat_map(|(task, need)| [(*task).into(), (*need).into()]).collect();
        let table = sql_placeholders::table(1, &["TEXT", "TEXT"], some.len());
        tx.run(
            &format!(
                "INSERT INTO fleet_needs (task, needs) SELECT v.column1, v.column2 FROM {table} AS v"
            ),
            &values,
        )?;
    }
    let mut projects: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for task in tasks {
        projects.entry(&task.content.project).or_default().push(&task.id);
    }
    for (project, tasks) in &projects {
        call.audit(tx, "task.add", project, None, Some(&json!({ "tasks": tasks })))?;
    }
    let projects: Vec<_> = projects.into_keys().collect();
    project_baseline::update_busy(tx, call.terms(), &projects, call.now)?;
    bump_version(tx)?;
    Ok(())
}

fn write_some(
    tx: &mut dyn Transaction,
    call: &CallContext,
    tasks: &[TaskToAdd],
    first_made: i64,
) -> Result<(), FleetError> {
    let mut values: Vec<SqlValue> = vec![call.now.into(), 0_i64.into()];
    for (made, task) in (first_made..).zip(tasks) {
        let content = &task.content;
        let ready_at = (task.state == TaskState::Ready).then_some(call.now.0);
        let row: [SqlValue; 20] = [
            task.id.as_str().into(),
            content.project.as_str().into(),
            made.into(),
            content.title.as_str().into(),
            task.state.word().into(),
            content.priority.into(),
            content.estimate.into(),
            content.retries_max.into(),
            task.open_needs.into(),
            task.resume_after.map(|moment| moment.0).into(),
            content.workspace.clone().into(),
            content.affinity.clone().into(),
            (i64::from(content.affinity_wait_s) * 1_000_000).into(),
            ready_at.into(),
            content.timeout_s.map(|seconds| i64::from(seconds) * 1_000_000).into(),
            content.tokens_max.into(),
            content.money_max.into(),
            agent_access::stored(&content.requires).into(),
            agent_access::stored_task_labels(&content.requires, task.machine.as_deref()).into(),
            prompt_bytes(&content.prompt).into(),
        ];
        values.extend(row);
    }
    let names: Vec<_> = COLUMNS.iter().map(|(name, _)| *name).collect();
    let types: Vec<_> = COLUMNS.iter().map(|(_, kind)| *kind).collect();
    let cells: Vec<_> = (1..=COLUMNS.len()).map(|column| format!("v.column{column}")).collect();
    let zeros = "retries, epoch, ended_epoch, reserved, used, used_before, calls";
    let sql = format!(
        "INSERT INTO fleet_tasks (created_at, {zeros}, {}) SELECT CAST($1 AS BIGINT), CAST($2 AS BIGINT), \
         CAST($2 AS BIGINT), CAST($2 AS BIGINT), CAST($2 AS BIGINT), CAST($2 AS BIGINT), CAST($2 AS BIGINT), \
         CAST($2 AS BIGINT), {} FROM {} AS v",
        names.join(", "),
        cells.join(", "),
        sql_placeholders::table(3, &types, tasks.len())
    );
    tx.run(&sql, &values)?;
    let prompts = tasks.iter().flat_map(|task| [task.id.as_str(), task.content.prompt.as_str()]);
    let prompts: Vec<SqlValue> = prompts.map(SqlValue::from).collect();
    let table = sql_placeholders::table(1, &["TEXT", "TEXT"], tasks.len());
    let sql = format!(
        "INSERT INTO fleet_prompts (task, prompt) SELECT v.column1, v.column2 FROM {table} AS v"
    );
    tx.run(&sql, &prompts)?;
    Ok(())
}
