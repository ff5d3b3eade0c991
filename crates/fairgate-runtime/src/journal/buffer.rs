//! What the task has decided and the disk has not taken yet: bounded in bytes.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fairgate_core::snapshot::Snapshot;
use tokio::sync::Notify;

use super::names::Kind;
use crate::tape::Page;

/// How long lines are collected before they are written. A thread that woke for each batch of a busy gate cost about 10 µs
/// of processor time a request more.
const COLLECT: Duration = Duration::from_millis(5);

/// Something to write.
pub(super) enum Parcel {
    /// A new file, from this state.
    Begin { snapshot: Box<Snapshot>, kind: Kind },
    /// More lines of the same file.
    Lines(Page),
}

/// The writer could not go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    /// Why.
    pub(super) error: String,
    /// How many events that it had been given are in no file.
    pub(super) events_lost: u64,
}

/// Between the task and the writer.
pub(super) struct Buffer {
    state: Mutex<State>,
    filled: Condvar,
    over: Condvar,
    emptied: Notify,
    most_bytes: usize,
}

#[derive(Default)]
struct State {
    parcels: VecDeque<Parcel>,
    bytes: usize,
    begins: usize,
    /// A parcel is being written.
    busy: bool,
    failure: Option<Failure>,
    closed: bool,
    over: bool,
}

impl Buffer {
    /// An empty buffer that takes this many bytes.
    pub(super) fn new(most_bytes: usize) -> Self {
        Self {
            state: Mutex::default(),
            filled: Condvar::new(),
            over: Condvar::new(),
            emptied: Notify::new(),
            most_bytes,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes lines, or gives them back where there is no room. A page that is larger than the buffer is taken where
    /// nothing else is in it.
    pub(super) fn offer(&self, page: Page) -> Result<(), Page> {
        let mut state = self.lock();
        let bytes = page.bytes.len();
        if state.bytes > 0 && state.bytes + bytes > self.most_bytes {
            return Err(page);
        }
        let half = self.most_bytes / 2;
        // The writer wakes by itself soon after the first; it is called again where the buffer fills up before that.
        let is_news =
            state.parcels.is_empty() || (state.bytes < half && state.bytes + bytes >= half);
        state.bytes += bytes;
        match state.parcels.back_mut() {
            Some(Parcel::Lines(last)) => last.append(page),
            _ => state.parcels.push_back(Parcel::Lines(page)),
        }
        drop(state);
        if is_news {
            self.filled.notify_one();
        }
        Ok(())
    }

    /// Whether a new file may begin: at most one beginning waits in the buffer, since a snapshot may be large.
    pub(super) fn takes_a_beginning(&self) -> bool {
        self.lock().begins == 0
    }

    /// Whether everything was written.
    pub(super) fn is_idle(&self) -> bool {
        let state = self.lock();
        state.parcels.is_empty() && !state.busy && !state.over
    }

    /// Begins a new file.
    pub(super) fn begin(&self, snapshot: Box<Snapshot>, kind: Kind) {
        let mut state = self.lock();
        state.begins += 1;
        state.parcels.push_back(Parcel::Begin { snapshot, kind });
        self.filled.notify_one();
    }

    /// Waits until something was written since the last time.
    pub(super) async fn emptied(&self) {
        self.emptied.notified().await;
    }

    /// Takes the failure out, where there is one.
    pub(super) fn take_failure(&self) -> Option<Failure> {
        self.lock().failure.take()
    }

    /// Lets the writer end once it has written everything.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.filled.notify_one();
    }

    /// Waits on this thread until the writer has ended: false where it takes longer than that.
    pub(super) fn wait_until_over(&self, longest: Duration) -> bool {
        let waited = self.over.wait_timeout_while(self.lock(), longest, |state| !state.over);
        waited.unwrap_or_else(PoisonError::into_inner).0.over
    }

    /// The writer's next parcel; none once the buffer is closed and empty.
    pub(super) fn next(&self) -> Option<Parcel> {
        let mut state = self.lock();
        state.busy = false;
        self.emptied.notify_one();
        while state.parcels.is_empty() && !state.closed {
            state = self.filled.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let half = self.most_bytes / 2;
        let few = |state: &mut State| !state.closed && state.begins == 0 && state.bytes < half;
        let waited = self.filled.wait_timeout_while(state, COLLECT, few);
        state = waited.unwrap_or_else(PoisonError::into_inner).0;
        let parcel = state.parcels.pop_front()?;
        state.busy = true;
        match &parcel {
            Parcel::Begin { .. } => state.begins -= 1,
            Parcel::Lines(page) => state.bytes -= page.bytes.len(),
        }
        Some(parcel)
    }

    /// The writer could not write what it had: what waits behind that is lost too.
    pub(super) fn fail(&self, error: String, events: u64) {
        let mut state = self.lock();
        let behind = state.parcels.drain(..).map(|parcel| match parcel {
            Parcel::Begin { .. } => 0,
            Parcel::Lines(page) => page.events,
        });
        let events_lost = events + behind.sum::<u64>();
        (state.bytes, state.begins) = (0, 0);
        let before = state.failure.take().map_or(0, |failure| failure.events_lost);
        state.failure = Some(Failure { error, events_lost: events_lost + before });
    }

    /// The writer has ended.
    pub(super) fn end(&self) {
        self.lock().over = true;
        self.over.notify_all();
        self.emptied.notify_one();
    }
}
