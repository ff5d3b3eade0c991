//! The machines to which workspaces are bound. Only agents on that machine may use a bound
//! workspace.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use fairgate_store::{StoreError, Transaction};

use crate::agent_access::AgentAccess;
use crate::json_rows;

/// Numbers of a project's workspaces: those that are not bound, and those of each machine. They
/// count either all workspaces or only the free ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WorkspaceCounts {
    unbound: u64,
    by_machine: BTreeMap<Box<str>, u64>,
}

impl WorkspaceCounts {
    /// Adds workspaces of a machine; `None` for workspaces that are not bound.
    pub(crate) fn add(&mut self, machine: Option<&str>, count: u64) {
        let place = match machine {
            None => &mut self.unbound,
            Some(machine) => self.by_machine.entry(machine.into()).or_default(),
        };
        *place = place.saturating_add(count);
    }

    /// Returns the number of all workspaces.
    pub(crate) fn all(&self) -> u64 {
        self.by_machine.values().copied().fold(self.unbound, u64::saturating_add)
    }

    /// Returns the number of workspaces that an agent may work in.
    pub(crate) fn usable_by(&self, agent: &AgentAccess) -> u64 {
        let bound = self.by_machine.iter().filter(|(machine, _)| agent.is_on(machine));
        bound.map(|(_, count)| *count).fold(self.unbound, u64::saturating_add)
    }

    /// Returns whether an agent may work in any of these workspaces.
    pub(crate) fn has_any_for(&self, agent: &AgentAccess) -> bool {
        self.usable_by(agent) > 0
    }

    /// Returns the machines to which these workspaces are bound; `None` if at least one workspace
    /// is not bound.
    pub(crate) fn machines(&self) -> Option<Vec<String>> {
        (self.unbound == 0).then(|| self.by_machine.keys().map(|name| name.to_string()).collect())
    }

    /// Returns true if a workspace that a task names can still be free. `machine` is the machine to
    /// which it is bound, if any. It can be free if a workspace of this machine or an unbound one
    /// is left. Tasks without a named workspace have only been counted so far, and can still be
    /// moved to another workspace.
    pub(crate) fn has_one_of(&self, machine: Option<&str>) -> bool {
        let bound = machine.and_then(|machine| self.by_machine.get(machine)).copied();
        bound.unwrap_or(0) > 0 || self.unbound > 0
    }

    /// Counts a workspace that a task names as taken. `machine` is the machine to which it is
    /// bound, if any. If no workspace of this machine is left, an unbound one is counted instead.
    pub(crate) fn take(&mut self, machine: Option<&str>) {
        let bound = machine.and_then(|machine| self.by_machine.get_mut(machine));
        match bound.filter(|count| **count > 0) {
            Some(count) => *count -= 1,
            None => self.unbound = self.unbound.saturating_sub(1),
        }
    }

    /// Takes any workspace that an agent may use. Workspaces of its machine come first, because
    /// agents on other machines cannot use them.
    pub(crate) fn take_any(&mut self, agent: &AgentAccess) {
        let bound = self.by_machine.iter_mut();
        match bound.into_iter().find(|(machine, count)| **count > 0 && agent.is_on(machine)) {
            Some((_, count)) => *count -= 1,
            None => self.take(None),
        }
    }
}

/// Returns the workspaces of these projects, by project. Projects without workspaces are left out.
pub(crate) fn of_projects(
    tx: &mut dyn Transaction,
    projects: &BTreeSet<&str>,
) -> Result<HashMap<String, WorkspaceCounts>, StoreError> {
    let names = json_rows::texts(tx.database(), 1);
    let sql = format!(
        "SELECT project, machine, COUNT(*) FROM fleet_workspaces WHERE project IN {names} GROUP BY project, machine"
    );
    let mut counts: HashMap<String, WorkspaceCounts> = HashMap::new();
    tx.each(&sql, &[json_rows::names(projects.iter().copied())], &mut |row| {
        let machine = row.text_or_null(1)?;
        counts.entry(row.text(0)?).or_default().add(machine.as_deref(), row.count(2)?);
        Ok(())
    })?;
    Ok(counts)
}

/// Returns the machines of the bound ones of these workspaces, by workspace.
pub(crate) fn of_workspaces<'a>(
    tx: &mut dyn Transaction,
    workspaces: impl Iterator<Item = &'a str>,
) -> Result<HashMap<String, String>, StoreError> {
    let names = json_rows::texts(tx.database(), 1);
    let sql = format!(
        "SELECT id, machine FROM fleet_workspaces WHERE machine IS NOT NULL AND id IN {names}"
    );
    let rows =
        tx.list(&sql, &[json_rows::names(workspaces)], |row| Ok((row.text(0)?, row.text(1)?)))?;
    Ok(rows.into_iter().collect())
}

/// Returns the machine of the workspace that a task names. `None` if the task names no workspace,
/// or if the workspace is not bound.
pub(crate) fn of_task(tx: &mut dyn Transaction, task: &str) -> Result<Option<String>, StoreError> {
    let sql = "SELECT w.machine FROM fleet_tasks t JOIN fleet_workspaces w ON w.id = t.workspace \
               AND w.project = t.project WHERE t.id = $1";
    Ok(tx.first(sql, &[task.into()], |row| row.text_or_null(0))?.flatten())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_takes_the_workspaces_of_its_machine_first() {
        let on = |machine: &str| AgentAccess::new("x", &[format!("machine:{machine}")], None);
        let (m1, m2, nowhere) = (on("m1"), on("m2"), AgentAccess::new("x", &[], None));
        let mut counts = WorkspaceCounts::default();
        assert!(!counts.has_any_for(&m1));
        counts.add(Some("m1"), 1);
        assert_eq!(counts.machines(), Some(vec!["m1".to_owned()]));
        counts.add(None, 1);
        assert_eq!(counts.machines(), None);
        let usable = |counts: &WorkspaceCounts| [&m1, &m2, &nowhere].map(|it| counts.usable_by(it));
        assert_eq!((counts.all(), usable(&counts)), (2, [2, 1, 1]));
        counts.take_any(&m1);
        assert_eq!(usable(&counts), [1, 1, 1], "the other one is for all");
        counts.take_any(&m1);
        assert_eq!(usable(&counts), [0, 0, 0]);
        assert!(!counts.has_one_of(Some("m1")) && !counts.has_one_of(None));
        // A task names the workspace of m1, which `take_any` has already counted for another task.
        counts.add(None, 1);
        assert!(counts.has_one_of(Some("m1")));
        counts.take(Some("m1"));
        assert_eq!(usable(&counts), [0, 0, 0]);
    }
}
