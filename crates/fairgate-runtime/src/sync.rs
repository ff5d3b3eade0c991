//! The one lock that the gate's two sides share. The model tests put another in its place, which tries every order
//! of taking it.

pub(crate) use std::sync::Mutex;
use std::sync::{MutexGuard, PoisonError};

/// Takes the lock. What it guards is whole between any two statements, so a panic elsewhere spoils nothing.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
