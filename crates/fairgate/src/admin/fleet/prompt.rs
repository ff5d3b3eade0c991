//! A prompt, given as an argument or in a file.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;

use crate::input::read_text;

#[derive(Debug, Args)]
pub(super) struct TaskPromptArgs {
    /// Instructions for the agent.
    #[arg(conflicts_with = "prompt_file")]
    pub(super) prompt: Option<String>,
    /// File with the instructions for the agent; `-` is standard input.
    #[arg(long, value_name = "FILE")]
    pub(super) prompt_file: Option<PathBuf>,
}

impl TaskPromptArgs {
    /// Returns the prompt; `None` if none was given.
    pub(super) fn text(&self) -> Result<Option<String>> {
        match &self.prompt_file {
            Some(file) => {
                let text = read_text(file).with_context(|| file.display().to_string())?;
                Ok(Some(text))
            }
            None => Ok(self.prompt.clone()),
        }
    }
}
