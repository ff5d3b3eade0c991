//! The proportional scheduler in its simplest form. Everything is computed again for every agent,
//! directly from the snapshot's maps. It is slow, and is the oracle for the fast scheduler.

use std::collections::{BTreeMap, BTreeSet};

use fairgate_core::proportional::{
    AgentState, ProjectStatus, ScheduleMode, ScheduleSnapshot, ScheduleSnapshotParts,
    ScheduledAgent, ScheduledProject, ScheduledTask, TaskAssignment, TaskStatus,
};
use fairgate_core::units::Tokens;

/// Returns the assignments that `fairgate_core::proportional::schedule` must return.
pub fn schedule(snapshot: &ScheduleSnapshot) -> Vec<TaskAssignment> {
    let state = snapshot.parts();
    match state.mode {
        ScheduleMode::Classic => classic(state),
        ScheduleMode::Strict => strict(state),
    }
}

fn classic(state: &ScheduleSnapshotParts) -> Vec<TaskAssignment> {
    if state.global_budget.is_some_and(|budget| state.global_tokens_used >= budget) {
        return Vec::new();
    }
    let mut tasks_of: BTreeMap<&str, Vec<&ScheduledTask>> = BTreeMap::new();
    for task in state.tasks.iter().filter(|task| task.status == TaskStatus::Ready) {
        tasks_of.entry(&task.project_id).or_default().push(task);
    }
    for tasks in tasks_of.values_mut() {
        tasks.sort_by_key(|task| (task.priority, &task.id));
    }
    let is_active = |project: &&ScheduledProject| {
        project.status == ProjectStatus::Active && tasks_of.contains_key(&*project.id)
    };
    let projects: Vec<&ScheduledProject> = state.projects.iter().filter(is_active).collect();
    let usage = |project: &ScheduledProject| tokens(&state.project_token_usage, &project.id);
    let total_weight = projects.iter().map(|project| weight(project)).sum();
    let total_tokens = sum(&state.project_token_usage).max(1);

    let mut assignments = Vec::new();
    let mut given: BTreeSet<&str> = BTreeSet::new();
    let mut agents_of = state.project_active_agent_counts.clone();
    for agent in idle(state) {
        let mut ranked = projects.clone();
        ranked.sort_by_cached_key(|project| {
            let has_completed = count(&state.tasks_completed_in_window, &project.id) > 0;
            let deficit = rank(usage(project), weight(project), total_weight, total_tokens);
            (state.min_task_guarantee && has_completed, deficit)
        });
        for project in ranked {
            if project.budget_limit.is_some_and(|limit| usage(project) >= limit.0.into())
                || count(&agents_of, &project.id) >= project.max_concurrent_agents
                || (!state.project_available_workspaces.is_empty()
                    && count(&state.project_available_workspaces, &project.id) == 0)
            {
                continue;
            }
            let is_free = |task: &&&ScheduledTask| {
                !given.contains(&*task.id) && !is_locked(state, task, &BTreeSet::new())
            };
            let Some(task) = tasks_of[&*project.id].iter().find(is_free) else { continue };
            given.insert(&task.id);
            *agents_of.entry(project.id.clone()).or_default() += 1;
            assignments.push(assignment(agent, task));
            break;
        }
    }
    assignments
}

fn strict(state: &ScheduleSnapshotParts) -> Vec<TaskAssignment> {
    let mut ready: Vec<&ScheduledTask> =
        state.tasks.iter().filter(|task| task.status == TaskStatus::Ready).collect();
    ready.sort_by_key(|task| (task.priority, task.created, &task.id));
    let mut tasks_of: BTreeMap<&str, Vec<&ScheduledTask>> = BTreeMap::new();
    for task in ready {
        tasks_of.entry(&task.project_id).or_default().push(task);
    }
    let mut round = StrictRound { state, tasks_of, given: Vec::new() };
    let mut assignments = Vec::new();
    for agent in idle(state) {
        let Some(task) = round.next_task() else { break };
        round.given.push(task);
        assignments.push(assignment(agent, task));
    }
    assignments
}

struct StrictRound<'a> {
    state: &'a ScheduleSnapshotParts,
    /// Ready tasks of each project in the order in which they are assigned, including those already
    /// assigned in this round.
    tasks_of: BTreeMap<&'a str, Vec<&'a ScheduledTask>>,
    given: Vec<&'a ScheduledTask>,
}

/// Number of a project's tasks that were assigned to agents in this round, and their estimated
/// tokens.
#[derive(Clone, Copy, Default)]
struct GivenToProject {
    tasks: u64,
    tokens: u128,
}

impl<'a> StrictRound<'a> {
    fn next_task(&self) -> Option<&'a ScheduledTask> {
        let state = self.state;
        let mut given_to: BTreeMap<&str, GivenToProject> = BTreeMap::new();
        for task in &self.given {
            let given = given_to.entry(&task.project_id).or_default();
            given.tasks += 1;
            given.tokens += estimate(state, task);
        }
        let given_to =
            |project: &ScheduledProject| given_to.get(&*project.id).copied().unwrap_or_default();
        let spent = |project: &ScheduledProject| {
            tokens(&state.project_token_usage, &project.id)
                + tokens(&state.project_reserved_tokens, &project.id)
                + given_to(project).tokens
        };
        let given_tokens: u128 = self.given.iter().map(|task| estimate(state, task)).sum();
        let global_spent = u128::from(state.global_tokens_used.0)
            + sum(&state.project_reserved_tokens)
            + given_tokens;
        let given_ids: BTreeSet<&str> = self.given.iter().map(|task| &*task.id).collect();
        let taken: BTreeSet<&str> =
            self.given.iter().filter_map(|task| task.preferred_workspace_id.as_deref()).collect();

        let mut startable: Vec<(&ScheduledProject, &ScheduledTask)> = Vec::new();
        for project in &state.projects {
            let active = count(&state.project_active_agent_counts, &project.id);
            let workspaces = count(&state.project_available_workspaces, &project.id);
            let may_start = project.status == ProjectStatus::Active
                && active.saturating_add(given_to(project).tasks) < project.max_concurrent_agents
                && (state.project_available_workspaces.is_empty()
                    || given_to(project).tasks < workspaces)
                && is_below(spent(project), project.budget_limit)
                && is_below(global_spent, state.global_budget);
            let can_start = |task: &&&ScheduledTask| {
                let estimate = estimate(state, task);
                !given_ids.contains(&*task.id)
                    && !is_locked(state, task, &taken)
                    && fits(spent(project) + estimate, project.budget_limit)
                    && fits(global_spent + estimate, state.global_budget)
            };
            let tasks = self.tasks_of.get(&*project.id);
            if let Some(task) = tasks.filter(|_| may_start).and_then(|t| t.iter().find(can_start)) {
                startable.push((project, task));
            }
        }

        let compared = |project: &ScheduledProject| {
            spent(project) + tokens(&state.project_baseline_tokens, &project.id)
        };
        let total_weight = startable.iter().map(|(project, _)| weight(project)).sum();
        let total_tokens: u128 = startable.iter().map(|(project, _)| compared(project)).sum();
        startable.sort_by_cached_key(|(project, _)| {
            let met = count(&state.tasks_completed_in_window, &project.id) > 0
                || count(&state.project_active_agent_counts, &project.id) > 0
                || given_to(project).tasks > 0;
            let deficit =
                rank(compared(project), weight(project), total_weight, total_tokens.max(1));
            (state.min_task_guarantee && met, deficit)
        });
        startable.first().map(|(_, task)| *task)
    }
}

fn idle(state: &ScheduleSnapshotParts) -> impl Iterator<Item = &ScheduledAgent> {
    state.agents.iter().filter(|agent| agent.state == AgentState::Idle)
}

fn assignment(agent: &ScheduledAgent, task: &ScheduledTask) -> TaskAssignment {
    TaskAssignment {
        agent_id: agent.id.clone(),
        task_id: task.id.clone(),
        project_id: task.project_id.clone(),
    }
}

fn is_locked(state: &ScheduleSnapshotParts, task: &ScheduledTask, taken: &BTreeSet<&str>) -> bool {
    let Some(workspace) = task.preferred_workspace_id.as_deref() else { return false };
    taken.contains(workspace) || state.workspace_locks.get(workspace).is_some_and(Option::is_some)
}

fn estimate(state: &ScheduleSnapshotParts, task: &ScheduledTask) -> u128 {
    task.estimated_tokens.unwrap_or(state.default_estimated_tokens).0.into()
}

fn is_below(spent: u128, limit: Option<Tokens>) -> bool {
    limit.is_none_or(|limit| spent < limit.0.into())
}

fn fits(spent: u128, limit: Option<Tokens>) -> bool {
    limit.is_none_or(|limit| spent <= limit.0.into())
}

fn weight(project: &ScheduledProject) -> u128 {
    project.credit_weight.thousandths().into()
}

fn tokens(map: &BTreeMap<Box<str>, Tokens>, id: &str) -> u128 {
    map.get(id).map_or(0, |tokens| tokens.0.into())
}

fn count(map: &BTreeMap<Box<str>, u64>, id: &str) -> u64 {
    map.get(id).copied().unwrap_or(0)
}

fn sum(map: &BTreeMap<Box<str>, Tokens>) -> u128 {
    map.values().map(|tokens| u128::from(tokens.0)).sum()
}

/// Returns the number usage·ΣW + (ΣW − weight)·ΣT, by which projects are ordered, as digits of 64 bits, most
/// significant first. This is usage·ΣW − weight·ΣT plus the constant ΣW·ΣT, which keeps the number from being negative.
fn rank(usage: u128, weight: u128, total_weight: u128, total_tokens: u128) -> [u64; 5] {
    let (used, rest) = (product(usage, total_weight), product(total_weight - weight, total_tokens));
    let mut digits = [0; 5];
    let mut carry = 0;
    for place in (1..5).rev() {
        let digit = u128::from(used[place - 1]) + u128::from(rest[place - 1]) + carry;
        (digits[place], carry) = (low(digit), digit >> 64);
    }
    digits[0] = low(carry);
    digits
}

/// Multiplies two numbers by long multiplication. Returns digits of 64 bits, most significant
/// first.
fn product(a: u128, b: u128) -> [u64; 4] {
    let mut digits = [0_u64; 4];
    for (i, x) in [low(a), low(a >> 64)].into_iter().enumerate() {
        let mut carry = 0_u128;
        for (j, y) in [low(b), low(b >> 64)].into_iter().enumerate() {
            let place = 3 - i - j;
            let digit = u128::from(x) * u128::from(y) + u128::from(digits[place]) + carry;
            (digits[place], carry) = (low(digit), digit >> 64);
        }
        digits[1 - i] = low(carry);
    }
    digits
}

/// Returns the lowest 64 bits of a number.
#[expect(clippy::cast_possible_truncation, reason = "the rest is carried by whoever calls")]
fn low(number: u128) -> u64 {
    number as u64
}
