//! Operators' changes to workers, kept across restarts in `data_dir/state/workers.json`.
//!
//! The changes are in the data folder and not in the directory, because several gateways may share one directory, and
//! each has the workers and pools of its own configuration file.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::roster::OperatorChanges;

/// Name of the file in `data_dir/state`.
const FILE: &str = "workers.json";
/// Greatest size of the file that is read, in bytes; far more than any real number of workers needs.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// Reads the file. A file that exists and cannot be read is an error, because without the file requests would be sent
/// to drained workers.
pub(super) fn read(data_dir: &Path) -> Result<OperatorChanges, io::Error> {
    let path = path(data_dir);
    let size = match fs::metadata(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(OperatorChanges::default());
        }
        Err(error) => return Err(error),
        Ok(metadata) => metadata.len(),
    };
    if size > FILE_BYTES_MAX {
        let problem = format!("has {size} bytes; at most {FILE_BYTES_MAX} are read");
        return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
    }
    Ok(serde_json::from_slice(&fs::read(&path)?)?)
}

/// Replaces the file as a whole. The content is synced before the rename; the folder is not synced after the rename.
pub(super) fn write(data_dir: &Path, kept: &OperatorChanges) -> io::Result<()> {
    let path = path(data_dir);
    let new = path.with_extension("json.new");
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let mut file = File::create(&new)?;
    file.write_all(&serde_json::to_vec_pretty(kept)?)?;
    file.sync_all()?;
    fs::rename(&new, &path)
}

/// Returns the path of the file.
pub(super) fn path(data_dir: &Path) -> PathBuf {
    data_dir.join("state").join(FILE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_what_is_broken_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(read(folder.path()).unwrap(), OperatorChanges::default());
        let drained = [("sim".to_owned(), "a".to_owned())].into();
        let kept = OperatorChanges { drained, ..OperatorChanges::default() };
        write(folder.path(), &kept).unwrap();
        assert_eq!(read(folder.path()).unwrap(), kept);
        fs::write(path(folder.path()), "{").unwrap();
        assert!(read(folder.path()).is_err());
    }
}
