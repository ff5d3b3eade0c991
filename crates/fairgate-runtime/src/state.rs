//! The state file: a pool's scores, kept over a restart. It is a journal that holds nothing but its first line, the
//! snapshot, so whatever reads journals reads it.
//!
//! It is written to a file beside it, synced, and then renamed: what is under its name is always whole.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fairgate_core::snapshot::Snapshot;
use fairgate_journal::{JournalError, Reader, Start, Writer};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::Instant;

use crate::desk::Desk;
use crate::mailbox::Mailbox;
use crate::message::Message;

/// Where a gate keeps its state over a restart.
#[derive(Clone, Debug)]
pub struct StateOptions {
    /// The file. Its folder must be there.
    pub file: PathBuf,
    /// How often it is written, where something has changed; also when the gate is drained. Default: 30 s.
    pub every: Duration,
}

impl StateOptions {
    /// This file, written as often as is the default.
    pub fn new(file: impl Into<PathBuf>) -> Self {
        Self { file: file.into(), every: Duration::from_secs(30) }
    }
}

/// A state file that cannot be used. It was left as it is; whether to start without it is for the caller to say.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// It could not be read.
    #[error("state file {}: cannot be read", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It holds no state; the source names the field.
    #[error("state file {}: {source}", file.display())]
    Corrupt {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        source: JournalError,
    },
    /// It is a journal, but not a state.
    #[error("state file {}: {problem}", file.display())]
    NotAState {
        /// The file.
        file: PathBuf,
        /// What it is.
        problem: &'static str,
    },
}

/// Reads a state file; `None` where there is none.
pub(crate) fn load(path: &Path) -> Result<Option<Box<Snapshot>>, StateError> {
    let file = || path.to_path_buf();
    let opened = match File::open(path) {
        Ok(opened) => opened,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(StateError::Unreadable { file: file(), source }),
    };
    let corrupt = |source| StateError::Corrupt { file: file(), source };
    let (start, mut reader) = Reader::open(BufReader::new(opened)).map_err(corrupt)?;
    let more = reader.next_event().map_err(corrupt)?.is_some();
    match start {
        Start::Snapshot(_) if more => {
            Err(StateError::NotAState { file: file(), problem: "events follow its snapshot" })
        }
        Start::Snapshot(snapshot) => {
            Start::Snapshot(snapshot.clone()).into_pool().map_err(corrupt)?;
            Ok(Some(snapshot))
        }
        Start::Fresh(_) => {
            Err(StateError::NotAState { file: file(), problem: "it begins with no snapshot" })
        }
    }
}

/// Writes a state file, whole or not at all.
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
    let mut writer = Writer::new(BufWriter::new(File::create(path)?));
    writer.write_snapshot(snapshot)?;
    let mut buffered = writer.into_inner();
    buffered.flush()?;
    buffered.get_ref().sync_all()
}

/// Writes the state file now and then.
pub(crate) struct Keeper {
    options: StateOptions,
    mailbox: Arc<Mailbox<Message>>,
    due: Instant,
    saved_steps: u64,
    /// One write at a time.
    writing: Option<JoinHandle<()>>,
}

impl Keeper {
    pub(crate) fn new(options: StateOptions, mailbox: Arc<Mailbox<Message>>) -> Self {
        let due = Instant::now() + options.every;
        Self { options, mailbox, due, saved_steps: 0, writing: None }
    }

    /// When the file is to be written, where something has changed.
    pub(crate) fn next_save(&self, desk: &Desk) -> Option<Instant> {
        (desk.steps != self.saved_steps).then_some(self.due)
    }

    /// Writes the file on a thread for blocking work, where it is time and the last write is over.
    pub(crate) fn save_when_due(&mut self, desk: &mut Desk) {
        if self.next_save(desk).is_none_or(|due| due > Instant::now()) {
            return;
        }
        self.due = Instant::now() + self.options.every;
        if self.writing.as_ref().is_some_and(|writing| !writing.is_finished()) {
            return;
        }
        self.saved_steps = desk.steps;
        let (snapshot, file) = (desk.pool().snapshot(), self.options.file.clone());
        let mailbox = self.mailbox.clone();
        self.writing = Some(spawn_blocking(move || {
            let saved = save(&file, &snapshot).map_err(|error| error.to_string());
            let _ = mailbox.send(Message::Saved(saved));
        }));
    }

    /// Writes the file for the last time.
    pub(crate) async fn finish(self, desk: &mut Desk) {
        if let Some(writing) = self.writing {
            let _ = writing.await;
        }
        let (snapshot, file) = (desk.pool().snapshot(), self.options.file);
        let saved = spawn_blocking(move || save(&file, &snapshot)).await;
        let saved = saved.unwrap_or_else(|e| Err(e.into()));
        desk.note_saved(saved.map_err(|error| error.to_string()));
    }
}
