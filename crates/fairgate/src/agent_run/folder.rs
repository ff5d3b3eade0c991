//! A folder for one claim: its prompt, its result, what it used.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::agent_api::PrivateFolder;

/// Removed when it is dropped.
pub(super) struct ClaimFolder {
    pub(super) prompt: PathBuf,
    pub(super) result: PathBuf,
    pub(super) tokens: PathBuf,
    _folder: PrivateFolder,
}

impl ClaimFolder {
    /// Makes the folder, with the prompt in it.
    pub(super) fn make(prompt: &str) -> io::Result<Self> {
        let folder = PrivateFolder::make()?;
        let file = |name: &str| folder.path().join(name);
        let made = Self {
            prompt: file("prompt"),
            result: file("result"),
            tokens: file("tokens"),
            _folder: folder,
        };
        fs::write(&made.prompt, prompt)?;
        Ok(made)
    }

    /// What the command wrote into its result file; a little more than may be sent.
    pub(super) fn result(&self, bytes_max: usize) -> Option<String> {
        read(&self.result, bytes_max + 4)
    }

    /// What the command says that it used, in tokens.
    pub(super) fn tokens(&self) -> Option<u64> {
        tokens_in(&self.tokens)
    }
}

/// The number in a file of tokens.
pub(super) fn tokens_in(file: &Path) -> Option<u64> {
    read(file, 64)?.trim().parse().ok()
}

fn read(file: &Path, bytes_max: usize) -> Option<String> {
    // Not what waits for a writer: a command may have made anything of that name.
    if !fs::metadata(file).ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    let limit = u64::try_from(bytes_max).unwrap_or(u64::MAX);
    fs::File::open(file).ok()?.take(limit).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}
