//! What has been spent, given and locked at one moment of a call, and the tests that a start must pass.

use super::snapshot::{Mode, ProjectStatus, Snapshot, Task, TaskStatus};
use crate::units::Tokens;
use alloc::vec;
use alloc::vec::Vec;

/// What keeps a task, or every task of a project, from starting. None of these ends within a call: budgets,
/// workspaces and free places only shrink while tasks are given away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle<'a> {
    /// The project does not take part.
    ProjectInactive {
        /// What it is instead.
        status: ProjectStatus,
    },
    /// Nothing is left of the global budget.
    GlobalBudgetSpent {
        /// What all projects have spent.
        spent: u128,
        /// What they may.
        limit: Tokens,
    },
    /// Nothing is left of the project's budget.
    ProjectBudgetSpent {
        /// What it has spent.
        spent: u128,
        /// What it may.
        limit: Tokens,
    },
    /// As many agents work for the project as may.
    ConcurrencyLimit {
        /// How many do.
        agents: u64,
        /// How many may.
        limit: u64,
    },
    /// None of the project's workspaces is free.
    NoWorkspace,
    /// The workspace that the task prefers is taken.
    WorkspaceLocked {
        /// Which workspace.
        workspace: &'a str,
        /// Who has it.
        holder: Holder<'a>,
    },
    /// The task's estimate is more than is left of its project's budget.
    OverProjectBudget {
        /// What the project has spent.
        spent: u128,
        /// What the task is expected to use.
        estimate: Tokens,
        /// What the project may spend.
        limit: Tokens,
    },
    /// The task's estimate is more than is left of the global budget.
    OverGlobalBudget {
        /// What all projects have spent.
        spent: u128,
        /// What the task is expected to use.
        estimate: Tokens,
        /// What they may spend.
        limit: Tokens,
    },
}

/// Who has a workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder<'a> {
    /// Whoever the snapshot's `workspace_locks` names.
    Before(&'a str),
    /// A task that was given to an agent in this call.
    Task(&'a str),
}

/// The state of a call.
#[derive(Debug)]
pub(super) struct Ledger<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) accounts: Vec<Account>,
    /// Per workspace number, the task of this call that took it.
    taken_by: Vec<Option<usize>>,
    pub(super) global_spent: u128,
}

/// One project in a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Account {
    /// What counts against its budget.
    pub(super) spent: u128,
    /// What counts in the comparison besides.
    pub(super) baseline: u128,
    /// How many agents work for it.
    pub(super) agents: u64,
    /// How many workspaces are free, where they are counted.
    pub(super) workspaces: Option<u64>,
    /// Whether it has had the one task that it is guaranteed.
    pub(super) had_its_task: bool,
    /// Its ready tasks in the order they start, given ones included.
    pub(super) ready: Vec<usize>,
    /// Where among them its next task stands. Those before it were given or can never start in this call.
    next: usize,
}

impl Account {
    /// What the comparison takes it to have spent.
    pub(super) fn weighed(&self) -> u128 {
        self.spent + self.baseline
    }
}

impl<'a> Ledger<'a> {
    pub(super) fn open(snapshot: &'a Snapshot) -> Self {
        let queues = ready_tasks(snapshot).into_iter().enumerate();
        let parts = snapshot.parts();
        let reserved = parts.project_reserved_tokens.values().map(|t| u128::from(t.0));
        let reserved: u128 = if parts.mode == Mode::Strict { reserved.sum() } else { 0 };
        Self {
            snapshot,
            accounts: queues.map(|(p, ready)| account(snapshot, p, ready)).collect(),
            taken_by: vec![None; snapshot.workspace_locked.len()],
            global_spent: u128::from(parts.global_tokens_used.0) + reserved,
        }
    }

    /// What a task is charged when it is given: its estimate, or in classic mode nothing.
    pub(super) fn charge(&self, task: usize) -> Tokens {
        let parts = self.snapshot.parts();
        match parts.mode {
            Mode::Classic => Tokens(0),
            Mode::Strict => {
                parts.tasks[task].estimated_tokens.unwrap_or(parts.default_estimated_tokens)
            }
        }
    }

    /// What is left of the global budget, where there is one.
    pub(super) fn global_left(&self) -> Option<u128> {
        let limit = self.snapshot.parts().global_budget?;
        Some(u128::from(limit.0).saturating_sub(self.global_spent))
    }

    /// What keeps the whole project from starting anything, one place per test.
    pub(super) fn project_tests(&self, project: usize) -> [Option<Obstacle<'a>>; 5] {
        let parts = self.snapshot.parts();
        let (rules, account) = (&parts.projects[project], &self.accounts[project]);
        let (status, spent, agents) = (rules.status, account.spent, account.agents);
        let all_spent = self.global_spent;
        let is_spent = |spent: u128, limit: Tokens| spent >= u128::from(limit.0);
        let global = parts.global_budget.filter(|limit| is_spent(all_spent, *limit));
        let own = rules.budget_limit.filter(|limit| is_spent(spent, *limit));
        let limit = rules.max_concurrent_agents;
        [
            (status != ProjectStatus::Active).then_some(Obstacle::ProjectInactive { status }),
            global.map(|limit| Obstacle::GlobalBudgetSpent { spent: all_spent, limit }),
            own.map(|limit| Obstacle::ProjectBudgetSpent { spent, limit }),
            (agents >= limit).then_some(Obstacle::ConcurrencyLimit { agents, limit }),
            (account.workspaces == Some(0)).then_some(Obstacle::NoWorkspace),
        ]
    }

    /// What keeps one task from starting though its project may start tasks, one place per test.
    pub(super) fn task_tests(&self, task: usize) -> [Option<Obstacle<'a>>; 3] {
        let parts = self.snapshot.parts();
        let project = self.snapshot.project_of[task];
        let (spent, all_spent) = (self.accounts[project].spent, self.global_spent);
        let estimate = self.charge(task);
        let is_over = |spent: u128, limit: Tokens| spent + u128::from(estimate.0) > limit.0.into();
        let own = parts.projects[project].budget_limit.filter(|limit| is_over(spent, *limit));
        let global = parts.global_budget.filter(|limit| is_over(all_spent, *limit));
        [
            self.workspace_lock(task),
            own.map(|limit| Obstacle::OverProjectBudget { spent, estimate, limit }),
            global.map(|limit| Obstacle::OverGlobalBudget { spent: all_spent, estimate, limit }),
        ]
    }

    fn workspace_lock(&self, task: usize) -> Option<Obstacle<'a>> {
        let number = self.snapshot.workspace_of[task]?;
        let parts = self.snapshot.parts();
        let workspace = parts.tasks[task].preferred_workspace_id.as_deref()?;
        let holder = if self.snapshot.workspace_locked[number] {
            Holder::Before(parts.workspace_locks.get(workspace)?.as_deref()?)
        } else {
            Holder::Task(&parts.tasks[self.taken_by[number]?].id)
        };
        Some(Obstacle::WorkspaceLocked { workspace, holder })
    }

    /// The task that a project would start now. Tasks that cannot start are passed for good.
    pub(super) fn next_task(&mut self, project: usize) -> Option<usize> {
        if self.project_tests(project).iter().any(Option::is_some) {
            return None;
        }
        loop {
            let account = &self.accounts[project];
            let task = *account.ready.get(account.next)?;
            if self.task_tests(task).iter().all(Option::is_none) {
                return Some(task);
            }
            self.accounts[project].next += 1;
        }
    }

    /// Gives away what [`Ledger::next_task`] found for this project.
    pub(super) fn give(&mut self, project: usize, task: usize) {
        let account = &mut self.accounts[project];
        debug_assert_eq!(account.ready[account.next], task);
        account.next += 1;
        account.agents += 1;
        if self.snapshot.parts().mode == Mode::Classic {
            return;
        }
        account.had_its_task = true;
        account.workspaces = account.workspaces.map(|free| free - 1);
        if let Some(number) = self.snapshot.workspace_of[task] {
            self.taken_by[number] = Some(task);
        }
        let estimate = u128::from(self.charge(task).0);
        self.accounts[project].spent += estimate;
        self.global_spent += estimate;
    }
}

fn account(snapshot: &Snapshot, project: usize, ready: Vec<usize>) -> Account {
    let (parts, record) = (snapshot.parts(), snapshot.records[project]);
    let is_strict = parts.mode == Mode::Strict;
    let (reserved, baseline) =
        if is_strict { (record.reserved, record.baseline) } else { Default::default() };
    Account {
        spent: u128::from(record.usage.0) + u128::from(reserved.0),
        baseline: baseline.0.into(),
        agents: record.active_agents,
        workspaces: record.workspaces,
        had_its_task: !parts.min_task_guarantee
            || record.completed > 0
            || (is_strict && record.active_agents > 0),
        ready,
        next: 0,
    }
}

/// The ready tasks of each project, in the order they start.
fn ready_tasks(snapshot: &Snapshot) -> Vec<Vec<usize>> {
    let parts = snapshot.parts();
    let mut queues = vec![Vec::new(); parts.projects.len()];
    for (task, facts) in parts.tasks.iter().enumerate() {
        if facts.status == TaskStatus::Ready {
            queues[snapshot.project_of[task]].push(task);
        }
    }
    let created = |task: &Task| if parts.mode == Mode::Strict { task.created } else { 0 };
    let place = |task: usize| {
        let task = &parts.tasks[task];
        (task.priority, created(task), &task.id)
    };
    for queue in &mut queues {
        queue.sort_unstable_by(|a, b| place(*a).cmp(&place(*b)));
    }
    queues
}
