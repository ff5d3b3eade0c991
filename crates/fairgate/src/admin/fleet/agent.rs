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
    #[command(subcommand)]
    action: AgentAction,
}

#[derive(Debug, Subcommand)]
enum AgentAction {
    Run(AgentRunArgs),
    #[command(flatten)]
    Manage(ManageAction),
}

/// What people do with agents. The admin token's options are with these alone: `run` has a token of its own.
#[derive(Debug, Subcommand)]
enum ManageAction {
    /// List all agents and what they work on.
    List {
        #[command(flatten)]
        common: Common,
    },
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
        #[command(flatten)]
        common: Common,
    },
    /// Give an agent nothing new until it is resumed. What it holds it may finish.
    Pause {
        /// Its name.
        name: String,
        #[command(flatten)]
        common: Common,
    },
    /// Let a paused agent take tasks again.
    Resume {
        /// Its name.
        name: String,
        #[command(flatten)]
        common: Common,
    },
    /// Take an agent away for good. Its token opens nothing from now on, and the task that it holds goes back.
    Retire {
        /// Its name.
        name: String,
        #[command(flatten)]
        common: Common,
    },
    /// Give an agent a new token, and show it once. The old one is refused at once.
    Rotate {
        /// Its name.
        name: String,
        #[command(flatten)]
        common: Common,
    },
}

impl AgentCommand {
    pub(crate) fn run(&self) -> Result<()> {
        match &self.action {
            AgentAction::Run(args) => agent_run::run(args),
            AgentAction::Manage(action) => action.run(),
        }
    }
}

impl ManageAction {
    fn common(&self) -> &Common {
        match self {
            Self::List { common }
            | Self::Add { common, .. }
            | Self::Pause { common, .. }
            | Self::Resume { common, .. }
            | Self::Retire { common, .. }
            | Self::Rotate { common, .. } => common,
        }
    }

    fn run(&self) -> Result<()> {
        let client = self.common().client()?;
        match self {
            Self::List { .. } => {
                let list = all(&client, "/api/v1/agents")?;
                self.common().tell_as(&list, |list: &Vec<AgentView>, out| agents(list).write(out))
            }
            Self::Add { name, kind, reports_tokens, .. } => {
                let (id, kind) = (name.clone(), kind.clone());
                let body =
                    serde_json::to_value(NewAgent { id, kind, reports_tokens: *reports_tokens })?;
                self.tell_token(&client.send(Method::POST, "/api/v1/agents", Some(&body))?)
            }
            Self::Pause { name, .. } => self.set_state(&client, name, AgentState::Paused),
            Self::Resume { name, .. } => self.set_state(&client, name, AgentState::Active),
            Self::Retire { name, .. } => self.set_state(&client, name, AgentState::Retired),
            Self::Rotate { name, .. } => self.tell_token(&client.send(
                Method::POST,
                &format!("{}/rotate", path(name)),
                None,
            )?),
        }
    }

    fn set_state(&self, client: &Client, name: &str, state: AgentState) -> Result<()> {
        let set = client.send(Method::PATCH, &path(name), Some(&json!({"state": state})))?;
        self.common().say(&set, &format!("agent {name} is {state}"))
    }

    fn tell_token(&self, made: &Value) -> Result<()> {
        self.common().tell_as(made, |made: &AgentWithToken, out| {
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
