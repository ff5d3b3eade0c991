//! Open tasks that an agent has given back because it cannot work on them, for example because the
//! workspace's folder is not on its machine. A round does not give such a task to the same agent
//! again.
//!
//! The table has at most one row for each open task and agent, because [`add`] deletes the rows of
//! tasks that have ended.
//!
//! Joins begin with this table, which is nearly always empty. `CROSS JOIN` prevents SQLite from
//! beginning with the index of all ready tasks and reading each of them.

use std::collections::{HashMap, HashSet};

use fairgate_store::{DatabaseKind, StoreError, Transaction};

use crate::json_rows;

/// Maximum number of rows that one round loads. If there are more, a round may give a task to an
/// agent that has given it back.
const ROWS_MAX: i64 = 10_000;

/// The tasks that waiting agents cannot work on, by agent and by project.
#[derive(Clone, Debug, Default)]
pub(crate) struct UnfitTasks {
    by_agent: HashMap<Box<str>, HashSet<Box<str>>>,
    by_project: HashMap<Box<str>, HashSet<Box<str>>>,
}

impl UnfitTasks {
    /// Loads the ready tasks that one of these agents cannot work on.
    pub(crate) fn load<'a>(
        tx: &mut dyn Transaction,
        agents: impl Iterator<Item = &'a str>,
    ) -> Result<Self, StoreError> {
        let sql = ready_unfit(tx.database());
        let mut unfit = Self::default();
        tx.each(&sql, &[json_rows::names(agents)], &mut |row| {
            let task: Box<str> = row.text(1)?.into();
            unfit.by_agent.entry(row.text(0)?.into()).or_default().insert(task.clone());
            unfit.by_project.entry(row.text(2)?.into()).or_default().insert(task);
            Ok(())
        })?;
        Ok(unfit)
    }

    /// Returns whether there is a task that this agent cannot work on.
    pub(crate) fn has_any(&self, agent: &str) -> bool {
        self.by_agent.contains_key(agent)
    }

    /// Returns whether this agent cannot work on this task.
    pub(crate) fn contains(&self, agent: &str, task: &str) -> bool {
        self.by_agent.get(agent).is_some_and(|tasks| tasks.contains(task))
    }

    /// Returns the number of ready tasks of a project that some waiting agent cannot work on.
    pub(crate) fn count_in(&self, project: &str) -> u64 {
        self.by_project.get(project).map_or(0, |tasks| tasks.len() as u64)
    }
}

/// Returns the query for the ready tasks that the agents in the list `$1` cannot work on.
fn ready_unfit(database: DatabaseKind) -> String {
    let names = json_rows::texts(database, 1);
    format!(
        "SELECT u.agent, u.task, t.project FROM fleet_unfit u CROSS JOIN fleet_tasks t \
         WHERE u.agent IN {names} AND t.id = u.task AND t.state = 'READY' LIMIT {ROWS_MAX}"
    )
}

/// Deletes the rows of tasks that have ended.
const FORGET_ENDED: &str = "DELETE FROM fleet_unfit WHERE task IN \
     (SELECT u.task FROM fleet_unfit u CROSS JOIN fleet_tasks t \
     WHERE t.id = u.task AND t.state IN ('COMPLETED', 'FAILED'))";

/// Returns the names of the agents that cannot work on a task.
pub(crate) fn agents_of(
    tx: &mut dyn Transaction,
    task: &str,
) -> Result<HashSet<String>, StoreError> {
    let sql = "SELECT agent FROM fleet_unfit WHERE task = $1";
    Ok(tx.list(sql, &[task.into()], |row| row.text(0))?.into_iter().collect())
}

/// Records that an agent cannot work on a task.
pub(crate) fn add(tx: &mut dyn Transaction, agent: &str, task: &str) -> Result<(), StoreError> {
    tx.run(FORGET_ENDED, &[])?;
    let sql = "INSERT INTO fleet_unfit (agent, task) VALUES ($1, $2) ON CONFLICT (agent, task) DO NOTHING";
    tx.run(sql, &[agent.into(), task.into()])?;
    Ok(())
}

/// Deletes the records of which agents cannot work on a task.
pub(crate) fn forget(tx: &mut dyn Transaction, task: &str) -> Result<(), StoreError> {
    tx.run("DELETE FROM fleet_unfit WHERE task = $1", &[task.into()])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::in_memory;

    /// Returns SQLite's plan for a statement, with one line for each step.
    fn plan(tx: &mut dyn Transaction, sql: &str, values: usize) -> String {
        let values: Vec<_> = (0..values).map(|_| "[]".into()).collect();
        let steps = tx.list(&format!("EXPLAIN QUERY PLAN {sql}"), &values, |row| row.text(3));
        steps.unwrap().join("\n")
    }

    /// A round reads only the tasks in the table, and not all ready tasks.
    #[test]
    fn tasks_are_found_by_their_ids() {
        in_memory(|tx| {
            for (sql, values) in [(ready_unfit(tx.database()), 1), (FORGET_ENDED.to_owned(), 0)] {
                let plan = plan(tx, &sql, values);
                let step = plan.lines().find(|step| step.contains(" t USING"));
                assert!(step.is_some_and(|step| step.ends_with("(id=?)")), "{sql}: {plan}");
            }
        });
    }
}
