//! Explains why a ready task has not started. If there are several obstacles, only the first one
//! found is explained.

use std::collections::{BTreeSet, HashMap};

use fairgate_core::proportional::{
    OutOfAgents, ProjectShare, ScheduleSnapshot, TaskReason, TaskReport, explain as explain_call,
};
use fairgate_core::units::Percentage;
use fairgate_store::{SqlValue, StoreError, Transaction};

use super::{ActiveAgent, ExplainedTask, ExplanationContext, ExplanationDraft, NAMED};
use crate::agent_access;
use crate::human_format::{grouped, listed, many, moment, span, tokens};
use crate::round::decide::decide;
use crate::round::round_input::{ProjectRow, RoundInput};
use crate::unfit_tasks;
use crate::workspace_machines::{self, WorkspaceCounts};

pub(super) fn explain(
    tx: &mut dyn Transaction,
    context: &ExplanationContext,
    subject: &ExplainedTask,
) -> Result<ExplanationDraft, StoreError> {
    let Some(place) = context.project(&subject.project) else {
        return Ok(ExplanationDraft::new(
            "project_archived",
            format!("Its project {} is archived.", subject.project),
        ));
    };
    let project = &context.input.projects[place];
    let expected = project.learned.unwrap_or(context.rules.default_estimate);
    let estimate = subject.estimate.unwrap_or(expected);
    if !project.is_active {
        return inactive(tx, subject);
    }
    let match_rule = TaskMatch::load(tx, subject, project)?;
    if let Some(draft) = no_match(context, &match_rule) {
        return Ok(draft);
    }
    if let Some(draft) = over_budget(tx, context, project, estimate)? {
        return Ok(draft);
    }
    if let Some(draft) = full(context, project, &match_rule) {
        return Ok(draft);
    }
    if let Some(draft) = no_workspace(tx, subject, project)? {
        return Ok(draft);
    }
    if let Some(draft) = affinity(tx, context, subject)? {
        return Ok(draft);
    }
    if let Some(draft) = given_back(tx, context, subject)? {
        return Ok(draft);
    }
    Ok(in_turn(context, subject, place))
}

fn inactive(
    tx: &mut dyn Transaction,
    subject: &ExplainedTask,
) -> Result<ExplanationDraft, StoreError> {
    let sql = "SELECT p.status, p.tenant FROM fleet_projects p WHERE p.id = $1";
    let found =
        tx.first(sql, &[subject.project.as_str().into()], |row| Ok((row.text(0)?, row.text(1)?)))?;
    let (project, (status, tenant)) = (&subject.project, found.unwrap_or_default());
    let (code, what) = match status.as_str() {
        "PAUSED" => ("project_paused", format!("project {project} is PAUSED")),
        "ACTIVE" => ("tenant_disabled", format!("project's tenant {tenant} is disabled")),
        _ => ("project_archived", format!("project {project} is {status}")),
    };
    let until = if code == "tenant_disabled" { "enables" } else { "resumes" };
    Ok(ExplanationDraft::new(
        code,
        format!("Its {what}: nothing of it starts until somebody {until} it."),
    ))
}

/// Conditions that an agent must meet to get a task.
struct TaskMatch<'a> {
    project: &'a ProjectRow,
    /// Labels that the task requires, in addition to those of its project.
    labels: Vec<String>,
    /// Machines of the project's workspaces, on one of which the agent must run. `None` if the
    /// machine does not matter here, because the task names a workspace, or because the project has
    /// no workspace or has one that is not bound.
    machines: Option<Vec<String>>,
}

impl<'a> TaskMatch<'a> {
    fn load(
        tx: &mut dyn Transaction,
        subject: &ExplainedTask,
        project: &'a ProjectRow,
    ) -> Result<Self, StoreError> {
        let machines = match subject.workspace {
            Some(_) => None,
            None if project.free_workspaces.is_none() => None,
            None => {
                let only = BTreeSet::from([subject.project.as_str()]);
                let all = workspace_machines::of_projects(tx, &only)?;
                all.get(&subject.project).and_then(WorkspaceCounts::machines)
            }
        };
        Ok(Self { project, labels: subject.labels.clone(), machines })
    }

    fn is_met_by(&self, agent: &ActiveAgent) -> bool {
        let access = &agent.access;
        let is_there = |machines: &Vec<String>| machines.iter().any(|name| access.is_on(name));
        self.project.is_open_to(access)
            && access.has_all(&self.labels)
            && self.machines.as_ref().is_none_or(is_there)
    }

    /// Returns all labels that an agent must have.
    fn all_labels(&self) -> Vec<String> {
        agent_access::union(&self.project.requires, &self.labels)
    }
}

/// Explains that none of the waiting agents may take the task; if no agent waits, that no agent at
/// all may take it. Such an agent lacks a label that the task, its project or its tenant requires,
/// runs on another machine than the workspace, or is limited to other tenants.
fn no_match(context: &ExplanationContext, rule: &TaskMatch<'_>) -> Option<ExplanationDraft> {
    let may_take = |agent: &&ActiveAgent| rule.is_met_by(agent);
    let waiting: Vec<_> = context.agents.iter().filter(|agent| agent.is_waiting).collect();
    let is_served = match waiting.is_empty() {
        true => context.agents.is_empty() || context.agents.iter().any(|agent| may_take(&agent)),
        false => waiting.iter().any(may_take),
    };
    if is_served {
        return None;
    }
    let who = match waiting.len() as u64 {
        0 => format!("none of {} may take it", many(context.agents.len() as u64, "agent")),
        count => format!("none of {} that waits may take it", many(count, "agent")),
    };
    let labels = rule.all_labels();
    let mut needs = match labels.is_empty() {
        true => String::new(),
        false => format!(" has the labels {} and", listed(&labels, NAMED)),
    };
    if let Some(machines) = &rule.machines {
        let names: Vec<_> = machines.iter().map(|name| agent_access::machine_label(name)).collect();
        needs.push_str(&format!(" runs where its workspaces are ({}) and", listed(&names, NAMED)));
    }
    let next = match context.agents.iter().any(|agent| may_take(&agent)) {
        true => "it takes the next agent that",
        false => "it waits for an agent that",
    };
    let what = if rule.labels.is_empty() && rule.machines.is_none() { "Its project" } else { "It" };
    let sentence = format!(
        "{what} is not open to every agent, and {who}: {next}{needs} may work for its tenant."
    );
    let draft = ExplanationDraft::new("no_matching_agent", sentence);
    let machines = rule.machines.as_ref().map(|machines| machines.join(", "));
    Some(draft.fact("requires", labels.join(", ")).maybe("machines of its workspaces", machines))
}

/// Explains that all waiting agents have given the task back because they cannot work on it. If no
/// agent waits, this is about all agents.
fn given_back(
    tx: &mut dyn Transaction,
    context: &ExplanationContext,
    subject: &ExplainedTask,
) -> Result<Option<ExplanationDraft>, StoreError> {
    let unfit = unfit_tasks::agents_of(tx, &subject.id)?;
    let is_unfit = |agent: &&ActiveAgent| unfit.contains(&agent.id);
    let all: Vec<_> = context.agents.iter().collect();
    let waiting: Vec<_> = all.iter().copied().filter(|agent| agent.is_waiting).collect();
    let asked = if waiting.is_empty() { &all } else { &waiting };
    if asked.is_empty() || !asked.iter().all(is_unfit) {
        return Ok(None);
    }
    let (who, they) = match (asked.len() as u64, waiting.is_empty()) {
        (1, true) => ("The only agent has".to_owned(), "it"),
        (1, false) => ("The only agent that waits has".to_owned(), "it"),
        (count, true) => (format!("All {} have", many(count, "agent")), "they"),
        (count, false) => (format!("All {} that wait have", many(count, "agent")), "they"),
    };
    let next = match all.iter().all(is_unfit) {
        true => "it waits for another agent",
        false => "it takes the next agent that has not",
    };
    let sentence = format!("{who} given it back, because {they} cannot work on it: {next}.");
    Ok(Some(ExplanationDraft::new("given_back", sentence)))
}

/// Explains that a budget has no room for the task. This is the budget of the project or that of all projects together.
fn over_budget(
    tx: &mut dyn Transaction,
    context: &ExplanationContext,
    project: &ProjectRow,
    estimate: u64,
) -> Result<Option<ExplanationDraft>, StoreError> {
    let input = &context.input;
    let own = (project.budget, project.used, project.reserved);
    let global = (input.budget, input.used(), input.reserved());
    let id = Some(&*project.id);
    let whose = [
        ("project_budget", "Its project", id, own),
        ("global_budget", "All projects together", None, global),
    ];
    for (code, who, only, (limit, used, reserved)) in whose {
        let Some(limit) = limit else { continue };
        let wanted = used.saturating_add(reserved).saturating_add(estimate);
        // If nothing is left of a budget, no task starts, whatever its estimate.
        let over = wanted.saturating_sub(limit).max(u64::from(wanted - estimate >= limit));
        if over == 0 {
            continue;
        }
        let buckets = buckets(tx, only)?;
        let faded = context.rules.window.all_faded_at(&buckets, over, context.now);
        let when = match faded {
            _ if estimate > limit => "its estimate alone is more than that budget".to_owned(),
            Some(at) => format!("enough of that has left the window in {}", span(context.now, at)),
            None => "running tasks must end first".to_owned(),
        };
        let sentence = format!(
            "{who} used {} and set {} aside of a budget of {}, and it is expected to use {}: {when}.",
            grouped(used),
            grouped(reserved),
            tokens(limit),
            grouped(estimate)
        );
        let draft = ExplanationDraft::new(code, sentence)
            .fact("used", tokens(used))
            .fact("set aside", tokens(reserved))
            .fact("estimate", tokens(estimate))
            .fact("budget", tokens(limit))
            .maybe("fits at", faded.filter(|_| estimate <= limit).map(moment));
        return Ok(Some(draft));
    }
    Ok(None)
}

/// Returns the start and the tokens of each bucket of usage, oldest first. These are buckets of one project, or of all
/// projects if `project` is `None`.
fn buckets(tx: &mut dyn Transaction, project: Option<&str>) -> Result<Vec<(i64, u64)>, StoreError> {
    let only = if project.is_some() { "WHERE project = $1" } else { "" };
    let values: Vec<SqlValue> = project.into_iter().map(SqlValue::from).collect();
    let sql = format!(
        "SELECT bucket, CAST(SUM(tokens) AS BIGINT) FROM fleet_usage {only} GROUP BY bucket ORDER BY bucket"
    );
    tx.list(&sql, &values, |row| Ok((row.int(0)?, u64::try_from(row.int(1)?).unwrap_or(0))))
}

/// Explains that no further agent may work for the project. Either the project has its maximum
/// number of agents, or its maximum for each type of the agents that could take the task. If a
/// waiting agent could take the task, only waiting agents are considered.
fn full(
    context: &ExplanationContext,
    project: &ProjectRow,
    rule: &TaskMatch<'_>,
) -> Option<ExplanationDraft> {
    let (running, most) = (project.running, project.agents_max);
    if running >= most {
        let sentence = format!("Its project has {running} of at most {}.", many(most, "agent"));
        let draft = ExplanationDraft::new("concurrency", sentence);
        return Some(draft.fact("agents", format!("{running} of {most}")));
    }
    let left = |kind: &str| {
        let most = project.kind_max.get(kind).copied().unwrap_or(u64::MAX);
        most.saturating_sub(project.running_by_kind.get(kind).copied().unwrap_or(0))
    };
    let has_room = |agent: &&ActiveAgent| left(&agent.kind) > 0;
    let may_take: Vec<_> = context.agents.iter().filter(|agent| rule.is_met_by(agent)).collect();
    let waiting: Vec<_> = may_take.iter().copied().filter(|agent| agent.is_waiting).collect();
    // A waiting agent is served next. An agent that does not wait may never ask for a task.
    let next = if waiting.is_empty() { may_take.clone() } else { waiting };
    if next.is_empty() || next.iter().any(has_room) {
        return None;
    }
    let mut kinds: Vec<&str> = next.iter().map(|agent| agent.kind.as_str()).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let others = if may_take.iter().any(has_room) {
        "; it takes the next agent of another type"
    } else {
        ""
    };
    let shown = |kind: &&str| {
        let running = project.running_by_kind.get(*kind).copied().unwrap_or(0);
        let most = project.kind_max.get(*kind).copied().unwrap_or(0);
        format!("{running} of at most {most} of type {kind}")
    };
    let shown: Vec<_> = kinds.iter().map(shown).collect();
    let sentence = format!(
        "Its project has as many agents as it may of every type that {}: {}{others}.",
        if next.iter().any(|agent| agent.is_waiting) { "waits" } else { "there is" },
        listed(&shown, NAMED)
    );
    Some(ExplanationDraft::new("agent_type", sentence).fact("agents by type", shown.join(", ")))
}

fn no_workspace(
    tx: &mut dyn Transaction,
    subject: &ExplainedTask,
    project: &ProjectRow,
) -> Result<Option<ExplanationDraft>, StoreError> {
    if let Some(workspace) = &subject.workspace {
        let sql = "SELECT task, agent FROM fleet_workspaces WHERE id = $1 AND project = $2";
        let values = [workspace.as_str().into(), subject.project.as_str().into()];
        let found =
            tx.first(sql, &values, |row| Ok((row.text_or_null(0)?, row.text_or_null(1)?)))?;
        return Ok(match found {
            None => {
                let sentence =
                    format!("Its project has no workspace {workspace}, and it must run there.");
                Some(ExplanationDraft::new("workspace_missing", sentence))
            }
            Some((None, _)) => None,
            Some((Some(task), agent)) => {
                let by = agent.map(|agent| format!(" of agent {agent}")).unwrap_or_default();
                let sentence = format!("Its workspace {workspace} is held by task {task}{by}.");
                Some(ExplanationDraft::new("workspace_taken", sentence).fact("held by", task))
            }
        });
    }
    let is_short = project.free_workspaces.as_ref().is_some_and(|free| free.all() == 0);
    Ok(is_short.then(|| {
        ExplanationDraft::new("no_workspace", "None of its project's workspaces is free.")
    }))
}

fn affinity(
    tx: &mut dyn Transaction,
    context: &ExplanationContext,
    subject: &ExplainedTask,
) -> Result<Option<ExplanationDraft>, StoreError> {
    let (Some(agent), Some(until)) = (&subject.affinity, subject.affinity_until) else {
        return Ok(None);
    };
    let sql = "SELECT 1 FROM fleet_agents WHERE id = $1 AND state <> 'RETIRED'";
    let is_there = tx.first(sql, &[agent.as_str().into()], |_| Ok(()))?.is_some();
    if until <= context.now || !is_there {
        return Ok(None);
    }
    let task = context.held.iter().find(|task| task.agent == *agent);
    let busy = task.map_or_else(String::new, |task| match context.may_name(&task.project) {
        true => format!(", which works on {}", task.id),
        false => ", which works on another task".to_owned(),
    });
    let sentence = format!(
        "It waits for agent {agent}{busy}; in {} anybody may take it.",
        span(context.now, until)
    );
    Ok(Some(
        ExplanationDraft::new("affinity", sentence).fact("anybody may take it at", moment(until)),
    ))
}

/// Outcome for a ready task if one agent asked for a task now.
#[derive(Clone, Debug)]
pub(super) enum NextAgentOutcome {
    /// The task would get the agent.
    First(ProjectShare),
    /// The agent would get another task of the same project, which is named here.
    BehindTask(Box<str>),
    /// The agent would get a task of the project `winner`. `own` is the share of the task's own
    /// project, and `winners` that of `winner`.
    BehindProject { own: ProjectShare, winner: Box<str>, winners: ProjectShare },
}

/// Decides a round whose input has one waiting agent, and returns the outcome for each loaded task.
pub(super) fn next_agent_outcomes(input: &RoundInput) -> HashMap<Box<str>, NextAgentOutcome> {
    let decision = decide(input).unwrap_or_default();
    // If tenants share agents first, the call over tenants comes first. The later call over the
    // projects of the winning tenant replaces the outcomes for that tenant's tasks.
    decision.calls.iter().flat_map(|call| call_outcomes(&call.snapshot)).collect()
}

/// Returns the outcome for each task in a scheduler call for one agent.
fn call_outcomes(snapshot: &ScheduleSnapshot) -> Vec<(Box<str>, NextAgentOutcome)> {
    let explanation = explain_call(snapshot);
    let turn = |report: &TaskReport<'_>| {
        let turn = match &report.reason {
            TaskReason::Given { share, .. } => NextAgentOutcome::First(*share),
            TaskReason::Behind { task }
            | TaskReason::OutOfAgents(OutOfAgents::TookTheLast { task, .. }) => {
                NextAgentOutcome::BehindTask((*task).into())
            }
            TaskReason::OutOfAgents(OutOfAgents::LostTo(loss)) => NextAgentOutcome::BehindProject {
                own: loss.own_share,
                winner: loss.winner.into(),
                winners: loss.winner_share,
            },
            TaskReason::Blocked(_) | TaskReason::OutOfAgents(OutOfAgents::NoneIdle) => return None,
        };
        Some((report.task.id.clone(), turn))
    };
    explanation.tasks.iter().filter_map(turn).collect()
}

/// Explains that a task waits only because the next agent would get another task. Names that task,
/// or its project.
fn in_turn(
    context: &ExplanationContext,
    subject: &ExplainedTask,
    place: usize,
) -> ExplanationDraft {
    let (busy, waiting) = context.busy_and_waiting();
    let agents = match (waiting, busy) {
        (0, 0) => "no agent is there".to_owned(),
        (0, _) => format!("no agent is waiting, {} busy", many_are(busy, "agent")),
        _ => format!("{} waiting", many_are(waiting, "agent")),
    };
    let draft = match context.turns.get(subject.id.as_str()) {
        Some(NextAgentOutcome::BehindTask(task)) => behind_task(task, &agents),
        Some(NextAgentOutcome::BehindProject { own, winner, winners }) => {
            let tenant = winner.strip_prefix("tenant:");
            let is_named = match tenant {
                Some(_) => context.named.is_none(),
                None => context.may_name(winner),
            };
            let who = match (is_named, tenant) {
                (true, Some(tenant)) => format!("tenant {tenant}"),
                (true, None) => format!("project {winner}"),
                (false, Some(_)) => "another tenant".to_owned(),
                (false, None) => "another project".to_owned(),
            };
            let what = if tenant.is_some() { "tenant" } else { "project" };
            let sentence =
                format!("{}, so {who} goes first, and {agents}.", standing(what, own, winners));
            let draft = shares(ExplanationDraft::new("behind_others", sentence), own);
            match is_named {
                true => draft.fact("goes first", &**winner).fact(
                    "its share",
                    format!(
                        "{}, promised {}",
                        Percentage::from_ppm(winners.actual_ppm),
                        Percentage::from_ppm(winners.target_ppm)
                    ),
                ),
                false => draft,
            }
        }
        Some(NextAgentOutcome::First(own)) if waiting == 0 => {
            let who = if busy == 0 {
                "It takes the first agent that comes"
            } else {
                "It takes the next agent"
            };
            shares(ExplanationDraft::new("no_agent", format!("{who}: {agents}.")), own)
        }
        Some(NextAgentOutcome::First(_)) => {
            ExplanationDraft::new("starting", format!("It starts within moments: {agents}."))
        }
        // A round loads only the first tasks of each project, and this one is not among them.
        None => match context.input.tasks.iter().find(|task| task.project == place) {
            Some(first) => behind_task(&first.id, &agents),
            None => {
                ExplanationDraft::new("starting", format!("The next round looks at it: {agents}."))
            }
        },
    };
    draft.fact("agents busy", busy.to_string()).fact("agents waiting", waiting.to_string())
}

fn behind_task(task: &str, agents: &str) -> ExplanationDraft {
    ExplanationDraft::new(
        "behind_task",
        format!("Task {task} of its own project goes first, and {agents}."),
    )
    .fact("goes first", task)
}

/// Formats a count with its noun and verb, such as `1 agent is` or `3 agents are`.
fn many_are(count: u64, what: &str) -> String {
    format!("{} {}", many(count, what), if count == 1 { "is" } else { "are" })
}

fn standing(what: &str, own: &ProjectShare, winners: &ProjectShare) -> String {
    if winners.is_first_task_due && !own.is_first_task_due {
        return format!("Another {what} has had no task completed or failed within the window");
    }
    let (has, should) =
        (Percentage::from_ppm(own.actual_ppm), Percentage::from_ppm(own.target_ppm));
    format!("Its {what} has {has} of the tokens where its weight promises {should}")
}

fn shares(draft: ExplanationDraft, own: &ProjectShare) -> ExplanationDraft {
    draft
        .fact("project's share", Percentage::from_ppm(own.actual_ppm).to_string())
        .fact("its weight promises", Percentage::from_ppm(own.target_ppm).to_string())
}
