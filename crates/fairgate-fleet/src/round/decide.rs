//! Decides which agent gets which task in a round. [`decide`] is a pure function that uses neither
//! the database nor the clock. It builds snapshots, on which `proportional` compares the projects.
//!
//! `proportional` does not know agent types, labels and affinity. So it is called once for each
//! group of consecutive agents that do not differ in these. An agent for which a task is kept, or
//! that has given a task back as unfit, is a group of its own. If tenants share agents first,
//! [`by_tenant`] makes the calls for one agent at a time instead. In each call, the maximum number
//! of agents of a type becomes a lower `max_concurrent_agents`. The snapshot leaves out tasks that
//! the agents of the group may not take, and workspaces that are bound to other machines. Tasks
//! that earlier calls of the round assigned count as running.

mod by_tenant;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;
use std::time::Duration;

use fairgate_core::proportional::{
    ScheduleMode, ScheduleSnapshot, ScheduleSnapshotError, ScheduleSnapshotParts, ScheduledAgent,
    ScheduledProject, ScheduledTask, TaskAssignment, TaskStatus, schedule,
};
use fairgate_core::units::Tokens;
use fairgate_journal::schedule::ScheduleRound;

use super::round_input::{ProjectRow, ReadyTask, RoundAgent, RoundInput};
use crate::workspace_machines::WorkspaceCounts;

/// Maximum number of scheduler calls in a round. The remaining agents wait for the next round,
/// which follows at once.
const CALLS_MAX: usize = 64;

/// The journal contains the price of this much time of an agent, as `price_per_1000_s`.
const PRICE_TIME: Duration = Duration::from_secs(1_000);

/// The decision of a round.
#[derive(Debug, Default)]
pub(crate) struct RoundDecision {
    /// Calls of the scheduler, in the form of the journal.
    pub(crate) calls: Vec<ScheduleRound>,
    /// Tasks that start, in the order in which they were decided.
    pub(crate) starts: Vec<TaskStart>,
    /// Projects of which all startable loaded tasks were assigned, and of which the database may
    /// have further ready tasks.
    pub(crate) out_of_loaded_tasks: Vec<OutOfLoadedTasks>,
    /// True if [`CALLS_MAX`] was reached, so that the scheduler was not called for the remaining
    /// agents.
    pub(crate) is_unfinished: bool,
}

/// A project that could take more agents, but of which no further loaded task can start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OutOfLoadedTasks {
    /// Index of the project in [`RoundInput::projects`].
    pub(crate) project: usize,
    /// True if the project has loaded tasks that cannot start because the started tasks took their
    /// workspace or the budget. The same may be true of any number of the tasks that were not
    /// loaded.
    pub(crate) has_rest: bool,
}

/// A task that starts, and the agent that gets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TaskStart {
    /// Index of the agent in [`RoundInput::waiting`].
    pub(crate) agent: usize,
    /// Index of the task in [`RoundInput::tasks`].
    pub(crate) task: usize,
}

/// Decides a round. Fails if the rows of the input are inconsistent.
pub(crate) fn decide(input: &RoundInput) -> Result<RoundDecision, ScheduleSnapshotError> {
    let mut round_state = RoundState::new(input);
    let mut decision = RoundDecision::default();
    if let Some(tenants) = &input.tenants {
        by_tenant::decide(&mut round_state, tenants, &mut decision)?;
        decision.out_of_loaded_tasks = round_state.out_of_loaded_tasks();
        return Ok(decision);
    }
    for call in calls(input) {
        if decision.calls.len() == CALLS_MAX {
            decision.is_unfinished = true;
            break;
        }
        let Some(snapshot) = round_state.snapshot(call.clone(), None)? else { continue };
        let assignments = schedule(&snapshot);
        for assignment in &assignments {
            let task = round_state.task_places[&*assignment.task_id];
            let is_it = |agent: &usize| input.waiting[*agent].agent == assignment.agent_id;
            let Some(agent) = call.clone().find(is_it) else { continue };
            round_state.record_start(agent, task);
            decision.starts.push(TaskStart { agent, task });
        }
        decision.calls.push(round_state.journaled(snapshot, assignments));
    }
    decision.out_of_loaded_tasks = round_state.out_of_loaded_tasks();
    Ok(decision)
}

/// Returns the groups of consecutive agents for which the scheduler is called once, as ranges of
/// [`RoundInput::waiting`].
fn calls(input: &RoundInput) -> Vec<Range<usize>> {
    let limited: HashSet<&str> =
        input.projects.iter().flat_map(|it| it.kind_max.keys().map(String::as_str)).collect();
    let awaited: HashSet<&str> =
        input.tasks.iter().filter_map(|task| task.affinity.as_deref()).collect();
    let kind = |agent: usize| Some(&*input.waiting[agent].kind).filter(|it| limited.contains(it));
    let access = |agent: usize| &input.waiting[agent].access;
    // An agent for which a task is kept, or that cannot work on some tasks, is a group of its own.
    let is_awaited = |agent: usize| {
        let agent = &*input.waiting[agent].agent;
        awaited.contains(agent) || input.unfit.has_any(agent)
    };
    let mut calls: Vec<Range<usize>> = Vec::new();
    for agent in 0..input.waiting.len() {
        match calls.last_mut() {
            Some(call)
                if kind(call.start) == kind(agent)
                    && access(call.start) == access(agent)
                    && !is_awaited(call.start)
                    && !is_awaited(agent) =>
            {
                call.end = agent + 1;
            }
            _ => calls.push(agent..agent + 1),
        }
    }
    calls
}

/// State of a round between calls of the scheduler, with the tasks that were assigned so far.
struct RoundState<'a> {
    input: &'a RoundInput,
    projects: Vec<ProjectRoundState>,
    is_given: Vec<bool>,
    task_places: HashMap<&'a str, usize>,
    /// Workspaces that tasks starting in this round require, each with the index of its task.
    taken: BTreeMap<&'a str, usize>,
}

/// The numbers of a project that change during a round.
struct ProjectRoundState {
    reserved: u64,
    /// Credit − tokens, as in [`ProjectRow::extra`].
    extra: i64,
    running: u64,
    running_by_kind: BTreeMap<String, u64>,
    /// Numbers of free workspaces; `None` if the project has no workspaces.
    free: Option<WorkspaceCounts>,
}

impl<'a> RoundState<'a> {
    fn new(input: &'a RoundInput) -> Self {
        let now = |project: &ProjectRow| ProjectRoundState {
            reserved: project.reserved,
            extra: project.extra,
            running: project.running,
            running_by_kind: project.running_by_kind.clone(),
            free: project.free_workspaces.clone(),
        };
        Self {
            input,
            projects: input.projects.iter().map(now).collect(),
            is_given: vec![false; input.tasks.len()],
            task_places: (input.tasks.iter().enumerate())
                .map(|(place, task)| (&*task.id, place))
                .collect(),
            taken: BTreeMap::new(),
        }
    }

    /// Returns the line of the journal for a call of the scheduler.
    fn journaled(
        &self,
        snapshot: ScheduleSnapshot,
        assignments: Vec<TaskAssignment>,
    ) -> ScheduleRound {
        let price_per_1000_s = self.input.price.map(|price| price.cost(PRICE_TIME));
        ScheduleRound { at: self.input.at.0, price_per_1000_s, snapshot, assignments }
    }

    /// Returns the scheduler's input for this group of agents; `None` if no task could start for
    /// them. If `tenant` is given, only that tenant's projects are included.
    fn snapshot(
        &self,
        call: Range<usize>,
        tenant: Option<&str>,
    ) -> Result<Option<ScheduleSnapshot>, ScheduleSnapshotError> {
        let waiting = &self.input.waiting[call];
        let Some(first) = waiting.first() else { return Ok(None) };
        let may_take = |task: &ReadyTask| match &task.affinity {
            Some(agent) if *agent != first.agent => false,
            Some(_) if waiting.len() > 1 => false,
            _ => {
                !self.input.unfit.contains(&first.agent, &task.id)
                    && first.access.has_all(&task.labels)
                    && self.has_workspace(task)
            }
        };
        let tasks = self.input.tasks.iter().zip(&self.is_given);
        let is_open: Vec<bool> = (self.input.projects.iter())
            .map(|it| it.is_open_to(&first.access) && tenant.is_none_or(|name| *it.tenant == *name))
            .collect();
        let tasks =
            tasks.filter(|(task, is_given)| !**is_given && is_open[task.project] && may_take(task));
        let tasks: Vec<&ReadyTask> = tasks.map(|(task, _)| task).collect();
        if tasks.is_empty() {
            return Ok(None);
        }
        let agents = waiting.iter().map(|it| ScheduledAgent::idle(it.agent.clone())).collect();
        self.parts(&tasks, agents, first).map(Some)
    }

    /// Returns true if the workspace that a task names can still be free after tasks without a
    /// named workspace have been counted; see [`WorkspaceCounts::has_one_of`].
    fn has_workspace(&self, task: &ReadyTask) -> bool {
        let (Some(workspace), Some(free)) = (&task.workspace, &self.projects[task.project].free)
        else {
            return true;
        };
        free.has_one_of(self.machine_of(workspace))
    }

    /// Returns the machine to which a workspace is bound; `None` if it is not bound.
    fn machine_of(&self, workspace: &str) -> Option<&str> {
        self.input.machines.get(workspace).map(|machine| &**machine)
    }

    fn parts(
        &self,
        tasks: &[&ReadyTask],
        agents: Vec<ScheduledAgent>,
        agent: &RoundAgent,
    ) -> Result<ScheduleSnapshot, ScheduleSnapshotError> {
        let mut parts = ScheduleSnapshotParts {
            mode: ScheduleMode::Strict,
            min_task_guarantee: self.input.min_task_guarantee,
            global_budget: self.input.budget.map(Tokens),
            global_tokens_used: Tokens(self.input.used()),
            agents,
            ..ScheduleSnapshotParts::default()
        };
        let mut is_listed = vec![false; self.projects.len()];
        for task in tasks {
            is_listed[task.project] = true;
            parts.tasks.push(self.task(task));
            if let Some(workspace) = &task.workspace
                && let Some(taker) = self.taken.get(&**workspace)
            {
                let holder = self.input.tasks[*taker].id.clone();
                parts.workspace_locks.insert(workspace.clone(), Some(holder));
            }
        }
        let are_counted =
            is_listed.iter().zip(&self.projects).any(|(is, it)| *is && it.free.is_some());
        for (place, is_listed) in is_listed.into_iter().enumerate() {
            self.add_project(&mut parts, place, is_listed, are_counted, agent);
        }
        ScheduleSnapshot::check(parts)
    }

    /// Returns the tokens that are reserved for a task when it starts: its expected tokens if a
    /// budget limits it, otherwise its expected credit.
    fn counted_estimate(&self, task: &ReadyTask) -> u64 {
        if self.input.is_limited(task.project) { task.estimate } else { task.credit }
    }

    fn task(&self, task: &ReadyTask) -> ScheduledTask {
        ScheduledTask {
            id: task.id.clone(),
            project_id: self.input.projects[task.project].id.clone(),
            status: TaskStatus::Ready,
            priority: task.priority,
            created: task.made,
            estimated_tokens: Some(Tokens(self.counted_estimate(task))),
            preferred_workspace_id: task.workspace.clone(),
        }
    }

    /// Splits the project's credit − tokens by its sign. Returns the tokens to add to its baseline
    /// if the number is positive, and the tokens to subtract from its used tokens if it is
    /// negative. One of the two is 0. The scheduler's comparison includes both, but budgets must
    /// not count them: a baseline counts against no budget, and the caller lowers the budget by the
    /// subtracted tokens.
    fn more_and_less(&self, place: usize) -> (u64, u64) {
        let extra = self.projects[place].extra;
        let less = extra.min(0).unsigned_abs().min(self.input.projects[place].used);
        (u64::try_from(extra).unwrap_or(0), less)
    }

    fn add_project(
        &self,
        parts: &mut ScheduleSnapshotParts,
        place: usize,
        is_listed: bool,
        are_workspaces_counted: bool,
        agent: &RoundAgent,
    ) {
        let (row, now) = (&self.input.projects[place], &self.projects[place]);
        let id = || row.id.clone();
        // A project without a task in this call is listed if it has reservations, because they
        // count against the budget of all projects.
        if now.reserved > 0 && (is_listed || self.input.budget.is_some()) {
            parts.project_reserved_tokens.insert(id(), Tokens(now.reserved));
        }
        if !is_listed {
            return;
        }
        // The budget is lowered by the tokens that are subtracted from the used ones, so that the
        // rest of the budget stays the same.
        let (more, less) = self.more_and_less(place);
        parts.projects.push(ScheduledProject {
            max_concurrent_agents: agents_max(row, now, &agent.kind),
            credit_weight: row.weight,
            budget_limit: row.budget.map(|budget| Tokens(budget.saturating_sub(less))),
            ..ScheduledProject::new(id())
        });
        let tokens = [
            (&mut parts.project_token_usage, row.used - less),
            (&mut parts.project_baseline_tokens, row.baseline.saturating_add(more)),
        ];
        for (map, count) in tokens {
            if count > 0 {
                map.insert(id(), Tokens(count));
            }
        }
        let counts = [
            (&mut parts.project_active_agent_counts, now.running),
            (&mut parts.tasks_completed_in_window, row.completed),
        ];
        for (map, count) in counts {
            if count > 0 {
                map.insert(id(), count);
            }
        }
        if are_workspaces_counted {
            // The tasks of a project without workspaces need none. One workspace for each agent
            // means no limit.
            let usable = now.free.as_ref().map(|free| free.usable_by(&agent.access));
            let free = usable.unwrap_or(parts.agents.len() as u64);
            parts.project_available_workspaces.insert(id(), free);
        }
    }

    fn record_start(&mut self, agent: usize, place: usize) {
        let input = self.input;
        let task = &input.tasks[place];
        let counted = self.counted_estimate(task);
        let now = &mut self.projects[task.project];
        now.reserved = now.reserved.saturating_add(counted);
        let extra = i128::from(task.credit) - i128::from(counted);
        now.extra = now.extra.saturating_add(i64::try_from(extra).unwrap_or(i64::MAX));
        now.running += 1;
        *now.running_by_kind.entry(input.waiting[agent].kind.to_string()).or_default() += 1;
        if let Some(free) = &mut now.free {
            match &task.workspace {
                Some(name) => free.take(input.machines.get(name).map(|machine| &**machine)),
                None => free.take_any(&input.waiting[agent].access),
            }
        }
        if let Some(workspace) = &task.workspace {
            self.taken.insert(workspace, place);
        }
        self.is_given[place] = true;
    }

    /// Returns the projects that might take more agents if more of their tasks were loaded.
    fn out_of_loaded_tasks(&self) -> Vec<OutOfLoadedTasks> {
        let input = self.input;
        if !input.projects.iter().any(|project| project.has_unloaded_tasks) {
            return Vec::new();
        }
        let reserved = self.projects.iter().map(|it| it.reserved);
        let spent = reserved.fold(input.used(), u64::saturating_add);
        let global = input.budget.map_or(u64::MAX, |budget| budget.saturating_sub(spent));
        let left = |place: usize| {
            let (row, now) = (&input.projects[place], &self.projects[place]);
            let spent = row.used.saturating_add(now.reserved);
            row.budget.map_or(u64::MAX, |budget| budget.saturating_sub(spent)).min(global)
        };
        let (mut has_next, mut has_rest) =
            (vec![false; self.projects.len()], vec![false; self.projects.len()]);
        let tasks = input.tasks.iter().zip(&self.is_given);
        for (task, _) in tasks.filter(|(task, is_given)| !**is_given && task.affinity.is_none()) {
            let is_taken = task.workspace.as_ref().is_some_and(|it| self.taken.contains_key(&**it));
            let can_start = !is_taken && task.estimate <= left(task.project);
            let which = if can_start { &mut has_next } else { &mut has_rest };
            which[task.project] = true;
        }
        let out_of_tasks = |project: usize| {
            let (row, now) = (&input.projects[project], &self.projects[project]);
            let has_workspace = now.free.as_ref().is_none_or(|free| free.all() > 0);
            let has_room = now.running < row.agents_max && has_workspace && left(project) > 0;
            let is_dry = row.has_unloaded_tasks && row.is_active && has_room && !has_next[project];
            is_dry.then_some(OutOfLoadedTasks { project, has_rest: has_rest[project] })
        };
        (0..self.projects.len()).filter_map(out_of_tasks).collect()
    }
}

/// Returns the maximum number of agents, of all types, that may work for a project if all new
/// agents have the type `kind`.
fn agents_max(row: &ProjectRow, now: &ProjectRoundState, kind: &str) -> u64 {
    let of_kind = |kind: &str| {
        let most = row.kind_max.get(kind)?;
        let running = now.running_by_kind.get(kind).copied().unwrap_or_default();
        Some(now.running.saturating_add(most.saturating_sub(running)))
    };
    of_kind(kind).map_or(row.agents_max, |most| most.min(row.agents_max))
}
