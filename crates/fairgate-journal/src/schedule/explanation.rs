//! Explanations as JSON: for every project and ready task a stable code, a sentence, and the numbers.

use core::fmt;
use std::io;

use fairgate_core::proportional::{
    CreditWeight, Explanation, Holder, Loss, Margin, Obstacle, OutOfAgents, ProjectReason,
    ProjectReport, Share, TaskReason, TaskReport,
};
use serde::{Serialize, Serializer};

use super::{AssignmentText, Layout, PROJECT_STATUSES, write_json};

/// Writes an explanation as one JSON object and ends the line: `assignments` as [`super::write_assignments`] has
/// them, then `projects` and `tasks`, each with a `reason` that stays the same for ever and a `text` for people.
pub fn write_explanation(
    out: impl io::Write,
    explanation: &Explanation<'_>,
    layout: Layout,
) -> io::Result<()> {
    let text = ExplanationText {
        assignments: explanation.assignments.iter().map(AssignmentText::from).collect(),
        projects: explanation.projects.iter().map(project_text).collect(),
        tasks: explanation.tasks.iter().map(task_text).collect(),
    };
    write_json(out, &text, layout)
}

#[derive(Serialize)]
struct ExplanationText<'a> {
    assignments: Vec<AssignmentText<'a>>,
    projects: Vec<ProjectText<'a>>,
    tasks: Vec<TaskText<'a>>,
}

#[derive(Serialize)]
struct ProjectText<'a> {
    project_id: &'a str,
    reason: &'static str,
    text: String,
    status: &'static str,
    credit_weight: Decimal,
    ready: usize,
    given: usize,
    spent: u128,
    baseline: u128,
    budget_limit: Option<u64>,
    budget_left: Option<u128>,
    agents: u64,
    max_concurrent_agents: u64,
    workspaces_left: Option<u64>,
    /// As the call began; null where the project did not compete.
    share: Option<ShareText>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lost_to: Option<LossText<'a>>,
}

#[derive(Serialize)]
struct TaskText<'a> {
    task_id: &'a str,
    project_id: &'a str,
    reason: &'static str,
    text: String,
    /// What it is charged when it starts: its estimate, or in classic mode nothing.
    charge: u64,
    went_first: Option<&'a str>,
    #[serde(flatten)]
    detail: TaskDetail<'a>,
}

#[derive(Default, Serialize)]
struct TaskDetail<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    agent_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    round: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    share: Option<ShareText>,
    #[serde(skip_serializing_if = "Option::is_none")]
    behind: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    obstacles: Vec<ObstacleText<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lost_to: Option<LossText<'a>>,
}

#[derive(Serialize)]
struct ShareText {
    first_task_due: bool,
    weight_total: Decimal,
    spent: u128,
    spent_total: u128,
    target_ppm: u64,
    actual_ppm: u64,
    gap_ppm: i64,
}

#[derive(Serialize)]
struct LossText<'a> {
    agent_id: &'a str,
    project_id: &'a str,
    by: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    by_ppm: Option<u64>,
    own_share: ShareText,
    winner_share: ShareText,
}

#[derive(Default, Serialize)]
struct ObstacleText<'a> {
    code: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    spent: Option<u128>,
    #[serde(skip_serializing_if = "Option::is_none")]
    estimate: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    agents: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    workspace: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    held_by: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    taken_by_task: Option<&'a str>,
}

/// A number of thousandths, written as the decimal it is.
struct Decimal(String);

impl Decimal {
    fn of_weight(weight: CreditWeight) -> Self {
        Self(weight.to_string())
    }

    fn of_thousandths(thousandths: u128) -> Self {
        let (whole, part) = (thousandths / 1000, thousandths % 1000);
        let text = format!("{whole}.{part:03}");
        Self(text.trim_end_matches('0').trim_end_matches('.').into())
    }
}

impl Serialize for Decimal {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw = serde_json::value::RawValue::from_string(self.0.clone());
        raw.map_err(serde::ser::Error::custom)?.serialize(serializer)
    }
}

fn project_text<'a>(report: &ProjectReport<'a>) -> ProjectText<'a> {
    let project = report.project;
    let status = PROJECT_STATUSES.iter().find(|(_, status)| *status == project.status);
    ProjectText {
        project_id: &project.id,
        reason: report.reason.code(),
        text: project_sentence(report),
        status: status.map_or("", |(word, _)| word),
        credit_weight: Decimal::of_weight(project.credit_weight),
        ready: report.ready,
        given: report.given,
        spent: report.spent,
        baseline: report.baseline,
        budget_limit: project.budget_limit.map(|limit| limit.0),
        budget_left: report.budget_left,
        agents: report.agents,
        max_concurrent_agents: project.max_concurrent_agents,
        workspaces_left: report.workspaces,
        share: report.share.as_ref().map(share_text),
        lost_to: match &report.reason {
            ProjectReason::OutOfAgents(OutOfAgents::LostTo(loss)) => Some(loss_text(loss)),
            _ => None,
        },
    }
}

fn task_text<'a>(report: &TaskReport<'a>) -> TaskText<'a> {
    TaskText {
        task_id: &report.task.id,
        project_id: &report.task.project_id,
        reason: report.reason.code(),
        text: task_sentence(&report.reason),
        charge: report.charge.0,
        went_first: report.went_first,
        detail: task_detail(&report.reason),
    }
}

fn task_detail<'a>(reason: &TaskReason<'a>) -> TaskDetail<'a> {
    let mut detail = TaskDetail::default();
    match reason {
        TaskReason::Given { agent, round, share } => {
            detail.agent_id = Some(agent);
            detail.round = Some(*round);
            detail.share = Some(share_text(share));
        }
        TaskReason::Blocked(obstacles) => {
            detail.obstacles = obstacles.iter().map(obstacle_text).collect();
        }
        TaskReason::Behind { task } => detail.behind = Some(task),
        TaskReason::OutOfAgents(OutOfAgents::LostTo(loss)) => {
            detail.lost_to = Some(loss_text(loss));
        }
        TaskReason::OutOfAgents(OutOfAgents::TookTheLast { task, .. }) => {
            detail.behind = Some(task);
        }
        TaskReason::OutOfAgents(OutOfAgents::NoneIdle) => {}
    }
    detail
}

fn share_text(share: &Share) -> ShareText {
    ShareText {
        first_task_due: share.is_first_task_due,
        weight_total: Decimal::of_thousandths(share.weight_total),
        spent: share.spent,
        spent_total: share.spent_total,
        target_ppm: share.target_ppm,
        actual_ppm: share.actual_ppm,
        gap_ppm: share.gap_ppm(),
    }
}

fn loss_text<'a>(loss: &Loss<'a>) -> LossText<'a> {
    let (by, by_ppm) = match loss.margin {
        Margin::FirstTask => ("first_task", None),
        Margin::Gap { ppm } => ("gap", Some(ppm)),
        Margin::ListOrder => ("list_order", None),
    };
    LossText {
        agent_id: loss.agent,
        project_id: loss.winner,
        by,
        by_ppm,
        own_share: share_text(&loss.own_share),
        winner_share: share_text(&loss.winner_share),
    }
}

fn obstacle_text<'a>(obstacle: &Obstacle<'a>) -> ObstacleText<'a> {
    let text = ObstacleText { code: obstacle.code(), ..ObstacleText::default() };
    match *obstacle {
        Obstacle::ProjectInactive { .. } | Obstacle::NoWorkspace => text,
        Obstacle::GlobalBudgetSpent { spent, limit }
        | Obstacle::ProjectBudgetSpent { spent, limit } => {
            ObstacleText { spent: Some(spent), limit: Some(limit.0), ..text }
        }
        Obstacle::ConcurrencyLimit { agents, limit } => {
            ObstacleText { agents: Some(agents), limit: Some(limit), ..text }
        }
        Obstacle::WorkspaceLocked { workspace, holder } => {
            let (held_by, taken_by_task) = match holder {
                Holder::Before(holder) => (Some(holder), None),
                Holder::Task(task) => (None, Some(task)),
            };
            ObstacleText { workspace: Some(workspace), held_by, taken_by_task, ..text }
        }
        Obstacle::OverProjectBudget { spent, estimate, limit }
        | Obstacle::OverGlobalBudget { spent, estimate, limit } => ObstacleText {
            spent: Some(spent),
            estimate: Some(estimate.0),
            limit: Some(limit.0),
            ..text
        },
    }
}

fn project_sentence(report: &ProjectReport<'_>) -> String {
    let (given, ready) = (report.given, report.ready);
    let because = match &report.reason {
        ProjectReason::NoReadyTask => return "It has no ready task.".into(),
        ProjectReason::AllTasksGiven => {
            return format!("All its ready tasks ({given}) went to agents.");
        }
        ProjectReason::Blocked(obstacle) => clause(obstacle),
        ProjectReason::NoTaskCanStart => "each task that is left has an obstacle of its own".into(),
        ProjectReason::OutOfAgents(cause) => agents_clause(cause),
    };
    match given {
        0 => format!("Of its ready tasks ({ready}) none went to an agent: {because}."),
        _ => {
            format!("Of its ready tasks ({ready}) no more than {given} went to agents: {because}.")
        }
    }
}

fn task_sentence(reason: &TaskReason<'_>) -> String {
    match reason {
        TaskReason::Given { agent, share, .. } => {
            format!("Agent {agent} got it: its project {}.", Standing(share))
        }
        TaskReason::Blocked(obstacles) => {
            let clauses: Vec<String> = obstacles.iter().map(clause).collect();
            format!("It cannot start: {}.", clauses.join("; "))
        }
        TaskReason::Behind { task } => {
            format!("It could start, but no agent is left and {task} of its project goes first.")
        }
        TaskReason::OutOfAgents(cause) => format!("It could start, but {}.", agents_clause(cause)),
    }
}

fn clause(obstacle: &Obstacle<'_>) -> String {
    match obstacle {
        Obstacle::ProjectInactive { status } => {
            let word = PROJECT_STATUSES.iter().find(|(_, known)| known == status);
            format!("the project is {}", word.map_or("not ACTIVE", |(word, _)| word))
        }
        Obstacle::GlobalBudgetSpent { spent, limit } => {
            format!("all projects together have spent {spent} of {} tokens", limit.0)
        }
        Obstacle::ProjectBudgetSpent { spent, limit } => {
            format!("the project has spent {spent} of its {} tokens", limit.0)
        }
        Obstacle::ConcurrencyLimit { agents, limit } => {
            format!("the project has {agents} of at most {limit} agents")
        }
        Obstacle::NoWorkspace => "the project has no free workspace".into(),
        Obstacle::WorkspaceLocked { workspace, holder: Holder::Before(holder) } => {
            format!("its workspace {workspace} is held by {holder}")
        }
        Obstacle::WorkspaceLocked { workspace, holder: Holder::Task(task) } => {
            format!("its workspace {workspace} went to task {task} in this call")
        }
        Obstacle::OverProjectBudget { spent, estimate, limit } => format!(
            "its estimate of {} does not fit, as the project has spent {spent} of its {} tokens",
            estimate.0, limit.0
        ),
        Obstacle::OverGlobalBudget { spent, estimate, limit } => format!(
            "its estimate of {} does not fit, as all projects together have spent {spent} of {} tokens",
            estimate.0, limit.0
        ),
    }
}

fn agents_clause(cause: &OutOfAgents<'_>) -> String {
    let loss = match cause {
        OutOfAgents::NoneIdle => return "no agent was idle".into(),
        OutOfAgents::TookTheLast { agent, task } => {
            return format!("the last idle agent, {agent}, went to {task} of the same project");
        }
        OutOfAgents::LostTo(loss) => loss,
    };
    let why = match loss.margin {
        Margin::FirstTask => "which was owed its first task".into(),
        Margin::ListOrder => "which stood alike and is listed first".into(),
        Margin::Gap { ppm } => {
            let (own, winner) = (Standing(&loss.own_share), Standing(&loss.winner_share));
            format!("which {winner}, while this one {own}, a difference of {}", percent(ppm))
        }
    };
    format!("the last idle agent, {}, went to project {}, {why}", loss.agent, loss.winner)
}

/// How a project stands, in words.
struct Standing<'a>(&'a Share);

impl fmt::Display for Standing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Share { is_first_task_due, target_ppm, actual_ppm, .. } = *self.0;
        if is_first_task_due {
            write!(f, "was owed its first task in the window, and ")?;
        }
        write!(
            f,
            "had {} of the tokens against a share of {}",
            percent(actual_ppm),
            percent(target_ppm)
        )
    }
}

/// Millionths as a percentage with one decimal, or as many as it takes to see anything.
fn percent(ppm: u64) -> String {
    match ppm {
        0 => "0 %".into(),
        1..1000 => format!("0.{ppm:04} %"),
        _ => format!("{}.{} %", ppm / 10_000, ppm % 10_000 / 1000),
    }
}
