//! The data folder: the database, the spool, the state files and the admin token.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Error, Result, anyhow};
use fairgate_store::private_folder;

/// Makes git ignore the whole folder, this file included. The folder holds the admin token, and often lies in a
/// repository.
const GITIGNORE: &str =
    "# Fairgate's data: keys, prices and the admin token do not belong in a repository.\n*\n";

/// Creates the data folder if it is missing, readable by its owner only, with a `.gitignore` in it. An existing
/// `.gitignore` is left as it is.
pub(super) fn make(folder: &Path) -> Result<()> {
    private_folder(folder).map_err(|error| unusable(folder, error))?;
    let file = folder.join(".gitignore");
    match OpenOptions::new().write(true).create_new(true).open(&file) {
        Ok(mut new) => new.write_all(GITIGNORE.as_bytes()),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
    .map_err(|error| unusable(folder, error))
}

/// Returns the error for a folder that cannot be created or written. If the folder belongs to
/// another user, the error has the command that gives it to this process's user.
fn unusable(folder: &Path, error: io::Error) -> Error {
    let user = rustix::process::geteuid().as_raw();
    let owner = fs::metadata(folder).map(|metadata| metadata.uid());
    match owner {
        Ok(owner) if error.kind() == ErrorKind::PermissionDenied && owner != user => anyhow!(
            "the data folder {folder} belongs to user {owner}, and this process runs as user {user}: `chown -R {user} \
             {folder}` gives it the folder",
            folder = folder.display()
        ),
        _ => Error::new(error).context(format!("cannot make or write {}", folder.display())),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_folder_that_cannot_be_made_is_named() {
        let parent = tempfile::tempdir().unwrap();
        let file = parent.path().join("file");
        fs::write(&file, "").unwrap();
        let error = format!("{:#}", make(&file.join("data")).unwrap_err());
        assert!(
            error.starts_with("cannot make or write ") && error.contains("file/data"),
            "{error}"
        );
        let denied = || io::Error::from(ErrorKind::PermissionDenied);
        let own = format!("{:#}", unusable(parent.path(), denied()));
        assert!(!own.contains("chown"), "the folder is this user's: {own}");
    }

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
