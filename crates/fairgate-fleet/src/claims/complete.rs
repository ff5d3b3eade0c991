//! Completes the tasks of several agents in one transaction.
//!
//! The number of SQL statements does not depend on the number of tasks. Each completion has its own
//! result. A refused completion changes nothing and does not affect the others.

use std::collections::{BTreeMap, HashMap, HashSet};

use fairgate_api::fleet::TaskLine;
use fairgate_api::fleet::TaskState;
use fairgate_store::{StoreError, Transaction};
use serde_json::json;

use super::{ClaimRef, held_or_ended};
use crate::agent_reports::TaskCompletion;
use crate::call_context::{CallContext, bump_version, not_found};
use crate::completion_queue::ClaimCompletion;
use crate::credit::{self, CreditTerms, EndingClaim};
use crate::error::FleetError;
use crate::json_rows;
use crate::project_baseline;
use crate::task_results::RESULT_MAX;
use crate::tasks;
use crate::transition::{self, TaskRow, TaskTransition, write};
use crate::validate;
use crate::window_usage::{self, ProjectUsage};

/// A held task that has passed all checks and is completed in this transaction.
struct CompletedTask<'a> {
    completion: &'a ClaimCompletion,
    actor: String,
    /// The task before its completion, with the usage that its agent reports.
    row: TaskRow,
    /// Reported tokens that were not charged before.
    reported: u64,
}

/// Completes these tasks. The results are in the order of `completions`. If the database fails, no
/// task is completed.
pub(crate) fn complete(
    tx: &mut dyn Transaction,
    call: &CallContext,
    completions: &[ClaimCompletion],
) -> Result<Vec<Result<TaskLine, FleetError>>, StoreError> {
    // PostgreSQL refuses a list with the character NUL, and no task has it in its name.
    let names = completions.iter().map(|it| it.task.as_str()).filter(|task| !task.contains('\0'));
    let mut rows = transition::load_tasks(tx, names)?;
    let reporting = reporting_agents(tx, completions)?;
    let mut completed = Vec::new();
    let mut refused = Vec::new();
    for completion in completions {
        let row = rows.get(&completion.task).filter(|row| claim_of(completion).is_held(row));
        let checked = row.map(|row| checked(completion, row, &reporting)).transpose();
        refused.push(match checked {
            Ok(None) => None,
            Ok(Some(task)) => {
                // A second completion of the same task in this transaction then finds the claim
                // ended.
                rows.remove(&completion.task);
                completed.push(task);
                None
            }
            Err(problem) => Some(problem),
        });
    }
    write_completed(tx, call, &completed)?;
    let ids = completed.iter().map(|task| task.row.id.as_str());
    let mut lines = tasks::lines(tx, call, ids)?;
    let mut results = Vec::with_capacity(completions.len());
    for (completion, refused) in completions.iter().zip(refused) {
        let result = match (refused, lines.remove(&completion.task)) {
            (Some(problem), _) => Err(problem),
            (None, Some(line)) => Ok(line),
            (None, None) => repeated(tx, call, completion),
        };
        match result {
            Err(FleetError::Store(problem)) => return Err(problem),
            result => results.push(result),
        }
    }
    Ok(results)
}

fn claim_of(completion: &ClaimCompletion) -> ClaimRef<'_> {
    let ClaimCompletion { agent, task, epoch, .. } = completion;
    ClaimRef { agent, task, epoch: *epoch }
}

/// Returns the name of the agent in the form of the history.
fn actor_of(completion: &ClaimCompletion) -> String {
    format!("agent:{}", completion.agent)
}

/// Checks the completion of a held task.
fn checked<'a>(
    completion: &'a ClaimCompletion,
    row: &TaskRow,
    reporting: &HashSet<String>,
) -> Result<CompletedTask<'a>, FleetError> {
    let TaskCompletion { result, tokens } = &completion.body;
    if let Some(result) = result.as_deref().filter(|result| !result.is_empty()) {
        validate::check_text("result", result, RESULT_MAX)?;
    }
    if let Some(tokens) = tokens {
        validate::check_tokens("tokens", *tokens, validate::TASK_TOKENS_MAX)?;
    }
    if !row.state.may_become(TaskState::Completed) {
        return Err(transition::illegal(row, TaskState::Completed, ""));
    }
    let reported = tokens.filter(|_| reporting.contains(&completion.agent));
    let reported = reported.map_or(0, |tokens| tokens.saturating_sub(row.used));
    let row = TaskRow { used: row.used.saturating_add(reported), ..row.clone() };
    Ok(CompletedTask { completion, actor: actor_of(completion), row, reported })
}

/// Returns the result of a completion whose claim is not held. This is the task if this agent
/// completed it under this claim before, and an error otherwise.
fn repeated(
    tx: &mut dyn Transaction,
    call: &CallContext,
    completion: &ClaimCompletion,
) -> Result<TaskLine, FleetError> {
    if completion.task.contains('\0') {
        return Err(not_found("task", &completion.task));
    }
    let (claim, actor) = (claim_of(completion), actor_of(completion));
    match held_or_ended(tx, &actor, claim, &[TaskState::Completed])? {
        None => tasks::one_line(tx, call, claim.task),
        Some(held) => Err(claim.lost(&held)),
    }
}

/// Returns the names of the agents that report the usage of their tasks themselves.
fn reporting_agents(
    tx: &mut dyn Transaction,
    completions: &[ClaimCompletion],
) -> Result<HashSet<String>, StoreError> {
    let reports = completions.iter().filter(|it| it.body.tokens.is_some());
    let names: Vec<_> = reports.map(|it| it.agent.as_str()).collect();
    if names.is_empty() {
        return Ok(HashSet::new());
    }
    let list = json_rows::texts(tx.database(), 1);
    let sql = format!("SELECT id FROM fleet_agents WHERE id IN {list} AND reports");
    Ok(tx.list(&sql, &[json_rows::names(names)], |row| row.text(0))?.into_iter().collect())
}

fn write_completed(
    tx: &mut dyn Transaction,
    call: &CallContext,
    completed: &[CompletedTask<'_>],
) -> Result<(), StoreError> {
    if completed.is_empty() {
        return Ok(());
    }
    write_results(tx, completed)?;
    let ids: Vec<&str> = completed.iter().map(|task| task.row.id.as_str()).collect();
    let ending = ids.iter().map(|task| EndingClaim { task, is_completed: true });
    let ending: Vec<_> = ending.collect();
    credit::charge(tx, &CreditTerms::new(&call.options), &ending, call.now)?;
    let next = |task: &CompletedTask<'_>| TaskTransition {
        by_agent: true,
        ..TaskTransition::to(TaskState::Completed, &task.row)
    };
    let next: Vec<_> = completed.iter().map(next).collect();
    let changes = completed.iter().zip(&next);
    let changes: Vec<_> =
        changes.map(|(task, next)| (next.step(&task.row, &task.actor), next)).collect();
    write::release(tx, call.now, &changes)?;
    let promoted = transition::promote(tx, call.now, &ids)?;
    let projects = completed.iter().map(|task| task.row.project.as_str());
    let mut projects: Vec<&str> = projects.chain(promoted.iter().map(String::as_str)).collect();
    projects.sort_unstable();
    projects.dedup();
    project_baseline::update_busy(tx, call.terms(), &projects, call.now)?;
    learn(tx, completed)?;
    let agents = json_rows::names(completed.iter().map(|task| task.completion.agent.as_str()));
    let list = json_rows::texts(tx.database(), 2);
    let seen = format!("UPDATE fleet_agents SET last_seen = $1 WHERE id IN {list}");
    tx.run(&seen, &[call.now.into(), agents])?;
    bump_version(tx)
}

/// Writes the results of the tasks and the usage that their agents report, and charges the projects for that usage.
fn write_results(
    tx: &mut dyn Transaction,
    completed: &[CompletedTask<'_>],
) -> Result<(), StoreError> {
    let row = |task: &CompletedTask<'_>| {
        let used = i64::try_from(task.row.used).unwrap_or(i64::MAX);
        json!([task.row.id, used, i64::from(task.reported > 0), task.completion.body.result])
    };
    let table = json_rows::table(tx.database(), 1, &["TEXT", "BIGINT", "BIGINT", "TEXT"]);
    let sql = format!(
        "UPDATE fleet_tasks SET used = CASE WHEN v.column3 = 1 THEN v.column2 ELSE used END, result = v.column4 \
         FROM {table} AS v WHERE id = v.column1"
    );
    tx.run(&sql, &[json_rows::value(completed.iter().map(row))])?;
    let mut usage: BTreeMap<&str, ProjectUsage> = BTreeMap::new();
    for task in completed {
        let project = usage.entry(&task.row.project).or_default();
        project.tokens = project.tokens.saturating_add(task.reported);
        project.tries += 1;
    }
    window_usage::add(tx, &usage)
}

/// Updates the learned estimates of tokens and credit of projects. Each completed task moves an
/// estimate by a quarter of the difference towards its own usage.
fn learn(tx: &mut dyn Transaction, completed: &[CompletedTask<'_>]) -> Result<(), StoreError> {
    let table = json_rows::table(tx.database(), 1, &["TEXT"]);
    let sql = format!(
        "SELECT t.id, t.credit_extra, p.learned, p.learned_credit FROM {table} AS v CROSS JOIN fleet_tasks t \
         CROSS JOIN fleet_projects p WHERE t.id = v.column1 AND p.id = t.project"
    );
    let ids = json_rows::value(completed.iter().map(|task| json!([task.row.id])));
    let rows = tx.list(&sql, &[ids], |row| {
        let estimates = (row.count_or_null(2)?, row.count_or_null(3)?);
        Ok((row.text(0)?, (row.int(1)?, estimates)))
    })?;
    let rows: HashMap<String, _> = rows.into_iter().collect();
    let mut projects: BTreeMap<&str, (Option<u64>, Option<u64>)> = BTreeMap::new();
    for task in completed {
        let Some((extra, before)) = rows.get(&task.row.id) else { continue };
        let used = task.row.used.saturating_add(task.row.used_before);
        let (tokens, credit) = projects.entry(&task.row.project).or_insert(*before);
        *tokens = Some(learned(*tokens, used));
        *credit = Some(learned(*credit, used.saturating_add_signed(*extra)));
    }
    let int = |number: &Option<u64>| number.map(|it| i64::try_from(it).unwrap_or(i64::MAX));
    let row = |(project, (tokens, credit)): (&&str, &(Option<u64>, Option<u64>))| {
        json!([project, int(tokens), int(credit)])
    };
    let table = json_rows::table(tx.database(), 1, &["TEXT", "BIGINT", "BIGINT"]);
    let sql = format!(
        "UPDATE fleet_projects SET learned = v.column2, learned_credit = v.column3 FROM {table} AS v \
         WHERE id = v.column1"
    );
    tx.run(&sql, &[json_rows::value(projects.iter().map(row))])?;
    Ok(())
}

/// Returns the new learned estimate, in tokens. It is at least 1, so that every task reserves
/// something.
fn learned(before: Option<u64>, used: u64) -> u64 {
    let mean = before
        .map_or(u128::from(used), |before| (3 * u128::from(before) + u128::from(used) + 2) / 4);
    u64::try_from(mean).unwrap_or(u64::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimates_follow_what_tasks_use() {
        assert_eq!(learned(None, 700), 700);
        assert_eq!(learned(Some(1_000), 2_000), 1_250);
        assert_eq!(learned(None, 0), 1);
        assert_eq!(learned(Some(u64::MAX), u64::MAX), u64::MAX);
        // From any start, the estimate approaches the real usage, apart from rounding.
        for start in [1, 10, 1_000_000] {
            let last = (0..100).fold(start, |before, _| learned(Some(before), 5_000));
            assert!(last.abs_diff(5_000) <= 2, "{last}");
        }
    }
}
