//! Explains why every project and every ready task got an agent or did not, with the numbers that decided.

use super::call_state::{ScheduleCall, StartObstacle};
use super::gap::GapTotals;
use super::snapshot::{
    ProjectStatus, ScheduleMode, ScheduleSnapshot, ScheduledProject, ScheduledTask,
};
use super::{
    AssignmentRound, ProjectContender, StrictContest, TaskAssignment, classic_contest, run,
};
use crate::units::Tokens;
use alloc::vec;
use alloc::vec::Vec;

/// The assignments for a snapshot with the reasons for them, as [`explain`] returns them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleExplanation<'a> {
    /// The assignments that [`super::schedule`] returns for the same snapshot.
    pub assignments: Vec<TaskAssignment>,
    /// A report on every project, in the order of the snapshot.
    pub projects: Vec<ProjectReport<'a>>,
    /// A report on every ready task, in the order of the snapshot.
    pub tasks: Vec<TaskReport<'a>>,
}

/// The result of the scheduler for one project. All amounts are those after the last assignment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProjectReport<'a> {
    /// The project as stated in the snapshot.
    pub project: &'a ScheduledProject,
    /// The reason why the project got no more agents.
    pub reason: ProjectReason<'a>,
    /// Share of the project before the first assignment; `None` if the project did not compete.
    pub share: Option<ProjectShare>,
    /// Number of the project's tasks that were ready before the first assignment.
    pub ready: usize,
    /// Number of the project's ready tasks that were assigned to an agent.
    pub given: usize,
    /// Tokens that count against the project's budget.
    pub spent: u128,
    /// Tokens that the comparison of projects adds to `spent`, as the snapshot's baseline states.
    pub baseline: u128,
    /// Tokens left of the project's budget; `None` if the project has no budget.
    pub budget_left: Option<u128>,
    /// Number of agents that work for the project, including those just assigned.
    pub agents: u64,
    /// Number of the project's free workspaces; `None` if workspaces are not counted.
    pub workspaces: Option<u64>,
}

/// The result of the scheduler for one ready task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskReport<'a> {
    /// The task as stated in the snapshot.
    pub task: &'a ScheduledTask,
    /// Tokens that the task is charged when it is assigned, which is its estimate, or 0 in classic mode.
    pub charge: Tokens,
    /// The reason why the task was or was not assigned.
    pub reason: TaskReason<'a>,
    /// Id of the previous task of the same project that was assigned; `None` if there is none.
    pub went_first: Option<&'a str>,
}

/// The share of a project, compared with the projects that compete with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProjectShare {
    /// True if the min-task guarantee is not met yet, which puts the project before all projects
    /// that have met it.
    pub is_first_task_due: bool,
    /// Summed weights of all competitors, in thousandths.
    pub weight_total: u128,
    /// Tokens that the project has spent, plus its baseline.
    pub spent: u128,
    /// Tokens that all competitors have spent; in classic mode, the tokens of all projects.
    pub spent_total: u128,
    /// The part of all tokens that the project should have, in millionths rounded down.
    pub target_ppm: u64,
    /// The part of all tokens that the project has, in millionths rounded down.
    pub actual_ppm: u64,
}

/// The reason why a project got no more agents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProjectReason<'a> {
    /// None of the project's tasks was ready.
    NoReadyTask,
    /// All of the project's ready tasks were assigned to agents.
    AllTasksGiven,
    /// An obstacle keeps the project from starting any further task.
    Blocked(StartObstacle<'a>),
    /// The project may start tasks, but each of its remaining tasks has an obstacle of its own.
    NoTaskCanStart,
    /// The project could start a task, but no agent was left for it.
    OutOfAgents(OutOfAgents<'a>),
}

/// The reason why a ready task was or was not assigned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskReason<'a> {
    /// The task was assigned to an agent.
    Given {
        /// Id of the agent that got the task.
        agent: &'a str,
        /// Position of the assignment in the order of all assignments, counted from 1.
        round: usize,
        /// Share of the task's project right before this assignment.
        share: ProjectShare,
    },
    /// The task cannot start. The list has every obstacle, in the order of the tests.
    Blocked(Vec<StartObstacle<'a>>),
    /// The task could start, but another task of the same project goes first.
    Behind {
        /// Id of the task that goes first.
        task: &'a str,
    },
    /// The task is the next of its project, but no agent was left for it.
    OutOfAgents(OutOfAgents<'a>),
}

/// The reason why no agent was left for a project or task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutOfAgents<'a> {
    /// No agent was idle in the snapshot.
    NoneIdle,
    /// The last idle agent was assigned to another task of the same project.
    TookTheLast {
        /// Id of the last agent that was assigned.
        agent: &'a str,
        /// Id of the task that this agent got.
        task: &'a str,
    },
    /// The last idle agent was assigned to another project.
    LostTo(LostComparison<'a>),
}

/// The comparison in which a project lost the last agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostComparison<'a> {
    /// Id of the last agent that was assigned.
    pub agent: &'a str,
    /// Id of the project that got this agent.
    pub winner: &'a str,
    /// The difference between the two projects that decided the comparison.
    pub margin: ComparisonMargin,
    /// Share of the losing project when the last agent was assigned.
    pub own_share: ProjectShare,
    /// Share of the winning project when the last agent was assigned.
    pub winner_share: ProjectShare,
}

/// The difference because of which one project goes before another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ComparisonMargin {
    /// The winner was still owed its guaranteed first task, and the loser was not.
    FirstTask,
    /// The winner was further below its share.
    Gap {
        /// Gap of the loser minus gap of the winner, in millionths of all tokens; 0 means less than one millionth.
        ppm: u64,
    },
    /// The gaps were equal, and the snapshot lists the winner before the loser.
    ListOrder,
}

impl StartObstacle<'_> {
    /// Returns the stable code of this reason that callers see.
    pub fn code(&self) -> &'static str {
        match self {
            Self::ProjectInactive { .. } => "project_inactive",
            Self::GlobalBudgetSpent { .. } => "global_budget_spent",
            Self::ProjectBudgetSpent { .. } => "project_budget_spent",
            Self::ConcurrencyLimit { .. } => "concurrency_limit",
            Self::NoWorkspace => "no_workspace",
            Self::WorkspaceLocked { .. } => "workspace_locked",
            Self::OverProjectBudget { .. } => "over_project_budget",
            Self::OverGlobalBudget { .. } => "over_global_budget",
        }
    }
}

impl ProjectReason<'_> {
    /// Returns the stable code of this reason that callers see.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NoReadyTask => "no_ready_task",
            Self::AllTasksGiven => "all_tasks_given",
            Self::Blocked(obstacle) => obstacle.code(),
            Self::NoTaskCanStart => "no_task_can_start",
            Self::OutOfAgents(cause) => cause.code(),
        }
    }
}

impl TaskReason<'_> {
    /// Returns the stable code of this reason that callers see.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Given { .. } => "given",
            Self::Blocked(obstacles) => obstacles.first().map_or("blocked", StartObstacle::code),
            Self::Behind { .. } => "behind",
            Self::OutOfAgents(cause) => cause.code(),
        }
    }
}

impl OutOfAgents<'_> {
    /// Returns the stable code of this reason that callers see.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NoneIdle => "no_idle_agent",
            Self::TookTheLast { .. } => "took_the_last_agent",
            Self::LostTo(_) => "lost_to",
        }
    }
}

/// Assigns tasks as [`super::schedule`] does, and explains the result.
pub fn explain(snapshot: &ScheduleSnapshot) -> ScheduleExplanation<'_> {
    let opening = opening_shares(snapshot);
    let mut ledger = ScheduleCall::open(snapshot);
    let rounds = run(&mut ledger);
    let mut end =
        FinishedCall { given_in: vec![None; snapshot.parts().tasks.len()], rounds, ledger };
    for (number, round) in end.rounds.iter().enumerate() {
        end.given_in[round.task] = Some(number);
    }
    let tasks_to_start = end.tasks_to_start();
    ScheduleExplanation {
        assignments: end.rounds.iter().map(|round| round.assignment(snapshot)).collect(),
        projects: (opening.into_iter().enumerate())
            .map(|(project, share)| end.project(project, tasks_to_start[project], share))
            .collect(),
        tasks: end.tasks(&tasks_to_start),
    }
}

/// Returns the share of each project before the first assignment; `None` for a project that does not compete.
fn opening_shares(snapshot: &ScheduleSnapshot) -> Vec<Option<ProjectShare>> {
    let mut ledger = ScheduleCall::open(snapshot);
    let (contenders, totals) = match snapshot.parts().mode {
        ScheduleMode::Classic => classic_contest(&ledger),
        ScheduleMode::Strict => StrictContest::open(&mut ledger).contenders(&ledger),
    };
    let mut shares = vec![None; snapshot.parts().projects.len()];
    for contender in contenders {
        shares[contender.project] = Some(ProjectShare::of(&contender, &totals));
    }
    shares
}

impl ProjectShare {
    fn of(contender: &ProjectContender, totals: &GapTotals) -> Self {
        Self {
            is_first_task_due: !contender.is_guarantee_met,
            weight_total: totals.weight,
            spent: contender.spent,
            spent_total: totals.spent,
            target_ppm: totals.target_ppm(contender.weight),
            actual_ppm: totals.actual_ppm(contender.spent),
        }
    }

    /// Returns actual − target, in millionths: below 0 if the project is owed.
    pub fn gap_ppm(&self) -> i64 {
        self.actual_ppm.cast_signed().saturating_sub(self.target_ppm.cast_signed())
    }
}

/// The final state of the scheduler, with the assignments made.
struct FinishedCall<'a> {
    ledger: ScheduleCall<'a>,
    rounds: Vec<AssignmentRound>,
    /// For each task, the index of the assignment that assigned it; `None` if the task was not assigned.
    given_in: Vec<Option<usize>>,
}

impl<'a> FinishedCall<'a> {
    /// Returns, for each project, the task that it would start next if there were another agent.
    fn tasks_to_start(&mut self) -> Vec<Option<usize>> {
        (0..self.ledger.accounts.len()).map(|project| self.ledger.next_task(project)).collect()
    }

    fn project(
        &self,
        project: usize,
        next: Option<usize>,
        share: Option<ProjectShare>,
    ) -> ProjectReport<'a> {
        let (rules, account) =
            (&self.ledger.snapshot.parts().projects[project], &self.ledger.accounts[project]);
        let given = account.ready.iter().filter(|task| self.given_in[**task].is_some()).count();
        ProjectReport {
            project: rules,
            reason: self.project_reason(project, next, given),
            share,
            ready: account.ready.len(),
            given,
            spent: account.spent,
            baseline: account.baseline,
            budget_left: rules.budget_limit.map(|l| u128::from(l.0).saturating_sub(account.spent)),
            agents: account.agents,
            workspaces: account.workspaces,
        }
    }

    fn project_reason(
        &self,
        project: usize,
        next: Option<usize>,
        given: usize,
    ) -> ProjectReason<'a> {
        let status = self.ledger.snapshot.parts().projects[project].status;
        let ready = self.ledger.accounts[project].ready.len();
        let obstacle = self.ledger.project_tests(project).into_iter().flatten().next();
        match obstacle {
            _ if next.is_some() => ProjectReason::OutOfAgents(self.out_of_agents(project)),
            Some(obstacle) if status != ProjectStatus::Active => ProjectReason::Blocked(obstacle),
            _ if ready == 0 => ProjectReason::NoReadyTask,
            _ if given == ready => ProjectReason::AllTasksGiven,
            Some(obstacle) => ProjectReason::Blocked(obstacle),
            None => ProjectReason::NoTaskCanStart,
        }
    }

    fn tasks(&self, tasks_to_start: &[Option<usize>]) -> Vec<TaskReport<'a>> {
        let tasks = &self.ledger.snapshot.parts().tasks;
        let mut reports = Vec::new();
        for account in &self.ledger.accounts {
            let mut went_first = None;
            for &task in &account.ready {
                let reason = self.task_reason(task, tasks_to_start);
                let charge = self.ledger.charge(task);
                reports.push((task, TaskReport { task: &tasks[task], charge, reason, went_first }));
                if self.given_in[task].is_some() {
                    went_first = Some(&*tasks[task].id);
                }
            }
        }
        reports.sort_unstable_by_key(|(task, _)| *task);
        reports.into_iter().map(|(_, report)| report).collect()
    }

    fn task_reason(&self, task: usize, tasks_to_start: &[Option<usize>]) -> TaskReason<'a> {
        let snapshot = self.ledger.snapshot;
        if let Some(number) = self.given_in[task] {
            let round = &self.rounds[number];
            return TaskReason::Given {
                agent: &snapshot.parts().agents[round.agent].id,
                round: number + 1,
                share: ProjectShare::of(&round.winner, &round.totals),
            };
        }
        let project = snapshot.project_of[task];
        match tasks_to_start[project] {
            Some(next) if next == task => TaskReason::OutOfAgents(self.out_of_agents(project)),
            next => {
                let tests = self.ledger.project_tests(project).into_iter();
                let obstacles: Vec<_> =
                    tests.chain(self.ledger.task_tests(task)).flatten().collect();
                match next {
                    Some(next) if obstacles.is_empty() => {
                        TaskReason::Behind { task: &snapshot.parts().tasks[next].id }
                    }
                    _ => TaskReason::Blocked(obstacles),
                }
            }
        }
    }

    /// Returns the reason why no agent was left for a project that could start another task.
    fn out_of_agents(&self, project: usize) -> OutOfAgents<'a> {
        let parts = self.ledger.snapshot.parts();
        let Some(last) = self.rounds.last() else { return OutOfAgents::NoneIdle };
        let agent = &*parts.agents[last.agent].id;
        if last.winner.project == project {
            return OutOfAgents::TookTheLast { agent, task: &parts.tasks[last.task].id };
        }
        // The project got nothing in the last round, so its numbers in that round equal those now.
        let own = ProjectContender::of(&self.ledger, project);
        OutOfAgents::LostTo(LostComparison {
            agent,
            winner: &parts.projects[last.winner.project].id,
            margin: margin(&last.winner, &own, &last.totals),
            own_share: ProjectShare::of(&own, &last.totals),
            winner_share: ProjectShare::of(&last.winner, &last.totals),
        })
    }
}

fn margin(
    winner: &ProjectContender,
    loser: &ProjectContender,
    totals: &GapTotals,
) -> ComparisonMargin {
    if winner.is_guarantee_met != loser.is_guarantee_met {
        return ComparisonMargin::FirstTask;
    }
    let gap = |contender: &ProjectContender| totals.gap(contender.weight, contender.spent);
    if gap(winner) == gap(loser) {
        return ComparisonMargin::ListOrder;
    }
    let ppm = |contender| ProjectShare::of(contender, totals).gap_ppm();
    ComparisonMargin::Gap { ppm: ppm(loser).saturating_sub(ppm(winner)).max(0).cast_unsigned() }
}
