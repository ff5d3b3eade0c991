//! Input of a round: the database rows that determine its decision, as plain data.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use fairgate_core::proportional::CreditWeight;
use fairgate_price::TokenRate;
use fairgate_time::UnixMicros;

use crate::agent_access::AgentAccess;
use crate::tenant_baseline::TenantRow;
use crate::unfit_tasks::UnfitTasks;
use crate::workspace_machines::WorkspaceCounts;

/// All data that determine the decision of a round.
#[derive(Clone, Debug)]
pub(crate) struct RoundInput {
    /// Time of the round.
    pub(crate) at: UnixMicros,
    /// Budget of all projects together in the window, in tokens; `None` for no limit.
    pub(crate) budget: Option<u64>,
    /// If true, projects without a completed or failed task in the window get agents before all
    /// other projects.
    pub(crate) min_task_guarantee: bool,
    /// Price of an agent's second, by which running tasks are charged; `None` if time does not
    /// count.
    pub(crate) price: Option<TokenRate>,
    /// All projects that are not archived, and archived projects with usage in the window, in the
    /// order of their creation.
    pub(crate) projects: Vec<ProjectRow>,
    /// Tenants, if tenants share agents before their projects do; `None` if all projects share
    /// agents.
    pub(crate) tenants: Option<Vec<TenantRow>>,
    /// First ready tasks of each project that could start one, in the order in which they start.
    pub(crate) tasks: Vec<ReadyTask>,
    /// Waiting agents in the order of their arrival.
    pub(crate) waiting: Vec<RoundAgent>,
    /// Tasks that waiting agents have given back because they cannot work on them.
    pub(crate) unfit: UnfitTasks,
    /// The machine of each bound workspace, by workspace.
    pub(crate) machines: HashMap<Box<str>, Box<str>>,
    /// Lists of labels that ready tasks require, by project.
    pub(crate) label_groups: Vec<LabelGroup>,
}

/// The ready tasks of a project that require the same labels.
#[derive(Clone, Debug)]
pub(crate) struct LabelGroup {
    /// Index of the project in [`RoundInput::projects`].
    pub(crate) project: usize,
    /// Labels as stored text.
    pub(crate) text: Box<str>,
    pub(crate) labels: Arc<[String]>,
}

/// A project, with the data that a round needs.
#[derive(Clone, Debug)]
pub(crate) struct ProjectRow {
    pub(crate) id: Box<str>,
    /// Name of the project's tenant.
    pub(crate) tenant: Box<str>,
    /// Labels that the project or its tenant requires of an agent.
    pub(crate) requires: Vec<String>,
    pub(crate) is_active: bool,
    pub(crate) weight: CreditWeight,
    /// Maximum number of agents that may work for the project at once; at most 1 if the project is
    /// exclusive.
    pub(crate) agents_max: u64,
    /// Maximum number of agents of each type that may work for the project at once. Types that are
    /// not listed have no limit.
    pub(crate) kind_max: BTreeMap<String, u64>,
    /// Budget of the project in the window, in tokens; `None` for no limit.
    pub(crate) budget: Option<u64>,
    /// Tokens that the project used in the window.
    pub(crate) used: u64,
    /// Tokens that are reserved for the project's running tasks and requests in flight.
    pub(crate) reserved: u64,
    /// Tokens that count as spent because the project was idle before its present work.
    pub(crate) baseline: u64,
    /// Credit − tokens in the window, in tokens. It includes claims that ended, and running claims
    /// by their time so far or their expected credit. The comparison counts it like used tokens,
    /// but budgets do not count it.
    pub(crate) extra: i64,
    /// Expected credit of one of the project's tasks, in tokens, learned from its completed tasks;
    /// `None` before the first completed task.
    pub(crate) learned_credit: Option<u64>,
    /// Expected usage of one of the project's tasks, in tokens, learned from its completed tasks;
    /// `None` before the first completed task.
    pub(crate) learned: Option<u64>,
    /// Number of tries of the project's tasks that ended in the window, completed or failed.
    pub(crate) completed: u64,
    /// Number of agents that work for the project.
    pub(crate) running: u64,
    /// Number of agents that work for the project, by type.
    pub(crate) running_by_kind: BTreeMap<String, u64>,
    /// Numbers of the project's free workspaces. `None` if the project has no workspaces; its tasks
    /// then need none.
    pub(crate) free_workspaces: Option<WorkspaceCounts>,
    /// True if the project may have more ready tasks than were loaded.
    pub(crate) has_unloaded_tasks: bool,
}

/// A ready task that can start.
#[derive(Clone, Debug)]
pub(crate) struct ReadyTask {
    pub(crate) id: Box<str>,
    /// Index of the task's project in [`RoundInput::projects`].
    pub(crate) project: usize,
    pub(crate) priority: i64,
    /// Sequence number of the task, in the order in which tasks were added.
    pub(crate) made: i64,
    /// Expected usage of the task, in tokens.
    pub(crate) estimate: u64,
    /// Expected credit of the task, in tokens.
    pub(crate) credit: u64,
    /// Name of the workspace in which the task must run; `None` for any workspace of its project.
    pub(crate) workspace: Option<Box<str>>,
    /// Name of the only agent that may take the task now; `None` if any agent may take it.
    pub(crate) affinity: Option<Box<str>>,
    /// Number of claims of the task so far.
    pub(crate) epoch: u64,
    /// Labels that an agent must have to get the task, in addition to those of its project.
    pub(crate) labels: Arc<[String]>,
}

/// A waiting agent with its type.
#[derive(Clone, Debug)]
pub(crate) struct RoundAgent {
    pub(crate) agent: Box<str>,
    pub(crate) kind: Box<str>,
    pub(crate) access: AgentAccess,
}

impl ProjectRow {
    /// Returns the number of further agents that may work for the project. It is limited by the
    /// project's maximum number of agents and by its free workspaces.
    pub(crate) fn headroom(&self) -> u64 {
        let agents = self.agents_max.saturating_sub(self.running);
        agents.min(self.free_workspaces.as_ref().map_or(u64::MAX, WorkspaceCounts::all))
    }

    /// Returns the rest of the project's budget after usage and reservations, in tokens; `None` if it has no budget.
    pub(crate) fn budget_left(&self) -> Option<u64> {
        let spent = self.used.saturating_add(self.reserved);
        self.budget.map(|budget| budget.saturating_sub(spent))
    }

    /// Returns whether an agent with these labels and tenants may work for the project.
    pub(crate) fn is_open_to(&self, access: &AgentAccess) -> bool {
        access.may_take(&self.tenant, &self.requires)
    }

    /// Returns true if the project is active, has room for an agent, and its budget is not used up.
    pub(crate) fn is_open(&self) -> bool {
        self.is_active && self.headroom() > 0 && self.budget_left() != Some(0)
    }
}

impl RoundInput {
    /// Returns the tokens that all projects used in the window.
    pub(crate) fn used(&self) -> u64 {
        self.projects.iter().fold(0, |sum, project| sum.saturating_add(project.used))
    }

    /// Returns true if a budget limits the project's tasks. Estimates of such tasks must then be
    /// tokens, not credit.
    pub(crate) fn is_limited(&self, project: usize) -> bool {
        self.budget.is_some() || self.projects[project].budget.is_some()
    }

    /// Returns the tokens that are reserved for all projects together.
    pub(crate) fn reserved(&self) -> u64 {
        self.projects.iter().fold(0, |sum, project| sum.saturating_add(project.reserved))
    }

    /// Returns the rest of the budget of all projects after usage and reservations, in tokens; `None` if there is no
    /// budget.
    pub(crate) fn budget_left(&self) -> Option<u64> {
        let spent = self.used().saturating_add(self.reserved());
        self.budget.map(|budget| budget.saturating_sub(spent))
    }
}
