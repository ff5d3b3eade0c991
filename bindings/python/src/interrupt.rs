//! Interrupts: exceptions that are not of Python's class `Exception`, such as `KeyboardInterrupt` and `SystemExit`.
//!
//! Python calls the handler of a signal between two steps of whatever Python code the main thread runs. So an interrupt
//! may come out of every call into Python, also out of one whose other errors do not matter. No such call may drop it,
//! or replace it by another error: somebody would have to press Ctrl-C again.
//!
//! A destructor cannot raise an exception. What interrupts one is raised by [`raise_later`] as soon as the main thread
//! continues.

use pyo3::exceptions::{PyException, PyKeyboardInterrupt};
use pyo3::intern;
use pyo3::prelude::*;

/// Returns true if this is an interrupt.
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

/// Returns that one of two errors which must be raised: the first, unless only the second is an interrupt.
pub(crate) fn error_to_raise(py: Python<'_>, first: PyErr, second: PyErr) -> PyErr {
    match !is_interrupt(py, &first) && is_interrupt(py, &second) {
        true => second,
        false => first,
    }
}

/// Deals with the error of a destructor. An interrupt is raised as soon as the main thread continues; any other error is
/// printed, as Python does with the errors of destructors.
pub(crate) fn raise_later(py: Python<'_>, error: PyErr) {
    if !is_interrupt(py, &error) || !matches!(PendingInterrupt::set(py, &error), Ok(true)) {
        error.write_unraisable(py, None);
    }
}

/// An interrupt that waits until the main thread continues. It is set as the handler of SIGINT, and the signal is marked
/// as received.
#[pyclass(frozen, module = "fairgate._core")]
struct PendingInterrupt {
    error: PyErr,
    /// Handler of SIGINT, which is set again before the interrupt is raised.
    handler: Py<PyAny>,
}

#[pymethods]
impl PendingInterrupt {
    fn __call__(
        // A reference of its own: Python refers to the handler no more once another one is set.
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
    /// Lets the main thread raise an interrupt as soon as it continues. Returns false if that is not possible, because
    /// this is another thread, which gets no signals.
    fn set(py: Python<'_>, error: &PyErr) -> PyResult<bool> {
        // The functions of this module and the next are native. Python code would receive the signal itself.
        let signals = signal_functions(py)?;
        let received = || py.import("_thread")?.getattr("interrupt_main")?.call0().map(|_| true);
        let number = signals.getattr("SIGINT")?;
        let handler = signals.call_method1("getsignal", (&number,))?;
        // One interrupt that waits is enough.
        if handler.is_instance_of::<Self>() {
            return received();
        }
        // A handler that is not Python's cannot be set again.
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
