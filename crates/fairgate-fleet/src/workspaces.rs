//! Workspaces, which are folders that only one task at a time may use.

use fairgate_api::fleet::{NewWorkspace, WorkspaceView};
use fairgate_store::{RowColumns, StoreError, Transaction};
use serde_json::json;

use crate::agent_access;
use crate::call_context::{CallContext, bump_version, not_found};
use crate::error::FleetError;
use crate::projects;
use crate::validate;

/// Maximum length of a workspace's path, in bytes.
const PATH_MAX: usize = 4_096;

pub(crate) fn add(
    tx: &mut dyn Transaction,
    call: &CallContext,
    workspace: NewWorkspace,
) -> Result<WorkspaceView, FleetError> {
    let NewWorkspace { id, project, path, machine } = workspace;
    validate::check_name("id", &id, validate::NAME_MAX)?;
    if let Some(machine) = &machine {
        validate::check_name("machine", machine, validate::NAME_MAX)?;
    }
    validate::check_line("path", &path, PATH_MAX)?;
    let known = projects::known(tx, &project)?;
    projects::check_not_archived("project".to_owned(), &project, known.as_ref())?;
    if find(tx, &id)?.is_some() {
        return Err(FleetError::Exists { what: "workspace", id });
    }
    check_path_differs(tx, &path, machine.as_deref())?;
    tx.run(
        "INSERT INTO fleet_workspaces (id, project, path, created_at, machine) VALUES ($1, $2, $3, $4, $5)",
        &[
            id.as_str().into(),
            project.as_str().into(),
            path.as_str().into(),
            call.now.into(),
            machine.clone().into(),
        ],
    )?;
    relabel_tasks(tx, &id, &project, machine.as_deref())?;
    let settings = json!({ "project": project, "path": path, "machine": machine });
    call.audit(tx, "workspace.add", &id, None, Some(&settings))?;
    bump_version(tx)?;
    Ok(WorkspaceView { id, project, path, machine, task: None, agent: None })
}

/// Updates the labels of existing tasks that name the new workspace, because a person may restart them. Such tasks
/// exist only if a removed workspace had the same name, and they have all ended.
fn relabel_tasks(
    tx: &mut dyn Transaction,
    workspace: &str,
    project: &str,
    machine: Option<&str>,
) -> Result<(), StoreError> {
    let sql = "SELECT id, requires FROM fleet_tasks WHERE project = $1 AND workspace = $2";
    let tasks = tx.list(sql, &[project.into(), workspace.into()], |row| {
        Ok((row.text(0)?, agent_access::read_list(&row.text(1)?)?))
    })?;
    for (task, requires) in tasks {
        let labels = agent_access::stored_task_labels(&requires, machine);
        let sql = "UPDATE fleet_tasks SET labels = $1 WHERE id = $2";
        tx.run(sql, &[labels.into(), task.into()])?;
    }
    Ok(())
}

/// Checks that no other workspace has the same path, unless the two are bound to different
/// machines. Otherwise two tasks could work in one folder at the same time. Symbolic links cannot
/// be checked here; therefore `fairgate agent run` locks the real folder on its machine.
fn check_path_differs(
    tx: &mut dyn Transaction,
    path: &str,
    machine: Option<&str>,
) -> Result<(), FleetError> {
    let plain = plain_path(path);
    let sql = "SELECT id, path, machine FROM fleet_workspaces ORDER BY id";
    let others = tx.list(sql, &[], |row| Ok((row.text(0)?, row.text(1)?, row.text_or_null(2)?)))?;
    let is_same = |(_, other, its_machine): &(String, String, Option<String>)| {
        let its_machine = its_machine.as_deref();
        let is_apart = its_machine.is_some() && machine.is_some() && its_machine != machine;
        !is_apart && plain_path(other) == plain
    };
    match others.into_iter().find(is_same) {
        None => Ok(()),
        Some((id, ..)) => Err(FleetError::InUse {
            what: "folder",
            id: path.to_owned(),
            by: format!("it is the folder of workspace {id:?}, and a folder is one workspace"),
        }),
    }
}

/// Returns the path without empty parts, `.` and `..`, as far as this is possible without reading
/// the folder.
fn plain_path(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/').filter(|part| !part.is_empty() && *part != ".") {
        match parts.last() {
            Some(last) if part == ".." && *last != ".." => _ = parts.pop(),
            // There is nothing above the root.
            None if part == ".." && path.starts_with('/') => {}
            _ => parts.push(part),
        }
    }
    let root = if path.starts_with('/') { "/" } else { "" };
    format!("{root}{}", parts.join("/"))
}

pub(crate) fn remove(
    tx: &mut dyn Transaction,
    call: &CallContext,
    id: &str,
) -> Result<(), FleetError> {
    let workspace = find(tx, id)?.ok_or_else(|| not_found("workspace", id))?;
    let in_use = |by| Err(FleetError::InUse { what: "workspace", id: id.to_owned(), by });
    if let Some(task) = &workspace.task {
        return in_use(format!("task {task:?} has it now"));
    }
    let bound = tx.first(
        "SELECT id FROM fleet_tasks WHERE project = $1 AND workspace = $2 \
         AND state NOT IN ('COMPLETED', 'FAILED') ORDER BY made LIMIT 1",
        &[workspace.project.as_str().into(), id.into()],
        |row| row.text(0),
    )?;
    if let Some(task) = bound {
        return in_use(format!("task {task:?} must run in it; cancel it first"));
    }
    tx.run("DELETE FROM fleet_workspaces WHERE id = $1", &[id.into()])?;
    let WorkspaceView { project, path, machine, .. } = &workspace;
    let settings = json!({ "project": project, "path": path, "machine": machine });
    call.audit(tx, "workspace.remove", id, Some(&settings), None)?;
    bump_version(tx)?;
    Ok(())
}

const VIEW: &str = "SELECT id, project, path, task, agent, machine FROM fleet_workspaces";

fn read(row: &dyn RowColumns) -> Result<WorkspaceView, StoreError> {
    Ok(WorkspaceView {
        id: row.text(0)?,
        project: row.text(1)?,
        path: row.text(2)?,
        task: row.text_or_null(3)?,
        agent: row.text_or_null(4)?,
        machine: row.text_or_null(5)?,
    })
}

fn find(tx: &mut dyn Transaction, id: &str) -> Result<Option<WorkspaceView>, StoreError> {
    tx.first(&format!("{VIEW} WHERE id = $1"), &[id.into()], read)
}

/// Returns the workspaces of `project`, or all workspaces if `project` is `None`, ordered by name.
pub(crate) fn list(
    tx: &mut dyn Transaction,
    project: Option<&str>,
) -> Result<Vec<WorkspaceView>, FleetError> {
    match project {
        None => Ok(tx.list(&format!("{VIEW} ORDER BY id"), &[], read)?),
        Some(project) => {
            if projects::known(tx, project)?.is_none() {
                return Err(not_found("project", project));
            }
            let sql = format!("{VIEW} WHERE project = $1 ORDER BY id");
            Ok(tx.list(&sql, &[project.into()], read)?)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_compared_in_their_plain_form() {
        for (path, plain) in [
            ("/src/web", "/src/web"),
            ("//src/./web/", "/src/web"),
            ("/src/api/../web", "/src/web"),
            ("/../src/web", "/src/web"),
            ("src/web/", "src/web"),
            ("../../web", "../../web"),
            ("/", "/"),
        ] {
            assert_eq!(plain_path(path), plain);
        }
    }
}
