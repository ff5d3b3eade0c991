//! The lock that callers of a gate share with its task. The model tests replace it with a lock that tries every
//! interleaving of threads.

pub(crate) use std::sync::Mutex;
use std::sync::{MutexGuard, PoisonError};

/// Takes the lock, even if it is poisoned. The locked data is consistent after every statement, so
/// a panic while the lock is held does no harm.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
