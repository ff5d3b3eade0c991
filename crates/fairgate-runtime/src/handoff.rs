//! One value from the task to whoever waits for it, once.
//!
//! The race that matters: the giver gives while the taker leaves. One lock decides it, and both sides learn how:
//! either [`Giver::give`] returns the value, or [`Taker::leave`] says that something was given. Never both, never
//! neither; whoever learns it gives the slot back.

use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::sync::{Mutex, lock};

/// The two ends of a new hand-off.
pub(crate) fn handoff<T>() -> (Giver<T>, Taker<T>) {
    let cell = Arc::new(Mutex::new(State::Open(None)));
    (Giver { cell: cell.clone() }, Taker { cell })
}

enum State<T> {
    /// Nothing was given yet; whom to wake when it is.
    Open(Option<Waker>),
    /// It was given and not taken yet.
    Given(T),
    /// It was taken, or the taker has left.
    Over,
    /// The giver is gone without a word.
    Deserted,
}

/// The side that gives. Where it is dropped, the taker is told that nothing will come.
pub(crate) struct Giver<T> {
    cell: Arc<Mutex<State<T>>>,
}

/// The side that waits, as a future: what was given, or `None` where the giver is gone.
pub(crate) struct Taker<T> {
    cell: Arc<Mutex<State<T>>>,
}

impl<T> Giver<T> {
    /// Gives the value, or returns it where nobody waits for it any more.
    pub(crate) fn give(self, value: T) -> Result<(), T> {
        self.replace_open(State::Given(value)).map_err(|state| match state {
            State::Given(value) => value,
            _ => unreachable!("what was put in comes back"),
        })
    }

    /// Whether somebody still waits.
    pub(crate) fn is_wanted(&self) -> bool {
        matches!(*lock(&self.cell), State::Open(_))
    }

    /// Puts a state in the place of an open one and wakes the taker; gives it back where it is not open.
    fn replace_open(&self, next: State<T>) -> Result<(), State<T>> {
        let mut state = lock(&self.cell);
        let State::Open(waker) = &mut *state else { return Err(next) };
        let waker = waker.take();
        *state = next;
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        Ok(())
    }
}

impl<T> Drop for Giver<T> {
    fn drop(&mut self) {
        // After a gift the state is no longer open, and stays.
        let _ = self.replace_open(State::Deserted);
    }
}

impl<T> Taker<T> {
    /// Stops waiting, and says what was there.
    pub(crate) fn leave(&self) -> Left<T> {
        match mem::replace(&mut *lock(&self.cell), State::Over) {
            State::Open(_) => Left::Early,
            State::Given(value) => Left::With(value),
            State::Over | State::Deserted => Left::Late,
        }
    }
}

/// What was there when a taker left.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Left<T> {
    /// Nothing yet.
    Early,
    /// This had been given.
    With(T),
    /// Nothing, and nothing would have come.
    Late,
}

impl<T> Future for Taker<T> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = lock(&self.cell);
        if let State::Open(waker) = &mut *state {
            *waker = Some(cx.waker().clone());
            return Poll::Pending;
        }
        match mem::replace(&mut *state, State::Over) {
            State::Given(value) => Poll::Ready(Some(value)),
            _ => Poll::Ready(None),
        }
    }
}
