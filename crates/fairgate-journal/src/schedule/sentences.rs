//! What an explanation says to people.

use std::fmt;

use fairgate_core::proportional::{
    Holder, Margin, Obstacle, OutOfAgents, ProjectReason, ProjectReport, Share, TaskReason,
};

use super::names::status_name;

/// What became of a project's tasks.
pub(super) fn project_sentence(report: &ProjectReport<'_>) -> String {
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

/// What became of a task.
pub(super) fn task_sentence(reason: &TaskReason<'_>) -> String {
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
        Obstacle::ProjectInactive { status } => format!("the project is {}", status_name(*status)),
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
