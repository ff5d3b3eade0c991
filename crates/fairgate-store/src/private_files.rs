//! Files and folders that only their owner can read, and locks that only one process at a time can
//! hold.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::path::Path;

/// Returns options that open or create a file that only its owner can read and write.
pub(crate) fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Creates a folder and its missing parents, readable by their owner only. An existing folder keeps
/// its permissions: its owner may have reasons for them, and the files in it are private anyway.
pub fn private_folder(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

/// Exclusive lock of a file against other processes. It is released on drop, and also when the
/// process ends in any way.
#[derive(Debug)]
pub(crate) struct FileLock {
    _file: File,
}

impl FileLock {
    /// Locks a file, which is created if it does not exist. Returns `None` if another process holds the lock.
    pub(crate) fn take(path: &Path) -> io::Result<Option<Self>> {
        let file = private().open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Self { _file: file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(problem)) => Err(problem),
        }
    }
}
