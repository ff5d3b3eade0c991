//! What a round sees: the rows that matter to it, as plain data.

use std::collections::BTreeMap;

use fairgate_core::proportional::CreditWeight;
use fairgate_money::UnixMicros;

/// Everything that decides who gets what.
#[derive(Clone, Debug)]
pub(crate) struct Scene {
    /// The moment.
    pub(crate) at: UnixMicros,
    /// What all projects may use in the window together, in tokens.
    pub(crate) budget: Option<u64>,
    /// Whether a project that completed nothing in the window goes before those that did.
    pub(crate) min_task_guarantee: bool,
    /// All projects that are not archived, and those that count in the window, in the order in which they were made.
    pub(crate) projects: Vec<ProjectRow>,
    /// The first ready tasks of each project that could start something, in the order in which they start.
    pub(crate) tasks: Vec<ReadyTask>,
    /// The agents that wait, the first that came first.
    pub(crate) waiting: Vec<Waiting>,
}

/// A project in a round.
#[derive(Clone, Debug)]
pub(crate) struct ProjectRow {
    pub(crate) id: Box<str>,
    pub(crate) is_active: bool,
    pub(crate) weight: CreditWeight,
    /// How many agents may work for it at once: 1 where it is exclusive.
    pub(crate) agents_max: u64,
    /// How many of a type may.
    pub(crate) kind_max: BTreeMap<String, u64>,
    /// Tokens that it may use in the window.
    pub(crate) budget: Option<u64>,
    /// Tokens that it used in the window.
    pub(crate) used: u64,
    /// Tokens that its running tasks and its calls in flight have set aside.
    pub(crate) reserved: u64,
    /// Tokens that it is taken to have used because it was away.
    pub(crate) baseline: u64,
    /// What a task of its own is expected to use, learned from those that ended.
    pub(crate) learned: Option<u64>,
    /// Tasks that it completed in the window.
    pub(crate) completed: u64,
    /// Agents that work for it, of all types and by type.
    pub(crate) running: u64,
    pub(crate) running_by_kind: BTreeMap<String, u64>,
    /// How many of its workspaces are free; none where it has no workspaces at all, and needs none.
    pub(crate) free_workspaces: Option<u64>,
    /// Whether it may have more ready tasks than were loaded.
    pub(crate) is_cut: bool,
}

/// A task that can start.
#[derive(Clone, Debug)]
pub(crate) struct ReadyTask {
    pub(crate) id: Box<str>,
    /// The place of its project in the scene.
    pub(crate) project: usize,
    pub(crate) priority: i64,
    /// Its place in the order in which tasks were made.
    pub(crate) made: i64,
    /// How many tokens it is expected to use.
    pub(crate) estimate: u64,
    /// The workspace that it must run in.
    pub(crate) workspace: Option<Box<str>>,
    /// The one agent that may take it, as long as it waits for that.
    pub(crate) affinity: Option<Box<str>>,
    /// How many claims it has had.
    pub(crate) epoch: u64,
}

/// An agent that waits for a task.
#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    pub(crate) agent: Box<str>,
    pub(crate) kind: Box<str>,
}

impl ProjectRow {
    /// How many more agents it could be given at all.
    pub(crate) fn headroom(&self) -> u64 {
        let agents = self.agents_max.saturating_sub(self.running);
        agents.min(self.free_workspaces.unwrap_or(u64::MAX))
    }

    /// What is left of its budget, where it has one.
    pub(crate) fn budget_left(&self) -> Option<u64> {
        let spent = self.used.saturating_add(self.reserved);
        self.budget.map(|budget| budget.saturating_sub(spent))
    }

    /// Whether it may start anything at all.
    pub(crate) fn is_open(&self) -> bool {
        self.is_active && self.headroom() > 0 && self.budget_left() != Some(0)
    }
}

impl Scene {
    /// What all projects used in the window.
    pub(crate) fn used(&self) -> u64 {
        self.projects.iter().fold(0, |sum, project| sum.saturating_add(project.used))
    }

    /// What all projects have set aside.
    pub(crate) fn reserved(&self) -> u64 {
        self.projects.iter().fold(0, |sum, project| sum.saturating_add(project.reserved))
    }

    /// What is left of the budget of all projects, where there is one.
    pub(crate) fn budget_left(&self) -> Option<u64> {
        let spent = self.used().saturating_add(self.reserved());
        self.budget.map(|budget| budget.saturating_sub(spent))
    }
}
