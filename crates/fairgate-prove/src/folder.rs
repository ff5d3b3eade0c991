//! The data folder of one experiment.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::{env, fs, process};

use crate::error::ProveError;

/// Folder in which the gateway of one experiment keeps its data. A temporary folder is removed on
/// drop; one that the user chose is kept.
#[derive(Debug)]
pub(crate) struct ExperimentFolder {
    path: PathBuf,
    keep: bool,
}

impl ExperimentFolder {
    /// Creates a folder that is named after the scenario inside `kept`. If `kept` is `None`,
    /// creates a temporary folder.
    pub(crate) fn make(kept: Option<&Path>, scenario: &str) -> Result<Self, ProveError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let path = match kept {
            Some(folder) => folder.join(scenario),
            None => {
                let number = NEXT.fetch_add(1, Ordering::Relaxed);
                env::temp_dir().join(format!("fairgate-prove-{}-{number}", process::id()))
            }
        };
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)
                .map_err(|source| ProveError::File { path: parent.to_owned(), source })?;
        }
        // Fails if the folder exists: its data belongs to another experiment and would be judged as
        // part of this one.
        fs::create_dir(&path).map_err(|source| ProveError::File { path: path.clone(), source })?;
        Ok(Self { path, keep: kept.is_some() })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for ExperimentFolder {
    fn drop(&mut self) {
        if !self.keep {
            // A folder that cannot be removed is left to the system, which clears temporary files.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_asked_for_is_removed_and_what_was_is_kept() {
        let temporary = ExperimentFolder::make(None, "a").unwrap();
        let path = temporary.path().to_owned();
        assert!(path.is_dir());
        let kept = ExperimentFolder::make(Some(&path), "a").unwrap().path().to_owned();
        assert!(kept.is_dir(), "it was asked for");
        let again = ExperimentFolder::make(Some(&path), "a").unwrap_err();
        assert!(again.to_string().starts_with(&kept.display().to_string()), "{again}");
        drop(temporary);
        assert!(!path.exists());
    }
}
