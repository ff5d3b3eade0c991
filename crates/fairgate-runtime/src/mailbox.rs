//! What the task has still to read.
//!
//! Sending never waits, so that a permit can say from its `Drop` that it has ended. Nothing here bounds the number
//! of letters; who may send does, see the crate's documentation. Closing is final and atomic: a letter is either
//! read, or handed back to its sender, or given to whoever closes; none stays behind unread.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::mem;
use std::task::{Poll, Waker};

use crate::sync::{Mutex, lock};

/// How a task ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// It was drained.
    Drained,
    /// It died: of a bug, or with the runtime that it ran on.
    Died,
}

/// Letters to a task.
pub(crate) struct Mailbox<M> {
    state: Mutex<State<M>>,
}

struct State<M> {
    letters: VecDeque<M>,
    reader: Option<Waker>,
    ended: Option<Ended>,
}

impl<M> Mailbox<M> {
    /// An open mailbox.
    pub(crate) fn new() -> Self {
        let state = State { letters: VecDeque::new(), reader: None, ended: None };
        Self { state: Mutex::new(state) }
    }

    /// Posts a letter, or returns it where the task has ended.
    pub(crate) fn send(&self, letter: M) -> Result<(), M> {
        let mut state = lock(&self.state);
        if state.ended.is_some() {
            return Err(letter);
        }
        state.letters.push_back(letter);
        let reader = state.reader.take();
        drop(state);
        if let Some(reader) = reader {
            reader.wake();
        }
        Ok(())
    }

    /// Moves everything that was sent into `batch`, which must be empty: true where that was anything.
    pub(crate) fn take(&self, batch: &mut VecDeque<M>) -> bool {
        let mut state = lock(&self.state);
        mem::swap(&mut state.letters, batch);
        !batch.is_empty()
    }

    /// Waits until there is something to take.
    pub(crate) async fn filled(&self) {
        poll_fn(|cx| {
            let mut state = lock(&self.state);
            if !state.letters.is_empty() || state.ended.is_some() {
                return Poll::Ready(());
            }
            state.reader = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Closes the mailbox for good and takes out what was not read. Once drained, it never died.
    pub(crate) fn close(&self, ended: Ended) -> VecDeque<M> {
        let mut state = lock(&self.state);
        if state.ended.is_none() || ended != Ended::Died {
            state.ended = Some(ended);
        }
        mem::take(&mut state.letters)
    }

    /// How the task ended, where it has.
    pub(crate) fn ended(&self) -> Option<Ended> {
        lock(&self.state).ended
    }
}
