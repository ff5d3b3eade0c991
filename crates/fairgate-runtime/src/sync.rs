//! The lock that both sides of the gate share. The model tests replace it with one that tries every interleaving.

pub(crate) use std::sync::Mutex;
use std::sync::{MutexGuard, PoisonError};

/// Takes the lock. Poison is ignored, because the data is consistent between any two statements, so a panic elsewhere
/// does no harm.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
