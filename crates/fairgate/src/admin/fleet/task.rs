//! The command `fairgate task`, which lists, shows, adds and changes tasks.

use std::str::FromStr;

use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use fairgate_api::fleet::{
    TaskAction, TaskExplanation, TaskLine, TaskMoney, TaskPatch, TaskState, TaskView,
};
use fairgate_store::UnixMicros;
use fairgate_table::{TableCell, TextTable};
use http::Method;
use serde_json::{Value, json};

use super::super::client::AdminClient;
use super::super::{AdminOptions, escaped, fetch_all, given_names};
use super::prompt::TaskPromptArgs;
use super::task_add::TaskAddArgs;
use super::task_log::TaskLogArgs;
use super::{ahead_argument, name_or_dash, task_show};
use crate::text_format::safe_name;

/// Manage tasks, the pieces of work for agents. Each task belongs to a project, and may need other tasks to be
/// completed first.
#[derive(Debug, Args)]
pub(crate) struct TaskCommand {
    #[command(flatten)]
    common: AdminOptions,
    #[command(subcommand)]
    action: TaskSubcommand,
}

#[derive(Debug, Subcommand)]
enum TaskSubcommand {
    Add(Box<TaskAddArgs>),
    /// List tasks in the order in which they were added.
    List {
        /// Only tasks of this project.
        #[arg(long)]
        project: Option<String>,
        /// Only tasks in these states, such as READY,PAUSED.
        #[arg(long, value_delimiter = ',', value_name = "STATE,…", value_parser = state)]
        state: Vec<TaskState>,
    },
    /// Show the prompt of one task, the tasks that it needs, and its history step by step.
    Show {
        /// Name of the task, as `fairgate task list` shows it.
        id: String,
    },
    /// Change a task that no agent holds. Settings that are not given stay as they are.
    Set {
        /// Name of the task, as `fairgate task list` shows it.
        id: String,
        #[command(flatten)]
        prompt: TaskPromptArgs,
        /// Title for people, in one line.
        #[arg(long)]
        title: Option<String>,
        /// Priority within the project; a task with a lower number starts first.
        #[arg(long, allow_negative_numbers = true)]
        priority: Option<i64>,
        /// Number of tokens that the task is expected to use.
        #[arg(long, value_name = "TOKENS")]
        estimate: Option<u64>,
        /// Greatest number of retries after a failure.
        #[arg(long, value_name = "TIMES")]
        retries: Option<u32>,
        /// Longest time from a claim of the task to its end, or `none`.
        #[arg(long, value_name = "SECONDS", value_parser = value_or_none::<u64>)]
        timeout: Option<OptionalValue<u64>>,
        /// Most tokens that the task may use over all its claims, or `none`.
        #[arg(long, value_name = "TOKENS", value_parser = value_or_none::<u64>)]
        tokens_max: Option<OptionalValue<u64>>,
        /// Most money that the task may cost over all its claims, such as 2.50, or `none`.
        #[arg(long, value_name = "AMOUNT", value_parser = value_or_none::<TaskMoney>)]
        money_max: Option<OptionalValue<TaskMoney>>,
        /// Labels that an agent must have to get the task. The given labels replace all earlier ones, and "" removes all.
        #[arg(long, value_delimiter = ',', value_name = "LABEL,…")]
        requires: Option<Vec<String>>,
    },
    /// End a task for good. An agent that works on it is stopped.
    Cancel(TaskReasonArgs),
    /// Pause a task. An agent that works on it is stopped.
    Pause {
        #[command(flatten)]
        about: TaskReasonArgs,
        /// End of the pause: a time such as 2026-11-15T08:00:00Z, or a span from now such as 30m. Default: no end,
        /// until the task is resumed.
        #[arg(long, value_name = "TIME", value_parser = ahead_argument)]
        until: Option<UnixMicros>,
    },
    /// Let a paused task continue.
    Resume {
        /// Name of the task, as `fairgate task list` shows it.
        id: String,
    },
    /// Start a blocked or failed task again, with all its retries.
    Restart {
        /// Name of the task, as `fairgate task list` shows it.
        id: String,
    },
    /// Count a blocked or failed task as completed, so that the tasks that need it can start.
    Skip(TaskReasonArgs),
    /// Answer the question of a task's agent. The task continues with the answer.
    Answer {
        /// Name of the task, as `fairgate task list` shows it.
        id: String,
        /// Text of the answer.
        text: String,
    },
    /// Explain the state of a task in a sentence, followed by the numbers.
    Why {
        /// Name of the task, as `fairgate task list` shows it.
        id: String,
    },
    Log(TaskLogArgs),
}

#[derive(Debug, Args)]
struct TaskReasonArgs {
    /// Name of the task, as `fairgate task list` shows it.
    id: String,
    /// Reason why the task is cancelled or skipped. It is kept in the task's history.
    #[arg(long)]
    reason: Option<String>,
}

/// Value of a limit, or `none` for no limit.
#[derive(Clone, Copy, Debug)]
struct OptionalValue<T>(Option<T>);

fn value_or_none<T: FromStr>(text: &str) -> Result<OptionalValue<T>, String>
where
    T::Err: std::fmt::Display,
{
    match text {
        "none" => Ok(OptionalValue(None)),
        value => value
            .parse()
            .map(|value| OptionalValue(Some(value)))
            .map_err(|problem| format!("{problem}; or none for no limit")),
    }
}

fn state(text: &str) -> Result<TaskState, String> {
    text.to_uppercase().parse::<TaskState>().map_err(|_| {
        let known: Vec<&str> = TaskState::ALL.iter().map(|state| state.word()).collect();
        format!("one of {}", known.join(", "))
    })
}

impl TaskCommand {
    pub(crate) fn run(&self) -> Result<()> {
        let client = self.common.client()?;
        match &self.action {
            TaskSubcommand::Add(add) => add.run(&self.common, &client),
            TaskSubcommand::Log(log) => log.run(&self.common, &client),
            TaskSubcommand::List { project, state } => {
                let mut query = Vec::new();
                query.extend(project.as_ref().map(|name| format!("project={}", escaped(name))));
                if !state.is_empty() {
                    let states: Vec<&str> = state.iter().map(|state| state.word()).collect();
                    query.push(format!("state={}", states.join(",")));
                }
                let joint = if query.is_empty() { "" } else { "?" };
                let list = fetch_all(&client, &format!("/api/v1/tasks{joint}{}", query.join("&")))?;
                self.common.print_parsed(&list, |list: &Vec<TaskLine>, out| tasks(list).write(out))
            }
            TaskSubcommand::Show { id } => {
                self.common.print_parsed(&client.get(&path(id))?, task_show::print_task)
            }
            TaskSubcommand::Set {
                id,
                prompt,
                title,
                priority,
                estimate,
                retries,
                timeout,
                tokens_max,
                money_max,
                requires,
            } => {
                let patch = TaskPatch {
                    title: title.clone(),
                    prompt: prompt.text()?,
                    priority: *priority,
                    estimate: *estimate,
                    retries: *retries,
                    timeout_s: timeout.map(|OptionalValue(seconds)| seconds),
                    tokens_max: tokens_max.map(|OptionalValue(tokens)| tokens),
                    money_max: money_max.map(|OptionalValue(money)| money),
                    requires: requires.as_deref().map(given_names),
                };
                let patch = serde_json::to_value(patch)?;
                if patch == json!({}) {
                    bail!("nothing to change: see `fairgate task set --help`");
                }
                let set = client.send(Method::PATCH, &path(id), Some(&patch))?;
                self.common.print_parsed(&set, |task: &TaskView, out| {
                    tasks(std::slice::from_ref(&task.line)).write(out)
                })
            }
            TaskSubcommand::Cancel(TaskReasonArgs { id, reason }) => {
                self.act(&client, id, TaskAction::Cancel { reason: reason.clone() })
            }
            TaskSubcommand::Pause { about: TaskReasonArgs { id, reason }, until } => {
                self.act(&client, id, TaskAction::Pause { until: *until, reason: reason.clone() })
            }
            TaskSubcommand::Resume { id } => self.act(&client, id, TaskAction::Resume),
            TaskSubcommand::Restart { id } => self.act(&client, id, TaskAction::Restart),
            TaskSubcommand::Skip(TaskReasonArgs { id, reason }) => {
                self.act(&client, id, TaskAction::Skip { reason: reason.clone() })
            }
            TaskSubcommand::Answer { id, text } => {
                self.act(&client, id, TaskAction::Answer { text: text.clone() })
            }
            TaskSubcommand::Why { id } => {
                let why = client.get(&format!("{}/why", path(id)))?;
                self.common
                    .print_parsed(&why, |why: &TaskExplanation, out| task_show::why(why, out))
            }
        }
    }

    fn act(&self, client: &AdminClient, id: &str, action: TaskAction) -> Result<()> {
        let body: Value = serde_json::to_value(action)?;
        let task = client.send(Method::POST, &format!("{}/actions", path(id)), Some(&body))?;
        self.common.print_parsed(&task, task_show::acted)
    }
}

pub(super) fn path(id: &str) -> String {
    format!("/api/v1/tasks/{}", escaped(id))
}

pub(super) fn tasks(list: &[TaskLine]) -> TextTable {
    let headings = vec![
        "task", "project", "state", "priority", "agent", "used", "estimate", "retries", "title",
        "why",
    ];
    let mut table = TextTable::new(headings);
    for task in list {
        table.row(vec![
            TableCell::Text(task.id.clone()),
            TableCell::Text(task.project.clone()),
            TableCell::Text(task.state.to_string()),
            TableCell::Number(task.priority.to_string()),
            TableCell::Text(name_or_dash(task.agent.as_deref())),
            TableCell::Number(task.used.to_string()),
            TableCell::Number(task.estimate.to_string()),
            TableCell::Number(format!("{} of {}", task.retries, task.retries_max)),
            TableCell::Text(safe_name(&task.title)),
            TableCell::Text(name_or_dash(task.reason.as_deref())),
        ]);
    }
    table
}
