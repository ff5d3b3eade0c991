//! Assigns workspaces to the tasks that start in a round.

use std::collections::{BTreeSet, HashMap, HashSet};

use fairgate_store::{StoreError, Transaction};

use super::decide::TaskStart;
use super::load;
use super::round_input::RoundInput;

/// Returns the workspace of each task that starts: the one that the task requires, or else any free workspace of its
/// project. Workspaces that no loaded task requires are used first. The workspace is `None` if the project has none.
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
    for names in free.values_mut() {
        names.retain(|name| !taken.contains(name.as_str()));
        // Workspaces are taken from the end.
        names.sort_by(|one, other| {
            let place = |name: &str| needed.contains(name);
            (place(other), other).cmp(&(place(one), one))
        });
    }
    let allot = |start: &TaskStart| match &task(start).workspace {
        Some(workspace) => Some(workspace.to_string()),
        None => free.get_mut(&*project(start).id)?.pop(),
    };
    Ok(starts.iter().map(allot).collect())
}
