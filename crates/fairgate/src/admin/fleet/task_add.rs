//! The command `fairgate task add`, which adds one task from options, or all tasks of a file.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use fairgate_api::fleet::{AddedTasks, NewTask, NewTasks, TaskMoney};
use fairgate_store::UnixMicros;
use fairgate_time::wall_clock;
use http::Method;

use super::super::client::{AdminApiError, AdminClient};
use super::super::{AdminOptions, given_names};
use super::prompt::TaskPromptArgs;
use super::tasks_file::TasksFile;
use super::{ahead_argument, graph};
use crate::input::read_text;

/// Add a task, or with -f all tasks of a file. If one task of a file is invalid, none is added.
#[derive(Debug, Args)]
pub(super) struct TaskAddArgs {
    #[command(flatten)]
    prompt: TaskPromptArgs,
    /// YAML file with a list of tasks, or with the fields `tasks` and `project`; a task that names no project belongs
    /// to that project. `-` is standard input. A task that exists with the same content is not changed, so a file may
    /// be added twice.
    #[arg(short, long, value_name = "FILE", conflicts_with_all = [
        "prompt", "prompt_file", "id", "title", "priority", "needs", "estimate", "retries", "timeout", "tokens_max",
        "money_max", "not_before", "workspace", "requires", "affinity", "affinity_wait",
    ])]
    file: Option<PathBuf>,
    /// Project of the task; with -f, the project of tasks for which the file names none.
    #[arg(long)]
    project: Option<String>,
    /// Check everything, show the tasks that would be added, and add none.
    #[arg(long)]
    dry_run: bool,
    /// Name of the task, unique among all tasks. Default: generated from the project's name.
    #[arg(long)]
    id: Option<String>,
    /// Title for people, in one line. Default: the prompt's first line.
    #[arg(long)]
    title: Option<String>,
    /// Priority within the project; a task with a lower number starts first. Default: 100.
    #[arg(long, allow_negative_numbers = true)]
    priority: Option<i64>,
    /// Tasks that must be completed first.
    #[arg(long, value_delimiter = ',', value_name = "TASK,…")]
    needs: Vec<String>,
    /// Number of tokens that the task is expected to use. Default: learned from earlier tasks of the project.
    #[arg(long, value_name = "TOKENS")]
    estimate: Option<u64>,
    /// Greatest number of retries after a failure. Default: 3.
    #[arg(long, value_name = "TIMES")]
    retries: Option<u32>,
    /// Longest time from a claim of the task to its end; a claim that takes longer is ended, as a failure. Default: no
    /// limit.
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<u32>,
    /// Most tokens that the task may use over all its claims. Default: no limit.
    #[arg(long, value_name = "TOKENS")]
    tokens_max: Option<u64>,
    /// Most money that the task may cost over all its claims, such as 2.50. Default: no limit.
    #[arg(long, value_name = "AMOUNT")]
    money_max: Option<TaskMoney>,
    /// Earliest start: a time such as 2026-11-15T08:00:00Z, or a span from now such as 2h.
    #[arg(long, value_name = "TIME", value_parser = ahead_argument)]
    not_before: Option<UnixMicros>,
    /// Workspace that the task must run in. Default: any workspace of the task's project.
    #[arg(long)]
    workspace: Option<String>,
    /// Labels that an agent must have to get the task, on top of those that its project and tenant require. Default: none.
    #[arg(long, value_delimiter = ',', value_name = "LABEL,…")]
    requires: Vec<String>,
    /// Agent that the task waits for, up to --affinity-wait.
    #[arg(long, value_name = "AGENT")]
    affinity: Option<String>,
    /// Seconds to wait for the agent given with --affinity before any agent may take the task. Default: 120.
    #[arg(long, value_name = "SECONDS", requires = "affinity")]
    affinity_wait: Option<u32>,
}

impl TaskAddArgs {
    pub(super) fn run(&self, common: &AdminOptions, client: &AdminClient) -> Result<()> {
        let (tasks, file) = match &self.file {
            Some(path) => {
                let text = read_text(path).with_context(|| path.display().to_string())?;
                let file = TasksFile::parse(&text, path)?;
                (file.tasks(self.project.as_deref(), wall_clock::now())?, Some(file))
            }
            None => (vec![self.one()?], None),
        };
        let new = NewTasks { tasks, dry_run: self.dry_run };
        let body = serde_json::to_value(&new)?;
        let added = client.send(Method::POST, "/api/v1/tasks", Some(&body));
        let added =
            added.map_err(|error| match (&file, error.downcast_ref::<AdminApiError>()) {
                // The gateway's error about a field is reported at the field's line in the file.
                (Some(file), Some(AdminApiError { message, field: Some(field), .. })) => {
                    file.located(field, message).map_or(error, |located| anyhow!(located))
                }
                _ => error,
            })?;
        common.print_parsed(&added, |added: &AddedTasks, out| {
            writeln!(out, "{}", graph::summary(added))?;
            graph::steps(&new.tasks, added).write(out)
        })
    }

    fn one(&self) -> Result<NewTask> {
        let Some(prompt) = self.prompt.text()? else {
            bail!(
                "what is the agent to do? Give a prompt, --prompt-file FILE, or -f with a file of tasks"
            );
        };
        let Some(project) = self.project.clone() else {
            bail!("which project is it for? Give --project NAME");
        };
        Ok(NewTask {
            id: self.id.clone(),
            project,
            title: self.title.clone(),
            prompt,
            priority: self.priority,
            needs: self.needs.clone(),
            estimate: self.estimate,
            retries: self.retries,
            timeout_s: self.timeout,
            tokens_max: self.tokens_max,
            money_max: self.money_max,
            resume_after: self.not_before,
            workspace: self.workspace.clone(),
            requires: given_names(&self.requires),
            affinity: self.affinity.clone(),
            affinity_wait_s: self.affinity_wait,
        })
    }
}
