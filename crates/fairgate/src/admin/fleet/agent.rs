//! The command `fairgate agent`, which lists, adds, changes and runs agents.

use std::io::Write;

use anyhow::Result;
use clap::{Args, Subcommand};
use fairgate_agent::agent_run::{self, AgentRunArgs};
use fairgate_agent::numbered_names;
use fairgate_api::fleet::{AgentView, AgentWithToken, FleetAgentState, NewAgent};
use fairgate_table::{TableCell, TextTable};
use http::Method;
use serde_json::{Value, json};

use super::super::client::AdminClient;
use super::super::{AdminOptions, escaped, fetch_all, given_names};
use super::{at, name_or_dash};

/// Manage and run agents, the programs that work on tasks. Each agent has its own token, which is shown once.
#[derive(Debug, Args)]
pub(crate) struct AgentCommand {
    #[command(subcommand)]
    action: AgentAction,
}

#[derive(Debug, Subcommand)]
enum AgentAction {
    Run(AgentRunArgs),
    #[command(flatten)]
    Manage(AgentManageAction),
}

/// Commands that manage agents. Only these commands have options for the admin token, because `run` uses the agent's
/// own token.
#[derive(Debug, Subcommand)]
enum AgentManageAction {
    /// List all agents and the tasks that they hold.
    List {
        #[command(flatten)]
        common: AdminOptions,
    },
    /// Add an agent, and show its token once.
    Add {
        /// Name of the agent: a-z, 0-9, `.`, `_` and `-`.
        name: String,
        /// Type of the agent, which projects may limit. Default: `default`.
        #[arg(long = "type", value_name = "TYPE")]
        kind: Option<String>,
        /// Set for an agent that does not send its LLM calls through the gateway. Such an agent reports its own usage
        /// and gets no task keys.
        #[arg(long)]
        reports_tokens: bool,
        /// Labels of the agent, such as docker or machine:m1. Projects may require labels.
        #[arg(long, value_delimiter = ',', value_name = "LABEL,…")]
        labels: Vec<String>,
        /// Tenants for which the agent may work. It gets no task of other tenants. Default: all.
        #[arg(long, value_delimiter = ',', value_name = "TENANT,…")]
        tenants: Option<Vec<String>>,
        /// Add this many agents, NAME-1, NAME-2 and so on, for `fairgate agent run --count`. Default: one agent, NAME.
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
        count: Option<u16>,
        #[command(flatten)]
        common: AdminOptions,
    },
    /// Change the labels and tenants of an agent. A task that it holds goes on.
    Set {
        /// Name of the agent.
        name: String,
        /// Labels of the agent, which replace all earlier ones; "" for none.
        #[arg(long, value_delimiter = ',', value_name = "LABEL,…")]
        labels: Option<Vec<String>>,
        /// Tenants for which the agent may work; "" for all.
        #[arg(long, value_delimiter = ',', value_name = "TENANT,…")]
        tenants: Option<Vec<String>>,
        #[command(flatten)]
        common: AdminOptions,
    },
    /// Give an agent no new tasks until it is resumed. The agent may finish the task that it holds.
    Pause {
        /// Name of the agent.
        name: String,
        #[command(flatten)]
        common: AdminOptions,
    },
    /// Let a paused agent take tasks again.
    Resume {
        /// Name of the agent.
        name: String,
        #[command(flatten)]
        common: AdminOptions,
    },
    /// Remove an agent for good. The agent's token is refused at once, and the task that the agent holds is given back.
    Retire {
        /// Name of the agent.
        name: String,
        #[command(flatten)]
        common: AdminOptions,
    },
    /// Give an agent a new token, and show the token once. The old token is refused at once.
    Rotate {
        /// Name of the agent.
        name: String,
        #[command(flatten)]
        common: AdminOptions,
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

impl AgentManageAction {
    fn common(&self) -> &AdminOptions {
        match self {
            Self::List { common }
            | Self::Add { common, .. }
            | Self::Set { common, .. }
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
                let list = fetch_all(&client, "/api/v1/agents")?;
                self.common()
                    .print_parsed(&list, |list: &Vec<AgentView>, out| agents(list).write(out))
            }
            Self::Add { name, kind, reports_tokens, labels, tenants, count, .. } => {
                let agent = NewAgent {
                    id: name.clone(),
                    kind: kind.clone(),
                    reports_tokens: *reports_tokens,
                    labels: labels.clone(),
                    tenants: tenants.clone(),
                };
                match count {
                    None => self.print_token(&add(&client, &agent)?),
                    Some(count) => self.add_several(&client, &agent, *count),
                }
            }
            Self::Set { name, labels, tenants, .. } => {
                let mut body = serde_json::Map::new();
                if let Some(labels) = labels {
                    body.insert("labels".to_owned(), json!(given_names(labels)));
                }
                if let Some(tenants) = tenants {
                    let tenants = given_names(tenants);
                    let all = tenants.is_empty();
                    body.insert(
                        "tenants".to_owned(),
                        if all { Value::Null } else { json!(tenants) },
                    );
                }
                let set = client.send(Method::PATCH, &path(name), Some(&Value::Object(body)))?;
                self.common().print_parsed(&set, |agent: &AgentView, out| {
                    agents(std::slice::from_ref(agent)).write(out)
                })
            }
            Self::Pause { name, .. } => self.set_state(&client, name, FleetAgentState::Paused),
            Self::Resume { name, .. } => self.set_state(&client, name, FleetAgentState::Active),
            Self::Retire { name, .. } => self.set_state(&client, name, FleetAgentState::Retired),
            Self::Rotate { name, .. } => self.print_token(&client.send(
                Method::POST,
                &format!("{}/rotate", path(name)),
                None,
            )?),
        }
    }

    fn set_state(&self, client: &AdminClient, name: &str, state: FleetAgentState) -> Result<()> {
        let set = client.send(Method::PATCH, &path(name), Some(&json!({"state": state})))?;
        self.common().print_line(&set, &format!("agent {name} is {state}"))
    }

    /// Adds several agents and shows their tokens. If one agent cannot be added, the tokens of the
    /// agents added before are still shown, because they cannot be shown later.
    fn add_several(&self, client: &AdminClient, agent: &NewAgent, count: u16) -> Result<()> {
        let mut made = Vec::new();
        let mut failed = None;
        for id in numbered_names(&agent.id, count) {
            match add(client, &NewAgent { id, ..agent.clone() }) {
                Ok(agent) => made.push(agent),
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        if !made.is_empty() {
            let made = Value::Array(made);
            self.common().print_parsed(&made, |made: &Vec<AgentWithToken>, out| {
                let list: Vec<AgentView> = made.iter().map(|made| made.agent.clone()).collect();
                agents(&list).write(&mut *out)?;
                writeln!(out)?;
                for AgentWithToken { token, .. } in made {
                    writeln!(out, "{token}")?;
                }
                writeln!(out, "These are their tokens, in this order. They are shown this once.")
            })?;
        }
        failed.map_or(Ok(()), Err)
    }

    fn print_token(&self, made: &Value) -> Result<()> {
        self.common().print_parsed(made, |made: &AgentWithToken, out| {
            agents(std::slice::from_ref(&made.agent)).write(&mut *out)?;
            writeln!(out, "\n{}\nThis is its token. It is shown this once.", made.token)
        })
    }
}

fn add(client: &AdminClient, agent: &NewAgent) -> Result<Value> {
    client.send(Method::POST, "/api/v1/agents", Some(&serde_json::to_value(agent)?))
}

fn path(name: &str) -> String {
    format!("/api/v1/agents/{}", escaped(name))
}

pub(super) fn agents(list: &[AgentView]) -> TextTable {
    let headings = vec![
        "agent",
        "type",
        "state",
        "token",
        "tokens used",
        "labels",
        "tenants",
        "works on",
        "last seen",
    ];
    let mut table = TextTable::new(headings);
    for agent in list {
        let counted = if agent.reports_tokens { "as it reports" } else { "as the gateway counts" };
        table.row(vec![
            TableCell::Text(agent.id.clone()),
            TableCell::Text(agent.kind.clone()),
            TableCell::Text(agent.state.to_string()),
            TableCell::Text(format!("…{}", agent.token_hint)),
            TableCell::Text(counted.to_owned()),
            TableCell::Text(name_or_dash(
                Some(agent.labels.join(",")).filter(|it| !it.is_empty()).as_deref(),
            )),
            TableCell::Text(agent.tenants.as_ref().map_or("all".to_owned(), |it| it.join(","))),
            TableCell::Text(name_or_dash(agent.task.as_deref())),
            TableCell::Text(agent.last_seen.map_or("never".to_owned(), at)),
        ]);
    }
    table
}
