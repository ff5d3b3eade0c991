//! `fairgate workspace`.

use anyhow::Result;
use clap::{Args, Subcommand};
use fairgate_fleet::{NewWorkspace, WorkspaceView};
use http::Method;

use super::super::{Common, all, escaped};
use super::or_dash;
use crate::table::{Cell, Table};
use crate::words::shown;

/// Workspaces: folders on the agents' machines that one task at a time has to itself.
#[derive(Debug, Args)]
pub(crate) struct WorkspaceCommand {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    action: WorkspaceAction,
}

#[derive(Debug, Subcommand)]
enum WorkspaceAction {
    /// List workspaces and who is in them.
    List {
        /// Of this project only.
        #[arg(long)]
        project: Option<String>,
    },
    /// Make a workspace. A project that has any runs each task in one of them.
    Add {
        /// Its name: a-z, 0-9, `.`, `_` and `-`.
        name: String,
        /// Its project.
        #[arg(long)]
        project: String,
        /// Where it is on the agents' machines.
        #[arg(long)]
        path: String,
    },
    /// Remove a workspace that no task holds. What is in its folder stays.
    Remove {
        /// Its name.
        name: String,
    },
}

impl WorkspaceCommand {
    pub(crate) fn run(&self) -> Result<()> {
        let client = self.common.client()?;
        match &self.action {
            WorkspaceAction::List { project } => {
                let of = project.as_ref().map(|project| format!("?project={}", escaped(project)));
                let list = all(&client, &format!("/api/v1/workspaces{}", of.unwrap_or_default()))?;
                self.common
                    .tell_as(&list, |list: &Vec<WorkspaceView>, out| workspaces(list).write(out))
            }
            WorkspaceAction::Add { name, project, path } => {
                let new =
                    NewWorkspace { id: name.clone(), project: project.clone(), path: path.clone() };
                let body = serde_json::to_value(new)?;
                let made = client.send(Method::POST, "/api/v1/workspaces", Some(&body))?;
                self.common.tell_as(&made, |made: &WorkspaceView, out| {
                    workspaces(std::slice::from_ref(made)).write(out)
                })
            }
            WorkspaceAction::Remove { name } => {
                let path = format!("/api/v1/workspaces/{}", escaped(name));
                let gone = client.send(Method::DELETE, &path, None)?;
                self.common.say(&gone, &format!("workspace {name} is removed"))
            }
        }
    }
}

fn workspaces(list: &[WorkspaceView]) -> Table {
    let mut table = Table::new(vec!["workspace", "project", "path", "task", "agent"]);
    for workspace in list {
        table.row(vec![
            Cell::Text(workspace.id.clone()),
            Cell::Text(workspace.project.clone()),
            Cell::Text(shown(&workspace.path)),
            Cell::Text(or_dash(workspace.task.as_deref())),
            Cell::Text(or_dash(workspace.agent.as_deref())),
        ]);
    }
    table
}
