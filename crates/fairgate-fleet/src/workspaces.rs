//! Workspaces, which are folders that only one task at a time may use.

use fairgate_store::{RowColumns, StoreError, Transaction};
use serde_json::json;

use crate::call_context::{CallContext, bump_version, not_found};
use crate::error::FleetError;
use crate::model::{NewWorkspace, WorkspaceView};
use crate::projects;
use crate::validate::{self, invalid};

/// Longest path of a workspace, in bytes.
const PATH_MAX: usize = 4_096;

pub(crate) fn add(
    tx: &mut dyn Transaction,
    call: &CallContext,
    workspace: NewWorkspace,
) -> Result<WorkspaceView, FleetError> {
    let NewWorkspace { id, project, path } = workspace;
    validate::check_name("id", &id, validate::NAME_MAX)?;
    validate::check_line("path", &path, PATH_MAX)?;
    let known = projects::known(tx, &project)?;
    projects::check_not_archived("project".to_owned(), &project, known.as_ref())?;
    if find(tx, &id)?.is_some() {
        return Err(FleetError::Exists { what: "workspace", id });
    }
    check_path_differs(tx, &path)?;
    tx.run(
        "INSERT INTO fleet_workspaces (id, project, path, created_at) VALUES ($1, $2, $3, $4)",
        &[id.as_str().into(), project.as_str().into(), path.as_str().into(), call.now.into()],
    )?;
    let settings = json!({ "project": project, "path": path });
    call.audit(tx, "workspace.add", &id, None, Some(&settings))?;
    bump_version(tx)?;
    Ok(WorkspaceView { id, project, path, task: None, agent: None })
}

/// Checks that no other workspace has the same path. Two tasks would otherwise work in one folder at the same time.
/// Links are known only to the agents' machines, where `fairgate agent run` locks the real folder.
fn check_path_differs(tx: &mut dyn Transaction, path: &str) -> Result<(), FleetError> {
    let plain = plain_path(path);
    let sql = "SELECT id, path FROM fleet_workspaces ORDER BY id";
    let others = tx.list(sql, &[], |row| Ok((row.text(0)?, row.text(1)?)))?;
    match others.into_iter().find(|(_, other)| plain_path(other) == plain) {
        None => Ok(()),
        Some((id, _)) => {
            let problem =
                format!("is the folder of workspace {id:?} too; a folder is one workspace");
            Err(invalid("path", problem))
        }
    }
}

/// Returns the path without empty parts, `.` and `..`, as far as that is known without looking at the folder.
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
    let settings = json!({ "project": workspace.project, "path": workspace.path });
    call.audit(tx, "workspace.remove", id, Some(&settings), None)?;
    bump_version(tx)?;
    Ok(())
}

const VIEW: &str = "SELECT id, project, path, task, agent FROM fleet_workspaces";

fn read(row: &dyn RowColumns) -> Result<WorkspaceView, StoreError> {
    Ok(WorkspaceView {
        id: row.text(0)?,
        project: row.text(1)?,
        path: row.text(2)?,
        task: row.text_or_null(3)?,
        agent: row.text_or_null(4)?,
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
