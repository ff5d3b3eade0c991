//! Passes one value, once, from the task to the caller that waits for the value.
//!
//! The receiver may leave at the moment at which the sender sends. One lock decides this race, so
//! that exactly one of the two gets the value. If the receiver has left first,
//! [`HandoffSender::send`] returns the value; otherwise [`HandoffReceiver::leave`] returns it. If
//! the value is a grant, the side that gets it gives the slot back.

use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::sync::{Mutex, lock};

/// Returns the two ends of a new hand-off.
pub(crate) fn handoff<T>() -> (HandoffSender<T>, HandoffReceiver<T>) {
    let cell = Arc::new(Mutex::new(HandoffState::Open(None)));
    (HandoffSender { cell: cell.clone() }, HandoffReceiver { cell })
}

enum HandoffState<T> {
    /// Nothing was sent yet. Contains the waker of the receiver, if the receiver has been polled.
    Open(Option<Waker>),
    /// The value was sent and not taken yet.
    Given(T),
    /// The value was taken, or the receiver has left.
    Over,
    /// The sender was dropped without sending a value.
    SenderGone,
}

/// The sending end. If it is dropped without sending, the receiver gets `None`.
pub(crate) struct HandoffSender<T> {
    cell: Arc<Mutex<HandoffState<T>>>,
}

/// The receiving end, a future that resolves to the value, or to `None` if the sender is gone.
pub(crate) struct HandoffReceiver<T> {
    cell: Arc<Mutex<HandoffState<T>>>,
}

impl<T> HandoffSender<T> {
    /// Sends the value, or returns it if the receiver has left.
    pub(crate) fn send(self, value: T) -> Result<(), T> {
        self.replace_open(HandoffState::Given(value)).map_err(|state| match state {
            HandoffState::Given(value) => value,
            _ => unreachable!("what was put in comes back"),
        })
    }

    /// Returns true if the receiver still waits.
    pub(crate) fn is_awaited(&self) -> bool {
        matches!(*lock(&self.cell), HandoffState::Open(_))
    }

    /// Replaces an open state with `next` and wakes the receiver. If the state is not open, returns `next` as the
    /// error.
    fn replace_open(&self, next: HandoffState<T>) -> Result<(), HandoffState<T>> {
        let mut state = lock(&self.cell);
        let HandoffState::Open(waker) = &mut *state else { return Err(next) };
        let waker = waker.take();
        *state = next;
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        Ok(())
    }
}

impl<T> Drop for HandoffSender<T> {
    fn drop(&mut self) {
        // After a value was sent, the state is no longer open, and this has no effect.
        let _ = self.replace_open(HandoffState::SenderGone);
    }
}

impl<T> HandoffReceiver<T> {
    /// Stops waiting, and returns the value if one was sent but not taken.
    pub(crate) fn leave(&self) -> HandoffLeft<T> {
        match mem::replace(&mut *lock(&self.cell), HandoffState::Over) {
            HandoffState::Open(_) => HandoffLeft::BeforeValue,
            HandoffState::Given(value) => HandoffLeft::WithValue(value),
            HandoffState::Over | HandoffState::SenderGone => HandoffLeft::AfterEnd,
        }
    }
}

/// Result of leaving a hand-off.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum HandoffLeft<T> {
    /// No value was sent yet. A value that is sent after this is returned to the sender.
    BeforeValue,
    /// The value had been sent and was not taken.
    WithValue(T),
    /// The value was already taken, or the sender was gone.
    AfterEnd,
}

impl<T> Future for HandoffReceiver<T> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = lock(&self.cell);
        if let HandoffState::Open(waker) = &mut *state {
            *waker = Some(cx.waker().clone());
            return Poll::Pending;
        }
        match mem::replace(&mut *state, HandoffState::Over) {
            HandoffState::Given(value) => Poll::Ready(Some(value)),
            _ => Poll::Ready(None),
        }
    }
}
