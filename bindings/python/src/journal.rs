//! The journal: every event of the pool, as a line in a file, written by a thread of its own.
//!
//! Those who schedule only put lines into memory, so that a slow disk never holds up an event loop. What waits for
//! the disk is bounded: where the disk is further behind than that, or gives an error, the journal ends there, whole
//! lines up to its end, and says why.

use std::fs::File;
use std::io::{self, Write};
use std::mem;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use fairgate_core::event::{Event, PoolConfig};
use fairgate_core::units::Micros;
use fairgate_journal::Writer;

/// How many bytes may wait for the disk.
const BUFFER_BYTES_MAX: usize = 8 << 20;

/// A journal that is being written.
pub(crate) struct Journal {
    writer: Writer<Pipe>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Journal {
    /// Begins a journal in this file, which is made or emptied.
    pub(crate) fn begin(path: &Path, config: &PoolConfig) -> io::Result<Self> {
        let file = File::create(path)?;
        let shared = Arc::new(Shared::default());
        let mut writer = Writer::new(Pipe(shared.clone()));
        writer.write_header(config)?;
        let disk = shared.clone();
        let thread = thread::Builder::new()
            .name("fairgate-journal".into())
            .spawn(move || disk.write_all_to(file))?;
        Ok(Self { writer, shared, thread: Some(thread) })
    }

    /// Adds an event's line, or does nothing where the journal has failed.
    pub(crate) fn write(&mut self, at: Micros, event: &Event) {
        // The pipe keeps its failure itself, for whoever asks.
        let _ = self.writer.write_event(at, event);
    }

    /// A handle by which to wait for the disk, or to ask how it is, without the journal.
    pub(crate) fn disk(&self) -> Disk {
        Disk(self.shared.clone())
    }

    /// Leaves the journal as it is: in a child process, where its thread does not run and its lock may be held by
    /// that thread for ever.
    pub(crate) fn abandon(self) {
        mem::forget(self);
    }
}

impl Drop for Journal {
    /// Ends the file with all that was written.
    fn drop(&mut self) {
        self.shared.end();
        if let Some(thread) = self.thread.take() {
            // It does not panic; and if it did, nobody could be told here.
            let _ = thread.join();
        }
    }
}

/// The disk's side of a journal.
pub(crate) struct Disk(Arc<Shared>);

impl Disk {
    /// Waits until everything written so far is in the file.
    pub(crate) fn flush(&self) {
        self.0.flush();
    }

    /// Why the journal ended early, if it did.
    pub(crate) fn failure(&self) -> Option<String> {
        self.0.lock().failure.clone()
    }
}

/// Where the writer's lines go.
struct Pipe(Arc<Shared>);

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.offer(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[derive(Default)]
struct Shared {
    buffer: Mutex<Buffer>,
    changed: Condvar,
}

#[derive(Default)]
struct Buffer {
    lines: Vec<u8>,
    /// Whether the thread has lines in its hands.
    writing: bool,
    ended: bool,
    failure: Option<String>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Buffer> {
        // A buffer is whole between any two statements below.
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
        let busy = |buffer: &mut Buffer| {
            (buffer.writing || !buffer.lines.is_empty()) && buffer.failure.is_none()
        };
        drop(self.changed.wait_while(self.lock(), busy));
    }

    fn write_all_to(&self, mut file: File) {
        loop {
            let idle = |buffer: &mut Buffer| buffer.lines.is_empty() && !buffer.ended;
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
