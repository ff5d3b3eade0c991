//! A prompt: as an argument, or from a file.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;

use crate::input::read_text;

#[derive(Debug, Args)]
pub(super) struct PromptArgs {
    /// What the agent is to do.
    #[arg(conflicts_with = "prompt_file")]
    pub(super) prompt: Option<String>,
    /// The file that says what the agent is to do; `-` is standard input.
    #[arg(long, value_name = "FILE")]
    pub(super) prompt_file: Option<PathBuf>,
}

impl PromptArgs {
    /// The prompt, where one was given.
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
