//! The journal of a local scheduler. A thread of its own writes every event of the pool to a file, as one line each.
//!
//! The scheduler only puts lines into a buffer in memory, so a slow disk never blocks an event loop. The buffer is
//! bounded. If it is full, or the disk reports an error, the journal ends after a whole line and keeps the reason.

use std::fs::File;
use std::io::{self, Write};
use std::mem;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use fairgate_core::event::{Event, PoolConfig};
use fairgate_core::units::Micros;
use fairgate_journal::{JournalClock, JournalWriter};

/// Greatest number of bytes in the buffer, all of which wait for the disk.
const BUFFER_BYTES_MAX: usize = 8 << 20;

/// A journal that is being written.
pub(crate) struct LocalJournal {
    writer: JournalWriter<LocalJournalPipe>,
    shared: Arc<LocalJournalShared>,
    thread: Option<JoinHandle<()>>,
}

impl LocalJournal {
    /// Creates or truncates the file at `path` and begins a journal in it. `clock` maps the journal's times to calendar
    /// times.
    pub(crate) fn begin(path: &Path, config: &PoolConfig, clock: JournalClock) -> io::Result<Self> {
        let file = File::create(path)?;
        let shared = Arc::new(LocalJournalShared::default());
        let mut writer = JournalWriter::new(LocalJournalPipe(shared.clone())).with_clock(clock);
        writer.write_header(config)?;
        let disk = shared.clone();
        let thread = thread::Builder::new()
            .name("fairgate-journal".into())
            .spawn(move || disk.write_all_to(file))?;
        Ok(Self { writer, shared, thread: Some(thread) })
    }

    /// Adds the line of an event to the buffer. Does nothing if the journal has failed.
    pub(crate) fn write(&mut self, at: Micros, event: &Event) {
        // The pipe itself stores the failure.
        let _ = self.writer.write_event(at, event);
    }

    /// Returns a handle with which a caller can wait for the disk, or read the disk's failure, while the journal is in
    /// use elsewhere.
    pub(crate) fn disk(&self) -> LocalJournalDisk {
        LocalJournalDisk(self.shared.clone())
    }

    /// Leaves the journal as it is, without writing or freeing anything. In a child process after a fork, the journal's
    /// thread does not run, and may have locked the buffer for ever.
    pub(crate) fn abandon(self) {
        mem::forget(self);
    }
}

impl Drop for LocalJournal {
    /// Writes all pending lines and closes the file.
    fn drop(&mut self) {
        self.shared.end();
        if let Some(thread) = self.thread.take() {
            // The thread does not panic. If it did, the panic could not be reported here.
            let _ = thread.join();
        }
    }
}

/// A handle for waiting until a journal's lines are in the file, and for reading the journal's failure.
pub(crate) struct LocalJournalDisk(Arc<LocalJournalShared>);

impl LocalJournalDisk {
    /// Waits until all lines added so far are in the file, or the journal has failed.
    pub(crate) fn flush(&self) {
        self.0.flush();
    }

    /// Returns the reason why the journal ended early; `None` if the journal has not ended early.
    pub(crate) fn failure(&self) -> Option<String> {
        self.0.lock().failure.clone()
    }
}

/// The target of the journal writer. It puts the lines into the buffer.
struct LocalJournalPipe(Arc<LocalJournalShared>);

impl Write for LocalJournalPipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.offer(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[derive(Default)]
struct LocalJournalShared {
    buffer: Mutex<LocalJournalBuffer>,
    changed: Condvar,
}

#[derive(Default)]
struct LocalJournalBuffer {
    lines: Vec<u8>,
    /// True while the journal's thread is writing lines to the file.
    writing: bool,
    ended: bool,
    failure: Option<String>,
}

impl LocalJournalShared {
    fn lock(&self) -> MutexGuard<'_, LocalJournalBuffer> {
        // The buffer is consistent after each statement below, so a poisoned lock is harmless.
        self.buffer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn offer(&self, line: &[u8]) {
        let mut buffer = self.lock();
        if buffer.failure.is_some() {
            return;
        }
        if buffer.lines.len() + line.len() > BUFFER_BYTES_MAX {
            buffer.failure =
                Some(format!("the disk is more than {} MiB behind", BUFFER_BYTES_MAX >> 20));
            return;
        }
        let thread_sleeps = buffer.lines.is_empty() && !buffer.writing;
        buffer.lines.extend_from_slice(line);
        if thread_sleeps {
            self.changed.notify_all();
        }
    }

    fn end(&self) {
        self.lock().ended = true;
        self.changed.notify_all();
    }

    fn flush(&self) {
        let busy = |buffer: &mut LocalJournalBuffer| {
            (buffer.writing || !buffer.lines.is_empty()) && buffer.failure.is_none()
        };
        drop(self.changed.wait_while(self.lock(), busy));
    }

    fn write_all_to(&self, mut file: File) {
        loop {
            let idle = |buffer: &mut LocalJournalBuffer| buffer.lines.is_empty() && !buffer.ended;
            let waited = self.changed.wait_while(self.lock(), idle);
            let mut buffer = waited.unwrap_or_else(PoisonError::into_inner);
            if buffer.lines.is_empty() {
                return;
            }
            let lines = mem::take(&mut buffer.lines);
            buffer.writing = true;
            drop(buffer);
            let written = file.write_all(&lines);
            let mut buffer = self.lock();
            buffer.writing = false;
            if let Err(error) = written {
                buffer.failure = Some(error.to_string());
                buffer.lines = Vec::new();
            }
            drop(buffer);
            self.changed.notify_all();
        }
    }
}
