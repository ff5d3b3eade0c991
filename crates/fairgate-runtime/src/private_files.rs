//! Creates files and folders that only their owner can read, because journals and state files show
//! which tenant sent which requests, and when.

use std::fs::{DirBuilder, File};
use std::io;
use std::path::Path;

/// Creates a file that only its owner can read and write, or empties an existing one. An existing file keeps its
/// permissions.
pub fn private_file(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Creates a folder and its missing parents, which only their owner can list. An existing folder keeps its permissions,
/// because its owner may have reasons for them.
pub fn private_folder(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}
