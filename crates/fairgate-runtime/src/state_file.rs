//! The state file, which keeps a pool's scores across restarts. It is a journal that consists of
//! only the first line, the snapshot, so every reader of journals can read it.
//!
//! The snapshot is written to a temporary file in the same folder, synced, and renamed, so that a file under the final
//! name is always complete.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fairgate_core::snapshot::Snapshot;
use fairgate_journal::{JournalError, JournalReader, JournalStart, JournalWriter};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::Instant;

use crate::mailbox::TaskMailbox;
use crate::message::PoolMessage;
use crate::pool_task::PoolTask;
use crate::private_files::private_file;

/// Options of a gate's state file.
#[derive(Clone, Debug)]
pub struct StateFileOptions {
    /// Path of the state file, in a folder that must exist.
    pub file: PathBuf,
    /// Interval of writes. A write is left out if no event has happened since the last one. A drain
    /// also writes the file. Default: 30 s.
    pub every: Duration,
}

impl StateFileOptions {
    /// Returns options for this file with the default interval.
    pub fn new(file: impl Into<PathBuf>) -> Self {
        Self { file: file.into(), every: Duration::from_secs(30) }
    }
}

/// Reason why the state file cannot be used. The file is unchanged, and the caller decides whether
/// to start without it.
#[derive(Debug, thiserror::Error)]
pub enum StateFileError {
    /// The file could not be read.
    #[error("state file {}: cannot be read", file.display())]
    Unreadable {
        /// Path of the state file.
        file: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The file contains no valid state. The source names the field.
    #[error("state file {}: {source}", file.display())]
    Corrupt {
        /// Path of the state file.
        file: PathBuf,
        /// Error of the journal reader.
        source: JournalError,
    },
    /// The file is a journal, but not a state file.
    #[error("state file {}: {problem}", file.display())]
    NotAState {
        /// Path of the state file.
        file: PathBuf,
        /// Reason why the journal is not a state file.
        problem: &'static str,
    },
}

impl StateFileError {
    /// Returns the path of the file if its content is the problem, so that the pool can start after
    /// the file is moved away. `None` if the file could not be read at all.
    pub fn damaged_file(&self) -> Option<&Path> {
        match self {
            Self::Unreadable { .. } | Self::Corrupt { source: JournalError::Io { .. }, .. } => None,
            Self::Corrupt { file, .. } | Self::NotAState { file, .. } => Some(file),
        }
    }
}

/// Reads a state file; returns `None` if the file does not exist.
pub(crate) fn load(path: &Path) -> Result<Option<Box<Snapshot>>, StateFileError> {
    let file = || path.to_path_buf();
    let opened = match File::open(path) {
        Ok(opened) => opened,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(StateFileError::Unreadable { file: file(), source }),
    };
    let corrupt = |source| StateFileError::Corrupt { file: file(), source };
    let (start, mut reader) = JournalReader::open(BufReader::new(opened)).map_err(corrupt)?;
    let more = reader.next_event().map_err(corrupt)?.is_some();
    match start {
        JournalStart::Snapshot(_) if more => {
            Err(StateFileError::NotAState { file: file(), problem: "events follow its snapshot" })
        }
        JournalStart::Snapshot(snapshot) => {
            JournalStart::Snapshot(snapshot.clone()).into_pool().map_err(corrupt)?;
            Ok(Some(snapshot))
        }
        JournalStart::Fresh(_) => {
            Err(StateFileError::NotAState { file: file(), problem: "it begins with no snapshot" })
        }
    }
}

/// Writes a state file, completely or not at all.
pub(crate) fn save(path: &Path, snapshot: &Snapshot) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".tmp");
    let beside = PathBuf::from(beside);
    let written = write(&beside, snapshot).and_then(|()| fs::rename(&beside, path));
    if written.is_err() {
        let _ = fs::remove_file(&beside);
        return written;
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

fn write(path: &Path, snapshot: &Snapshot) -> io::Result<()> {
    let mut writer = JournalWriter::new(BufWriter::new(private_file(path)?));
    writer.write_snapshot(snapshot)?;
    let mut buffered = writer.into_inner();
    buffered.flush()?;
    buffered.get_ref().sync_all()
}

/// Writes the state file at intervals.
pub(crate) struct StateFileWriter {
    options: StateFileOptions,
    mailbox: Arc<TaskMailbox<PoolMessage>>,
    due: Instant,
    saved_steps: u64,
    /// The write that is running; `None` if there is none. Only one write runs at a time.
    writing: Option<JoinHandle<()>>,
}

impl StateFileWriter {
    pub(crate) fn new(options: StateFileOptions, mailbox: Arc<TaskMailbox<PoolMessage>>) -> Self {
        let due = Instant::now() + options.every;
        Self { options, mailbox, due, saved_steps: 0, writing: None }
    }

    /// Returns the time of the next write; `None` if nothing has changed since the last one.
    pub(crate) fn next_save(&self, pool_task: &PoolTask) -> Option<Instant> {
        (pool_task.steps != self.saved_steps).then_some(self.due)
    }

    /// Writes the file on a thread for blocking work, if a write is due and the previous one has
    /// ended.
    pub(crate) fn save_when_due(&mut self, pool_task: &mut PoolTask) {
        if self.next_save(pool_task).is_none_or(|due| due > Instant::now()) {
            return;
        }
        self.due = Instant::now() + self.options.every;
        if self.writing.as_ref().is_some_and(|writing| !writing.is_finished()) {
            return;
        }
        self.saved_steps = pool_task.steps;
        let (snapshot, file) = (pool_task.pool().snapshot(), self.options.file.clone());
        let mailbox = self.mailbox.clone();
        self.writing = Some(spawn_blocking(move || {
            let saved = save(&file, &snapshot).map_err(|error| error.to_string());
            let _ = mailbox.send(PoolMessage::Saved(saved));
        }));
    }

    /// Waits for a running write, then writes the file for the last time.
    pub(crate) async fn finish(self, pool_task: &mut PoolTask) {
        if let Some(writing) = self.writing {
            let _ = writing.await;
        }
        let (snapshot, file) = (pool_task.pool().snapshot(), self.options.file);
        let saved = spawn_blocking(move || save(&file, &snapshot)).await;
        let saved = saved.unwrap_or_else(|e| Err(e.into()));
        pool_task.note_saved(saved.map_err(|error| error.to_string()));
    }
}
