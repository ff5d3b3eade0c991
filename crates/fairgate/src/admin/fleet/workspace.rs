//! The command `fairgate workspace`, which lists, adds and removes workspaces.

use anyhow::Result;
use clap::{Args, Subcommand};
use fairgate_api::fleet::{NewWorkspace, WorkspaceView};
use fairgate_table::{TableCell, TextTable};
use http::Method;

use super::super::{AdminOptions, escaped, fetch_all};
use super::name_or_dash;
use crate::text_format::safe_name;

/// Manage workspaces, the folders on the agents' machines. Each workspace is used by one task at a time.
#[derive(Debug, Args)]
pub(crate) struct WorkspaceCommand {
    #[command(flatten)]
    common: AdminOptions,
    #[command(subcommand)]
    action: WorkspaceAction,
}

#[derive(Debug, Subcommand)]
enum WorkspaceAction {
    /// List workspaces and the tasks that hold them.
    List {
        /// Only workspaces of this project.
        #[arg(long)]
        project: Option<String>,
    },
    /// Add a workspace. A project with workspaces runs each task in one of them.
    Add {
        /// Name of the workspace: a-z, 0-9, `.`, `_` and `-`.
        name: String,
        /// Project of the workspace.
        #[arg(long)]
        project: String,
        /// Path of the folder on the agents' machines.
        #[arg(long)]
        path: String,
        /// Machine that has the folder. Only agents with the label machine:NAME work in the workspace. Default: every
        /// machine.
        #[arg(long, value_name = "NAME")]
        machine: Option<String>,
    },
    /// Remove a workspace that no task holds. The folder and its content are not deleted.
    Remove {
        /// Name of the workspace.
        name: String,
    },
}

impl WorkspaceCommand {
    pub(crate) fn run(&self) -> Result<()> {
        let client = self.common.client()?;
        match &self.action {
            WorkspaceAction::List { project } => {
                let of = project.as_ref().map(|project| format!("?project={}", escaped(project)));
                let list =
                    fetch_all(&client, &format!("/api/v1/workspaces{}", of.unwrap_or_default()))?;
                self.common.print_parsed(&list, |list: &Vec<WorkspaceView>, out| {
                    workspaces(list).write(out)
                })
            }
            WorkspaceAction::Add { name, project, path, machine } => {
                let new = NewWorkspace {
                    id: name.clone(),
                    project: project.clone(),
                    path: path.clone(),
                    machine: machine.clone(),
                };
                let body = serde_json::to_value(new)?;
                let made = client.send(Method::POST, "/api/v1/workspaces", Some(&body))?;
                self.common.print_parsed(&made, |made: &WorkspaceView, out| {
                    workspaces(std::slice::from_ref(made)).write(out)
                })
            }
            WorkspaceAction::Remove { name } => {
                let path = format!("/api/v1/workspaces/{}", escaped(name));
                let gone = client.send(Method::DELETE, &path, None)?;
                self.common.print_line(&gone, &format!("workspace {name} is removed"))
            }
        }
    }
}

fn workspaces(list: &[WorkspaceView]) -> TextTable {
    let headings = vec!["workspace", "project", "path", "machine", "task", "agent"];
    let mut table = TextTable::new(headings);
    for workspace in list {
        table.row(vec![
            TableCell::Text(workspace.id.clone()),
            TableCell::Text(workspace.project.clone()),
            TableCell::Text(safe_name(&workspace.path)),
            TableCell::Text(workspace.machine.clone().unwrap_or_else(|| "any".to_owned())),
            TableCell::Text(name_or_dash(workspace.task.as_deref())),
            TableCell::Text(name_or_dash(workspace.agent.as_deref())),
        ]);
    }
    table
}
