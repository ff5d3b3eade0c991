//! Interrupts: exceptions that are not of Python's class `Exception`, such as `KeyboardInterrupt` and `SystemExit`.
//!
//! Python calls the handler of a signal between two steps of whatever Python code the main thread runs. So every call
//! into Python may be interrupted, also a call whose other errors do not matter. No caller may drop the interrupt or
//! replace it by another error, because a user would then have to press Ctrl-C again.
//!
//! A destructor cannot raise an exception. An interrupt of a destructor is raised by [`raise_later`] as soon as the
//! main thread continues.

use pyo3::exceptions::{PyException, PyKeyboardInterrupt};
use pyo3::intern;
use pyo3::prelude::*;

/// Returns true if this error is an interrupt.
pub(crate) fn is_interrupt(py: Python<'_>, error: &PyErr) -> bool {
    !error.is_instance_of::<PyException>(py)
}

/// Returns the value of a call whose errors do not matter; `None` if the call failed. Fails if the call was interrupted.
pub(crate) fn value_if_any<T>(py: Python<'_>, result: PyResult<T>) -> PyResult<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if is_interrupt(py, &error) => Err(error),
        Err(_) => Ok(None),
    }
}

/// Returns the one of two errors that must be raised: the second if only the second is an interrupt, otherwise the
/// first.
pub(crate) fn error_to_raise(py: Python<'_>, first: PyErr, second: PyErr) -> PyErr {
    match !is_interrupt(py, &first) && is_interrupt(py, &second) {
        true => second,
        false => first,
    }
}

/// Handles the error of a destructor. An interrupt is raised as soon as the main thread continues. Any other error is
/// printed, as Python does with the errors of destructors.
pub(crate) fn raise_later(py: Python<'_>, error: PyErr) {
    if !is_interrupt(py, &error) || !matches!(PendingInterrupt::set(py, &error), Ok(true)) {
        error.write_unraisable(py, None);
    }
}

/// An interrupt that waits until the main thread continues. This value is set as the handler of SIGINT, and the signal
/// is marked as received.
#[pyclass(frozen, module = "fairgate._core")]
struct PendingInterrupt {
    error: PyErr,
    /// The handler of SIGINT to set again before the interrupt is raised.
    handler: Py<PyAny>,
}

#[pymethods]
impl PendingInterrupt {
    fn __call__(
        // This is a reference of its own, because Python drops its reference to a handler once another one is set.
        slf: Bound<'_, Self>,
        signal: &Bound<'_, PyAny>,
        _frame: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let (py, waits) = (slf.py(), slf.get());
        signal_functions(py)?.call_method1(intern!(py, "signal"), (signal, &waits.handler))?;
        Err(waits.error.clone_ref(py))
    }
}

impl PendingInterrupt {
    /// Makes the main thread raise an interrupt as soon as it continues. Returns false if that is not possible, because
    /// this is another thread, which gets no signals.
    fn set(py: Python<'_>, error: &PyErr) -> PyResult<bool> {
        // The functions of this module and of `_thread` are native. Python code would receive the signal itself.
        let signals = signal_functions(py)?;
        let received = || py.import("_thread")?.getattr("interrupt_main")?.call0().map(|_| true);
        let number = signals.getattr("SIGINT")?;
        let handler = signals.call_method1("getsignal", (&number,))?;
        // One waiting interrupt is enough.
        if handler.is_instance_of::<Self>() {
            return received();
        }
        // A handler that is not a Python object cannot be set again.
        if handler.is_none() {
            return match error.is_instance_of::<PyKeyboardInterrupt>(py) {
                true => received(),
                false => Ok(false),
            };
        }
        let waits = Self { error: error.clone_ref(py), handler: handler.unbind() };
        signals.call_method1("signal", (number, Py::new(py, waits)?))?;
        received()
    }
}

/// Returns the native module behind Python's module `signal`.
fn signal_functions(py: Python<'_>) -> PyResult<Bound<'_, PyModule>> {
    py.import(intern!(py, "_signal"))
}
