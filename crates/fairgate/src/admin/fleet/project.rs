//! The command `fairgate project`, which lists, adds and changes projects.

use std::collections::BTreeMap;
use std::io::{self, Write};

use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use fairgate_api::fleet::{
    FleetProjectStatus, NewProject, ProjectPatch, ProjectShareWeight, ProjectView,
};
use fairgate_table::{TableCell, TextTable};
use http::Method;
use serde_json::{Value, json};

use super::super::client::AdminClient;
use super::super::limits::LimitArg;
use super::super::rights::{self, RightsArgs};
use super::super::{AdminOptions, escaped, fetch_all, given_names};
use super::at;
use super::bar::bar;
use crate::output::StdoutWriter;
use crate::text_format::{one_line, percentage};

/// Manage projects, the owners of tasks. Each project gets a share of the tokens by its weight.
#[derive(Debug, Args)]
pub(crate) struct ProjectCommand {
    #[command(flatten)]
    common: AdminOptions,
    #[command(subcommand)]
    action: ProjectAction,
}

#[derive(Debug, Subcommand)]
enum ProjectAction {
    /// List all projects with what they are due and got, their budgets and their tasks.
    List {
        /// Show the rights of the projects' task keys instead, one in each column.
        #[arg(long)]
        wide: bool,
    },
    /// Show what one project is due and got, its budget, and its tasks by state.
    Show {
        /// Name of the project.
        name: String,
    },
    /// Add a project for a tenant.
    Add {
        /// Name of the project: a-z, 0-9, `.`, `_` and `-`.
        name: String,
        /// Tenant of the project. The project's LLM calls count against this tenant's budgets and share.
        #[arg(long)]
        tenant: String,
        #[command(flatten)]
        about: ProjectArgs,
    },
    /// Change a project. Settings that are not given stay as they are.
    Set {
        /// Name of the project.
        name: String,
        #[command(flatten)]
        about: ProjectArgs,
    },
    /// Start no new tasks of a project until it is resumed. Running tasks continue.
    Pause {
        /// Name of the project.
        name: String,
    },
    /// Let a paused or archived project continue.
    Resume {
        /// Name of the project.
        name: String,
    },
    /// Archive a finished project. None of its tasks start any more, and `fairgate fleet` does not show the project.
    Archive {
        /// Name of the project.
        name: String,
    },
}

#[derive(Debug, Args)]
struct ProjectArgs {
    /// Weight of the project, relative to the other projects: 0.001 or more, with at most three decimals. A new project
    /// has 1.
    #[arg(long)]
    weight: Option<ProjectShareWeight>,
    /// Maximum number of agents that work for the project at once. A new project has 2.
    #[arg(long, value_name = "AGENTS")]
    concurrency: Option<u32>,
    /// True to allow only one agent at a time, whatever the concurrency. A new project has false.
    #[arg(long, value_name = "true|false", num_args = 0..=1, default_missing_value = "true")]
    exclusive: Option<bool>,
    /// Greatest number of agents of a type that work for the project at once. Types that are not named have no limit.
    /// The given limits replace all earlier ones, and "" removes all limits.
    #[arg(long, value_delimiter = ',', value_name = "TYPE=AGENTS,…", value_parser = of_type)]
    agent_max: Option<Vec<AgentsOfType>>,
    /// Labels that an agent must have to work for the project, such as docker or type:claude. The given labels replace
    /// all earlier ones, and "" removes all.
    #[arg(long, value_delimiter = ',', value_name = "LABEL,…")]
    requires: Option<Vec<String>>,
    /// Greatest number of tokens that the project may use in the rolling window; `none` for no limit.
    #[arg(long, value_name = "TOKENS|none")]
    budget: Option<LimitArg>,
    #[command(flatten)]
    rights: RightsArgs,
}

/// A type of agents and the greatest number of such agents; `None` if the argument was empty.
type AgentsOfType = Option<(String, u32)>;

fn of_type(text: &str) -> Result<AgentsOfType, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let wrong = || "a type and a number of agents, such as claude=2".to_owned();
    let (kind, most) = text.split_once('=').ok_or_else(wrong)?;
    Ok(Some((kind.to_owned(), most.parse().map_err(|_| wrong())?)))
}

impl ProjectArgs {
    fn agent_max(&self) -> Option<BTreeMap<String, u32>> {
        let given = self.agent_max.as_ref()?;
        Some(given.iter().flatten().cloned().collect())
    }

    fn patch(&self) -> ProjectPatch {
        ProjectPatch {
            status: None,
            weight: self.weight,
            concurrency: self.concurrency,
            exclusive: self.exclusive,
            agent_max: self.agent_max(),
            requires: self.requires.as_deref().map(given_names),
            budget: self.budget.map(|budget| budget.0),
            rights: self.rights.patch(),
        }
    }
}

impl ProjectCommand {
    pub(crate) fn run(&self) -> Result<()> {
        let client = self.common.client()?;
        match &self.action {
            ProjectAction::List { wide: true } => {
                let list = fetch_all(&client, "/api/v1/projects")?;
                self.common.print_table(&list, |list: &Vec<ProjectView>| project_rights(list))
            }
            ProjectAction::List { wide: false } => {
                let list = fetch_all(&client, "/api/v1/projects")?;
                self.common
                    .print_parsed(&list, |list: &Vec<ProjectView>, out| projects(list).write(out))
            }
            ProjectAction::Show { name } => {
                let project = client.get(&path(name))?;
                self.common.print_parsed(&project, print_project)
            }
            ProjectAction::Add { name, tenant, about } => {
                let new = NewProject {
                    id: name.clone(),
                    tenant: tenant.clone(),
                    weight: about.weight,
                    concurrency: about.concurrency,
                    exclusive: about.exclusive.unwrap_or(false),
                    agent_max: about.agent_max().unwrap_or_default(),
                    requires: about.requires.as_deref().map(given_names).unwrap_or_default(),
                    budget: about.budget.and_then(|budget| budget.0),
                    rights: about.rights.patch(),
                };
                let body = serde_json::to_value(new)?;
                self.tell_one(&client.send(Method::POST, "/api/v1/projects", Some(&body))?)
            }
            ProjectAction::Set { name, about } => {
                let patch = serde_json::to_value(about.patch())?;
                if patch == json!({}) {
                    bail!("nothing to change: see `fairgate project set --help`");
                }
                self.tell_one(&client.send(Method::PATCH, &path(name), Some(&patch))?)
            }
            ProjectAction::Pause { name } => {
                self.set_status(&client, name, FleetProjectStatus::Paused)
            }
            ProjectAction::Resume { name } => {
                self.set_status(&client, name, FleetProjectStatus::Active)
            }
            ProjectAction::Archive { name } => {
                self.set_status(&client, name, FleetProjectStatus::Archived)
            }
        }
    }

    fn set_status(
        &self,
        client: &AdminClient,
        name: &str,
        status: FleetProjectStatus,
    ) -> Result<()> {
        let set = client.send(Method::PATCH, &path(name), Some(&json!({"status": status})))?;
        self.common.print_line(&set, &format!("project {name} is {status}"))
    }

    fn tell_one(&self, project: &Value) -> Result<()> {
        self.common.print_parsed(project, |project: &ProjectView, out| {
            projects(std::slice::from_ref(project)).write(out)
        })
    }
}

fn path(name: &str) -> String {
    format!("/api/v1/projects/{}", escaped(name))
}

fn projects(list: &[ProjectView]) -> TextTable {
    let mut table = TextTable::new(vec![
        "project", "tenant", "status", "weight", "agents", "due", "got", "used", "budget",
        "running", "ready", "tasks",
    ]);
    for project in list {
        table.row(vec![
            TableCell::Text(project.id.clone()),
            TableCell::Text(project.tenant.clone()),
            TableCell::Text(project.status.to_string()),
            TableCell::Number(project.weight.to_string()),
            TableCell::Text(agents(project)),
            TableCell::Number(percentage(project.due_share)),
            TableCell::Number(percentage(project.got_share)),
            TableCell::Number(project.used.to_string()),
            TableCell::Number(project.budget.map_or("-".to_owned(), |budget| budget.to_string())),
            TableCell::Number(project.running.to_string()),
            TableCell::Number(project.ready.to_string()),
            TableCell::Number(project.tasks.values().sum::<u64>().to_string()),
        ]);
    }
    table
}

fn project_rights(list: &[ProjectView]) -> TextTable {
    let mut headings = vec!["project", "tenant", "status"];
    headings.extend(rights::WIDE_HEADINGS);
    let mut table = TextTable::new(headings);
    for project in list {
        let status = project.status.to_string();
        let mut row: Vec<TableCell> =
            [project.id.clone(), one_line(&project.tenant), status].map(TableCell::Text).into();
        row.extend(rights::wide_cells(&project.rights));
        table.row(row);
    }
    table
}

/// Formats the greatest number of agents that work for a project at once, such as `4`, `1 (exclusive)` or `4 (claude
/// 2)`.
fn agents(project: &ProjectView) -> String {
    let mut more: Vec<String> = Vec::new();
    if project.exclusive {
        more.push("exclusive".to_owned());
    }
    more.extend(project.agent_max.iter().map(|(kind, most)| format!("{kind} {most}")));
    let most = if project.exclusive { 1 } else { project.concurrency };
    match more.is_empty() {
        true => most.to_string(),
        false => format!("{most} ({})", more.join(", ")),
    }
}

fn print_project(project: &ProjectView, out: &mut StdoutWriter) -> io::Result<()> {
    let ProjectView { id, tenant, status, weight, .. } = project;
    writeln!(out, "project {id} of tenant {tenant}, weight {weight}: {status}")?;
    if project.due_share.is_some() {
        let line = bar(project.got_share, project.due_share);
        let (due, got) = (percentage(project.due_share), percentage(project.got_share));
        writeln!(out, "share   {line}  due {due}, got {got}")?;
    }
    let budget = match project.budget {
        Some(budget) => format!(" of a budget of {budget}"),
        None => ", no budget".to_owned(),
    };
    let (used, reserved) = (project.used, project.reserved);
    writeln!(out, "tokens  {used} used in the window, {reserved} set aside{budget}")?;
    if project.baseline > 0 {
        writeln!(out, "        {} taken for used, as it was away", project.baseline)?;
    }
    if let Some(estimate) = project.learned_estimate {
        writeln!(out, "        a task of its own uses about {estimate}")?;
    }
    writeln!(out, "agents  {} working of at most {}", project.running, agents(project))?;
    if !project.requires.is_empty() {
        writeln!(out, "        only those with the labels {}", project.requires.join(", "))?;
    }
    let may = &project.rights;
    let (models, classes) = (rights::names_or_all(may.models.as_deref()), rights::classes(may));
    let more = rights::summary(may);
    writeln!(out, "rights  models: {models}; classes: {classes}; more: {more}")?;
    writeln!(out, "made    {}", at(project.created_at))?;
    if project.tasks.values().all(|count| *count == 0) {
        return writeln!(out, "tasks   none yet: `fairgate task add --project {id} \"…\"`");
    }
    writeln!(out)?;
    let mut table = TextTable::new(vec!["state", "tasks"]);
    for (state, count) in project.tasks.iter().filter(|(_, count)| **count > 0) {
        table.row(vec![TableCell::Text(state.to_string()), TableCell::Number(count.to_string())]);
    }
    table.write(out)
}
