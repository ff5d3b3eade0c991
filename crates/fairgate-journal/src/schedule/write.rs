//! Writes snapshots, assignments and explanations. An explanation has a stable code, a sentence and the numbers for
//! every project and every ready task.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write};

use fairgate_core::proportional::{
    ComparisonMargin, LostComparison, OutOfAgents, ProjectReason, ProjectReport, ProjectShare,
    ScheduleExplanation, ScheduleSnapshot, ScheduledAgent, ScheduledProject, ScheduledTask,
    StartObstacle, TaskAssignment, TaskReason, TaskReport, WorkspaceHolder,
};

use super::ScheduleRound;
use super::names::{AGENT_STATES, MODES, TASK_STATUSES, name_of, status_name};
use super::sentences::{project_sentence, task_sentence};
use crate::write::json::{JsonLayout, JsonWriter};

/// Writes a snapshot as one JSON object and ends the line. [`super::read_snapshot`] reads it back unchanged.
pub fn write_snapshot(
    out: impl Write,
    snapshot: &ScheduleSnapshot,
    layout: JsonLayout,
) -> io::Result<()> {
    write_line(out, layout, |json| snapshot_object(json, snapshot))
}

/// Writes a round as one JSON object and ends the line. [`super::read_round`] reads it back unchanged.
pub fn write_round(out: impl Write, round: &ScheduleRound) -> io::Result<()> {
    write_line(out, JsonLayout::Compact, |json| {
        json.object(|json| {
            json.field("at", round.at);
            json.optional("price_per_1000_s", round.price_per_1000_s);
            snapshot_object(json.name("snapshot"), &round.snapshot);
            json.name("assignments").list(&round.assignments, assignment);
        });
    })
}

/// Writes assignments as a JSON list and ends the line.
pub fn write_assignments(
    out: impl Write,
    assignments: &[TaskAssignment],
    layout: JsonLayout,
) -> io::Result<()> {
    write_line(out, layout, |json| json.list(assignments, assignment))
}

/// Writes an explanation as one JSON object and ends the line. The object has `assignments`, as [`write_assignments`]
/// writes them, then `projects` and `tasks`. Each project and task has a `reason` code that never changes and a `text`
/// for people.
pub fn write_explanation(
    out: impl Write,
    explanation: &ScheduleExplanation<'_>,
    layout: JsonLayout,
) -> io::Result<()> {
    write_line(out, layout, |json| {
        json.object(|json| {
            json.name("assignments").list(&explanation.assignments, assignment);
            json.name("projects").list(&explanation.projects, project);
            json.name("tasks").list(&explanation.tasks, task);
        });
    })
}

fn write_line(
    mut out: impl Write,
    layout: JsonLayout,
    write: impl FnOnce(&mut JsonWriter),
) -> io::Result<()> {
    let mut json = JsonWriter::new(layout);
    write(&mut json);
    json.end_line();
    out.write_all(json.as_str().as_bytes())?;
    out.flush()
}

fn snapshot_object(json: &mut JsonWriter, snapshot: &ScheduleSnapshot) {
    let parts = snapshot.parts();
    json.object(|json| {
        json.text_field("mode", name_of(MODES, parts.mode));
        json.field("min_task_guarantee", parts.min_task_guarantee);
        json.field("default_estimated_tokens", parts.default_estimated_tokens.0);
        json.name("projects").list(&parts.projects, a_project);
        json.name("tasks").list(&parts.tasks, a_task);
        json.name("agents").list(&parts.agents, an_agent);
        by_name(json, "project_token_usage", &parts.project_token_usage, |json, it| {
            json.display(it.0);
        });
        let counts = [
            ("project_active_agent_counts", &parts.project_active_agent_counts),
            ("tasks_completed_in_window", &parts.tasks_completed_in_window),
            ("project_available_workspaces", &parts.project_available_workspaces),
        ];
        for (name, map) in counts {
            by_name(json, name, map, |json, count| json.display(count));
        }
        by_name(json, "workspace_locks", &parts.workspace_locks, |json, holder| {
            json.or_null(holder.as_deref(), JsonWriter::text);
        });
        let tokens = [
            ("project_reserved_tokens", &parts.project_reserved_tokens),
            ("project_baseline_tokens", &parts.project_baseline_tokens),
        ];
        for (name, map) in tokens {
            by_name(json, name, map, |json, it| json.display(it.0));
        }
        json.optional("global_budget", parts.global_budget.map(|it| it.0));
        json.field("global_tokens_used", parts.global_tokens_used.0);
    });
}

/// Writes a map as a field. An empty map is left out, because a reader takes an absent map as empty.
fn by_name<T>(
    json: &mut JsonWriter,
    name: &str,
    map: &BTreeMap<Box<str>, T>,
    mut value: impl FnMut(&mut JsonWriter, &T),
) {
    if map.is_empty() {
        return;
    }
    json.name(name).object(|json| {
        for (key, each) in map {
            value(json.name(key), each);
        }
    });
}

fn a_project(json: &mut JsonWriter, project: &ScheduledProject) {
    json.object(|json| {
        json.text_field("id", &project.id);
        json.text_field("status", status_name(project.status));
        json.field("credit_weight", project.credit_weight);
        json.field("max_concurrent_agents", project.max_concurrent_agents);
        json.optional("budget_limit", project.budget_limit.map(|it| it.0));
    });
}

fn a_task(json: &mut JsonWriter, task: &ScheduledTask) {
    json.object(|json| {
        json.text_field("id", &task.id);
        json.text_field("project_id", &task.project_id);
        json.text_field("status", name_of(TASK_STATUSES, task.status));
        json.field("priority", task.priority);
        json.field("created", task.created);
        json.optional("estimated_tokens", task.estimated_tokens.map(|it| it.0));
        if let Some(workspace) = &task.preferred_workspace_id {
            json.text_field("preferred_workspace_id", workspace);
        }
    });
}

fn an_agent(json: &mut JsonWriter, agent: &ScheduledAgent) {
    json.object(|json| {
        json.text_field("id", &agent.id);
        json.text_field("state", name_of(AGENT_STATES, agent.state));
    });
}

fn assignment(json: &mut JsonWriter, assignment: &TaskAssignment) {
    json.object(|json| {
        json.text_field("agent_id", &assignment.agent_id);
        json.text_field("task_id", &assignment.task_id);
        json.text_field("project_id", &assignment.project_id);
    });
}

fn project(json: &mut JsonWriter, report: &ProjectReport<'_>) {
    let project = report.project;
    json.object(|json| {
        json.text_field("project_id", &project.id);
        json.text_field("reason", report.reason.code());
        json.text_field("text", &project_sentence(report));
        json.text_field("status", status_name(project.status));
        json.field("credit_weight", project.credit_weight);
        json.field("ready", report.ready);
        json.field("given", report.given);
        json.field("spent", report.spent);
        json.field("baseline", report.baseline);
        json.name("budget_limit").or_null(project.budget_limit.map(|t| t.0), JsonWriter::display);
        json.name("budget_left").or_null(report.budget_left, JsonWriter::display);
        json.field("agents", report.agents);
        json.field("max_concurrent_agents", project.max_concurrent_agents);
        json.name("workspaces_left").or_null(report.workspaces, JsonWriter::display);
        // As of the start of the call; null if the project did not compete.
        json.name("share").or_null(report.share.as_ref(), share);
        if let ProjectReason::OutOfAgents(OutOfAgents::LostTo(it)) = &report.reason {
            loss(json.name("lost_to"), it);
        }
    });
}

fn task(json: &mut JsonWriter, report: &TaskReport<'_>) {
    json.object(|json| {
        json.text_field("task_id", &report.task.id);
        json.text_field("project_id", &report.task.project_id);
        json.text_field("reason", report.reason.code());
        json.text_field("text", &task_sentence(&report.reason));
        json.field("charge", report.charge.0);
        json.name("went_first").or_null(report.went_first, JsonWriter::text);
        match &report.reason {
            TaskReason::Given { agent, round, share: its } => {
                json.text_field("agent_id", agent);
                json.field("round", round);
                share(json.name("share"), its);
            }
            TaskReason::Blocked(obstacles) => json.name("obstacles").list(obstacles, obstacle),
            TaskReason::Behind { task }
            | TaskReason::OutOfAgents(OutOfAgents::TookTheLast { task, .. }) => {
                json.text_field("behind", task);
            }
            TaskReason::OutOfAgents(OutOfAgents::LostTo(it)) => loss(json.name("lost_to"), it),
            TaskReason::OutOfAgents(OutOfAgents::NoneIdle) => {}
        }
    });
}

fn share(json: &mut JsonWriter, share: &ProjectShare) {
    json.object(|json| {
        json.field("first_task_due", share.is_first_task_due);
        json.field("weight_total", WeightTotal(share.weight_total));
        json.field("spent", share.spent);
        json.field("spent_total", share.spent_total);
        json.field("target_ppm", share.target_ppm);
        json.field("actual_ppm", share.actual_ppm);
        json.field("gap_ppm", share.gap_ppm());
    });
}

fn loss(json: &mut JsonWriter, loss: &LostComparison<'_>) {
    let (by, by_ppm) = match loss.margin {
        ComparisonMargin::FirstTask => ("first_task", None),
        ComparisonMargin::Gap { ppm } => ("gap", Some(ppm)),
        ComparisonMargin::ListOrder => ("list_order", None),
    };
    json.object(|json| {
        json.text_field("agent_id", loss.agent);
        json.text_field("project_id", loss.winner);
        json.text_field("by", by);
        json.optional("by_ppm", by_ppm);
        share(json.name("own_share"), &loss.own_share);
        share(json.name("winner_share"), &loss.winner_share);
    });
}

fn obstacle(json: &mut JsonWriter, obstacle: &StartObstacle<'_>) {
    json.object(|json| {
        json.text_field("code", obstacle.code());
        match *obstacle {
            StartObstacle::ProjectInactive { .. } | StartObstacle::NoWorkspace => {}
            StartObstacle::GlobalBudgetSpent { spent, limit }
            | StartObstacle::ProjectBudgetSpent { spent, limit } => {
                json.field("spent", spent);
                json.field("limit", limit.0);
            }
            StartObstacle::ConcurrencyLimit { agents, limit } => {
                json.field("agents", agents);
                json.field("limit", limit);
            }
            StartObstacle::WorkspaceLocked { workspace, holder } => {
                json.text_field("workspace", workspace);
                match holder {
                    WorkspaceHolder::AlreadyHeld(holder) => json.text_field("held_by", holder),
                    WorkspaceHolder::Task(task) => json.text_field("taken_by_task", task),
                }
            }
            StartObstacle::OverProjectBudget { spent, estimate, limit }
            | StartObstacle::OverGlobalBudget { spent, estimate, limit } => {
                json.field("spent", spent);
                json.field("estimate", estimate.0);
                json.field("limit", limit.0);
            }
        }
    });
}

/// A sum of weights in thousandths. Displays as a decimal without needless zeros.
struct WeightTotal(u128);

impl fmt::Display for WeightTotal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{}.{:03}", self.0 / 1000, self.0 % 1000);
        f.write_str(text.trim_end_matches('0').trim_end_matches('.'))
    }
}
