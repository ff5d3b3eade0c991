//! Why a task that can start has not started. The first thing that stands in its way is the sentence.

use std::collections::HashMap;

use fairgate_core::proportional::{
    OutOfAgents, Share, TaskReason, TaskReport, explain as explain_call,
};
use fairgate_store::{StoreError, Transaction, Value};

use super::{Context, NAMED, Said, Subject};
use crate::round::decide::decide;
use crate::round::scene::{ProjectRow, Scene};
use crate::words::{grouped, listed, many, moment, percent, span, tokens};

pub(super) fn explain(
    tx: &mut dyn Transaction,
    context: &Context,
    subject: &Subject,
) -> Result<Said, StoreError> {
    let Some(place) = context.project(&subject.project) else {
        return Ok(Said::new(
            "project_archived",
            format!("Its project {} is archived.", subject.project),
        ));
    };
    let project = &context.scene.projects[place];
    let expected = project.learned.unwrap_or(context.rules.default_estimate);
    let estimate = subject.estimate.unwrap_or(expected);
    if !project.is_active {
        return inactive(tx, subject);
    }
    if let Some(said) = over_budget(tx, context, project, estimate)? {
        return Ok(said);
    }
    if let Some(said) = full(context, project) {
        return Ok(said);
    }
    if let Some(said) = no_workspace(tx, subject, project)? {
        return Ok(said);
    }
    if let Some(said) = affinity(tx, context, subject)? {
        return Ok(said);
    }
    Ok(in_turn(context, subject, place))
}

fn inactive(tx: &mut dyn Transaction, subject: &Subject) -> Result<Said, StoreError> {
    let sql = "SELECT status FROM fleet_projects WHERE id = $1";
    let status = tx.first(sql, &[subject.project.as_str().into()], |row| row.text(0))?;
    let (project, status) = (&subject.project, status.unwrap_or_default());
    let code = if status == "PAUSED" { "project_paused" } else { "project_archived" };
    Ok(Said::new(
        code,
        format!(
            "Its project {project} is {status}: nothing of it starts until somebody resumes it."
        ),
    ))
}

/// A budget, its project's or that of all, that has no room for it.
fn over_budget(
    tx: &mut dyn Transaction,
    context: &Context,
    project: &ProjectRow,
    estimate: u64,
) -> Result<Option<Said>, StoreError> {
    let scene = &context.scene;
    let own = (project.budget, project.used, project.reserved);
    let global = (scene.budget, scene.used(), scene.reserved());
    let id = Some(&*project.id);
    let whose = [
        ("project_budget", "Its project", id, own),
        ("global_budget", "All projects together", None, global),
    ];
    for (code, who, only, (limit, used, reserved)) in whose {
        let Some(limit) = limit else { continue };
        let wanted = used.saturating_add(reserved).saturating_add(estimate);
        // Where nothing is left, nothing starts, whatever its estimate.
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
        let said = Said::new(code, sentence)
            .fact("used", tokens(used))
            .fact("set aside", tokens(reserved))
            .fact("estimate", tokens(estimate))
            .fact("budget", tokens(limit))
            .maybe("fits at", faded.filter(|_| estimate <= limit).map(moment));
        return Ok(Some(said));
    }
    Ok(None)
}

/// What was used in each bucket, the oldest first.
fn buckets(tx: &mut dyn Transaction, project: Option<&str>) -> Result<Vec<(i64, u64)>, StoreError> {
    let only = if project.is_some() { "WHERE project = $1" } else { "" };
    let values: Vec<Value> = project.into_iter().map(Value::from).collect();
    let sql = format!(
        "SELECT bucket, CAST(SUM(tokens) AS BIGINT) FROM fleet_usage {only} GROUP BY bucket ORDER BY bucket"
    );
    tx.list(&sql, &values, |row| Ok((row.int(0)?, u64::try_from(row.int(1)?).unwrap_or(0))))
}

/// As many agents as may work for the project, or as many of every type there is.
fn full(context: &Context, project: &ProjectRow) -> Option<Said> {
    let (running, most) = (project.running, project.agents_max);
    if running >= most {
        let sentence = format!("Its project has {running} of at most {}.", many(most, "agent"));
        let said = Said::new("concurrency", sentence);
        return Some(said.fact("agents", format!("{running} of {most}")));
    }
    let left = |kind: &str| {
        let most = project.kind_max.get(kind).copied().unwrap_or(u64::MAX);
        most.saturating_sub(project.running_by_kind.get(kind).copied().unwrap_or(0))
    };
    let mut kinds: Vec<&str> = context.agents.iter().map(|(_, kind, _)| kind.as_str()).collect();
    kinds.sort_unstable();
    kinds.dedup();
    if kinds.is_empty() || kinds.iter().any(|kind| left(kind) > 0) {
        return None;
    }
    let shown = |kind: &&str| {
        let running = project.running_by_kind.get(*kind).copied().unwrap_or(0);
        let most = project.kind_max.get(*kind).copied().unwrap_or(0);
        format!("{running} of at most {most} of type {kind}")
    };
    let shown: Vec<_> = kinds.iter().map(shown).collect();
    let sentence = format!(
        "Its project has as many agents as it may of every type that there is: {}.",
        listed(&shown, NAMED)
    );
    Some(Said::new("agent_type", sentence).fact("agents by type", shown.join(", ")))
}

fn no_workspace(
    tx: &mut dyn Transaction,
    subject: &Subject,
    project: &ProjectRow,
) -> Result<Option<Said>, StoreError> {
    if let Some(workspace) = &subject.workspace {
        let sql = "SELECT task, agent FROM fleet_workspaces WHERE id = $1 AND project = $2";
        let values = [workspace.as_str().into(), subject.project.as_str().into()];
        let found =
            tx.first(sql, &values, |row| Ok((row.text_or_null(0)?, row.text_or_null(1)?)))?;
        return Ok(match found {
            None => {
                let sentence =
                    format!("Its project has no workspace {workspace}, and it must run there.");
                Some(Said::new("workspace_missing", sentence))
            }
            Some((None, _)) => None,
            Some((Some(task), agent)) => {
                let by = agent.map(|agent| format!(" of agent {agent}")).unwrap_or_default();
                let sentence = format!("Its workspace {workspace} is held by task {task}{by}.");
                Some(Said::new("workspace_taken", sentence).fact("held by", task))
            }
        });
    }
    let is_short = project.free_workspaces == Some(0);
    Ok(is_short.then(|| Said::new("no_workspace", "None of its project's workspaces is free.")))
}

fn affinity(
    tx: &mut dyn Transaction,
    context: &Context,
    subject: &Subject,
) -> Result<Option<Said>, StoreError> {
    let (Some(agent), Some(until)) = (&subject.affinity, subject.affinity_until) else {
        return Ok(None);
    };
    let sql = "SELECT 1 FROM fleet_agents WHERE id = $1 AND state <> 'RETIRED'";
    let is_there = tx.first(sql, &[agent.as_str().into()], |_| Ok(()))?.is_some();
    if until <= context.now || !is_there {
        return Ok(None);
    }
    let task = context.held.iter().find(|task| task.agent == *agent);
    let busy = task.map(|task| format!(", which works on {}", task.id)).unwrap_or_default();
    let sentence = format!(
        "It waits for agent {agent}{busy}; in {} anybody may take it.",
        span(context.now, until)
    );
    Ok(Some(Said::new("affinity", sentence).fact("anybody may take it at", moment(until))))
}

/// What would become of a task if one agent came now.
#[derive(Clone, Debug)]
pub(super) enum Turn {
    /// It would get the agent.
    First(Share),
    /// Another task of its project goes first.
    BehindTask(Box<str>),
    /// Another project goes first.
    BehindProject { own: Share, winner: Box<str>, winners: Share },
}

/// What would become of the tasks of a scene with one agent.
pub(super) fn turns(scene: &Scene) -> HashMap<Box<str>, Turn> {
    let decision = decide(scene).unwrap_or_default();
    let Some(call) = decision.calls.first() else { return HashMap::new() };
    let explanation = explain_call(&call.snapshot);
    let turn = |report: &TaskReport<'_>| {
        let turn = match &report.reason {
            TaskReason::Given { share, .. } => Turn::First(*share),
            TaskReason::Behind { task }
            | TaskReason::OutOfAgents(OutOfAgents::TookTheLast { task, .. }) => {
                Turn::BehindTask((*task).into())
            }
            TaskReason::OutOfAgents(OutOfAgents::LostTo(loss)) => Turn::BehindProject {
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

/// Nothing is in its way but others: who goes first if one agent came now.
fn in_turn(context: &Context, subject: &Subject, place: usize) -> Said {
    let (busy, waiting) = context.busy_and_waiting();
    let agents = match (waiting, busy) {
        (0, 0) => "no agent is there".to_owned(),
        (0, _) => format!("no agent is waiting, {} busy", many_are(busy, "agent")),
        _ => format!("{} waiting", many_are(waiting, "agent")),
    };
    let said = match context.turns.get(subject.id.as_str()) {
        Some(Turn::BehindTask(task)) => behind_task(task, &agents),
        Some(Turn::BehindProject { own, winner, winners }) => {
            let sentence =
                format!("{}, so project {winner} goes first, and {agents}.", standing(own));
            shares(Said::new("behind_others", sentence), own).fact("goes first", &**winner).fact(
                "its share",
                format!(
                    "{}, promised {}",
                    percent(winners.actual_ppm),
                    percent(winners.target_ppm)
                ),
            )
        }
        Some(Turn::First(own)) if waiting == 0 => {
            let who = if busy == 0 {
                "It takes the first agent that comes"
            } else {
                "It takes the next agent"
            };
            shares(Said::new("no_agent", format!("{who}: {agents}.")), own)
        }
        Some(Turn::First(_)) => {
            Said::new("starting", format!("It starts within moments: {agents}."))
        }
        // Only the first tasks of each project are looked at.
        None => match context.scene.tasks.iter().find(|task| task.project == place) {
            Some(first) => behind_task(&first.id, &agents),
            None => Said::new("starting", format!("The next round looks at it: {agents}.")),
        },
    };
    said.fact("agents busy", busy.to_string()).fact("agents waiting", waiting.to_string())
}

fn behind_task(task: &str, agents: &str) -> Said {
    Said::new("behind_task", format!("Task {task} of its own project goes first, and {agents}."))
        .fact("goes first", task)
}

/// `1 agent is`, `3 agents are`.
fn many_are(count: u64, what: &str) -> String {
    format!("{} {}", many(count, what), if count == 1 { "is" } else { "are" })
}

fn standing(own: &Share) -> String {
    let (has, should) = (percent(own.actual_ppm), percent(own.target_ppm));
    format!("Its project has {has} of the tokens where its weight promises {should}")
}

fn shares(said: Said, own: &Share) -> Said {
    said.fact("project's share", percent(own.actual_ppm))
        .fact("its weight promises", percent(own.target_ppm))
}
