//! Reads a snapshot, and a round that contains a snapshot.

use fairgate_core::proportional::{
    ScheduleSnapshot, ScheduleSnapshotError, ScheduleSnapshotParts, ScheduledAgent,
    ScheduledProject, ScheduledTask, TaskAssignment,
};

use super::names::{AGENT_STATES, MODES, PROJECT_STATUSES, TASK_STATUSES};
use super::{ScheduleReadError, ScheduleRound};
use crate::journal_text_error::JournalTextError;
use crate::read::cursor::JsonCursor;
use crate::read::number::{count, credit_weight, signed, tokens};

/// The fields of a snapshot. In this list and the ones below, required fields come first.
const SNAPSHOT: &[&str] = &[
    "projects",
    "tasks",
    "agents",
    "mode",
    "min_task_guarantee",
    "default_estimated_tokens",
    "project_token_usage",
    "project_active_agent_counts",
    "tasks_completed_in_window",
    "project_available_workspaces",
    "workspace_locks",
    "project_reserved_tokens",
    "project_baseline_tokens",
    "global_budget",
    "global_tokens_used",
];
const PROJECT: &[&str] =
    &["id", "status", "credit_weight", "max_concurrent_agents", "budget_limit"];
const TASK: &[&str] = &[
    "id",
    "project_id",
    "status",
    "priority",
    "created",
    "estimated_tokens",
    "preferred_workspace_id",
];
const AGENT: &[&str] = &["id", "state"];
const ROUND: &[&str] = &["at", "snapshot", "assignments", "price_per_1000_s"];
/// Number of required fields, which come first in [`ROUND`].
const ROUND_REQUIRED: usize = 3;
const ASSIGNMENT: &[&str] = &["agent_id", "task_id", "project_id"];

/// Reads a snapshot and checks that ids are unique and every task's project is listed.
pub fn read_snapshot(text: &str) -> Result<ScheduleSnapshot, ScheduleReadError> {
    let mut cursor = JsonCursor::new(text);
    let parts = snapshot(&mut cursor).and_then(|parts| cursor.end().map(|()| parts));
    let parts = parts.map_err(|fault| ScheduleReadError::from_fault(fault, text))?;
    Ok(ScheduleSnapshot::check(parts)?)
}

/// Reads and checks a round, which is one line of the fleet's journal.
pub fn read_round(text: &str) -> Result<ScheduleRound, ScheduleReadError> {
    let mut cursor = JsonCursor::new(text);
    let read = round(&mut cursor).and_then(|read| cursor.end().map(|()| read));
    let read = read.map_err(|fault| ScheduleReadError::from_fault(fault, text))?;
    let RoundFields { at, parts, assignments, price_per_1000_s } = read;
    let within = |error: ScheduleSnapshotError| {
        let error = ScheduleReadError::from(error);
        ScheduleReadError { field: format!("snapshot.{}", error.field), ..error }
    };
    let snapshot = ScheduleSnapshot::check(parts).map_err(within)?;
    Ok(ScheduleRound { at, price_per_1000_s, snapshot, assignments })
}

/// Fields of a round whose snapshot is not checked yet.
#[derive(Default)]
struct RoundFields {
    at: i64,
    parts: ScheduleSnapshotParts,
    assignments: Vec<TaskAssignment>,
    price_per_1000_s: Option<u64>,
}

fn round(cursor: &mut JsonCursor<'_>) -> Result<RoundFields, JournalTextError> {
    let mut round = RoundFields::default();
    cursor.record(ROUND, ROUND_REQUIRED, |field, cursor| {
        match field {
            "at" => round.at = signed(cursor)?,
            "snapshot" => round.parts = snapshot(cursor)?,
            "price_per_1000_s" => round.price_per_1000_s = Some(tokens(cursor)?.0),
            _ => round.assignments = cursor.list(assignment)?,
        }
        Ok(())
    })?;
    Ok(round)
}

fn assignment(cursor: &mut JsonCursor<'_>) -> Result<TaskAssignment, JournalTextError> {
    let mut ids: [Box<str>; 3] = Default::default();
    cursor.record(ASSIGNMENT, ASSIGNMENT.len(), |field, cursor| {
        let place = ASSIGNMENT.iter().position(|name| *name == field).unwrap_or_default();
        ids[place] = cursor.text()?.into();
        Ok(())
    })?;
    let [agent_id, task_id, project_id] = ids;
    Ok(TaskAssignment { agent_id, task_id, project_id })
}

fn snapshot(cursor: &mut JsonCursor<'_>) -> Result<ScheduleSnapshotParts, JournalTextError> {
    let mut parts = ScheduleSnapshotParts::default();
    cursor.record(SNAPSHOT, 3, |field, cursor| {
        match field {
            "projects" => parts.projects = cursor.list(project)?,
            "tasks" => parts.tasks = cursor.list(task)?,
            "agents" => parts.agents = cursor.list(agent)?,
            "mode" => parts.mode = cursor.one_of(MODES)?,
            "min_task_guarantee" => parts.min_task_guarantee = cursor.bool()?,
            "default_estimated_tokens" => parts.default_estimated_tokens = tokens(cursor)?,
            "project_token_usage" => parts.project_token_usage = cursor.by_name(tokens)?,
            "project_active_agent_counts" => {
                parts.project_active_agent_counts = cursor.by_name(count)?;
            }
            "tasks_completed_in_window" => {
                parts.tasks_completed_in_window = cursor.by_name(count)?;
            }
            "project_available_workspaces" => {
                parts.project_available_workspaces = cursor.by_name(count)?;
            }
            "workspace_locks" => parts.workspace_locks = cursor.by_name(text_or_null)?,
            "project_reserved_tokens" => parts.project_reserved_tokens = cursor.by_name(tokens)?,
            "project_baseline_tokens" => parts.project_baseline_tokens = cursor.by_name(tokens)?,
            "global_budget" => parts.global_budget = cursor.nullable(tokens)?,
            _ => parts.global_tokens_used = tokens(cursor)?,
        }
        Ok(())
    })?;
    Ok(parts)
}

fn project(cursor: &mut JsonCursor<'_>) -> Result<ScheduledProject, JournalTextError> {
    let mut project = ScheduledProject::new("");
    cursor.record(PROJECT, 1, |field, cursor| {
        match field {
            "id" => project.id = cursor.text()?.into(),
            "status" => project.status = cursor.one_of(PROJECT_STATUSES)?,
            "credit_weight" => project.credit_weight = credit_weight(cursor)?,
            "max_concurrent_agents" => project.max_concurrent_agents = count(cursor)?,
            _ => project.budget_limit = cursor.nullable(tokens)?,
        }
        Ok(())
    })?;
    Ok(project)
}

fn task(cursor: &mut JsonCursor<'_>) -> Result<ScheduledTask, JournalTextError> {
    let mut task = ScheduledTask::ready("", "");
    cursor.record(TASK, 3, |field, cursor| {
        match field {
            "id" => task.id = cursor.text()?.into(),
            "project_id" => task.project_id = cursor.text()?.into(),
            "status" => task.status = cursor.one_of(TASK_STATUSES)?,
            "priority" => task.priority = signed(cursor)?,
            "created" => task.created = signed(cursor)?,
            "estimated_tokens" => task.estimated_tokens = cursor.nullable(tokens)?,
            _ => task.preferred_workspace_id = text_or_null(cursor)?,
        }
        Ok(())
    })?;
    Ok(task)
}

fn agent(cursor: &mut JsonCursor<'_>) -> Result<ScheduledAgent, JournalTextError> {
    let mut agent = ScheduledAgent::idle("");
    cursor.record(AGENT, 2, |field, cursor| {
        match field {
            "id" => agent.id = cursor.text()?.into(),
            _ => agent.state = cursor.one_of(AGENT_STATES)?,
        }
        Ok(())
    })?;
    Ok(agent)
}

fn text_or_null(cursor: &mut JsonCursor<'_>) -> Result<Option<Box<str>>, JournalTextError> {
    Ok(cursor.nullable(JsonCursor::text)?.map(Into::into))
}
