//! `fairgate task`.

use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use fairgate_fleet::{TaskAction, TaskLine, TaskPatch, TaskState, TaskView, Why};
use fairgate_store::UnixMicros;
use http::Method;
use serde_json::{Value, json};

use super::super::client::Client;
use super::super::{Common, all, escaped};
use super::prompt::PromptArgs;
use super::task_add::AddArgs;
use super::task_log::LogArgs;
use super::{ahead_argument, or_dash, task_show};
use crate::table::{Cell, Table};
use crate::words::shown;

/// Tasks: what agents do. Each belongs to a project, and may need other tasks to be completed first.
#[derive(Debug, Args)]
pub(crate) struct TaskCommand {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    Add(Box<AddArgs>),
    /// List tasks, in the order in which they were made.
    List {
        /// Of this project only.
        #[arg(long)]
        project: Option<String>,
        /// In these states only, such as READY,PAUSED.
        #[arg(long, value_delimiter = ',', value_name = "STATE,…", value_parser = state)]
        state: Vec<TaskState>,
    },
    /// Show one task: what it is to do, what it needs, what became of it step by step.
    Show {
        /// Its name.
        id: String,
    },
    /// Change a task that no agent holds; what is not given stays.
    Set {
        /// Its name.
        id: String,
        #[command(flatten)]
        prompt: PromptArgs,
        /// One line, for people.
        #[arg(long)]
        title: Option<String>,
        /// Its place in its project's queue, lower first.
        #[arg(long, allow_negative_numbers = true)]
        priority: Option<i64>,
        /// How many tokens it is expected to use.
        #[arg(long, value_name = "TOKENS")]
        estimate: Option<u64>,
        /// How often it is tried again after a failure.
        #[arg(long, value_name = "TIMES")]
        retries: Option<u32>,
    },
    /// End a task for good. An agent that works on it is stopped.
    Cancel(ReasonArgs),
    /// Put a task aside. An agent that works on it is stopped.
    Pause {
        #[command(flatten)]
        about: ReasonArgs,
        /// Until when: a moment such as 2026-11-15T08:00:00Z, or how far ahead, such as 30m. Until it is resumed where not
        /// given.
        #[arg(long, value_name = "TIME", value_parser = ahead_argument)]
        until: Option<UnixMicros>,
    },
    /// Let a paused task go on.
    Resume {
        /// Its name.
        id: String,
    },
    /// Start a blocked or failed task anew, with all its retries.
    Restart {
        /// Its name.
        id: String,
    },
    /// Take a blocked or failed task for completed, so that those that need it can start.
    Skip(ReasonArgs),
    /// Answer what a task's agent asked. The task goes on with the answer.
    Answer {
        /// Its name.
        id: String,
        /// The answer.
        text: String,
    },
    /// Say why a task stands where it does, then the numbers.
    Why {
        /// Its name.
        id: String,
    },
    Log(LogArgs),
}

#[derive(Debug, Args)]
struct ReasonArgs {
    /// Its name.
    id: String,
    /// Why, for those who read it later.
    #[arg(long)]
    reason: Option<String>,
}

fn state(text: &str) -> Result<TaskState, String> {
    TaskState::from_word(&text.to_uppercase()).ok_or_else(|| {
        let known: Vec<&str> = TaskState::ALL.iter().map(|state| state.word()).collect();
        format!("one of {}", known.join(", "))
    })
}

impl TaskCommand {
    pub(crate) fn run(&self) -> Result<()> {
        let client = self.common.client()?;
        match &self.action {
            Action::Add(add) => add.run(&self.common, &client),
            Action::Log(log) => log.run(&self.common, &client),
            Action::List { project, state } => {
                let mut query = Vec::new();
                query.extend(project.as_ref().map(|name| format!("project={}", escaped(name))));
                if !state.is_empty() {
                    let states: Vec<&str> = state.iter().map(|state| state.word()).collect();
                    query.push(format!("state={}", states.join(",")));
                }
                let joint = if query.is_empty() { "" } else { "?" };
                let list = all(&client, &format!("/api/v1/tasks{joint}{}", query.join("&")))?;
                self.common.tell_as(&list, |list: &Vec<TaskLine>, out| tasks(list).write(out))
            }
            Action::Show { id } => self.common.tell_as(&client.get(&path(id))?, task_show::told),
            Action::Set { id, prompt, title, priority, estimate, retries } => {
                let patch = TaskPatch {
                    title: title.clone(),
                    prompt: prompt.text()?,
                    priority: *priority,
                    estimate: *estimate,
                    retries: *retries,
                };
                let patch = serde_json::to_value(patch)?;
                if patch == json!({}) {
                    bail!("nothing to change: see `fairgate task set --help`");
                }
                let set = client.send(Method::PATCH, &path(id), Some(&patch))?;
                self.common.tell_as(&set, |task: &TaskView, out| {
                    tasks(std::slice::from_ref(&task.line)).write(out)
                })
            }
            Action::Cancel(ReasonArgs { id, reason }) => {
                self.act(&client, id, TaskAction::Cancel { reason: reason.clone() })
            }
            Action::Pause { about: ReasonArgs { id, reason }, until } => {
                self.act(&client, id, TaskAction::Pause { until: *until, reason: reason.clone() })
            }
            Action::Resume { id } => self.act(&client, id, TaskAction::Resume),
            Action::Restart { id } => self.act(&client, id, TaskAction::Restart),
            Action::Skip(ReasonArgs { id, reason }) => {
                self.act(&client, id, TaskAction::Skip { reason: reason.clone() })
            }
            Action::Answer { id, text } => {
                self.act(&client, id, TaskAction::Answer { text: text.clone() })
            }
            Action::Why { id } => {
                let why = client.get(&format!("{}/why", path(id)))?;
                self.common.tell_as(&why, |why: &Why, out| task_show::why(why, out))
            }
        }
    }

    fn act(&self, client: &Client, id: &str, action: TaskAction) -> Result<()> {
        let body: Value = serde_json::to_value(action)?;
        let task = client.send(Method::POST, &format!("{}/actions", path(id)), Some(&body))?;
        self.common.tell_as(&task, task_show::acted)
    }
}

pub(super) fn path(id: &str) -> String {
    format!("/api/v1/tasks/{}", escaped(id))
}

pub(super) fn tasks(list: &[TaskLine]) -> Table {
    let headings = vec![
        "task", "project", "state", "priority", "agent", "used", "estimate", "retries", "title",
        "why",
    ];
    let mut table = Table::new(headings);
    for task in list {
        table.row(vec![
            Cell::Text(task.id.clone()),
            Cell::Text(task.project.clone()),
            Cell::Text(task.state.to_string()),
            Cell::Number(task.priority.to_string()),
            Cell::Text(or_dash(task.agent.as_deref())),
            Cell::Number(task.used.to_string()),
            Cell::Number(task.estimate.to_string()),
            Cell::Number(format!("{} of {}", task.retries, task.retries_max)),
            Cell::Text(shown(&task.title)),
            Cell::Text(or_dash(task.reason.as_deref())),
        ]);
    }
    table
}
