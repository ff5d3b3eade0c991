//! Reading a snapshot, and a round of which a snapshot is a part.

use fairgate_core::proportional::{
    Agent, Assignment, Project, Snapshot, SnapshotError, SnapshotParts, Task,
};

use super::names::{AGENT_STATES, MODES, PROJECT_STATUSES, TASK_STATUSES};
use super::{ReadError, Round};
use crate::read::cursor::Cursor;
use crate::read::fault::Fault;
use crate::read::number::{count, credit_weight, signed, tokens};

/// The fields of a snapshot, those that must be there first; so too below.
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
const ROUND: &[&str] = &["at", "snapshot", "assignments"];
const ASSIGNMENT: &[&str] = &["agent_id", "task_id", "project_id"];

/// Reads and checks a snapshot.
pub fn read_snapshot(text: &str) -> Result<Snapshot, ReadError> {
    let mut cursor = Cursor::new(text);
    let parts = snapshot(&mut cursor).and_then(|parts| cursor.end().map(|()| parts));
    let parts = parts.map_err(|fault| ReadError::from_fault(fault, text))?;
    Ok(Snapshot::check(parts)?)
}

/// Reads and checks a round: a line of the fleet's journal.
pub fn read_round(text: &str) -> Result<Round, ReadError> {
    let mut cursor = Cursor::new(text);
    let read = round(&mut cursor).and_then(|read| cursor.end().map(|()| read));
    let (at, parts, assignments) = read.map_err(|fault| ReadError::from_fault(fault, text))?;
    let within = |error: SnapshotError| {
        let error = ReadError::from(error);
        ReadError { field: format!("snapshot.{}", error.field), ..error }
    };
    let snapshot = Snapshot::check(parts).map_err(within)?;
    Ok(Round { at, snapshot, assignments })
}

fn round(cursor: &mut Cursor<'_>) -> Result<(i64, SnapshotParts, Vec<Assignment>), Fault> {
    let (mut at, mut parts, mut assignments) = (0, SnapshotParts::default(), Vec::new());
    cursor.record(ROUND, ROUND.len(), |field, cursor| {
        match field {
            "at" => at = signed(cursor)?,
            "snapshot" => parts = snapshot(cursor)?,
            _ => assignments = cursor.list(assignment)?,
        }
        Ok(())
    })?;
    Ok((at, parts, assignments))
}

fn assignment(cursor: &mut Cursor<'_>) -> Result<Assignment, Fault> {
    let mut ids: [Box<str>; 3] = Default::default();
    cursor.record(ASSIGNMENT, ASSIGNMENT.len(), |field, cursor| {
        let place = ASSIGNMENT.iter().position(|name| *name == field).unwrap_or_default();
        ids[place] = cursor.text()?.into();
        Ok(())
    })?;
    let [agent_id, task_id, project_id] = ids;
    Ok(Assignment { agent_id, task_id, project_id })
}

fn snapshot(cursor: &mut Cursor<'_>) -> Result<SnapshotParts, Fault> {
    let mut parts = SnapshotParts::default();
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

fn project(cursor: &mut Cursor<'_>) -> Result<Project, Fault> {
    let mut project = Project::new("");
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

fn task(cursor: &mut Cursor<'_>) -> Result<Task, Fault> {
    let mut task = Task::ready("", "");
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

fn agent(cursor: &mut Cursor<'_>) -> Result<Agent, Fault> {
    let mut agent = Agent::idle("");
    cursor.record(AGENT, 2, |field, cursor| {
        match field {
            "id" => agent.id = cursor.text()?.into(),
            _ => agent.state = cursor.one_of(AGENT_STATES)?,
        }
        Ok(())
    })?;
    Ok(agent)
}

fn text_or_null(cursor: &mut Cursor<'_>) -> Result<Option<Box<str>>, Fault> {
    Ok(cursor.nullable(Cursor::text)?.map(Into::into))
}
