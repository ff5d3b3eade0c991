//! Finds the new tasks that no active agent may take. The response to the client lists them.

use std::collections::{BTreeSet, HashMap};

use fairgate_store::{StoreError, Transaction};

use super::{ReferencedRows, TaskToAdd};
use crate::agent_access::{self, AgentAccess};
use crate::agents;
use crate::workspace_machines;

/// Projects and tasks that no active agent may take.
#[derive(Default)]
pub(super) struct UnmatchedTasks {
    pub(super) projects: Vec<String>,
    pub(super) tasks: Vec<String>,
}

/// Returns the projects of the new tasks for which no active agent may work, sorted. Also returns
/// the new tasks of the other projects that no active agent may take. Both lists are empty if no
/// agent is active.
pub(super) fn find(
    tx: &mut dyn Transaction,
    fresh: &[TaskToAdd],
    found: &ReferencedRows,
) -> Result<UnmatchedTasks, StoreError> {
    let agents = agents::active_access(tx)?;
    if agents.is_empty() {
        return Ok(UnmatchedTasks::default());
    }
    let projects: BTreeSet<&str> = fresh.iter().map(|task| task.content.project.as_str()).collect();
    let machines = workspace_machines::of_projects(tx, &projects)?;
    let mut unmatched = UnmatchedTasks::default();
    // Tasks of one project mostly have the same labels, so each list of labels is compared once.
    let mut takers: HashMap<(&str, Vec<String>, bool), bool> = HashMap::new();
    for id in projects {
        let Some(project) = found.projects.get(id) else { continue };
        let may_work = |agent: &&AgentAccess| agent.may_take(&project.tenant, &project.requires);
        let open: Vec<&AgentAccess> = agents.iter().filter(may_work).collect();
        if open.is_empty() {
            unmatched.projects.push(id.to_owned());
            continue;
        }
        let machines = machines.get(id);
        for task in fresh.iter().filter(|task| task.content.project == id) {
            let machine = task.machine.as_deref().map(agent_access::machine_label);
            let machine: Vec<String> = machine.into_iter().collect();
            let labels = agent_access::union(&task.content.requires, &machine);
            let is_named = task.content.workspace.is_some();
            let may_take = |agent: &&AgentAccess| {
                let has_workspace =
                    is_named || machines.is_none_or(|machines| machines.has_any_for(agent));
                agent.has_all(&labels) && has_workspace
            };
            let has_taker = *(takers.entry((id, labels.clone(), is_named)))
                .or_insert_with(|| open.iter().copied().any(|agent| may_take(&agent)));
            if !has_taker {
                unmatched.tasks.push(task.id.clone());
            }
        }
    }
    Ok(unmatched)
}
