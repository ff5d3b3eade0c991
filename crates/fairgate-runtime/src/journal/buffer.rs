//! Buffer between the task and the journal's writer thread. Its size in bytes is limited.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fairgate_core::snapshot::Snapshot;
use tokio::sync::Notify;

use super::file_name::GateJournalFileKind;
use crate::journal_lines::JournalChunk;

/// Time for which lines are collected before they are written. Without it, a busy gate would wake
/// the writer for each batch, which costs about 10 µs more processor time for each request.
const COLLECT: Duration = Duration::from_millis(5);

/// One piece of work for the writer.
pub(super) enum JournalWrite {
    /// Begins a new file with this snapshot.
    Begin { snapshot: Box<Snapshot>, kind: GateJournalFileKind },
    /// Appends lines to the current file.
    Lines(JournalChunk),
}

/// Error of the writer, with the number of events that it lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct JournalWriteError {
    /// Text of the error.
    pub(super) error: String,
    /// Number of events that were passed to the writer and are in no file.
    pub(super) events_lost: u64,
}

/// Queue between the task and the writer.
pub(super) struct JournalBuffer {
    state: Mutex<JournalBufferState>,
    filled: Condvar,
    over: Condvar,
    emptied: Notify,
    most_bytes: usize,
}

#[derive(Default)]
struct JournalBufferState {
    writes: VecDeque<JournalWrite>,
    bytes: usize,
    begins: usize,
    /// True while the writer writes the lines that it last took from the queue.
    busy: bool,
    failure: Option<JournalWriteError>,
    closed: bool,
    over: bool,
}

impl JournalBuffer {
    /// Returns an empty buffer that holds at most this many bytes.
    pub(super) fn new(most_bytes: usize) -> Self {
        Self {
            state: Mutex::default(),
            filled: Condvar::new(),
            over: Condvar::new(),
            emptied: Notify::new(),
            most_bytes,
        }
    }

    fn lock(&self) -> MutexGuard<'_, JournalBufferState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds lines, or returns them if there is no room. A chunk larger than the buffer is accepted if the buffer is
    /// empty.
    pub(super) fn offer(&self, chunk: JournalChunk) -> Result<(), JournalChunk> {
        let mut state = self.lock();
        let bytes = chunk.bytes.len();
        if state.bytes > 0 && state.bytes + bytes > self.most_bytes {
            return Err(chunk);
        }
        let half = self.most_bytes / 2;
        // The writer is notified for the first lines, and then wakes after [`COLLECT`]. It is
        // notified again if the buffer becomes half full before.
        let is_news =
            state.writes.is_empty() || (state.bytes < half && state.bytes + bytes >= half);
        state.bytes += bytes;
        match state.writes.back_mut() {
            Some(JournalWrite::Lines(last)) => last.append(chunk),
            _ => state.writes.push_back(JournalWrite::Lines(chunk)),
        }
        drop(state);
        if is_news {
            self.filled.notify_one();
        }
        Ok(())
    }

    /// Returns true if a new file may begin. At most one snapshot waits in the buffer, because a snapshot may be large.
    pub(super) fn has_room_for_snapshot(&self) -> bool {
        self.lock().begins == 0
    }

    /// Returns true if everything is written and the writer is still running.
    pub(super) fn is_idle(&self) -> bool {
        let state = self.lock();
        state.writes.is_empty() && !state.busy && !state.over
    }

    /// Queues the start of a new file.
    pub(super) fn begin(&self, snapshot: Box<Snapshot>, kind: GateJournalFileKind) {
        let mut state = self.lock();
        state.begins += 1;
        state.writes.push_back(JournalWrite::Begin { snapshot, kind });
        self.filled.notify_one();
    }

    /// Waits until the writer finishes a write. Returns at once if a write has been finished since the last call.
    pub(super) async fn wait_emptied(&self) {
        self.emptied.notified().await;
    }

    /// Returns the writer's error and removes it; `None` if there is none.
    pub(super) fn take_failure(&self) -> Option<JournalWriteError> {
        self.lock().failure.take()
    }

    /// Closes the buffer, so that the writer ends once it has written everything.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.filled.notify_one();
    }

    /// Blocks this thread until the writer has ended. Returns false if that takes longer than `longest`.
    pub(super) fn wait_until_over(&self, longest: Duration) -> bool {
        let waited = self.over.wait_timeout_while(self.lock(), longest, |state| !state.over);
        waited.unwrap_or_else(PoisonError::into_inner).0.over
    }

    /// Blocks until there is work for the writer and returns it; `None` once the buffer is closed and empty.
    pub(super) fn next(&self) -> Option<JournalWrite> {
        let mut state = self.lock();
        state.busy = false;
        self.emptied.notify_one();
        while state.writes.is_empty() && !state.closed {
            state = self.filled.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let half = self.most_bytes / 2;
        let few = |state: &mut JournalBufferState| {
            !state.closed && state.begins == 0 && state.bytes < half
        };
        let waited = self.filled.wait_timeout_while(state, COLLECT, few);
        state = waited.unwrap_or_else(PoisonError::into_inner).0;
        let write = state.writes.pop_front()?;
        state.busy = true;
        match &write {
            JournalWrite::Begin { .. } => state.begins -= 1,
            JournalWrite::Lines(chunk) => state.bytes -= chunk.bytes.len(),
        }
        Some(write)
    }

    /// Records an error of the writer. The lines that are queued after the failed write are lost
    /// too.
    pub(super) fn fail(&self, error: String, events: u64) {
        let mut state = self.lock();
        let behind = state.writes.drain(..).map(|write| match write {
            JournalWrite::Begin { .. } => 0,
            JournalWrite::Lines(chunk) => chunk.events,
        });
        let events_lost = events + behind.sum::<u64>();
        (state.bytes, state.begins) = (0, 0);
        let before = state.failure.take().map_or(0, |failure| failure.events_lost);
        state.failure = Some(JournalWriteError { error, events_lost: events_lost + before });
    }

    /// Records that the writer has ended.
    pub(super) fn end(&self) {
        self.lock().over = true;
        self.over.notify_all();
        self.emptied.notify_one();
    }
}
