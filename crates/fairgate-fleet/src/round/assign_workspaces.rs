//! Assigns workspaces to the tasks that start in a round.

use std::collections::{BTreeSet, HashMap, HashSet};

use fairgate_store::{StoreError, Transaction};

use super::decide::TaskStart;
use super::load::{self, FreeWorkspace};
use super::round_input::RoundInput;

/// Returns the workspace of each task that starts. This is the workspace that the task requires, or
/// else a free workspace of its project that its agent may use; `None` if the project has no
/// workspaces. Workspaces of the agent's machine come before those that are not bound, as `decide`
/// has counted them. Among those of one machine, workspaces that no loaded task requires come
/// first.
pub(super) fn workspaces(
    tx: &mut dyn Transaction,
    input: &RoundInput,
    starts: &[TaskStart],
) -> Result<Vec<Option<String>>, StoreError> {
    let task = |start: &TaskStart| &input.tasks[start.task];
    let project = |start: &TaskStart| &input.projects[task(start).project];
    let with_any = starts.iter().filter(|start| task(start).workspace.is_none());
    let with_any = with_any.filter(|start| project(start).free_workspaces.is_some());
    let projects: BTreeSet<&str> = with_any.map(|start| &*project(start).id).collect();
    let mut free = match projects.is_empty() {
        true => HashMap::new(),
        false => load::free_workspaces(tx, &projects)?,
    };
    let taken: HashSet<&str> =
        starts.iter().filter_map(|start| task(start).workspace.as_deref()).collect();
    let needed: HashSet<&str> =
        input.tasks.iter().filter_map(|task| task.workspace.as_deref()).collect();
    for list in free.values_mut() {
        list.retain(|workspace| !taken.contains(workspace.id.as_str()));
        let place = |FreeWorkspace { id, machine }: &FreeWorkspace| {
            (machine.is_none(), machine.clone(), needed.contains(id.as_str()), id.clone())
        };
        list.sort_by_cached_key(place);
    }
    let allot = |start: &TaskStart| match &task(start).workspace {
        Some(workspace) => Some(workspace.to_string()),
        None => {
            let agent = &input.waiting[start.agent].access;
            let fits = |it: &FreeWorkspace| {
                it.machine.as_deref().is_none_or(|machine| agent.is_on(machine))
            };
            let list = free.get_mut(&*project(start).id)?;
            let place = list.iter().position(fits)?;
            Some(list.remove(place).id)
        }
    };
    Ok(starts.iter().map(allot).collect())
}
