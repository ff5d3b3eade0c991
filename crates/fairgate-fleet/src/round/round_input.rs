//! Input of a round: the database rows on which the decision depends, as plain data.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use fairgate_core::proportional::CreditWeight;
use fairgate_price::TokenRate;
use fairgate_time::UnixMicros;

use crate::agent_access::AgentAccess;
use crate::tenant_baseline::TenantRow;
use crate::unfit_tasks::UnfitTasks;
use crate::workspace_machines::WorkspaceCounts;

/// Everything that the decision of a round depends on.
#[derive(Clone, Debug)]
pub(crate) struct RoundInput {
    /// Time of the round.
    pub(crate) at: UnixMicros,
    /// Budget of all projects together in the window, in tokens; no limit if `None`.
    pub(crate) budget: Option<u64>,
    /// If true, projects of which no task was completed or failed in the window get agents before all other projects.
    pub(crate) min_task_guarantee: bool,
    /// Price of an agent's second by which running tasks count; `None` if time does not count.
    pub(crate) price: Option<TokenRate>,
    /// All projects that are not archived, and archived ones that still have usage in the window, in the order of their
    /// creation.
    pub(crate) projects: Vec<ProjectRow>,
    /// Tenants that share agents before their projects do; `None` if all projects share agents.
    pub(crate) tenants: Option<Vec<TenantRow>>,
    /// First ready tasks of each project that could start one, in the order in which they start.
    pub(crate) tasks: Vec<ReadyTask>,
    /// Waiting agents in the order of their arrival.
    pub(crate) waiting: Vec<RoundAgent>,
    /// Tasks that waiting agents cannot work on.
    pub(crate) unfit: UnfitTasks,
    /// Machines of the workspaces that are bound to one, by workspace.
    pub(crate) machines: HashMap<Box<str>, Box<str>>,
    /// Lists of labels that ready tasks need, by project.
    pub(crate) label_groups: Vec<LabelGroup>,
}

/// Ready tasks of a project that need the same labels.
#[derive(Clone, Debug)]
pub(crate) struct LabelGroup {
    /// Index of the project in [`RoundInput::projects`].
    pub(crate) project: usize,
    /// Labels as they are stored.
    pub(crate) text: Box<str>,
    pub(crate) labels: Arc<[String]>,
}

/// Project as a round sees it.
#[derive(Clone, Debug)]
pub(crate) struct ProjectRow {
    pub(crate) id: Box<str>,
    /// Tenant of the project. The next field has the labels that the project or the tenant requires of an agent.
    pub(crate) tenant: Box<str>,
    pub(crate) requires: Vec<String>,
    pub(crate) is_active: bool,
    pub(crate) weight: CreditWeight,
    /// Largest number of agents that may work for the project at once; at most 1 if the project is exclusive.
    pub(crate) agents_max: u64,
    /// Largest number of agents of each type that may work for the project at once; no limit for types that are not
    /// named.
    pub(crate) kind_max: BTreeMap<String, u64>,
    /// Budget of the project in the window, in tokens; no limit if `None`.
    pub(crate) budget: Option<u64>,
    /// Tokens that the project used in the window.
    pub(crate) used: u64,
    /// Tokens that are reserved for the project's running tasks and requests in flight.
    pub(crate) reserved: u64,
    /// Tokens that count as spent because the project was idle before it got work again.
    pub(crate) baseline: u64,
    /// Credit − tokens in the window: of claims that ended, and of running claims by their time so far or their expected
    /// credit. It is compared like used tokens, but budgets do not count it.
    pub(crate) extra: i64,
    /// Expected credit of one of the project's tasks, in tokens, learned from its completed tasks; `None` before the
    /// first.
    pub(crate) learned_credit: Option<u64>,
    /// Expected usage of one of the project's tasks, in tokens, learned from its completed tasks; `None` before the
    /// first.
    pub(crate) learned: Option<u64>,
    /// Number of tries of the project's tasks that ended in the window, completed or failed.
    pub(crate) completed: u64,
    /// Number of agents that work for the project, in total and, in the next field, by type.
    pub(crate) running: u64,
    pub(crate) running_by_kind: BTreeMap<String, u64>,
    /// Numbers of the project's free workspaces. `None` if the project has no workspaces; its tasks then run without
    /// one.
    pub(crate) free_workspaces: Option<WorkspaceCounts>,
    /// If true, the project may have more ready tasks than were loaded.
    pub(crate) has_unloaded_tasks: bool,
}

/// Ready task that can start.
#[derive(Clone, Debug)]
pub(crate) struct ReadyTask {
    pub(crate) id: Box<str>,
    /// Index of the task's project in [`RoundInput::projects`].
    pub(crate) project: usize,
    pub(crate) priority: i64,
    /// Number of the task in the order in which tasks were added.
    pub(crate) made: i64,
    /// Expected usage of the task, in tokens.
    pub(crate) estimate: u64,
    /// Expected credit of the task, in tokens.
    pub(crate) credit: u64,
    /// Name of the workspace that the task must run in; any workspace of its project if `None`.
    pub(crate) workspace: Option<Box<str>>,
    /// Name of the only agent that may take the task now; `None` if any agent may take it.
    pub(crate) affinity: Option<Box<str>>,
    /// Number of claims of the task so far.
    pub(crate) epoch: u64,
    /// Labels that an agent must have to get the task, on top of those of its project.
    pub(crate) labels: Arc<[String]>,
}

/// Waiting agent and its type.
#[derive(Clone, Debug)]
pub(crate) struct RoundAgent {
    pub(crate) agent: Box<str>,
    pub(crate) kind: Box<str>,
    pub(crate) access: AgentAccess,
}

impl ProjectRow {
    /// Returns the number of further agents that may work for the project, as its largest number of agents and its free
    /// workspaces allow.
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

    /// Returns whether the project is active and has room for an agent, and its budget is not used up.
    pub(crate) fn is_open(&self) -> bool {
        self.is_active && self.headroom() > 0 && self.budget_left() != Some(0)
    }
}

impl RoundInput {
    /// Returns the tokens that all projects used in the window.
    pub(crate) fn used(&self) -> u64 {
        self.projects.iter().fold(0, |sum, project| sum.saturating_add(project.used))
    }

    /// Returns whether a budget limits the project's tasks. Estimates of such tasks must be tokens, not credit.
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
