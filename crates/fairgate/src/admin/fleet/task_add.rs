//! `fairgate task add`: one task by flags, or a whole graph from a file.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use fairgate_fleet::{AddedTasks, NewTask, NewTasks};
use fairgate_store::UnixMicros;
use http::Method;

use super::super::Common;
use super::super::client::{Client, Refusal};
use super::prompt::PromptArgs;
use super::tasks_file::TasksFile;
use super::{ahead_argument, graph};
use crate::input::read_text;

/// Add a task, or with -f all tasks of a file: all or none.
#[derive(Debug, Args)]
pub(super) struct AddArgs {
    #[command(flatten)]
    prompt: PromptArgs,
    /// A YAML file: a list of tasks, or `project:` (for tasks that name none) and `tasks:`. `-` is standard input. A task
    /// that is there with the same content is left alone, so a file may be added twice.
    #[arg(short, long, value_name = "FILE", conflicts_with_all = [
        "prompt", "prompt_file", "id", "title", "priority", "needs", "estimate", "retries", "not_before", "workspace",
        "affinity", "affinity_wait",
    ])]
    file: Option<PathBuf>,
    /// Its project; with -f, the project of tasks that name none.
    #[arg(long)]
    project: Option<String>,
    /// Check everything, show what would be made, and make nothing.
    #[arg(long)]
    dry_run: bool,
    /// Its name, unique among all tasks; made up from the project's where not given.
    #[arg(long)]
    id: Option<String>,
    /// One line, for people; the prompt's first line where not given.
    #[arg(long)]
    title: Option<String>,
    /// Its place in its project's queue, lower first (100 where not given).
    #[arg(long, allow_negative_numbers = true)]
    priority: Option<i64>,
    /// Tasks that must be completed first.
    #[arg(long, value_delimiter = ',', value_name = "TASK,…")]
    needs: Vec<String>,
    /// How many tokens it is expected to use; learned from its project's tasks where not given.
    #[arg(long, value_name = "TOKENS")]
    estimate: Option<u64>,
    /// How often it is tried again after a failure (3 where not given).
    #[arg(long, value_name = "TIMES")]
    retries: Option<u32>,
    /// Not before: a moment such as 2026-11-15T08:00:00Z, or how far ahead, such as 2h.
    #[arg(long, value_name = "TIME", value_parser = ahead_argument)]
    not_before: Option<UnixMicros>,
    /// The workspace that it must run in; any of its project's where not given.
    #[arg(long)]
    workspace: Option<String>,
    /// The agent that it waits for.
    #[arg(long, value_name = "AGENT")]
    affinity: Option<String>,
    /// How long it waits for that agent, in seconds, before anybody may take it (120 where not given).
    #[arg(long, value_name = "SECONDS", requires = "affinity")]
    affinity_wait: Option<u32>,
}

impl AddArgs {
    pub(super) fn run(&self, common: &Common, client: &Client) -> Result<()> {
        let (tasks, file) = match &self.file {
            Some(path) => {
                let text = read_text(path).with_context(|| path.display().to_string())?;
                let file = TasksFile::parse(&text, path)?;
                (file.tasks(self.project.as_deref(), super::now())?, Some(file))
            }
            None => (vec![self.one()?], None),
        };
        let new = NewTasks { tasks, dry_run: self.dry_run };
        let body = serde_json::to_value(&new)?;
        let added = client.send(Method::POST, "/api/v1/tasks", Some(&body));
        let added = added.map_err(|error| match (&file, error.downcast_ref::<Refusal>()) {
            // What the gateway says of a field is said of its line.
            (Some(file), Some(Refusal { message, field: Some(field), .. })) => {
                file.located(field, message).map_or(error, |located| anyhow!(located))
            }
            _ => error,
        })?;
        common.tell_as(&added, |added: &AddedTasks, out| {
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
            resume_after: self.not_before,
            workspace: self.workspace.clone(),
            affinity: self.affinity.clone(),
            affinity_wait_s: self.affinity_wait,
        })
    }
}
