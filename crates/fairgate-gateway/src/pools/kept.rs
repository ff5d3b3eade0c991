//! What operators said of workers, kept over a restart in `data_dir/state/workers.json`.
//!
//! In the data folder and not in the directory: several gateways may share one directory, and each has the workers and pools
//! of its own file.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::roster::Kept;

/// In `data_dir/state`.
const FILE: &str = "workers.json";
/// More workers than anybody has.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// What was kept. A file that is there and cannot be read is an error: started without it, requests would go to workers that
/// were drained.
pub(super) fn read(data_dir: &Path) -> Result<Kept, io::Error> {
    let path = path(data_dir);
    let size = match fs::metadata(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Kept::default()),
        Err(error) => return Err(error),
        Ok(metadata) => metadata.len(),
    };
    if size > FILE_BYTES_MAX {
        let problem = format!("has {size} bytes; at most {FILE_BYTES_MAX} are read");
        return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
    }
    Ok(serde_json::from_slice(&fs::read(&path)?)?)
}

/// Keeps it. The file is replaced as a whole, and on the disk when this returns.
pub(super) fn write(data_dir: &Path, kept: &Kept) -> io::Result<()> {
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

/// Where it is kept.
pub(super) fn path(data_dir: &Path) -> PathBuf {
    data_dir.join("state").join(FILE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_what_is_broken_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(read(folder.path()).unwrap(), Kept::default());
        let drained = [("sim".to_owned(), "a".to_owned())].into();
        let kept = Kept { drained, ..Kept::default() };
        write(folder.path(), &kept).unwrap();
        assert_eq!(read(folder.path()).unwrap(), kept);
        fs::write(path(folder.path()), "{").unwrap();
        assert!(read(folder.path()).is_err());
    }
}
