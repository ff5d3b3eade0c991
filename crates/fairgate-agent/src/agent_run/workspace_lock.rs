//! Lock of a workspace's folder on this machine, for as long as a command runs in it.
//!
//! The fleet gives a workspace to one task at a time. Two workspaces may still be the same folder
//! through a link, which only this machine can see. The lock is on the real folder, so that two
//! commands of `agent run` never work in it at once. The lock ends with this process, even if the
//! process is killed.

use std::fs::{File, TryLockError};
use std::path::Path;

use fairgate_api::agents::Claim;

/// Lock of a folder. Dropping this value unlocks the folder.
pub(super) struct WorkspaceLock {
    folder: Option<File>,
}

impl Drop for WorkspaceLock {
    /// Unlocks the folder. Closing the file would not be enough: a process that is being started has a copy of it until
    /// its program runs, and the copy would keep the lock for that time.
    fn drop(&mut self) {
        if let Some(folder) = &self.folder {
            let _ = folder.unlock();
        }
    }
}

/// The reason why a workspace cannot be used on this machine.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum WorkspaceLockError {
    /// There is no such folder, or it cannot be opened.
    Missing(String),
    /// Another command of `agent run` works in the folder.
    InUse(String),
}

impl WorkspaceLock {
    /// Locks the folder of the claim's workspace. Locks nothing if the claim has none.
    pub(super) fn of(claim: &Claim) -> Result<Self, WorkspaceLockError> {
        let Some(path) = &claim.workspace_path else { return Ok(Self { folder: None }) };
        let workspace = claim.workspace.as_deref().unwrap_or("of the task");
        if !Path::new(path).is_dir() {
            let reason =
                format!("the folder {path} of workspace {workspace} is not on this machine");
            return Err(WorkspaceLockError::Missing(reason));
        }
        let folder = File::open(path).map_err(|error| {
            let reason =
                format!("the folder {path} of workspace {workspace} cannot be opened: {error}");
            WorkspaceLockError::Missing(reason)
        })?;
        match folder.try_lock() {
            Err(TryLockError::WouldBlock) => {
                let reason = format!(
                    "the folder {path} of workspace {workspace} is in use on this machine; do two workspaces link to it?"
                );
                Err(WorkspaceLockError::InUse(reason))
            }
            // Some file systems know no locks.
            Ok(()) | Err(TryLockError::Error(_)) => Ok(Self { folder: Some(folder) }),
        }
    }
}
