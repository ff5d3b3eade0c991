//! The SQL that writes the states of tasks. Only [`write_states`] changes the state of a task, so
//! it can check every change against the state machine and write it to the history.
//! [`begin_claims`] begins claims, and [`release`] ends them.

use fairgate_api::fleet::TaskState;
use fairgate_store::{StoreError, Transaction};
use fairgate_time::UnixMicros;
use serde_json::{Value as Json, json};

use super::{TaskRow, TaskTransition};
use crate::json_rows;
use crate::task_history::{self, NewTaskStep};

/// Assignments that end a claim, except for [`KEEP_USAGE`].
const END_CLAIM: &str = "key_hash = NULL, lease_until = NULL, in_workspace = NULL, reserved = 0";
/// Assignments that add the usage of the latest claim to that of the earlier claims.
const KEEP_USAGE: &str = "used_before = used_before + used, used = 0";

/// Columns that change together with the states of tasks.
#[derive(Default)]
struct ColumnsWithState {
    /// SQL assignments. They may use the values of `rows` as `v.column4`, `v.column5` and so on.
    set: String,
    /// SQL types of the values in `rows`.
    types: &'static [&'static str],
    /// Values for each task, in the order of the steps.
    rows: Vec<Vec<Json>>,
    /// Further condition on a task. It begins with ` AND `, or is empty.
    condition: &'static str,
}

/// Moves tasks to states in which no agent holds them. Their claims end, their workspaces are
/// freed, and their task keys are refused from now on. Runs a constant number of SQL statements.
pub(crate) fn release(
    tx: &mut dyn Transaction,
    now: UnixMicros,
    changes: &[(NewTaskStep<'_>, &TaskTransition)],
) -> Result<(), StoreError> {
    let row = |(step, next): &(NewTaskStep<'_>, &TaskTransition)| {
        let ready_at = (step.to == TaskState::Ready).then_some(now.0);
        let ended_at = step.to.is_ended().then_some(now.0);
        let ended_epoch = next.by_agent.then_some(step.epoch);
        let resume_after = next.resume_after.map(|moment| moment.0);
        let reason = next.reason.as_deref();
        vec![
            json!(reason),
            json!(next.retries),
            json!(resume_after),
            json!(ready_at),
            json!(ended_at),
            json!(ended_epoch),
            json!(next.put_offs),
        ]
    };
    let columns = ColumnsWithState {
        set: format!(
            "reason = v.column4, retries = v.column5, resume_after = v.column6, \
             ready_at = COALESCE(v.column7, ready_at), ended_at = v.column8, \
             ended_epoch = COALESCE(v.column9, ended_epoch), put_offs = v.column10, {END_CLAIM}, {KEEP_USAGE}"
        ),
        types: &["TEXT", "BIGINT", "BIGINT", "BIGINT", "BIGINT", "BIGINT", "BIGINT"],
        rows: changes.iter().map(row).collect(),
        condition: "",
    };
    let steps: Vec<_> = changes.iter().map(|(step, _)| *step).collect();
    write_states(tx, now, &steps, columns)?;
    let held = steps.iter().filter(|step| step.from.is_held()).map(|step| step.task);
    free_workspaces(tx, &held.collect::<Vec<_>>())
}

fn free_workspaces(tx: &mut dyn Transaction, tasks: &[&str]) -> Result<(), StoreError> {
    if tasks.is_empty() {
        return Ok(());
    }
    let texts = json_rows::texts(tx.database(), 1);
    let sql =
        format!("UPDATE fleet_workspaces SET task = NULL, agent = NULL WHERE task IN {texts}");
    tx.run(&sql, &[json_rows::names(tasks.iter().copied())])?;
    Ok(())
}

/// A claim that begins, of a ready task.
#[derive(Clone, Debug)]
pub(crate) struct NewClaim<'a> {
    pub(crate) task: &'a str,
    /// Number of the claim, which is the task's epoch + 1.
    pub(crate) epoch: u64,
    pub(crate) agent: &'a str,
    /// Hash of the task key in hexadecimal digits; `None` if the claim has no key.
    pub(crate) key_hash: Option<String>,
    /// Tokens that are reserved for the task.
    pub(crate) reserved: u64,
    pub(crate) workspace: Option<&'a str>,
}

/// Returns the reason in the history for a task that this agent gets.
pub(crate) fn given_to(agent: &str) -> String {
    format!("given to agent {agent}")
}

/// Gives ready tasks to agents. The tasks become ASSIGNED, with their next epoch. Runs a constant
/// number of SQL statements.
pub(crate) fn begin_claims(
    tx: &mut dyn Transaction,
    now: UnixMicros,
    lease_until: UnixMicros,
    claims: &[NewClaim<'_>],
) -> Result<(), StoreError> {
    let hash = json_rows::unhex(tx.database(), "v.column6");
    let row = |claim: &NewClaim<'_>| {
        vec![
            json!(claim.epoch),
            json!(claim.agent),
            json!(claim.key_hash),
            json!(i64::try_from(claim.reserved).unwrap_or(i64::MAX)),
            json!(claim.workspace),
            json!(now.0),
            json!(lease_until.0),
        ]
    };
    let columns = ColumnsWithState {
        set: format!(
            "reason = NULL, epoch = v.column4, agent = v.column5, key_hash = {hash}, reserved = v.column7, \
             in_workspace = v.column8, claimed_at = v.column9, lease_until = v.column10, {KEEP_USAGE}, \
             resume_after = NULL, progress = NULL, waited_us = 0, waited_from = 0, \
             waited_until = 0"
        ),
        types: &["BIGINT", "TEXT", "TEXT", "BIGINT", "TEXT", "BIGINT", "BIGINT"],
        rows: claims.iter().map(row).collect(),
        condition: " AND epoch = v.column4 - 1",
    };
    let reasons: Vec<_> = claims.iter().map(|it| given_to(it.agent)).collect();
    let steps: Vec<_> = (claims.iter().zip(&reasons))
        .map(|(claim, reason)| NewTaskStep {
            task: claim.task,
            from: TaskState::Ready,
            to: TaskState::Assigned,
            epoch: claim.epoch,
            actor: "fleet",
            reason: Some(reason),
        })
        .collect();
    write_states(tx, now, &steps, columns)
}

/// Moves an ASSIGNED task to IN_PROGRESS, because its agent has begun. The claim continues.
pub(crate) fn begin_work(
    tx: &mut dyn Transaction,
    actor: &str,
    now: UnixMicros,
    task: &TaskRow,
) -> Result<(), StoreError> {
    let step = NewTaskStep {
        task: &task.id,
        from: task.state,
        to: TaskState::InProgress,
        epoch: task.epoch,
        actor,
        reason: None,
    };
    let columns = ColumnsWithState { rows: vec![Vec::new()], ..ColumnsWithState::default() };
    write_states(tx, now, &[step], columns)
}

/// Writes the new states of tasks, the columns that change together with them, and the history.
/// Fails if the state machine does not allow one of the steps, or if a task is not in the state in
/// which its step begins. The transaction must then be rolled back.
fn write_states(
    tx: &mut dyn Transaction,
    now: UnixMicros,
    steps: &[NewTaskStep<'_>],
    columns: ColumnsWithState,
) -> Result<(), StoreError> {
    if let Some(step) = steps.iter().find(|step| !step.from.may_become(step.to)) {
        let NewTaskStep { task, from, to, .. } = step;
        return Err(StoreError::Database(format!("task {task:?} cannot go from {from} to {to}")));
    }
    let ColumnsWithState { set, types, rows, condition } = columns;
    let types = [&["TEXT", "TEXT", "TEXT"], types].concat();
    let table = json_rows::table(tx.database(), 1, &types);
    let comma = if set.is_empty() { "" } else { ", " };
    let sql = format!(
        "UPDATE fleet_tasks SET state = v.column3{comma}{set} FROM {table} AS v \
         WHERE id = v.column1 AND state = v.column2{condition}"
    );
    let row = |(step, more): (&NewTaskStep<'_>, Vec<Json>)| {
        let names = [step.task, step.from.word(), step.to.word()].map(Json::from);
        Json::Array(names.into_iter().chain(more).collect())
    };
    let written = tx.run(&sql, &[json_rows::value(steps.iter().zip(rows).map(row))])?;
    if written != steps.len() as u64 {
        let wanted = steps.len();
        let problem = format!("only {written} of {wanted} tasks were in the expected state");
        return Err(StoreError::Database(problem));
    }
    task_history::add(tx, now, steps)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{add_project, add_task, in_memory};
    use crate::transition::load_task;

    const NOW: UnixMicros = UnixMicros(1_000);

    /// Adds the task `t` in this state, with all columns of a claim set.
    fn add_claimed_task(tx: &mut dyn Transaction, state: TaskState) {
        add_project(tx, "p", 1_000, 0);
        add_task(tx, "t", "p", state.word(), 70);
        let sql = "UPDATE fleet_tasks SET epoch = 3, used = 5, used_before = 100, key_hash = $1, lease_until = 99, \
                   in_workspace = 'w'";
        tx.run(sql, &[vec![7_u8; 32].into()]).unwrap();
    }

    fn step(from: TaskState, to: TaskState) -> NewTaskStep<'static> {
        NewTaskStep { task: "t", from, to, epoch: 3, actor: "admin", reason: None }
    }

    fn release_one(
        tx: &mut dyn Transaction,
        from: TaskState,
        to: TaskState,
    ) -> Result<(), StoreError> {
        let task = load_task(tx, "t").unwrap();
        let next = TaskTransition::to(to, &task);
        release(tx, NOW, &[(step(from, to), &next)])
    }

    #[test]
    fn a_state_that_the_state_machine_forbids_is_not_written() {
        in_memory(|tx| {
            add_claimed_task(tx, TaskState::Defined);
            for from in TaskState::ALL {
                let sql = "UPDATE fleet_tasks SET state = $1";
                tx.run(sql, &[from.word().into()]).unwrap();
                for to in TaskState::ALL.iter().filter(|to| !from.may_become(**to)) {
                    let error = release_one(tx, *from, *to).unwrap_err().to_string();
                    assert!(error.contains(&format!("cannot go from {from} to {to}")), "{error}");
                    assert_eq!(load_task(tx, "t").unwrap().state, *from);
                }
            }
        });
    }

    #[test]
    fn a_task_in_another_state_than_expected_is_not_written() {
        in_memory(|tx| {
            add_claimed_task(tx, TaskState::Completed);
            let error = release_one(tx, TaskState::Ready, TaskState::Failed).unwrap_err();
            assert!(error.to_string().contains("only 0 of 1 tasks"), "{error}");
            assert_eq!(load_task(tx, "t").unwrap().state, TaskState::Completed);
        });
    }

    #[test]
    fn a_claim_that_ends_leaves_nothing_but_its_usage() {
        for from in [TaskState::Assigned, TaskState::InProgress] {
            in_memory(move |tx| {
                add_claimed_task(tx, from);
                release_one(tx, from, TaskState::Ready).unwrap();
                let sql = "SELECT COUNT(*) FROM fleet_tasks WHERE key_hash IS NULL AND lease_until IS NULL \
                           AND in_workspace IS NULL AND reserved = 0 AND used = 0 AND used_before = 105";
                assert_eq!(tx.first(sql, &[], |row| row.int(0)).unwrap(), Some(1));
            });
        }
    }
}
