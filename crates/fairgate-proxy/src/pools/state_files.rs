//! Reads and writes the files of `data_dir/state`, in which the gateway keeps what it has learned
//! across restarts.
//!
//! A file is replaced as a whole: the new content is written to another file, which is synced and then renamed, and
//! then the folder is synced. So a crash leaves the old file or the new one. A file can still be damaged from outside,
//! for example by a failing disk, or be of an earlier edition of the rules. Such a file is set aside (renamed, not
//! deleted), and the gateway starts without it: a gateway that has forgotten its scores still serves its users.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use fairgate_runtime::private_files::{private_file, private_folder};

/// Suffix of a file that was set aside. An earlier file with that suffix is replaced, so each state
/// file has at most one.
const SET_ASIDE: &str = ".set-aside";

/// Returns the path of a file in the state folder.
pub(super) fn path(data_dir: &Path, file: &str) -> PathBuf {
    folder(data_dir).join(file)
}

/// Returns the state folder.
pub(super) fn folder(data_dir: &Path) -> PathBuf {
    data_dir.join("state")
}

/// Reads a file; returns `None` if it does not exist. A file of more than `bytes_max` bytes is an error.
pub(super) fn read(path: &Path, bytes_max: u64) -> io::Result<Option<Vec<u8>>> {
    let size = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
        Ok(metadata) => metadata.len(),
    };
    if size > bytes_max {
        let problem = format!("has {size} bytes; at most {bytes_max} are read");
        return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
    }
    fs::read(path).map(Some)
}

/// Replaces a file as a whole, readable by its owner only. Makes the state folder if it is missing.
pub(super) fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    private_folder(folder)?;
    let new = path.with_extension("json.new");
    let mut file = private_file(&new)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    File::open(folder)?.sync_all()
}

/// Renames a file that cannot be used to `NAME.set-aside`, and logs a warning with the `consequence` of starting without it.
pub(super) fn set_aside(
    path: &Path,
    problem: &dyn std::fmt::Display,
    consequence: &str,
) -> io::Result<()> {
    let mut aside = path.as_os_str().to_owned();
    aside.push(SET_ASIDE);
    let aside = PathBuf::from(aside);
    fs::rename(path, &aside)?;
    tracing::warn!(%problem, renamed_to = %aside.display(), "a state file that cannot be used was set aside: {consequence}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_is_replaced_and_only_its_owner_can_read_it() {
        let data_dir = tempfile::tempdir().unwrap();
        let path = path(data_dir.path(), "kept.json");
        assert_eq!(read(&path, 10).unwrap(), None);
        for content in [&b"first"[..], b"second"] {
            write(&path, content).unwrap();
            assert_eq!(read(&path, 10).unwrap().as_deref(), Some(content));
        }
        assert_eq!(read(&path, 5).unwrap_err().kind(), io::ErrorKind::InvalidData);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
    }

    #[test]
    fn a_damaged_file_is_set_aside_and_replaces_the_last_one() {
        let data_dir = tempfile::tempdir().unwrap();
        let path = path(data_dir.path(), "kept.json");
        for content in [&b"{"[..], b"}"] {
            write(&path, content).unwrap();
            set_aside(&path, &"cut off", "it is forgotten").unwrap();
            assert_eq!(read(&path, 10).unwrap(), None);
            let aside = path.with_extension("json.set-aside");
            assert_eq!(read(&aside, 10).unwrap().as_deref(), Some(content));
        }
    }
}
