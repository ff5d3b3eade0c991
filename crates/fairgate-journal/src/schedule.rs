//! The text form of the proportional scheduler: a snapshot as one JSON object, assignments and explanations as
//! JSON.
//!
//! Reading is strict. A field that is not known, is given twice or has the wrong type is an error that names the
//! field: `tasks[3].priority`. Numbers are read from their digits, never through a float. The bounds are
//! 2^64 − 1 for tokens and counts, −2^63 to 2^63 − 1 for `priority` and `created`, and 0.001 to 10^15 for
//! weights. `null` means "none" where there may be none: `budget_limit`, `estimated_tokens`,
//! `preferred_workspace_id`, `global_budget` and the holders in `workspace_locks`.

mod explanation;
mod field;
mod locate;

use core::fmt;
use std::collections::BTreeMap;
use std::io::{self, Write};

pub use explanation::write_explanation;
use fairgate_core::proportional::{
    Agent, AgentState, Assignment, Mode, Project, ProjectStatus, Snapshot, SnapshotError,
    SnapshotParts, Task, TaskStatus,
};
use fairgate_core::units::Tokens;
use field::{Field, Path};
use serde::Serialize;
use serde_json::value::RawValue;

/// A snapshot that cannot be read: which field, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadError {
    /// The field, from the snapshot's root: `tasks[3].project_id`. Empty for the snapshot as a whole.
    pub field: String,
    /// What is wrong with it.
    pub message: String,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.field {
            "" => write!(f, "{}", self.message),
            field => write!(f, "{field}: {}", self.message),
        }
    }
}

impl core::error::Error for ReadError {}

impl From<SnapshotError> for ReadError {
    fn from(error: SnapshotError) -> Self {
        Self { field: error.field, message: error.problem.to_string() }
    }
}

/// The modes by name.
const MODES: [(&str, Mode); 2] = [("classic", Mode::Classic), ("strict", Mode::Strict)];

/// What a project may be, by name.
const PROJECT_STATUSES: [(&str, ProjectStatus); 3] = [
    ("ACTIVE", ProjectStatus::Active),
    ("PAUSED", ProjectStatus::Paused),
    ("ARCHIVED", ProjectStatus::Archived),
];

/// Where a task may stand, by name.
const TASK_STATUSES: [(&str, TaskStatus); 9] = [
    ("DEFINED", TaskStatus::Defined),
    ("READY", TaskStatus::Ready),
    ("ASSIGNED", TaskStatus::Assigned),
    ("IN_PROGRESS", TaskStatus::InProgress),
    ("WAITING_INPUT", TaskStatus::WaitingInput),
    ("PAUSED", TaskStatus::Paused),
    ("COMPLETED", TaskStatus::Completed),
    ("FAILED", TaskStatus::Failed),
    ("BLOCKED", TaskStatus::Blocked),
];

/// What an agent may do, by name.
const AGENT_STATES: [(&str, AgentState); 5] = [
    ("IDLE", AgentState::Idle),
    ("BUSY", AgentState::Busy),
    ("PAUSED", AgentState::Paused),
    ("ERROR", AgentState::Error),
    ("RETIRED", AgentState::Retired),
];

/// Reads and checks a snapshot.
pub fn read_snapshot(text: &str) -> Result<Snapshot, ReadError> {
    let root: &RawValue =
        serde_json::from_str(text).map_err(|error| locate::syntax_error(text, &error))?;
    Ok(Snapshot::check(snapshot_parts(&Field::new(Path::Root, root))?)?)
}

fn snapshot_parts(root: &Field<'_>) -> Result<SnapshotParts, ReadError> {
    let [
        mode,
        min_task_guarantee,
        default_estimated_tokens,
        projects,
        tasks,
        agents,
        usage,
        active_agents,
        completed,
        workspaces,
        locks,
        reserved,
        baseline,
        global_budget,
        global_tokens_used,
    ] = root.record([
        "mode",
        "min_task_guarantee",
        "default_estimated_tokens",
        "projects",
        "tasks",
        "agents",
        "project_token_usage",
        "project_active_agent_counts",
        "tasks_completed_in_window",
        "project_available_workspaces",
        "workspace_locks",
        "project_reserved_tokens",
        "project_baseline_tokens",
        "global_budget",
        "global_tokens_used",
    ])?;
    let default = SnapshotParts::default();
    Ok(SnapshotParts {
        mode: mode.or(default.mode, |f| f.word(&MODES))?,
        min_task_guarantee: min_task_guarantee.or(default.min_task_guarantee, Field::boolean)?,
        default_estimated_tokens: default_estimated_tokens
            .or(default.default_estimated_tokens, tokens)?,
        projects: projects.required()?.list(project)?,
        tasks: tasks.required()?.list(task)?,
        agents: agents.required()?.list(agent)?,
        project_token_usage: usage.or_default(tokens_by_id)?,
        project_active_agent_counts: active_agents.or_default(counts_by_id)?,
        tasks_completed_in_window: completed.or_default(counts_by_id)?,
        project_available_workspaces: workspaces.or_default(counts_by_id)?,
        workspace_locks: locks.or_default(|f| f.map(|holder| holder.nullable(Field::text)))?,
        project_reserved_tokens: reserved.or_default(tokens_by_id)?,
        project_baseline_tokens: baseline.or_default(tokens_by_id)?,
        global_budget: global_budget.or(default.global_budget, |f| f.nullable(tokens))?,
        global_tokens_used: global_tokens_used.or(default.global_tokens_used, tokens)?,
    })
}

fn project(field: &Field<'_>) -> Result<Project, ReadError> {
    let [id, status, weight, max_agents, budget] =
        field.record(["id", "status", "credit_weight", "max_concurrent_agents", "budget_limit"])?;
    let default = Project::new(id.required()?.text()?);
    Ok(Project {
        status: status.or(default.status, |f| f.word(&PROJECT_STATUSES))?,
        credit_weight: weight.or(default.credit_weight, Field::credit_weight)?,
        max_concurrent_agents: max_agents.or(default.max_concurrent_agents, Field::natural)?,
        budget_limit: budget.or(default.budget_limit, |f| f.nullable(tokens))?,
        id: default.id,
    })
}

fn task(field: &Field<'_>) -> Result<Task, ReadError> {
    let [id, project_id, status, priority, created, estimate, workspace] = field.record([
        "id",
        "project_id",
        "status",
        "priority",
        "created",
        "estimated_tokens",
        "preferred_workspace_id",
    ])?;
    let default = Task::ready(id.required()?.text()?, project_id.required()?.text()?);
    Ok(Task {
        status: status.required()?.word(&TASK_STATUSES)?,
        priority: priority.or(default.priority, Field::integer)?,
        created: created.or(default.created, Field::integer)?,
        estimated_tokens: estimate.or(default.estimated_tokens, |f| f.nullable(tokens))?,
        preferred_workspace_id: workspace
            .or(default.preferred_workspace_id, |f| f.nullable(Field::text))?,
        id: default.id,
        project_id: default.project_id,
    })
}

fn agent(field: &Field<'_>) -> Result<Agent, ReadError> {
    let [id, state] = field.record(["id", "state"])?;
    Ok(Agent { id: id.required()?.text()?, state: state.required()?.word(&AGENT_STATES)? })
}

fn tokens(field: &Field<'_>) -> Result<Tokens, ReadError> {
    field.natural().map(Tokens)
}

fn tokens_by_id(field: &Field<'_>) -> Result<BTreeMap<Box<str>, Tokens>, ReadError> {
    field.map(tokens)
}

fn counts_by_id(field: &Field<'_>) -> Result<BTreeMap<Box<str>, u64>, ReadError> {
    field.map(|count| count.natural())
}

/// How JSON is laid out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// On one line.
    #[default]
    Compact,
    /// Indented.
    Pretty,
}

#[derive(Serialize)]
struct AssignmentText<'a> {
    agent_id: &'a str,
    task_id: &'a str,
    project_id: &'a str,
}

impl<'a> From<&'a Assignment> for AssignmentText<'a> {
    fn from(assignment: &'a Assignment) -> Self {
        let Assignment { agent_id, task_id, project_id } = assignment;
        Self { agent_id, task_id, project_id }
    }
}

/// Writes assignments as a JSON list and ends the line.
pub fn write_assignments(
    out: impl Write,
    assignments: &[Assignment],
    layout: Layout,
) -> io::Result<()> {
    let texts: Vec<AssignmentText<'_>> = assignments.iter().map(AssignmentText::from).collect();
    write_json(out, &texts, layout)
}

fn write_json(mut out: impl Write, value: &impl Serialize, layout: Layout) -> io::Result<()> {
    match layout {
        Layout::Compact => serde_json::to_writer(&mut out, value)?,
        Layout::Pretty => serde_json::to_writer_pretty(&mut out, value)?,
    }
    writeln!(out)?;
    out.flush()
}

#[cfg(test)]
mod tests;
