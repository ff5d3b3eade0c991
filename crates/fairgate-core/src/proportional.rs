//! Proportional credit weights: which ready task goes to which idle agent.
//!
//! Projects have tasks, agents work on them, and every project has a *credit weight* that says how large its
//! part of the tokens should be. A call takes a [`Snapshot`] of all of them and returns [`Assignment`]s. It is a
//! pure function: the same snapshot gives the same assignments everywhere, and nothing is remembered between
//! calls.
//!
//! # Who is owed most
//!
//! Let w be a project's weight and u the tokens it used in a window of time; let ΣW and ΣT be the sums of both.
//! A project *should* have the part w/ΣW of all tokens and *has* the part u/ΣT. Whoever is furthest below its
//! part goes first, that is, whoever has the lowest
//!
//! ```text
//!     u     w
//!     ── − ──            negative: owed;   positive: ahead of its share
//!     ΣT    ΣW
//! ```
//!
//! Fractions are what computers are bad at, and only the order counts. Both denominators are the same for
//! everybody and above 0, so multiplying by ΣT·ΣW changes no order and leaves integers:
//!
//! ```text
//!     gap = u·ΣW − w·ΣT
//! ```
//!
//! With weights 3 and 1 and usages 1000 and 500, ΣW = 4 and ΣT = 1500: the gaps are 1000·4 − 3·1500 = −500 and
//! 500·4 − 1·1500 = +500. The first project is owed (it has 66.7 % of its 75 %), and the next agent is its. As
//! every agent goes to the lowest gap, and working raises u, the gaps are drawn to 0: usage comes to stand as the
//! weights do. A gap is kept in 256 bits, so that it is exact for any number of projects with up to 2^64 − 1
//! tokens each; where the denominators are small, 128 bits do. Where nobody used anything ΣT is taken as 1: then
//! gap = −w, and the heavier weight goes first. Equal gaps go in the order in which the projects are listed.
//!
//! Before the gap comes the *min-task guarantee*: a project that completed nothing in the window goes before all
//! that did, however small its weight. So nobody starves: weight 1 beside weight 1000 still gets its one task.
//!
//! # Who can be given anything
//!
//! For each idle agent in turn, the first project in this order that can start a task is given the agent. It can
//! where it is active, under its budget and its number of concurrent agents, has a free workspace (where they are
//! counted), and has a ready task whose preferred workspace is free. The task is the first of these by priority
//! (lower first), then id. Where the global budget is spent nobody is given anything.
//!
//! # Classic and strict
//!
//! [`Mode::Classic`] is that algorithm as it was published. It looks at the snapshot only, and within a call
//! counts no more than agents and tasks given away. Hence its holes: with ten idle agents, the project that
//! is one token behind is given all ten; a budget with one token left is passed by any number of tasks; one free
//! workspace is given to everybody; and tokens of projects that have nothing to do swell ΣT, so that those who
//! have something look owed for a long time. [`Mode::Strict`] closes them:
//!
//! - *What is given is charged.* Spent = usage + what running tasks have reserved + the estimates of what was
//!   given in this call. Budgets are tested as spent + estimate ≤ limit, for the project and globally; a task
//!   too large is passed over and the project's next one is tried.
//! - *The denominators are those who compete.* ΣW and ΣT run over the projects that could start a task now, and
//!   are found anew for every agent.
//! - *No rush after a pause.* u is spent + baseline; whoever makes the snapshot sets a baseline for a project that
//!   comes back after it was idle, and it joins the others instead of catching up on what it never asked for.
//! - *A workspace is given once.* Each start takes one of the project's workspaces and locks the preferred one.
//! - *The guarantee is one task.* A running agent or a task given in this call meets it, as a completion does.
//! - *First made, first served.* Tasks go by priority, then `created`, then id: t-2 before t-10.
//!
//! # How fast
//!
//! P projects, N ready tasks, A idle agents. Each project's tasks are sorted once. Within a call every obstacle
//! is for good ([`Obstacle`]): money, places and workspaces are only ever taken. So each project needs no more
//! than a cursor into its tasks that never turns back, and all cursors together make at most N steps.
//!
//! In classic mode no gap changes within a call either. The projects are sorted once, and one more cursor runs
//! over them: O(N log N + P log P + A).
//!
//! In strict mode each start changes ΣT, and ΣW with everyone who drops out, so that any two projects of
//! different weight may change places. Two of the *same* weight cannot, unless one of them is given something:
//! of these the one that has spent less goes first, whatever ΣW and ΣT are. So the projects of each weight stand
//! in a heap, and an agent costs one look at the top of each of the K ≤ P heaps. Who drops out because of somebody
//! else's start is found without a search: a start can only take the workspace that another project's next task
//! prefers (an index by workspace finds them) or leave too little of the global budget for it (a heap by estimate
//! does). Together O(N log N + (N + A) log P + A·K).

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

mod explain;
mod gap;
mod ledger;
mod snapshot;

use alloc::collections::{BTreeMap, BinaryHeap};
use core::cmp::Reverse;

pub use explain::{
    Explanation, Loss, Margin, OutOfAgents, ProjectReason, ProjectReport, Share, TaskReason,
    TaskReport, explain,
};
use gap::Totals;
use ledger::Ledger;
pub use ledger::{Holder, Obstacle};
pub use snapshot::{
    Agent, AgentState, CreditWeight, Mode, Project, ProjectStatus, Snapshot, SnapshotError,
    SnapshotParts, SnapshotProblem, Task, TaskStatus,
};

use crate::units::Tokens;

/// One task for one agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// Who works.
    pub agent_id: Box<str>,
    /// On what.
    pub task_id: Box<str>,
    /// For whom.
    pub project_id: Box<str>,
}

/// Gives ready tasks to idle agents: at most one each, in the order of the agents.
pub fn schedule(snapshot: &Snapshot) -> Vec<Assignment> {
    let mut ledger = Ledger::open(snapshot);
    run(&mut ledger).iter().map(|round| round.assignment(snapshot)).collect()
}

/// One agent given away, by positions in the snapshot, and the numbers that decided it.
#[derive(Clone, Copy, Debug)]
struct Round {
    agent: usize,
    task: usize,
    winner: Contender,
    totals: Totals,
}

/// A project in the comparison. Among equal weights the order of contenders is the order of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Contender {
    had_its_task: bool,
    spent: u128,
    project: usize,
    weight: CreditWeight,
}

impl Round {
    fn assignment(&self, snapshot: &Snapshot) -> Assignment {
        let parts = snapshot.parts();
        Assignment {
            agent_id: parts.agents[self.agent].id.clone(),
            task_id: parts.tasks[self.task].id.clone(),
            project_id: parts.projects[self.winner.project].id.clone(),
        }
    }
}

impl Contender {
    fn of(ledger: &Ledger<'_>, project: usize) -> Self {
        let account = &ledger.accounts[project];
        Self {
            had_its_task: account.had_its_task,
            spent: account.weighed(),
            project,
            weight: ledger.snapshot.parts().projects[project].credit_weight,
        }
    }
}

/// The whole call. Afterwards the ledger shows how it ended.
fn run(ledger: &mut Ledger<'_>) -> Vec<Round> {
    match ledger.snapshot.parts().mode {
        Mode::Classic => run_classic(ledger),
        Mode::Strict => run_strict(ledger),
    }
}

fn idle_agents(snapshot: &Snapshot) -> impl Iterator<Item = usize> {
    let agents = snapshot.parts().agents.iter().enumerate();
    agents.filter(|(_, agent)| agent.state == AgentState::Idle).map(|(position, _)| position)
}

fn run_classic(ledger: &mut Ledger<'_>) -> Vec<Round> {
    let (contenders, totals) = classic_contest(ledger);
    let mut ranked = contenders.into_iter().peekable();
    let mut rounds = Vec::new();
    for agent in idle_agents(ledger.snapshot) {
        let Some((winner, task)) = first_that_can_start(ledger, &mut ranked) else { break };
        ledger.give(winner.project, task);
        rounds.push(Round { agent, task, winner, totals });
    }
    rounds
}

/// The active projects with ready tasks from the most to the least owed, and their denominators: ΣT counts every
/// project of which usage is known.
fn classic_contest(ledger: &Ledger<'_>) -> (Vec<Contender>, Totals) {
    let parts = ledger.snapshot.parts();
    let takes_part = |p: &usize| {
        parts.projects[*p].status == ProjectStatus::Active && !ledger.accounts[*p].ready.is_empty()
    };
    let projects = (0..parts.projects.len()).filter(takes_part);
    let mut contenders: Vec<_> = projects.map(|p| Contender::of(ledger, p)).collect();
    let totals = Totals {
        weight: contenders.iter().map(|c| u128::from(c.weight.thousandths())).sum(),
        spent: parts.project_token_usage.values().map(|t| u128::from(t.0)).sum(),
    };
    contenders.sort_by_cached_key(|c| (c.had_its_task, totals.gap(c.weight, c.spent), c.project));
    (contenders, totals)
}

/// The first of the ranked projects that can start a task. Those that cannot are dropped: they never will.
fn first_that_can_start(
    ledger: &mut Ledger<'_>,
    ranked: &mut core::iter::Peekable<impl Iterator<Item = Contender>>,
) -> Option<(Contender, usize)> {
    loop {
        let first = *ranked.peek()?;
        if let Some(task) = ledger.next_task(first.project) {
            return Some((first, task));
        }
        ranked.next();
    }
}

fn run_strict(ledger: &mut Ledger<'_>) -> Vec<Round> {
    let mut contest = Contest::open(ledger);
    let mut rounds = Vec::new();
    for agent in idle_agents(ledger.snapshot) {
        let Some(winner) = contest.leader() else { break };
        let totals = contest.totals;
        let Some(task) = contest.give(ledger, winner) else { break };
        rounds.push(Round { agent, task, winner, totals });
    }
    rounds
}

/// The projects that could start a task now, in strict mode.
#[derive(Debug)]
struct Contest {
    totals: Totals,
    /// Per project, the task it would start; `None`: it can start nothing in this call any more.
    next_tasks: Vec<Option<usize>>,
    /// One heap per weight, the most owed on top. Whoever can start a task is in it once; whoever dropped out may
    /// be in it still, but never on top.
    heaps: Vec<BinaryHeap<Reverse<Contender>>>,
    /// The top of each heap, side by side: this is what each agent's scan reads.
    tops: Vec<Option<Contender>>,
    /// Per project, its heap.
    heap_of: Vec<usize>,
    /// The estimates of next tasks, the largest on top, where there is a global budget. Old ones may be left.
    by_estimate: BinaryHeap<(Tokens, usize)>,
    /// Per workspace number, the projects whose next task prefers it. Old ones may be left.
    by_workspace: Vec<Vec<usize>>,
}

impl Contest {
    fn open(ledger: &mut Ledger<'_>) -> Self {
        let projects = &ledger.snapshot.parts().projects;
        let mut heaps_by_weight = BTreeMap::new();
        let heap_of: Vec<usize> = (projects.iter())
            .map(|project| {
                let next = heaps_by_weight.len();
                *heaps_by_weight.entry(project.credit_weight).or_insert(next)
            })
            .collect();
        let mut contest = Self {
            totals: Totals::default(),
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

    /// Everyone who could start a task now, and the denominators.
    fn contenders(&self, ledger: &Ledger<'_>) -> (Vec<Contender>, Totals) {
        let can_start = |project: &usize| self.next_tasks[*project].is_some();
        let projects = (0..self.next_tasks.len()).filter(can_start);
        (projects.map(|project| Contender::of(ledger, project)).collect(), self.totals)
    }

    /// Whoever is owed most.
    fn leader(&self) -> Option<Contender> {
        let totals = self.totals;
        match totals.narrow() {
            Some(narrow) => most_owed(&self.tops, |c| narrow.gap(c.weight, c.spent)),
            None => most_owed(&self.tops, |c| totals.gap(c.weight, c.spent)),
        }
    }

    /// Gives the leader's next task away, and finds who can start what after that.
    fn give(&mut self, ledger: &mut Ledger<'_>, leader: Contender) -> Option<usize> {
        let task = self.leave(ledger, leader.project)?;
        ledger.give(leader.project, task);
        self.enter(ledger, leader.project);
        self.reconsider_workspace(ledger, task);
        self.reconsider_global_budget(ledger);
        Some(task)
    }

    /// Takes a project in where it can start a task.
    fn enter(&mut self, ledger: &mut Ledger<'_>, project: usize) {
        let Some(task) = ledger.next_task(project) else { return };
        let contender = Contender::of(ledger, project);
        self.totals.weight += u128::from(contender.weight.thousandths());
        self.totals.spent += contender.spent;
        self.await_start(ledger, project, task);
        let heap = self.heap_of[project];
        self.heaps[heap].push(Reverse(contender));
        self.tops[heap] = self.heaps[heap].peek().map(|top| top.0);
    }

    /// Takes a project out, and returns the task it would have started.
    fn leave(&mut self, ledger: &Ledger<'_>, project: usize) -> Option<usize> {
        let task = self.next_tasks[project].take()?;
        let contender = Contender::of(ledger, project);
        self.totals.weight -= u128::from(contender.weight.thousandths());
        self.totals.spent -= contender.spent;
        let heap = self.heap_of[project];
        let is_out = |top: &Reverse<Contender>| self.next_tasks[top.0.project].is_none();
        while self.heaps[heap].peek().is_some_and(is_out) {
            self.heaps[heap].pop();
        }
        self.tops[heap] = self.heaps[heap].peek().map(|top| top.0);
        Some(task)
    }

    /// Notes which task a project starts next, and what may come between.
    fn await_start(&mut self, ledger: &Ledger<'_>, project: usize, task: usize) {
        self.next_tasks[project] = Some(task);
        if let Some(workspace) = ledger.snapshot.workspace_of[task] {
            self.by_workspace[workspace].push(project);
        }
        if ledger.snapshot.parts().global_budget.is_some() {
            self.by_estimate.push((ledger.charge(task), project));
        }
    }

    /// A task was given that may have taken a workspace which others wanted.
    fn reconsider_workspace(&mut self, ledger: &mut Ledger<'_>, given: usize) {
        let Some(workspace) = ledger.snapshot.workspace_of[given] else { return };
        for project in core::mem::take(&mut self.by_workspace[workspace]) {
            self.reconsider(ledger, project);
        }
    }

    /// Less is left of the global budget: the largest estimates may fit no longer, and where nothing is left,
    /// none does.
    fn reconsider_global_budget(&mut self, ledger: &mut Ledger<'_>) {
        let Some(left) = ledger.global_left() else { return };
        while let Some(&(estimate, project)) = self.by_estimate.peek() {
            if left > 0 && u128::from(estimate.0) <= left {
                return;
            }
            self.by_estimate.pop();
            self.reconsider(ledger, project);
        }
    }

    /// Somebody else's start may have kept this project from its next task; it then has another, or drops out.
    fn reconsider(&mut self, ledger: &mut Ledger<'_>, project: usize) {
        let Some(before) = self.next_tasks[project] else { return };
        match ledger.next_task(project) {
            Some(task) if task == before => {}
            Some(task) => self.await_start(ledger, project, task),
            None => {
                self.leave(ledger, project);
            }
        }
    }
}

/// The lowest by (had its task, gap, place in the list). Written as a loop that compares in place: it runs for
/// every agent over every weight, and is the one hot spot of a strict call.
fn most_owed<G: Ord>(
    contenders: &[Option<Contender>],
    gap: impl Fn(&Contender) -> G,
) -> Option<Contender> {
    let mut contenders = contenders.iter().flatten();
    let mut best = contenders.next()?;
    let mut best_gap = gap(best);
    for contender in contenders {
        let gap = gap(contender);
        let order = (contender.had_its_task.cmp(&best.had_its_task))
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
