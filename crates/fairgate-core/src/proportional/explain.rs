//! Why every project and every ready task got an agent or did not, with the numbers that decided.

use super::gap::Totals;
use super::ledger::{Ledger, Obstacle};
use super::snapshot::{Mode, Project, ProjectStatus, Snapshot, Task};
use super::{Assignment, Contender, Contest, Round, classic_contest, run};
use crate::units::Tokens;
use alloc::vec;
use alloc::vec::Vec;

/// What a call decided and why. Made by [`explain`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation<'a> {
    /// What [`super::schedule`] returns for the same snapshot.
    pub assignments: Vec<Assignment>,
    /// Every project, in the order of the snapshot.
    pub projects: Vec<ProjectReport<'a>>,
    /// Every ready task, in the order of the snapshot.
    pub tasks: Vec<TaskReport<'a>>,
}

/// How one project came out of a call. Amounts are as the call ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProjectReport<'a> {
    /// Which project.
    pub project: &'a Project,
    /// Why it got no more than it did.
    pub reason: ProjectReason<'a>,
    /// How it stood when the call began; `None`: it did not compete.
    pub share: Option<Share>,
    /// How many ready tasks it came with.
    pub ready: usize,
    /// How many of them went to an agent in this call.
    pub given: usize,
    /// What counts against its budget.
    pub spent: u128,
    /// What the comparison adds to that.
    pub baseline: u128,
    /// What is left of its budget, where it has one.
    pub budget_left: Option<u128>,
    /// How many agents work for it.
    pub agents: u64,
    /// How many of its workspaces are free, where they are counted.
    pub workspaces: Option<u64>,
}

/// How one ready task came out of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskReport<'a> {
    /// Which task.
    pub task: &'a Task,
    /// What it is charged when it starts: its estimate, or in classic mode nothing.
    pub charge: Tokens,
    /// What became of it.
    pub reason: TaskReason<'a>,
    /// The task of the same project that an agent got last before it in this call.
    pub went_first: Option<&'a str>,
}

/// How a project stands against those it competes with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Whether its min-task guarantee is still to be met, which puts it before all others.
    pub is_first_task_due: bool,
    /// The weights of all that compete, in thousandths.
    pub weight_total: u128,
    /// What it has spent, its baseline included.
    pub spent: u128,
    /// What all that compete have spent; in classic mode, what all projects have.
    pub spent_total: u128,
    /// The part it should have, in millionths rounded down.
    pub target_ppm: u64,
    /// The part it has, in millionths rounded down.
    pub actual_ppm: u64,
}

/// Why a project got no more than it did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProjectReason<'a> {
    /// Nothing of it was ready.
    NoReadyTask,
    /// All that was ready went to agents.
    AllTasksGiven,
    /// It may start nothing more.
    Blocked(Obstacle<'a>),
    /// It may, but each task that is left has an obstacle of its own.
    NoTaskCanStart,
    /// It could, but there was no agent for it.
    OutOfAgents(OutOfAgents<'a>),
}

/// What became of a ready task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskReason<'a> {
    /// An agent has it.
    Given {
        /// Which agent.
        agent: &'a str,
        /// How many agents were given away with it, counted from 1.
        round: usize,
        /// How its project stood before.
        share: Share,
    },
    /// It cannot start. All that would have to change, the first test that fails first.
    Blocked(Vec<Obstacle<'a>>),
    /// It could start, but another task of its project goes first.
    Behind {
        /// The project's next task.
        task: &'a str,
    },
    /// It is its project's next task, but there was no agent for it.
    OutOfAgents(OutOfAgents<'a>),
}

/// Who has the agents that somebody else could have used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutOfAgents<'a> {
    /// No agent was idle.
    NoneIdle,
    /// The last one works for the same project.
    TookTheLast {
        /// Which agent.
        agent: &'a str,
        /// On which task.
        task: &'a str,
    },
    /// The last one works for another project.
    LostTo(Loss<'a>),
}

/// The comparison in which a project lost the last agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss<'a> {
    /// Which agent.
    pub agent: &'a str,
    /// Who got it.
    pub winner: &'a str,
    /// What decided.
    pub margin: Margin,
    /// How the loser stood.
    pub own_share: Share,
    /// How the winner stood.
    pub winner_share: Share,
}

/// By what one project goes before another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Margin {
    /// It was owed its first task, the other was not.
    FirstTask,
    /// It was further below its share.
    Gap {
        /// By how much, in millionths of all tokens; 0 is less than one millionth.
        ppm: u64,
    },
    /// They stood alike, and it is listed first.
    ListOrder,
}

impl Obstacle<'_> {
    /// The stable code that callers see.
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
    /// The stable code that callers see.
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
    /// The stable code that callers see.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Given { .. } => "given",
            Self::Blocked(obstacles) => obstacles.first().map_or("blocked", Obstacle::code),
            Self::Behind { .. } => "behind",
            Self::OutOfAgents(cause) => cause.code(),
        }
    }
}

impl OutOfAgents<'_> {
    /// The stable code that callers see.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NoneIdle => "no_idle_agent",
            Self::TookTheLast { .. } => "took_the_last_agent",
            Self::LostTo(_) => "lost_to",
        }
    }
}

/// Runs the call and says why everything came as it did.
pub fn explain(snapshot: &Snapshot) -> Explanation<'_> {
    let opening = opening_shares(snapshot);
    let mut ledger = Ledger::open(snapshot);
    let rounds = run(&mut ledger);
    let mut end = End { given_in: vec![None; snapshot.parts().tasks.len()], rounds, ledger };
    for (number, round) in end.rounds.iter().enumerate() {
        end.given_in[round.task] = Some(number);
    }
    let tasks_to_start = end.tasks_to_start();
    Explanation {
        assignments: end.rounds.iter().map(|round| round.assignment(snapshot)).collect(),
        projects: (opening.into_iter().enumerate())
            .map(|(project, share)| end.project(project, tasks_to_start[project], share))
            .collect(),
        tasks: end.tasks(&tasks_to_start),
    }
}

/// How each project stood when the call began, where it competes.
fn opening_shares(snapshot: &Snapshot) -> Vec<Option<Share>> {
    let mut ledger = Ledger::open(snapshot);
    let (contenders, totals) = match snapshot.parts().mode {
        Mode::Classic => classic_contest(&ledger),
        Mode::Strict => Contest::open(&mut ledger).contenders(&ledger),
    };
    let mut shares = vec![None; snapshot.parts().projects.len()];
    for contender in contenders {
        shares[contender.project] = Some(Share::of(&contender, &totals));
    }
    shares
}

impl Share {
    fn of(contender: &Contender, totals: &Totals) -> Self {
        Self {
            is_first_task_due: !contender.had_its_task,
            weight_total: totals.weight,
            spent: contender.spent,
            spent_total: totals.spent,
            target_ppm: totals.target_ppm(contender.weight),
            actual_ppm: totals.actual_ppm(contender.spent),
        }
    }

    /// actual − target, in millionths: below 0 where a project is owed.
    pub fn gap_ppm(&self) -> i64 {
        self.actual_ppm.cast_signed().saturating_sub(self.target_ppm.cast_signed())
    }
}

/// A call that is over.
struct End<'a> {
    ledger: Ledger<'a>,
    rounds: Vec<Round>,
    /// Per task, the round in which it was given.
    given_in: Vec<Option<usize>>,
}

impl<'a> End<'a> {
    /// Per project, the task it would start next if there were another agent.
    fn tasks_to_start(&mut self) -> Vec<Option<usize>> {
        (0..self.ledger.accounts.len()).map(|project| self.ledger.next_task(project)).collect()
    }

    fn project(
        &self,
        project: usize,
        next: Option<usize>,
        share: Option<Share>,
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
                share: Share::of(&round.winner, &round.totals),
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

    /// Why a project that could start another task has no agent for it.
    fn out_of_agents(&self, project: usize) -> OutOfAgents<'a> {
        let parts = self.ledger.snapshot.parts();
        let Some(last) = self.rounds.last() else { return OutOfAgents::NoneIdle };
        let agent = &*parts.agents[last.agent].id;
        if last.winner.project == project {
            return OutOfAgents::TookTheLast { agent, task: &parts.tasks[last.task].id };
        }
        // It was given nothing in that round, so it stood then as it stands now.
        let own = Contender::of(&self.ledger, project);
        OutOfAgents::LostTo(Loss {
            agent,
            winner: &parts.projects[last.winner.project].id,
            margin: margin(&last.winner, &own, &last.totals),
            own_share: Share::of(&own, &last.totals),
            winner_share: Share::of(&last.winner, &last.totals),
        })
    }
}

fn margin(winner: &Contender, loser: &Contender, totals: &Totals) -> Margin {
    if winner.had_its_task != loser.had_its_task {
        return Margin::FirstTask;
    }
    let gap = |contender: &Contender| totals.gap(contender.weight, contender.spent);
    if gap(winner) == gap(loser) {
        return Margin::ListOrder;
    }
    let ppm = |contender| Share::of(contender, totals).gap_ppm();
    Margin::Gap { ppm: ppm(loser).saturating_sub(ppm(winner)).max(0).cast_unsigned() }
}
