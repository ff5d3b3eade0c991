//! Wakes waiting clients, through a future of an event loop or a queue on which a thread waits.

use std::thread::{self, ThreadId};

use pyo3::IntoPyObjectExt;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::local_scheduler::{SlotRefusal, WaitResult};

/// A waiting client, with the Python object through which it is woken.
pub(crate) enum PythonWaiter {
    /// A task that waits for a future. `thread` is the thread that runs the future's event loop.
    Task { future: Py<PyAny>, event_loop: Py<PyAny>, thread: ThreadId },
    /// A thread that waits on a `queue.SimpleQueue`.
    Thread { queue: Py<PyAny> },
}

impl PythonWaiter {
    /// Creates the waiter of a client in this thread. `future` is a future of `event_loop`, or a queue if `event_loop`
    /// is `None`.
    pub(crate) fn here(future: Py<PyAny>, event_loop: Option<Py<PyAny>>) -> Self {
        match event_loop {
            Some(event_loop) => Self::Task { future, event_loop, thread: thread::current().id() },
            None => Self::Thread { queue: future },
        }
    }

    /// Delivers the result of the wait to the client. An exception means that the client's event loop is closed.
    pub(crate) fn wake(&self, py: Python<'_>, result: &WaitResult) -> PyResult<()> {
        let result = outcome(py, result)?;
        match self {
            Self::Thread { queue } => {
                queue.call_method1(py, intern!(py, "put"), (result,))?;
            }
            Self::Task { future, thread, .. } if *thread == thread::current().id() => {
                resolve(future.bind(py), result.into_bound(py))?;
            }
            Self::Task { future, event_loop, .. } => {
                let resolve = py.import(intern!(py, "fairgate._core"))?.getattr("resolve")?;
                let name = intern!(py, "call_soon_threadsafe");
                event_loop.call_method1(py, name, (resolve, future, result))?;
            }
        }
        Ok(())
    }
}

/// Sets a future's result, unless the future is already done or cancelled.
#[pyfunction]
pub(crate) fn resolve(future: &Bound<'_, PyAny>, result: Bound<'_, PyAny>) -> PyResult<()> {
    let py = future.py();
    if !future.call_method0(intern!(py, "done"))?.is_truthy()? {
        future.call_method1(intern!(py, "set_result"), (result,))?;
    }
    Ok(())
}

/// Converts the result of a wait for Python. A grant becomes the length of the wait in microseconds, and a refusal
/// becomes a tuple.
pub(crate) fn outcome(py: Python<'_>, result: &WaitResult) -> PyResult<Py<PyAny>> {
    match result {
        WaitResult::Granted { waited_us } => waited_us.into_py_any(py),
        WaitResult::Refused(refusal) => refusal_tuple(py, refusal),
    }
}

/// Converts a refusal to a tuple of its kind and its numbers.
pub(crate) fn refusal_tuple(py: Python<'_>, refusal: &SlotRefusal) -> PyResult<Py<PyAny>> {
    match refusal {
        SlotRefusal::QueueFull { reason, waiting, limit, retry_us } => {
            ("queue_full", *reason, waiting, limit, retry_us).into_py_any(py)
        }
        SlotRefusal::OverBudget { limit, spent, reserved, asked } => {
            ("over_budget", limit, spent, reserved, asked).into_py_any(py)
        }
        SlotRefusal::Deadlock { held, in_flight } => ("deadlock", held, in_flight).into_py_any(py),
        SlotRefusal::DeadlinePassed => Ok(PyTuple::new(py, ["timeout"])?.into_any().unbind()),
        SlotRefusal::Closed => Ok(PyTuple::new(py, ["closed"])?.into_any().unbind()),
    }
}
