//! Sets a pending exception aside while Python code runs in a destructor, and restores it afterwards.
//!
//! An object may be dropped while an exception is being raised, for example as an element of a list that is never
//! finished. Python expects that a destructor leaves that exception as it was, and Python crashes if Python code runs
//! while an exception is set. Every `Drop` that calls Python code does so inside [`run_without_pending_error`]. A
//! `Drop` that only drops references to Python objects does not need this, because Python's own destructors keep the
//! exception.

use std::panic::{AssertUnwindSafe, catch_unwind};

use pyo3::panic::PanicException;
use pyo3::prelude::*;

/// Runs `work` with no exception set. Afterwards sets the exception that was set before, also if `work` panics.
pub(crate) fn run_without_pending_error<T>(py: Python<'_>, work: impl FnOnce() -> T) -> T {
    let _restored_at_the_end = PendingError { py, error: take(py) };
    work()
}

/// An exception that was set aside. Dropping this value sets the exception again.
struct PendingError<'py> {
    py: Python<'py>,
    error: Option<PyErr>,
}

impl Drop for PendingError<'_> {
    fn drop(&mut self) {
        if let Some(error) = self.error.take() {
            error.restore(self.py);
        }
    }
}

/// Removes and returns the exception that is set; `None` if no exception is set. If the exception is a
/// [`PanicException`], PyO3 panics instead of returning it. A panic must not leave a destructor, so this function turns
/// the panic into an exception again.
fn take(py: Python<'_>) -> Option<PyErr> {
    catch_unwind(AssertUnwindSafe(|| PyErr::take(py))).unwrap_or_else(|panic| {
        let message = panic.downcast_ref::<String>().cloned();
        Some(PanicException::new_err(message.unwrap_or_else(|| "a panic".to_owned())))
    })
}
