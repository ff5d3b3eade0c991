//! Where a journal's files are.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::PathBuf;

/// A folder for one journal's files.
pub(crate) trait Disk: Send {
    /// The names in it.
    fn list(&self) -> io::Result<Vec<String>>;
    /// Makes a file, or empties the one of that name.
    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>>;
    /// Gives a file its name, for good.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Deletes a file.
    fn remove(&self, name: &str) -> io::Result<()>;
}

/// A file that is written.
pub(crate) trait DiskFile: Write + Send {
    /// Waits until what was written survives a loss of power.
    fn sync(&mut self) -> io::Result<()>;
    /// Cuts the file off, to go on writing there.
    fn truncate(&mut self, length: u64) -> io::Result<()>;
}

/// A real folder.
#[derive(Clone, Debug)]
pub(crate) struct Folder {
    path: PathBuf,
}

impl Folder {
    /// Opens the folder, making it where it is not there.
    pub(crate) fn open(path: PathBuf) -> io::Result<Self> {
        fs::create_dir_all(&path)?;
        Ok(Self { path })
    }
}

impl Disk for Folder {
    fn list(&self) -> io::Result<Vec<String>> {
        let names = fs::read_dir(&self.path)?.map(|entry| Ok(entry?.file_name()));
        let names = names.collect::<io::Result<Vec<_>>>()?;
        Ok(names.into_iter().filter_map(|name| name.into_string().ok()).collect())
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let mut options = File::options();
        options.write(true).create(true).truncate(true);
        // It tells who asked for how much, and when.
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        Ok(Box::new(options.open(self.path.join(name))?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))?;
        File::open(&self.path)?.sync_all()
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path.join(name))
    }
}

impl DiskFile for File {
    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }

    fn truncate(&mut self, length: u64) -> io::Result<()> {
        use std::io::Seek;
        self.set_len(length)?;
        self.seek(io::SeekFrom::Start(length)).map(drop)
    }
}
