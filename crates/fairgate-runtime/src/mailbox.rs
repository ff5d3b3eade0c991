//! Queue of messages that the task has not read yet.
//!
//! Sending never waits, so that a permit can report its end from its `Drop`. The mailbox itself
//! sets no limit; the callers' turns limit the number of messages in it, as the crate's
//! documentation explains. Closing is final and atomic: every message is either read, or returned
//! to its sender, or returned to the caller of `close`.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::mem;
use std::task::{Poll, Waker};

use crate::sync::{Mutex, lock};

/// Reason why a task ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TaskEnd {
    /// The gate was drained.
    Drained,
    /// The task panicked, or its runtime was shut down.
    Died,
}

/// Unbounded queue of messages to one task.
pub(crate) struct TaskMailbox<M> {
    state: Mutex<TaskMailboxState<M>>,
}

struct TaskMailboxState<M> {
    messages: VecDeque<M>,
    reader: Option<Waker>,
    ended: Option<TaskEnd>,
}

impl<M> TaskMailbox<M> {
    /// Returns an open mailbox without messages.
    pub(crate) fn new() -> Self {
        let state = TaskMailboxState { messages: VecDeque::new(), reader: None, ended: None };
        Self { state: Mutex::new(state) }
    }

    /// Queues a message, or returns it if the task has ended.
    pub(crate) fn send(&self, message: M) -> Result<(), M> {
        let mut state = lock(&self.state);
        if state.ended.is_some() {
            return Err(message);
        }
        state.messages.push_back(message);
        let reader = state.reader.take();
        drop(state);
        if let Some(reader) = reader {
            reader.wake();
        }
        Ok(())
    }

    /// Moves all queued messages into `batch`, which must be empty. Returns true if there was at least one.
    pub(crate) fn take(&self, batch: &mut VecDeque<M>) -> bool {
        let mut state = lock(&self.state);
        mem::swap(&mut state.messages, batch);
        !batch.is_empty()
    }

    /// Waits until a message is queued or the mailbox is closed.
    pub(crate) async fn wait_filled(&self) {
        poll_fn(|cx| {
            let mut state = lock(&self.state);
            if !state.messages.is_empty() || state.ended.is_some() {
                return Poll::Ready(());
            }
            state.reader = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Closes the mailbox permanently and returns the unread messages. If the mailbox was already
    /// closed with `Drained`, a further call with `Died` does not change that reason.
    pub(crate) fn close(&self, ended: TaskEnd) -> VecDeque<M> {
        let mut state = lock(&self.state);
        if state.ended.is_none() || ended != TaskEnd::Died {
            state.ended = Some(ended);
        }
        mem::take(&mut state.messages)
    }

    /// Returns the reason why the task ended; `None` while it runs.
    pub(crate) fn ended(&self) -> Option<TaskEnd> {
        lock(&self.state).ended
    }
}
