//! `fairgate project`.

use std::collections::BTreeMap;
use std::io::{self, Write};

use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use fairgate_fleet::{NewProject, ProjectPatch, ProjectStatus, ProjectView, Weight};
use http::Method;
use serde_json::{Value, json};

use super::super::client::Client;
use super::super::limits::Limit;
use super::super::{Common, all, escaped};
use super::bar::bar;
use super::{at, percent};
use crate::output::Output;
use crate::table::{Cell, Table};

/// Projects: what agents work for. Each gets its weight's share of the tokens.
#[derive(Debug, Args)]
pub(crate) struct ProjectCommand {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    action: ProjectAction,
}

#[derive(Debug, Subcommand)]
enum ProjectAction {
    /// List all projects.
    List,
    /// Show one project: its share, its budget, its tasks by state.
    Show {
        /// Its name.
        name: String,
    },
    /// Make a project.
    Add {
        /// Its name: a-z, 0-9, `.`, `_` and `-`.
        name: String,
        /// The tenant that it belongs to: whose budgets and share its calls count against.
        #[arg(long)]
        tenant: String,
        #[command(flatten)]
        about: ProjectArgs,
    },
    /// Change a project; what is not given stays.
    Set {
        /// Its name.
        name: String,
        #[command(flatten)]
        about: ProjectArgs,
    },
    /// Start nothing new of a project until it is resumed. What runs goes on.
    Pause {
        /// Its name.
        name: String,
    },
    /// Let a paused or archived project go on.
    Resume {
        /// Its name.
        name: String,
    },
    /// Take a project for finished: nothing of it starts any more, and it is left out of the fleet's view.
    Archive {
        /// Its name.
        name: String,
    },
}

#[derive(Debug, Args)]
struct ProjectArgs {
    /// Its share of the tokens against the others' (1 for a new project): 0.001 or more, with at most three decimals.
    #[arg(long)]
    weight: Option<Weight>,
    /// How many agents may work for it at once (2 for a new project).
    #[arg(long, value_name = "AGENTS")]
    concurrency: Option<u32>,
    /// Whether one agent at a time may work for it, whatever its concurrency (not for a new project).
    #[arg(long, value_name = "true|false", num_args = 0..=1, default_missing_value = "true")]
    exclusive: Option<bool>,
    /// How many agents of a type may work for it at once; types that are not named have no limit. Replaces all that was set;
    /// "" lifts all.
    #[arg(long, value_delimiter = ',', value_name = "TYPE=AGENTS,…", value_parser = of_type)]
    agent_max: Option<Vec<OfType>>,
    /// How many tokens it may use in the rolling window; `none` for no limit.
    #[arg(long, value_name = "TOKENS|none")]
    budget: Option<Limit>,
}

/// How many agents of a type; nothing where the argument was empty.
type OfType = Option<(String, u32)>;

fn of_type(text: &str) -> Result<OfType, String> {
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
            budget: self.budget.map(|budget| budget.0),
        }
    }
}

impl ProjectCommand {
    pub(crate) fn run(&self) -> Result<()> {
        let client = self.common.client()?;
        match &self.action {
            ProjectAction::List => {
                let list = all(&client, "/api/v1/projects")?;
                self.common.tell_as(&list, |list: &Vec<ProjectView>, out| projects(list).write(out))
            }
            ProjectAction::Show { name } => {
                let project = client.get(&path(name))?;
                self.common.tell_as(&project, told)
            }
            ProjectAction::Add { name, tenant, about } => {
                let new = NewProject {
                    id: name.clone(),
                    tenant: tenant.clone(),
                    weight: about.weight,
                    concurrency: about.concurrency,
                    exclusive: about.exclusive.unwrap_or(false),
                    agent_max: about.agent_max().unwrap_or_default(),
                    budget: about.budget.and_then(|budget| budget.0),
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
            ProjectAction::Pause { name } => self.set_status(&client, name, ProjectStatus::Paused),
            ProjectAction::Resume { name } => self.set_status(&client, name, ProjectStatus::Active),
            ProjectAction::Archive { name } => {
                self.set_status(&client, name, ProjectStatus::Archived)
            }
        }
    }

    fn set_status(&self, client: &Client, name: &str, status: ProjectStatus) -> Result<()> {
        let set = client.send(Method::PATCH, &path(name), Some(&json!({"status": status})))?;
        self.common.say(&set, &format!("project {name} is {status}"))
    }

    fn tell_one(&self, project: &Value) -> Result<()> {
        self.common.tell_as(project, |project: &ProjectView, out| {
            projects(std::slice::from_ref(project)).write(out)
        })
    }
}

fn path(name: &str) -> String {
    format!("/api/v1/projects/{}", escaped(name))
}

fn projects(list: &[ProjectView]) -> Table {
    let mut table = Table::new(vec![
        "project", "tenant", "status", "weight", "agents", "share", "target", "used", "budget",
        "running", "ready", "tasks",
    ]);
    for project in list {
        let ppm = |ppm: Option<u64>| ppm.map_or("-".to_owned(), percent);
        table.row(vec![
            Cell::Text(project.id.clone()),
            Cell::Text(project.tenant.clone()),
            Cell::Text(project.status.to_string()),
            Cell::Number(project.weight.to_string()),
            Cell::Text(agents(project)),
            Cell::Number(ppm(project.share_ppm)),
            Cell::Number(ppm(project.target_ppm)),
            Cell::Number(project.used.to_string()),
            Cell::Number(project.budget.map_or("-".to_owned(), |budget| budget.to_string())),
            Cell::Number(project.running.to_string()),
            Cell::Number(project.ready.to_string()),
            Cell::Number(project.tasks.values().sum::<u64>().to_string()),
        ]);
    }
    table
}

/// How many agents may work for a project at once: `4`, `1 (exclusive)`, `4 (claude 2)`.
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

fn told(project: &ProjectView, out: &mut Output) -> io::Result<()> {
    let ProjectView { id, tenant, status, weight, .. } = project;
    writeln!(out, "project {id} of tenant {tenant}, weight {weight}: {status}")?;
    if let Some(target) = project.target_ppm {
        let share = project.share_ppm.unwrap_or(0);
        let line = bar(share, Some(target));
        writeln!(out, "share   {line}  {} of its target of {}", percent(share), percent(target))?;
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
    writeln!(out, "made    {}", at(project.created_at))?;
    if project.tasks.values().all(|count| *count == 0) {
        return writeln!(out, "tasks   none yet: `fairgate task add --project {id} \"…\"`");
    }
    writeln!(out)?;
    let mut table = Table::new(vec!["state", "tasks"]);
    for (state, count) in project.tasks.iter().filter(|(_, count)| **count > 0) {
        table.row(vec![Cell::Text(state.to_string()), Cell::Number(count.to_string())]);
    }
    table.write(out)
}
