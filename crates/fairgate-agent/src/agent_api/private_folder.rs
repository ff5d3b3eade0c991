//! A temporary folder that only this user can read, removed when it is dropped.

use fairgate_time::wall_clock;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// A temporary folder with mode 0700.
pub(crate) struct PrivateFolder(PathBuf);

impl PrivateFolder {
    /// Creates a new folder.
    pub(crate) fn make() -> io::Result<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let nanos = wall_clock::since_1970().as_nanos();
        let name = format!("fairgate-{}-{nanos}-{count}", std::process::id());
        let path = std::env::temp_dir().join(name);
        // Fails if the path exists, so that a folder of another user is never used.
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(path))
    }

    /// Returns the path of the folder.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for PrivateFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
