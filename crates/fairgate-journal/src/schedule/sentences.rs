//! The sentences of a scheduler's explanation, for people.

use std::fmt;

use fairgate_core::proportional::{
    ComparisonMargin, OutOfAgents, ProjectReason, ProjectReport, ProjectShare, StartObstacle,
    TaskReason, WorkspaceHolder,
};
use fairgate_core::units::Percentage;

use super::names::status_name;

/// Describes in one sentence how many of a project's tasks were assigned, and why no more.
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

/// Describes in one sentence why a task was or was not assigned.
pub(super) fn task_sentence(reason: &TaskReason<'_>) -> String {
    match reason {
        TaskReason::Given { agent, share, .. } => {
            format!("Agent {agent} got it: its project {}.", ShareSentence(share))
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

fn clause(obstacle: &StartObstacle<'_>) -> String {
    match obstacle {
        StartObstacle::ProjectInactive { status } => {
            format!("the project is {}", status_name(*status))
        }
        StartObstacle::GlobalBudgetSpent { spent, limit } => {
            format!("all projects together have spent {spent} of {} tokens", limit.0)
        }
        StartObstacle::ProjectBudgetSpent { spent, limit } => {
            format!("the project has spent {spent} of its {} tokens", limit.0)
        }
        StartObstacle::ConcurrencyLimit { agents, limit } => {
            format!("the project has {agents} of at most {limit} agents")
        }
        StartObstacle::NoWorkspace => "the project has no free workspace".into(),
        StartObstacle::WorkspaceLocked {
            workspace,
            holder: WorkspaceHolder::AlreadyHeld(holder),
        } => {
            format!("its workspace {workspace} is held by {holder}")
        }
        StartObstacle::WorkspaceLocked { workspace, holder: WorkspaceHolder::Task(task) } => {
            format!("its workspace {workspace} went to task {task} in this call")
        }
        StartObstacle::OverProjectBudget { spent, estimate, limit } => format!(
            "its estimate of {} does not fit, as the project has spent {spent} of its {} tokens",
            estimate.0, limit.0
        ),
        StartObstacle::OverGlobalBudget { spent, estimate, limit } => format!(
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
        ComparisonMargin::FirstTask => "which was owed its first task".into(),
        ComparisonMargin::ListOrder => "which stood alike and is listed first".into(),
        ComparisonMargin::Gap { ppm } => {
            let (own, winner) = (ShareSentence(&loss.own_share), ShareSentence(&loss.winner_share));
            format!(
                "which {winner}, while this one {own}, a difference of {}",
                Percentage::from_ppm(ppm)
            )
        }
    };
    format!("the last idle agent, {}, went to project {}, {why}", loss.agent, loss.winner)
}

/// Displays the share of a project in words.
struct ShareSentence<'a>(&'a ProjectShare);

impl fmt::Display for ShareSentence<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ProjectShare { is_first_task_due, target_ppm, actual_ppm, .. } = *self.0;
        if is_first_task_due {
            write!(f, "was owed its first task in the window, and ")?;
        }
        write!(
            f,
            "had {} of the tokens against a share of {}",
            Percentage::from_ppm(actual_ppm),
            Percentage::from_ppm(target_ppm)
        )
    }
}
