//! Folders, paths and names of the spool files.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use crate::private_files::private;

/// A folder, and the common prefix of the spool files in it.
#[derive(Clone, Debug)]
pub(crate) struct SpoolFiles {
    folder: PathBuf,
    prefix: String,
}

impl SpoolFiles {
    /// Creates the names of spool files next to a database file: `fairgate.db-rows-0` and so on.
    pub(crate) fn beside(database: &Path) -> Self {
        let name = database.file_name().unwrap_or_default().to_string_lossy();
        let folder = database.parent().unwrap_or(Path::new("")).to_path_buf();
        Self { folder, prefix: format!("{name}-rows-") }
    }

    /// Creates the names of spool files in a folder of their own: `rows-0` and so on.
    pub(crate) fn inside(folder: &Path) -> Self {
        Self { folder: folder.to_path_buf(), prefix: "rows-".to_owned() }
    }

    /// Returns the path of the file with this number.
    pub(super) fn path(&self, number: u64) -> PathBuf {
        self.named(&number.to_string())
    }

    /// Returns the path of the file for rows that the database rejects because of their content.
    pub(super) fn refused(&self) -> PathBuf {
        self.named("refused")
    }

    fn named(&self, end: &str) -> PathBuf {
        self.folder.join(format!("{}{end}", self.prefix))
    }

    /// Syncs the folder to disk. Otherwise a new file could be missing from the folder after a power loss.
    pub(super) fn sync_names(&self) -> io::Result<()> {
        File::open(&self.folder)?.sync_all()
    }

    /// Lists the numbers of the existing files, oldest first.
    pub(super) fn numbers(&self) -> io::Result<Vec<u64>> {
        let mut numbers = Vec::new();
        for entry in std::fs::read_dir(&self.folder)? {
            let name = entry?.file_name();
            let Some(text) = name.to_str().and_then(|name| name.strip_prefix(&self.prefix)) else {
                continue;
            };
            // Only names that this program writes count: neither `+1` nor `01`.
            let is_ours = |number: &u64| number.to_string() == text && *number < u64::MAX / 2;
            numbers.extend(text.parse().ok().filter(is_ours));
        }
        numbers.sort_unstable();
        Ok(numbers)
    }
}

/// Copies a damaged file to an unused path, and returns that path. An earlier copy must not be
/// overwritten.
pub(super) fn copy_damaged(path: &Path) -> io::Result<PathBuf> {
    let (aside, mut copy) = new_beside(path)?;
    if let Err(problem) = io::copy(&mut File::open(path)?, &mut copy) {
        // An incomplete copy would be misleading.
        let _ = std::fs::remove_file(&aside);
        return Err(problem);
    }
    Ok(aside)
}

fn new_beside(path: &Path) -> io::Result<(PathBuf, File)> {
    for number in 1_u64.. {
        let mut name = path.to_path_buf().into_os_string();
        name.push(if number == 1 { ".damaged".to_owned() } else { format!(".damaged-{number}") });
        match private().create_new(true).open(&name) {
            Ok(file) => return Ok((name.into(), file)),
            Err(problem) if problem.kind() == io::ErrorKind::AlreadyExists => {}
            Err(problem) => return Err(problem),
        }
    }
    Err(io::Error::other("all names for a damaged file are taken"))
}
