//! `fairgate agent`.

use std::io::Write;

use anyhow::Result;
use clap::{Args, Subcommand};
use fairgate_fleet::{AgentState, AgentView, AgentWithToken, NewAgent};
use http::Method;
use serde_json::{Value, json};

use super::super::client::Client;
use super::super::{Common, all, escaped};
use super::{at, or_dash};
use crate::agent_run::{self, AgentRunArgs};
use crate::table::{Cell, Table};

/// Agents: who works on tasks. Each has a token of its own, which is shown once.
#[derive(Debug, Args)]
pub(crate) struct AgentCommand {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    action: AgentAction,
}

#[derive(Debug, Subcommand)]
enum AgentAction {
    Run(AgentRunArgs),
    #[command(flatten)]
    Manage(ManageAction),
}

#[derive(Debug, Subcommand)]
enum ManageAction {
    /// List all agents and what they work on.
    List,
    /// Make an agent, and show its token once.
    Add {
        /// Its name: a-z, 0-9, `.`, `_` and `-`.
        name: String,
        /// Its type, which projects may limit (`default` where not given).
        #[arg(long = "type", value_name = "TYPE")]
        kind: Option<String>,
        /// It does not call through the gateway and says itself what it used. It gets no task keys.
        #[arg(long)]
        reports_tokens: bool,
    },
    /// Give an agent nothing new until it is resumed. What it holds it may finish.
    Pause {
        /// Its name.
        name: String,
    },
    /// Let a paused agent take tasks again.
    Resume {
        /// Its name.
        name: String,
    },
    /// Take an agent away for good. Its token opens nothing from now on, and the task that it holds goes back.
    Retire {
        /// Its name.
        name: String,
    },
    /// Give an agent a new token, and show it once. The old one is refused at once.
    Rotate {
        /// Its name.
        name: String,
    },
}

impl AgentCommand {
    pub(crate) fn run(&self) -> Result<()> {
        match &self.action {
            // It has a token of its own, and no use for the admin token.
            AgentAction::Run(args) => agent_run::run(args),
            AgentAction::Manage(action) => self.manage(action),
        }
    }

    fn manage(&self, action: &ManageAction) -> Result<()> {
        let client = self.common.client()?;
        match action {
            ManageAction::List => {
                let list = all(&client, "/api/v1/agents")?;
                self.common.tell_as(&list, |list: &Vec<AgentView>, out| agents(list).write(out))
            }
            ManageAction::Add { name, kind, reports_tokens } => {
                let (id, kind) = (name.clone(), kind.clone());
                let body =
                    serde_json::to_value(NewAgent { id, kind, reports_tokens: *reports_tokens })?;
                self.tell_token(&client.send(Method::POST, "/api/v1/agents", Some(&body))?)
            }
            ManageAction::Pause { name } => self.set_state(&client, name, AgentState::Paused),
            ManageAction::Resume { name } => self.set_state(&client, name, AgentState::Active),
            ManageAction::Retire { name } => self.set_state(&client, name, AgentState::Retired),
            ManageAction::Rotate { name } => self.tell_token(&client.send(
                Method::POST,
                &format!("{}/rotate", path(name)),
                None,
            )?),
        }
    }

    fn set_state(&self, client: &Client, name: &str, state: AgentState) -> Result<()> {
        let set = client.send(Method::PATCH, &path(name), Some(&json!({"state": state})))?;
        self.common.say(&set, &format!("agent {name} is {state}"))
    }

    fn tell_token(&self, made: &Value) -> Result<()> {
        self.common.tell_as(made, |made: &AgentWithToken, out| {
            agents(std::slice::from_ref(&made.agent)).write(&mut *out)?;
            writeln!(out, "\n{}\nThis is its token. It is shown this once.", made.token)
        })
    }
}

fn path(name: &str) -> String {
    format!("/api/v1/agents/{}", escaped(name))
}

pub(super) fn agents(list: &[AgentView]) -> Table {
    let headings = vec!["agent", "type", "state", "token", "tokens used", "works on", "last seen"];
    let mut table = Table::new(headings);
    for agent in list {
        let counted = if agent.reports_tokens { "as it reports" } else { "as the gateway counts" };
        table.row(vec![
            Cell::Text(agent.id.clone()),
            Cell::Text(agent.kind.clone()),
            Cell::Text(agent.state.to_string()),
            Cell::Text(format!("…{}", agent.token_hint)),
            Cell::Text(counted.to_owned()),
            Cell::Text(or_dash(agent.task.as_deref())),
            Cell::Text(agent.last_seen.map_or("never".to_owned(), at)),
        ]);
    }
    table
}
