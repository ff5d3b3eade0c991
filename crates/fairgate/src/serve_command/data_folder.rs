//! The data folder: the database, the spool, the state files and the admin token.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::Path;

use anyhow::{Context, Result};
use fairgate_store::private_folder;

/// Makes git ignore the whole folder, this file included. The folder holds the admin token, and often lies in a
/// repository.
const GITIGNORE: &str =
    "# Fairgate's data: keys, prices and the admin token do not belong in a repository.\n*\n";

/// Creates the data folder if it is missing, readable by its owner only, with a `.gitignore` in it. An existing
/// `.gitignore` is left as it is.
pub(super) fn make(folder: &Path) -> Result<()> {
    private_folder(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let file = folder.join(".gitignore");
    match OpenOptions::new().write(true).create_new(true).open(&file) {
        Ok(mut new) => new.write_all(GITIGNORE.as_bytes()),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
    .with_context(|| format!("cannot write {}", file.display()))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_folder_is_private_and_ignored_by_git() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("fairgate-data");
        make(&folder).unwrap();
        assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
        let ignore = folder.join(".gitignore");
        assert!(fs::read_to_string(&ignore).unwrap().lines().any(|line| line == "*"));
        fs::write(&ignore, "own").unwrap();
        make(&folder).unwrap();
        assert_eq!(fs::read_to_string(&ignore).unwrap(), "own");
    }
}
