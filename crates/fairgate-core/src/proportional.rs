//! Proportional credit weights: assigns ready tasks to idle agents.
//!
//! Projects have tasks, agents work on them, and every project has a *credit weight* that sets its part of the tokens.
//! [`schedule`] takes a [`ScheduleSnapshot`] of all of them and returns [`TaskAssignment`]s. The function is pure:
//! equal snapshots give equal assignments everywhere, and no call remembers an earlier call.
//!
//! # Source
//!
//! Follows agent-queue's page "Scheduler" ("Proportional credit-weight task scheduling"). [`ScheduleMode::Classic`]
//! computes that algorithm; [`ScheduleMode::Strict`] is ours and avoids the weaknesses of the classic algorithm that
//! are listed below. Neither algorithm follows a paper.
//!
//! # The order of projects
//!
//! Let w be a project's weight and u the tokens that it used in a window of time. Let ΣW be the sum of the weights and
//! ΣT the sum of the tokens of all projects compared. A project *should* have the part w/ΣW of all tokens and *has* the
//! part u/ΣT. The project furthest below its part goes first, that is, the one with the lowest
//!
//! ```text
//!     u     w
//!     ── − ──            below 0: owed;   above 0: ahead of its share
//!     ΣT    ΣW
//! ```
//!
//! Only the order matters, so no fraction is computed. Both denominators are the same for all projects and above 0, so
//! multiplying by ΣT·ΣW does not change the order and leaves integers. The product is the project's *gap*:
//!
//! ```text
//!     gap = u·ΣW − w·ΣT
//! ```
//!
//! With weights 3 and 1 and usages 1000 and 500, ΣW = 4 and ΣT = 1500: the gaps are 1000·4 − 3·1500 = −500 and 500·4 −
//! 1·1500 = +500. The first project is owed (it has 66.7 % and should have 75 %), so it gets the next agent. Every
//! agent goes to the project with the lowest gap, and the agent's work raises u. So the gaps move towards 0, and usage
//! approaches the ratio of the weights. A gap is computed in 256 bits, so that it is exact for any number of projects
//! with up to 2^64 − 1 tokens each. Strict mode computes it in 128 bits whenever ΣW and ΣT are below 2^63, because 128
//! bits then suffice. If no project used any tokens, ΣT counts as 1. Then every gap is −w, and the project with the
//! greatest weight goes first. Projects with equal gaps go in the order in which they are listed.
//!
//! The *min-task guarantee* is compared before the gap: a project that completed no task in the window goes before all
//! projects that did, however small its weight. So no project starves: a project of weight 1 beside one of weight 1000
//! still gets its one task.
//!
//! # The tests before a start
//!
//! The idle agents are assigned one after another. The first project in the order above that can start a task gets the
//! agent. A project can start a task if it is active, has budget left, has fewer agents at work than it may have at
//! once, has a free workspace (if workspaces are counted), and has a ready task whose preferred workspace is free. Of
//! several such tasks the project starts the first by priority (lower first), then by id. If the global budget is
//! spent, no project gets an agent.
//!
//! # Classic and strict
//!
//! [`ScheduleMode::Classic`] is the algorithm as it was published. It looks at the snapshot only. Between two
//! assignments it updates only the numbers of agents and the tasks already assigned. This has four weaknesses. A
//! project that is one token behind gets all idle agents that it may have at once. A budget with one token left lets
//! any number of tasks start. One free workspace is given to every task. And the tokens of projects that have nothing
//! to do are part of ΣT, so that the other projects look owed for a long time. [`ScheduleMode::Strict`] avoids these
//! with the following rules:
//!
//! - *An assignment is charged at once.* Spent = usage + reservations of running tasks + estimates of the tasks
//!   assigned in this call. A task may start only if spent + estimate ≤ limit, both for the project's budget and for
//!   the global budget. A task that is too large is passed over, and the project's next task is tried.
//! - *The denominators cover the competitors.* ΣW and ΣT run over the projects that could start a task now, and are
//!   computed again for every agent.
//! - *No rush after a pause.* u is spent + baseline. The caller sets a baseline for a project that has tasks again
//!   after it was idle. The project then starts level with the others, and does not catch up on the time in which it
//!   had no tasks.
//! - *A workspace is given once.* Each assigned task takes one of the project's workspaces and locks the one that it
//!   prefers.
//! - *The guarantee is one task.* A completed task meets the guarantee, and so does a running agent or a task assigned
//!   in this call.
//! - *First created, first served.* Tasks go by priority, then `created`, then id: t-2 before t-10.
//!
//! # Cost
//!
//! Let there be P projects, N ready tasks and A idle agents. Each project's tasks are sorted once. An obstacle
//! ([`StartObstacle`]) never ends while tasks are being assigned, because budgets, free agent places and free
//! workspaces only shrink. So each project needs only a cursor into its tasks that never moves back, and all cursors
//! together make at most N steps.
//!
//! In classic mode no project's gap changes within a call. So the projects too are sorted once, and one cursor runs
//! over the sorted projects. All steps together cost O(N log N + P log P + A).
//!
//! In strict mode each assigned task changes ΣT, and a project that can start nothing more no longer counts in ΣW and
//! ΣT. So any two projects of different weight may change places after each assignment. Two projects of the *same*
//! weight keep their order until one of them gets a task: unless only one of them has met the guarantee, the one that
//! has spent less goes first, whatever ΣW and ΣT are. So the projects of each weight are in a heap, and only the tops
//! of the heaps are compared for each agent. Let K be the number of different weights, which is the number of heaps; K
//! ≤ P.
//!
//! An assigned task can keep the next task of *another* project from starting in only two ways. It may take the
//! workspace that the other task prefers, or it may leave too little of the global budget for the other task. An index
//! by workspace finds the projects of the first case, and a heap by estimate those of the second, so no step searches
//! all projects. All steps together cost O(N log N + (N + A) log P + A·K).

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

mod call_state;
mod explain;
mod gap;
mod snapshot;

use alloc::collections::{BTreeMap, BinaryHeap};
use core::cmp::Reverse;

use call_state::ScheduleCall;
pub use call_state::{StartObstacle, WorkspaceHolder};
pub use explain::{
    ComparisonMargin, LostComparison, OutOfAgents, ProjectReason, ProjectReport, ProjectShare,
    ScheduleExplanation, TaskReason, TaskReport, explain,
};
use gap::GapTotals;
pub use snapshot::{
    AgentState, CreditWeight, ProjectStatus, ScheduleMode, ScheduleSnapshot, ScheduleSnapshotError,
    ScheduleSnapshotErrorKind, ScheduleSnapshotParts, ScheduledAgent, ScheduledProject,
    ScheduledTask, TaskStatus,
};

use crate::units::Tokens;

/// One task assigned to one agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskAssignment {
    /// Id of the agent that gets the task.
    pub agent_id: Box<str>,
    /// Id of the task that the agent gets.
    pub task_id: Box<str>,
    /// Id of the task's project.
    pub project_id: Box<str>,
}

/// Assigns ready tasks to idle agents, at most one task to each agent, in the order in which the snapshot lists the
/// agents.
pub fn schedule(snapshot: &ScheduleSnapshot) -> Vec<TaskAssignment> {
    let mut ledger = ScheduleCall::open(snapshot);
    run(&mut ledger).iter().map(|round| round.assignment(snapshot)).collect()
}

/// One assignment, by indexes into the snapshot's lists, with the numbers that decided it.
#[derive(Clone, Copy, Debug)]
struct AssignmentRound {
    agent: usize,
    task: usize,
    winner: ProjectContender,
    totals: GapTotals,
}

/// A project in the comparison of gaps. Contenders of equal weight compare in the order in which they would get an
/// agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ProjectContender {
    is_guarantee_met: bool,
    spent: u128,
    project: usize,
    weight: CreditWeight,
}

impl AssignmentRound {
    fn assignment(&self, snapshot: &ScheduleSnapshot) -> TaskAssignment {
        let parts = snapshot.parts();
        TaskAssignment {
            agent_id: parts.agents[self.agent].id.clone(),
            task_id: parts.tasks[self.task].id.clone(),
            project_id: parts.projects[self.winner.project].id.clone(),
        }
    }
}

impl ProjectContender {
    fn of(ledger: &ScheduleCall<'_>, project: usize) -> Self {
        let account = &ledger.accounts[project];
        Self {
            is_guarantee_met: account.is_guarantee_met,
            spent: account.compared_tokens(),
            project,
            weight: ledger.snapshot.parts().projects[project].credit_weight,
        }
    }
}

/// Assigns tasks until no agent is idle or no project can start a task. Afterwards `ledger` holds the final state.
fn run(ledger: &mut ScheduleCall<'_>) -> Vec<AssignmentRound> {
    match ledger.snapshot.parts().mode {
        ScheduleMode::Classic => run_classic(ledger),
        ScheduleMode::Strict => run_strict(ledger),
    }
}

fn idle_agents(snapshot: &ScheduleSnapshot) -> impl Iterator<Item = usize> {
    let agents = snapshot.parts().agents.iter().enumerate();
    agents.filter(|(_, agent)| agent.state == AgentState::Idle).map(|(position, _)| position)
}

fn run_classic(ledger: &mut ScheduleCall<'_>) -> Vec<AssignmentRound> {
    let (contenders, totals) = classic_contest(ledger);
    let mut ranked = contenders.into_iter().peekable();
    let mut rounds = Vec::new();
    for agent in idle_agents(ledger.snapshot) {
        let Some((winner, task)) = first_that_can_start(ledger, &mut ranked) else { break };
        ledger.assign(winner.project, task);
        rounds.push(AssignmentRound { agent, task, winner, totals });
    }
    rounds
}

/// Returns the active projects with ready tasks, from the most to the least owed, and the denominators of their gaps.
/// ΣT is the sum over every project with a known usage, listed or not.
fn classic_contest(ledger: &ScheduleCall<'_>) -> (Vec<ProjectContender>, GapTotals) {
    let parts = ledger.snapshot.parts();
    let takes_part = |p: &usize| {
        parts.projects[*p].status == ProjectStatus::Active && !ledger.accounts[*p].ready.is_empty()
    };
    let projects = (0..parts.projects.len()).filter(takes_part);
    let mut contenders: Vec<_> = projects.map(|p| ProjectContender::of(ledger, p)).collect();
    let totals = GapTotals {
        weight: contenders.iter().map(|c| u128::from(c.weight.thousandths())).sum(),
        spent: parts.project_token_usage.values().map(|t| u128::from(t.0)).sum(),
    };
    contenders
        .sort_by_cached_key(|c| (c.is_guarantee_met, totals.gap(c.weight, c.spent), c.project));
    (contenders, totals)
}

/// Returns the first of the ranked projects that can start a task. Projects that cannot start one are dropped, because
/// an obstacle never ends within one run of the scheduler.
fn first_that_can_start(
    ledger: &mut ScheduleCall<'_>,
    ranked: &mut core::iter::Peekable<impl Iterator<Item = ProjectContender>>,
) -> Option<(ProjectContender, usize)> {
    loop {
        let first = *ranked.peek()?;
        if let Some(task) = ledger.next_task(first.project) {
            return Some((first, task));
        }
        ranked.next();
    }
}

fn run_strict(ledger: &mut ScheduleCall<'_>) -> Vec<AssignmentRound> {
    let mut contest = StrictContest::open(ledger);
    let mut rounds = Vec::new();
    for agent in idle_agents(ledger.snapshot) {
        let Some(winner) = contest.leader() else { break };
        let totals = contest.totals;
        let Some(task) = contest.assign_next(ledger, winner) else { break };
        rounds.push(AssignmentRound { agent, task, winner, totals });
    }
    rounds
}

/// The projects that can start a task now, in strict mode.
#[derive(Debug)]
struct StrictContest {
    totals: GapTotals,
    /// For each project, the index of the task that it would start next; `None` if it can start nothing more.
    next_tasks: Vec<Option<usize>>,
    /// One heap per weight, with the project that is owed most on top. A project that can start a task is in its heap
    /// once. A project that can start nothing more may still be in its heap, but never on top.
    heaps: Vec<BinaryHeap<Reverse<ProjectContender>>>,
    /// A copy of the top of each heap, so that the scan for each agent reads one list.
    tops: Vec<Option<ProjectContender>>,
    /// For each project, the index of its heap.
    heap_of: Vec<usize>,
    /// The estimate of each project's next task, with the project's index; the largest estimate is on top. Only filled
    /// if there is a global budget. May also contain outdated entries.
    by_estimate: BinaryHeap<(Tokens, usize)>,
    /// For each workspace, by its index, the projects whose next task prefers that workspace. May also contain outdated
    /// entries.
    by_workspace: Vec<Vec<usize>>,
}

impl StrictContest {
    fn open(ledger: &mut ScheduleCall<'_>) -> Self {
        let projects = &ledger.snapshot.parts().projects;
        let mut heaps_by_weight = BTreeMap::new();
        let heap_of: Vec<usize> = (projects.iter())
            .map(|project| {
                let next = heaps_by_weight.len();
                *heaps_by_weight.entry(project.credit_weight).or_insert(next)
            })
            .collect();
        let mut contest = Self {
            totals: GapTotals::default(),
            next_tasks: vec![None; heap_of.len()],
            heaps: vec![BinaryHeap::new(); heaps_by_weight.len()],
            tops: vec![None; heaps_by_weight.len()],
            heap_of,
            by_estimate: BinaryHeap::new(),
            by_workspace: vec![Vec::new(); ledger.snapshot.workspace_locked.len()],
        };
        for project in 0..contest.next_tasks.len() {
            contest.enter(ledger, project);
        }
        contest
    }

    /// Returns all projects that can start a task now, and the denominators of their gaps.
    fn contenders(&self, ledger: &ScheduleCall<'_>) -> (Vec<ProjectContender>, GapTotals) {
        let can_start = |project: &usize| self.next_tasks[*project].is_some();
        let projects = (0..self.next_tasks.len()).filter(can_start);
        (projects.map(|project| ProjectContender::of(ledger, project)).collect(), self.totals)
    }

    /// Returns the project that is owed most; `None` if no project can start a task.
    fn leader(&self) -> Option<ProjectContender> {
        let totals = self.totals;
        match totals.narrow() {
            Some(narrow) => most_owed(&self.tops, |c| narrow.gap(c.weight, c.spent)),
            None => most_owed(&self.tops, |c| totals.gap(c.weight, c.spent)),
        }
    }

    /// Assigns the leader's next task to an agent, and updates the next tasks of the other projects.
    fn assign_next(
        &mut self,
        ledger: &mut ScheduleCall<'_>,
        leader: ProjectContender,
    ) -> Option<usize> {
        let task = self.leave(ledger, leader.project)?;
        ledger.assign(leader.project, task);
        self.enter(ledger, leader.project);
        self.reconsider_workspace(ledger, task);
        self.reconsider_global_budget(ledger);
        Some(task)
    }

    /// Adds a project to the contest if the project can start a task.
    fn enter(&mut self, ledger: &mut ScheduleCall<'_>, project: usize) {
        let Some(task) = ledger.next_task(project) else { return };
        let contender = ProjectContender::of(ledger, project);
        self.totals.weight += u128::from(contender.weight.thousandths());
        self.totals.spent += contender.spent;
        self.set_next_task(ledger, project, task);
        let heap = self.heap_of[project];
        self.heaps[heap].push(Reverse(contender));
        self.tops[heap] = self.heaps[heap].peek().map(|top| top.0);
    }

    /// Removes a project from the contest, and returns the task that it would have started.
    fn leave(&mut self, ledger: &ScheduleCall<'_>, project: usize) -> Option<usize> {
        let task = self.next_tasks[project].take()?;
        let contender = ProjectContender::of(ledger, project);
        self.totals.weight -= u128::from(contender.weight.thousandths());
        self.totals.spent -= contender.spent;
        let heap = self.heap_of[project];
        let is_out = |top: &Reverse<ProjectContender>| self.next_tasks[top.0.project].is_none();
        while self.heaps[heap].peek().is_some_and(is_out) {
            self.heaps[heap].pop();
        }
        self.tops[heap] = self.heaps[heap].peek().map(|top| top.0);
        Some(task)
    }

    /// Stores the task that a project starts next. Also adds the project to the indexes by workspace and by estimate,
    /// because another project's task may take the workspace or too much of the global budget.
    fn set_next_task(&mut self, ledger: &ScheduleCall<'_>, project: usize, task: usize) {
        self.next_tasks[project] = Some(task);
        if let Some(workspace) = ledger.snapshot.workspace_of[task] {
            self.by_workspace[workspace].push(project);
        }
        if ledger.snapshot.parts().global_budget.is_some() {
            self.by_estimate.push((ledger.charge(task), project));
        }
    }

    /// Checks again the projects whose next task prefers the workspace of the task that was just assigned.
    fn reconsider_workspace(&mut self, ledger: &mut ScheduleCall<'_>, given: usize) {
        let Some(workspace) = ledger.snapshot.workspace_of[given] else { return };
        for project in core::mem::take(&mut self.by_workspace[workspace]) {
            self.reconsider(ledger, project);
        }
    }

    /// Calls [`Self::reconsider`] for each project whose next task is estimated at more tokens than the global budget
    /// has left, or for all projects if nothing is left.
    fn reconsider_global_budget(&mut self, ledger: &mut ScheduleCall<'_>) {
        let Some(left) = ledger.global_left() else { return };
        while let Some(&(estimate, project)) = self.by_estimate.peek() {
            if left > 0 && u128::from(estimate.0) <= left {
                return;
            }
            self.by_estimate.pop();
            self.reconsider(ledger, project);
        }
    }

    /// Checks a project again after another project got a task. The project's next task may then be a different one, or
    /// the project leaves the contest.
    fn reconsider(&mut self, ledger: &mut ScheduleCall<'_>, project: usize) {
        let Some(before) = self.next_tasks[project] else { return };
        match ledger.next_task(project) {
            Some(task) if task == before => {}
            Some(task) => self.set_next_task(ledger, project, task),
            None => {
                self.leave(ledger, project);
            }
        }
    }
}

/// Returns the contender that goes first: one whose guarantee is not met before one whose guarantee is met, then by the
/// lowest gap, then by the order of the snapshot. The loop calls no sorting function, because it runs over every weight
/// for every agent and takes most of the time in strict mode.
fn most_owed<G: Ord>(
    contenders: &[Option<ProjectContender>],
    gap: impl Fn(&ProjectContender) -> G,
) -> Option<ProjectContender> {
    let mut contenders = contenders.iter().flatten();
    let mut best = contenders.next()?;
    let mut best_gap = gap(best);
    for contender in contenders {
        let gap = gap(contender);
        let order = (contender.is_guarantee_met.cmp(&best.is_guarantee_met))
            .then_with(|| gap.cmp(&best_gap))
            .then_with(|| contender.project.cmp(&best.project));
        if order.is_lt() {
            (best, best_gap) = (contender, gap);
        }
    }
    Some(*best)
}

#[cfg(test)]
mod tests;
