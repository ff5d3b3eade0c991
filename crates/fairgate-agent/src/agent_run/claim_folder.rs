//! The folder of one claim, with files for the prompt, the result and the token usage.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::agent_api::PrivateFolder;

/// The files of one claim. Dropping this value removes them.
pub(super) struct ClaimFolder {
    pub(super) prompt: PathBuf,
    pub(super) result: PathBuf,
    pub(super) tokens: PathBuf,
    /// Folder with the results of needed tasks; `None` if there are none.
    pub(super) results: Option<PathBuf>,
    folder: PrivateFolder,
}

impl ClaimFolder {
    /// Creates the folder, and writes the prompt into a file in it.
    pub(super) fn make(prompt: &str) -> io::Result<Self> {
        let folder = PrivateFolder::make()?;
        let file = |name: &str| folder.path().join(name);
        let made = Self {
            prompt: file("prompt"),
            result: file("result"),
            tokens: file("tokens"),
            results: None,
            folder,
        };
        fs::write(&made.prompt, prompt)?;
        Ok(made)
    }

    /// Writes the result of a needed task into a file of its own. A valid name of a task has only
    /// letters, digits, `.`, `_` and `-`. A name that is no plain file name is refused, even if the
    /// gateway sent it.
    pub(super) fn put_needed_result(&mut self, task: &str, result: &str) -> io::Result<()> {
        let is_plain = !task.starts_with('.') && !task.contains(['/', '\0']) && !task.is_empty();
        if !is_plain {
            return Err(io::Error::other(format!("{task:?} is no name of a task")));
        }
        let folder = match &self.results {
            Some(folder) => folder.clone(),
            None => {
                let folder = self.folder.path().join("results");
                fs::create_dir(&folder)?;
                self.results.insert(folder).clone()
            }
        };
        fs::write(folder.join(task), result)
    }

    /// Returns the content of the result file. Reads a few bytes more than `bytes_max`, so that the caller notices that
    /// the result is too long.
    pub(super) fn result(&self, bytes_max: usize) -> Option<String> {
        read(&self.result, bytes_max + 4)
    }

    /// Returns the token usage that the command wrote into its file; `None` if there is none.
    pub(super) fn tokens(&self) -> Option<u64> {
        tokens_in(&self.tokens)
    }
}

/// Largest number of tokens that the gateway accepts for one task.
const TOKENS_MAX: u64 = 1_000_000_000_000;

/// Reads the number in a tokens file.
pub(super) fn tokens_in(file: &Path) -> Option<u64> {
    let tokens: u64 = read(file, 64)?.trim().parse().ok()?;
    Some(tokens.min(TOKENS_MAX))
}

fn read(file: &Path, bytes_max: usize) -> Option<String> {
    // Only a regular file is read: a command may have created a pipe of that name, and opening it would block.
    if !fs::metadata(file).ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    let limit = u64::try_from(bytes_max).unwrap_or(u64::MAX);
    fs::File::open(file).ok()?.take(limit).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}
