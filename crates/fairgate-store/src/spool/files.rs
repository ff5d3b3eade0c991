//! Where the files of a spool are, and what they are called.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use crate::private::private;

/// A folder, and what the names of the spool's files in it begin with.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    folder: PathBuf,
    prefix: String,
}

impl Files {
    /// Beside a database's file: `fairgate.db-rows-0`, and so on.
    pub(crate) fn beside(database: &Path) -> Self {
        let name = database.file_name().unwrap_or_default().to_string_lossy();
        let folder = database.parent().unwrap_or(Path::new("")).to_path_buf();
        Self { folder, prefix: format!("{name}-rows-") }
    }

    /// In a folder of their own: `rows-0`, and so on.
    pub(crate) fn inside(folder: &Path) -> Self {
        Self { folder: folder.to_path_buf(), prefix: "rows-".to_owned() }
    }

    /// The path of the file with this number.
    pub(super) fn path(&self, number: u64) -> PathBuf {
        self.named(&number.to_string())
    }

    /// Where rows go that a database refuses for what is in them.
    pub(super) fn refused(&self) -> PathBuf {
        self.named("refused")
    }

    fn named(&self, end: &str) -> PathBuf {
        self.folder.join(format!("{}{end}", self.prefix))
    }

    /// Brings the files' names to the disk: without its name a file that is there cannot be found after a power cut.
    pub(super) fn sync_names(&self) -> io::Result<()> {
        File::open(&self.folder)?.sync_all()
    }

    /// The numbers of the files that are there, oldest first.
    pub(super) fn numbers(&self) -> io::Result<Vec<u64>> {
        let mut numbers = Vec::new();
        for entry in std::fs::read_dir(&self.folder)? {
            let name = entry?.file_name();
            let Some(text) = name.to_str().and_then(|name| name.strip_prefix(&self.prefix)) else {
                continue;
            };
            // Only as this program writes them: neither `+1` nor `01`.
            let is_ours = |number: &u64| number.to_string() == text && *number < u64::MAX / 2;
            numbers.extend(text.parse().ok().filter(is_ours));
        }
        numbers.sort_unstable();
        Ok(numbers)
    }
}

/// Copies a damaged file to a name that no file has yet, and says which. Another damaged file may lie there from an earlier
/// start, and nobody has looked at it.
pub(super) fn keep_aside(path: &Path) -> io::Result<PathBuf> {
    let (aside, mut copy) = new_beside(path)?;
    if let Err(problem) = io::copy(&mut File::open(path)?, &mut copy) {
        // Half a copy would only mislead.
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
