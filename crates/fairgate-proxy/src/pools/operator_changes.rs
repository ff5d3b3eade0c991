//! Operators' changes to workers, kept across restarts in `data_dir/state/workers.json`.
//!
//! The changes are in the data folder and not in the directory, because several gateways may share one directory, and
//! each has the workers and pools of its own configuration file.

use std::io;
use std::path::{Path, PathBuf};

use super::roster::OperatorChanges;
use super::state_files;

/// Name of the file in `data_dir/state`.
const FILE: &str = "workers.json";
/// Greatest size of the file that is read, in bytes; far more than any real number of workers needs.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// Reads the file. A file with damaged content is renamed, with a warning. A file that cannot be
/// read at all is an error, because without it requests would be sent to drained workers.
pub(super) fn read(data_dir: &Path) -> Result<OperatorChanges, io::Error> {
    let path = path(data_dir);
    let Some(content) = state_files::read(&path, FILE_BYTES_MAX)? else {
        return Ok(OperatorChanges::default());
    };
    match serde_json::from_slice(&content) {
        Ok(kept) => Ok(kept),
        Err(problem) => {
            let lost = "workers that were added by command are gone, and drained workers get requests again";
            state_files::set_aside(&path, &problem, lost)?;
            Ok(OperatorChanges::default())
        }
    }
}

/// Replaces the file as a whole.
pub(super) fn write(data_dir: &Path, kept: &OperatorChanges) -> io::Result<()> {
    state_files::write(&path(data_dir), &serde_json::to_vec_pretty(kept)?)
}

/// Returns the path of the file.
pub(super) fn path(data_dir: &Path) -> PathBuf {
    state_files::path(data_dir, FILE)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_is_written_is_read_and_a_damaged_file_is_set_aside() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(read(folder.path()).unwrap(), OperatorChanges::default());
        let drained = [("sim".to_owned(), "a".to_owned())].into();
        let kept = OperatorChanges { drained, ..OperatorChanges::default() };
        write(folder.path(), &kept).unwrap();
        assert_eq!(read(folder.path()).unwrap(), kept);
        for damaged in ["{", ""] {
            fs::write(path(folder.path()), damaged).unwrap();
            assert_eq!(read(folder.path()).unwrap(), OperatorChanges::default());
            let aside = path(folder.path()).with_extension("json.set-aside");
            assert_eq!(fs::read_to_string(aside).unwrap(), damaged);
        }
        fs::create_dir(path(folder.path())).unwrap();
        assert!(read(folder.path()).is_err());
    }
}
