//! Decides a round in which tenants share agents first, and then the projects of each tenant.
//!
//! For each agent, `proportional` is first called over the projects of each tenant alone. This
//! gives the task that the agent would get from that tenant. Then `proportional` is called over the
//! tenants that have such a task. The projects in this snapshot are the tenants, named
//! `tenant:NAME`, with the sums of their projects and the weights of the directory. The agent gets
//! the task of the tenant that wins. The journal gets the call over the tenants, and then the call
//! over the winner's projects. So five projects of one tenant get no more together than one project
//! of another tenant with the same weight.
//!
//! A tenant without a task for the agent is left out of the call over tenants.

use fairgate_core::proportional::{
    CreditWeight, ScheduleMode, ScheduleSnapshot, ScheduleSnapshotError, ScheduleSnapshotParts,
    ScheduledAgent, ScheduledProject, ScheduledTask, TaskAssignment, schedule,
};
use fairgate_core::units::Tokens;

use super::{CALLS_MAX, RoundDecision, RoundState, TaskStart};
use crate::tenant_baseline::TenantRow;

/// The call over the projects of a tenant, and the one task that it gives.
struct TenantCandidate {
    snapshot: ScheduleSnapshot,
    assignment: TaskAssignment,
}

/// Decides the tasks of all waiting agents, one agent after the other.
pub(super) fn decide(
    state: &mut RoundState<'_>,
    tenants: &[TenantRow],
    decision: &mut RoundDecision,
) -> Result<(), ScheduleSnapshotError> {
    let mut candidates: Vec<Option<TenantCandidate>> = Vec::new();
    for agent in 0..state.input.waiting.len() {
        if decision.calls.len() + 2 > CALLS_MAX {
            decision.is_unfinished = true;
            break;
        }
        candidates.clear();
        for tenant in tenants {
            candidates.push(candidate(state, tenant, agent)?);
        }
        let Some(snapshot) = tenants_snapshot(state, tenants, &candidates, agent)? else {
            continue;
        };
        let assignments = schedule(&snapshot);
        let winner = assignments.first().and_then(|winner| {
            tenants.iter().position(|tenant| flow(&tenant.name) == winner.project_id)
        });
        decision.calls.push(state.journaled(snapshot, assignments));
        let Some(winner) = winner else { continue };
        let Some(TenantCandidate { snapshot, assignment }) = candidates[winner].take() else {
            continue;
        };
        let task = state.task_places[&*assignment.task_id];
        decision.calls.push(state.journaled(snapshot, vec![assignment]));
        state.record_start(agent, task);
        decision.starts.push(TaskStart { agent, task });
    }
    Ok(())
}

/// Returns the name of a tenant in the calls over tenants. No project has such a name.
fn flow(tenant: &str) -> Box<str> {
    format!("tenant:{tenant}").into()
}

/// Returns the call over a tenant's projects; `None` if it gives this agent no task.
fn candidate(
    state: &RoundState<'_>,
    tenant: &TenantRow,
    agent: usize,
) -> Result<Option<TenantCandidate>, ScheduleSnapshotError> {
    let Some(snapshot) = state.snapshot(agent..agent + 1, Some(&tenant.name))? else {
        return Ok(None);
    };
    let assignment = schedule(&snapshot).into_iter().next();
    Ok(assignment.map(|assignment| TenantCandidate { snapshot, assignment }))
}

/// Returns the input of the call over tenants; `None` if no tenant has a task for the agent.
fn tenants_snapshot(
    state: &RoundState<'_>,
    tenants: &[TenantRow],
    candidates: &[Option<TenantCandidate>],
    agent: usize,
) -> Result<Option<ScheduleSnapshot>, ScheduleSnapshotError> {
    if candidates.iter().all(Option::is_none) {
        return Ok(None);
    }
    let input = state.input;
    let mut parts = ScheduleSnapshotParts {
        mode: ScheduleMode::Strict,
        min_task_guarantee: input.min_task_guarantee,
        global_budget: input.budget.map(Tokens),
        global_tokens_used: Tokens(input.used()),
        agents: vec![ScheduledAgent::idle(input.waiting[agent].agent.clone())],
        ..ScheduleSnapshotParts::default()
    };
    for (tenant, candidate) in tenants.iter().zip(candidates) {
        add_tenant(state, &mut parts, tenant, candidate.as_ref());
    }
    ScheduleSnapshot::check(parts).map(Some)
}

fn add_tenant(
    state: &RoundState<'_>,
    parts: &mut ScheduleSnapshotParts,
    tenant: &TenantRow,
    candidate: Option<&TenantCandidate>,
) {
    let (mut used, mut reserved, mut baseline) = (0_u64, 0_u64, tenant.baseline);
    let (mut completed, mut running) = (0_u64, 0_u64);
    let projects = state.input.projects.iter().enumerate();
    for (place, row) in projects.filter(|(_, row)| *row.tenant == *tenant.name) {
        let (more, less) = state.more_and_less(place);
        used = used.saturating_add(row.used - less);
        baseline = baseline.saturating_add(more);
        reserved = reserved.saturating_add(state.projects[place].reserved);
        completed = completed.saturating_add(row.completed);
        running = running.saturating_add(state.projects[place].running);
    }
    // Reservations of tenants that are left out still count against the budget of all.
    if reserved > 0 && (candidate.is_some() || state.input.budget.is_some()) {
        parts.project_reserved_tokens.insert(flow(&tenant.name), Tokens(reserved));
    }
    let Some(candidate) = candidate else { return };
    let task = state.task(&state.input.tasks[state.task_places[&*candidate.assignment.task_id]]);
    // Workspaces matter only in the call over the tenant's projects.
    let project_id = flow(&tenant.name);
    parts.tasks.push(ScheduledTask { project_id, preferred_workspace_id: None, ..task });
    parts.projects.push(ScheduledProject {
        credit_weight: CreditWeight::from_thousandths(tenant.weight).unwrap_or(CreditWeight::ONE),
        max_concurrent_agents: u64::MAX,
        ..ScheduledProject::new(flow(&tenant.name))
    });
    for (map, tokens) in
        [(&mut parts.project_token_usage, used), (&mut parts.project_baseline_tokens, baseline)]
    {
        map.insert(flow(&tenant.name), Tokens(tokens));
    }
    for (map, count) in [
        (&mut parts.tasks_completed_in_window, completed),
        (&mut parts.project_active_agent_counts, running),
    ] {
        map.insert(flow(&tenant.name), count);
    }
}
