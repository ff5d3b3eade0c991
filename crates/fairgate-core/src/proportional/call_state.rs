//! The budgets, agents and workspaces while tasks are being assigned, and the tests that a task must pass to be
//! assigned.

use super::snapshot::{ProjectStatus, ScheduleMode, ScheduleSnapshot, ScheduledTask, TaskStatus};
use crate::units::Tokens;
use alloc::vec;
use alloc::vec::Vec;

/// An obstacle that keeps a task, or every task of a project, from starting. An obstacle never ends while tasks are
/// being assigned, because budgets, free workspaces and free agent places only shrink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartObstacle<'a> {
    /// The project is not active.
    ProjectInactive {
        /// Status of the project.
        status: ProjectStatus,
    },
    /// Nothing is left of the global budget.
    GlobalBudgetSpent {
        /// Tokens that all projects together have spent.
        spent: u128,
        /// The global budget, in tokens.
        limit: Tokens,
    },
    /// Nothing is left of the project's budget.
    ProjectBudgetSpent {
        /// Tokens that the project has spent.
        spent: u128,
        /// Budget of the project, in tokens.
        limit: Tokens,
    },
    /// As many agents work for the project as may work for it at once.
    ConcurrencyLimit {
        /// Number of agents that work for the project.
        agents: u64,
        /// Greatest number of agents that may work for the project at once.
        limit: u64,
    },
    /// None of the project's workspaces is free.
    NoWorkspace,
    /// The workspace that the task prefers is taken.
    WorkspaceLocked {
        /// Id of the workspace that is taken.
        workspace: &'a str,
        /// The task or other holder that has the workspace.
        holder: WorkspaceHolder<'a>,
    },
    /// The task's estimate exceeds the remaining budget of its project.
    OverProjectBudget {
        /// Tokens that the project has spent.
        spent: u128,
        /// Tokens that the task is expected to use.
        estimate: Tokens,
        /// Budget of the project, in tokens.
        limit: Tokens,
    },
    /// The task's estimate exceeds the remaining global budget.
    OverGlobalBudget {
        /// Tokens that all projects together have spent.
        spent: u128,
        /// Tokens that the task is expected to use.
        estimate: Tokens,
        /// The global budget, in tokens.
        limit: Tokens,
    },
}

/// The holder of a workspace, from the snapshot or from this run of the scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkspaceHolder<'a> {
    /// The holder that the snapshot's `workspace_locks` names.
    AlreadyHeld(&'a str),
    /// Id of a task that was assigned in this run of the scheduler.
    Task(&'a str),
}

/// The state of one run of the scheduler while it assigns tasks.
#[derive(Debug)]
pub(super) struct ScheduleCall<'a> {
    pub(super) snapshot: &'a ScheduleSnapshot,
    pub(super) accounts: Vec<ProjectInCall>,
    /// For each workspace, by its index, the task that took it in this run of the scheduler; `None` if no task did.
    taken_by: Vec<Option<usize>>,
    pub(super) global_spent: u128,
}

/// The state of one project while tasks are being assigned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ProjectInCall {
    /// Tokens that count against the project's budget.
    pub(super) spent: u128,
    /// Tokens that the comparison of projects adds to `spent`.
    pub(super) baseline: u128,
    /// Number of agents that work for the project.
    pub(super) agents: u64,
    /// Number of the project's free workspaces; `None` if workspaces are not counted.
    pub(super) workspaces: Option<u64>,
    /// True if the project has already had the one task that the min-task guarantee promises.
    pub(super) is_guarantee_met: bool,
    /// The project's ready tasks in the order in which they start, including those already assigned.
    pub(super) ready: Vec<usize>,
    /// Index into `ready` of the task to try next. The tasks before it were assigned, or can no longer start.
    next: usize,
}

impl ProjectInCall {
    /// Returns the tokens that count in the comparison of projects, which are those spent plus the baseline.
    pub(super) fn compared_tokens(&self) -> u128 {
        self.spent + self.baseline
    }
}

impl<'a> ScheduleCall<'a> {
    pub(super) fn open(snapshot: &'a ScheduleSnapshot) -> Self {
        let queues = ready_tasks(snapshot).into_iter().enumerate();
        let parts = snapshot.parts();
        let reserved = parts.project_reserved_tokens.values().map(|t| u128::from(t.0));
        let reserved: u128 = if parts.mode == ScheduleMode::Strict { reserved.sum() } else { 0 };
        Self {
            snapshot,
            accounts: queues.map(|(p, ready)| account(snapshot, p, ready)).collect(),
            taken_by: vec![None; snapshot.workspace_locked.len()],
            global_spent: u128::from(parts.global_tokens_used.0) + reserved,
        }
    }

    /// Returns the tokens that a task is charged when it is assigned: its estimate, or 0 in classic mode.
    pub(super) fn charge(&self, task: usize) -> Tokens {
        let parts = self.snapshot.parts();
        match parts.mode {
            ScheduleMode::Classic => Tokens(0),
            ScheduleMode::Strict => {
                parts.tasks[task].estimated_tokens.unwrap_or(parts.default_estimated_tokens)
            }
        }
    }

    /// Returns the rest of the global budget in tokens; `None` if there is no global budget.
    pub(super) fn global_left(&self) -> Option<u128> {
        let limit = self.snapshot.parts().global_budget?;
        Some(u128::from(limit.0).saturating_sub(self.global_spent))
    }

    /// Returns the result of each test that concerns a whole project: the obstacle, or `None` if the project passes the
    /// test.
    pub(super) fn project_tests(&self, project: usize) -> [Option<StartObstacle<'a>>; 5] {
        let parts = self.snapshot.parts();
        let (rules, account) = (&parts.projects[project], &self.accounts[project]);
        let (status, spent, agents) = (rules.status, account.spent, account.agents);
        let all_spent = self.global_spent;
        let is_spent = |spent: u128, limit: Tokens| spent >= u128::from(limit.0);
        let global = parts.global_budget.filter(|limit| is_spent(all_spent, *limit));
        let own = rules.budget_limit.filter(|limit| is_spent(spent, *limit));
        let limit = rules.max_concurrent_agents;
        [
            (status != ProjectStatus::Active).then_some(StartObstacle::ProjectInactive { status }),
            global.map(|limit| StartObstacle::GlobalBudgetSpent { spent: all_spent, limit }),
            own.map(|limit| StartObstacle::ProjectBudgetSpent { spent, limit }),
            (agents >= limit).then_some(StartObstacle::ConcurrencyLimit { agents, limit }),
            (account.workspaces == Some(0)).then_some(StartObstacle::NoWorkspace),
        ]
    }

    /// Returns the result of each test that concerns one task only: the obstacle, or `None` if the task passes the
    /// test.
    pub(super) fn task_tests(&self, task: usize) -> [Option<StartObstacle<'a>>; 3] {
        let parts = self.snapshot.parts();
        let project = self.snapshot.project_of[task];
        let (spent, all_spent) = (self.accounts[project].spent, self.global_spent);
        let estimate = self.charge(task);
        let is_over = |spent: u128, limit: Tokens| spent + u128::from(estimate.0) > limit.0.into();
        let own = parts.projects[project].budget_limit.filter(|limit| is_over(spent, *limit));
        let global = parts.global_budget.filter(|limit| is_over(all_spent, *limit));
        [
            self.workspace_lock(task),
            own.map(|limit| StartObstacle::OverProjectBudget { spent, estimate, limit }),
            global.map(|limit| StartObstacle::OverGlobalBudget {
                spent: all_spent,
                estimate,
                limit,
            }),
        ]
    }

    fn workspace_lock(&self, task: usize) -> Option<StartObstacle<'a>> {
        let number = self.snapshot.workspace_of[task]?;
        let parts = self.snapshot.parts();
        let workspace = parts.tasks[task].preferred_workspace_id.as_deref()?;
        let holder = if self.snapshot.workspace_locked[number] {
            WorkspaceHolder::AlreadyHeld(parts.workspace_locks.get(workspace)?.as_deref()?)
        } else {
            WorkspaceHolder::Task(&parts.tasks[self.taken_by[number]?].id)
        };
        Some(StartObstacle::WorkspaceLocked { workspace, holder })
    }

    /// Returns the task that a project would start now; `None` if it can start none. A task that cannot start is
    /// skipped, and later calls do not try it again.
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

    /// Assigns the task that [`ScheduleCall::next_task`] returned for this project.
    pub(super) fn assign(&mut self, project: usize, task: usize) {
        let account = &mut self.accounts[project];
        debug_assert_eq!(account.ready[account.next], task);
        account.next += 1;
        account.agents += 1;
        if self.snapshot.parts().mode == ScheduleMode::Classic {
            return;
        }
        account.is_guarantee_met = true;
        account.workspaces = account.workspaces.map(|free| free - 1);
        if let Some(number) = self.snapshot.workspace_of[task] {
            self.taken_by[number] = Some(task);
        }
        let estimate = u128::from(self.charge(task).0);
        self.accounts[project].spent += estimate;
        self.global_spent += estimate;
    }
}

fn account(snapshot: &ScheduleSnapshot, project: usize, ready: Vec<usize>) -> ProjectInCall {
    let (parts, record) = (snapshot.parts(), snapshot.records[project]);
    let is_strict = parts.mode == ScheduleMode::Strict;
    let (reserved, baseline) =
        if is_strict { (record.reserved, record.baseline) } else { Default::default() };
    ProjectInCall {
        spent: u128::from(record.usage.0) + u128::from(reserved.0),
        baseline: baseline.0.into(),
        agents: record.active_agents,
        workspaces: record.workspaces,
        is_guarantee_met: !parts.min_task_guarantee
            || record.completed > 0
            || (is_strict && record.active_agents > 0),
        ready,
        next: 0,
    }
}

/// Returns the ready tasks of each project, in the order in which they start.
fn ready_tasks(snapshot: &ScheduleSnapshot) -> Vec<Vec<usize>> {
    let parts = snapshot.parts();
    let mut queues = vec![Vec::new(); parts.projects.len()];
    for (task, facts) in parts.tasks.iter().enumerate() {
        if facts.status == TaskStatus::Ready {
            queues[snapshot.project_of[task]].push(task);
        }
    }
    let created =
        |task: &ScheduledTask| if parts.mode == ScheduleMode::Strict { task.created } else { 0 };
    let place = |task: usize| {
        let task = &parts.tasks[task];
        (task.priority, created(task), &task.id)
    };
    for queue in &mut queues {
        queue.sort_unstable_by(|a, b| place(*a).cmp(&place(*b)));
    }
    queues
}
