//! A folder for one claim: its prompt, its result, what it used.

use std::fs::{self, DirBuilder};
use std::io::{self, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Removed when it is dropped. Only this user may look into it.
pub(super) struct ClaimFolder {
    path: PathBuf,
    pub(super) prompt: PathBuf,
    pub(super) result: PathBuf,
    pub(super) tokens: PathBuf,
}

impl ClaimFolder {
    /// Makes the folder, with the prompt in it.
    pub(super) fn make(prompt: &str) -> io::Result<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let name = format!("fairgate-{}-{}-{count}", std::process::id(), since.as_nanos());
        let path = std::env::temp_dir().join(name);
        // Fails where it is there already: nobody else's folder is used.
        DirBuilder::new().mode(0o700).create(&path)?;
        let file = |name: &str| path.join(name);
        let (prompt_file, result, tokens) = (file("prompt"), file("result"), file("tokens"));
        let folder = Self { path, prompt: prompt_file, result, tokens };
        fs::write(&folder.prompt, prompt)?;
        Ok(folder)
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

impl Drop for ClaimFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}
