//! Traits for the folder and the files of a journal, so that tests can make them fail.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::PathBuf;

use crate::private_files::{private_file, private_folder};

/// A folder for one journal's files.
pub(crate) trait JournalDisk: Send {
    /// Returns the names of the files in the folder.
    fn list(&self) -> io::Result<Vec<String>>;
    /// Creates a file, or empties an existing one.
    fn create(&self, name: &str) -> io::Result<Box<dyn JournalDiskFile>>;
    /// Renames a file and syncs the folder, so that the new name survives a power loss.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Deletes the file of this name.
    fn remove(&self, name: &str) -> io::Result<()>;
}

/// A file that is being written.
pub(crate) trait JournalDiskFile: Write + Send {
    /// Waits until the written bytes survive a power loss.
    fn sync(&mut self) -> io::Result<()>;
    /// Cuts the file to this length. Later writes continue there.
    fn truncate(&mut self, length: u64) -> io::Result<()>;
}

/// A folder of the file system.
#[derive(Clone, Debug)]
pub(crate) struct JournalFolder {
    path: PathBuf,
}

impl JournalFolder {
    /// Opens the folder, which is created if it is missing.
    pub(crate) fn open(path: PathBuf) -> io::Result<Self> {
        private_folder(&path)?;
        Ok(Self { path })
    }
}

impl JournalDisk for JournalFolder {
    fn list(&self) -> io::Result<Vec<String>> {
        let names = fs::read_dir(&self.path)?.map(|entry| Ok(entry?.file_name()));
        let names = names.collect::<io::Result<Vec<_>>>()?;
        Ok(names.into_iter().filter_map(|name| name.into_string().ok()).collect())
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn JournalDiskFile>> {
        Ok(Box::new(private_file(&self.path.join(name))?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))?;
        File::open(&self.path)?.sync_all()
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path.join(name))
    }
}

impl JournalDiskFile for File {
    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }

    fn truncate(&mut self, length: u64) -> io::Result<()> {
        use std::io::Seek;
        self.set_len(length)?;
        self.seek(io::SeekFrom::Start(length)).map(drop)
    }
}
