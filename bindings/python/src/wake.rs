//! How those who wait are woken: a future of an event loop, or a queue on which a thread waits.

use std::thread::{self, ThreadId};

use pyo3::IntoPyObjectExt;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::desk::{News, Refusal};

/// Somebody who waits.
pub(crate) enum Waiter {
    /// A task: its future, the future's loop, and the thread that runs the loop.
    Task { future: Py<PyAny>, event_loop: Py<PyAny>, thread: ThreadId },
    /// A thread that waits on a `queue.SimpleQueue`.
    Thread { queue: Py<PyAny> },
}

impl Waiter {
    /// The waiter of a call from this thread: `future` belongs to `event_loop`, or is a queue where there is none.
    pub(crate) fn here(future: Py<PyAny>, event_loop: Option<Py<PyAny>>) -> Self {
        match event_loop {
            Some(event_loop) => Self::Task { future, event_loop, thread: thread::current().id() },
            None => Self::Thread { queue: future },
        }
    }

    /// Tells it. An error means that nobody will hear: its loop is closed.
    pub(crate) fn wake(&self, py: Python<'_>, news: &News) -> PyResult<()> {
        let news = outcome(py, news)?;
        match self {
            Self::Thread { queue } => {
                queue.call_method1(py, intern!(py, "put"), (news,))?;
            }
            Self::Task { future, thread, .. } if *thread == thread::current().id() => {
                resolve(future.bind(py), news.into_bound(py))?;
            }
            Self::Task { future, event_loop, .. } => {
                let resolve = py.import(intern!(py, "fairgate._core"))?.getattr("resolve")?;
                let name = intern!(py, "call_soon_threadsafe");
                event_loop.call_method1(py, name, (resolve, future, news))?;
            }
        }
        Ok(())
    }
}

/// Gives a future its result, unless it has been cancelled meanwhile.
#[pyfunction]
pub(crate) fn resolve(future: &Bound<'_, PyAny>, news: Bound<'_, PyAny>) -> PyResult<()> {
    let py = future.py();
    if !future.call_method0(intern!(py, "done"))?.is_truthy()? {
        future.call_method1(intern!(py, "set_result"), (news,))?;
    }
    Ok(())
}

/// How a wait ended, as Python sees it: the microseconds that it took, or why it was in vain.
pub(crate) fn outcome(py: Python<'_>, news: &News) -> PyResult<Py<PyAny>> {
    match news {
        News::Granted { waited_us } => waited_us.into_py_any(py),
        News::Refused(refusal) => refusal_tuple(py, refusal),
    }
}

/// A refusal as a tuple: its kind, then its numbers.
pub(crate) fn refusal_tuple(py: Python<'_>, refusal: &Refusal) -> PyResult<Py<PyAny>> {
    match refusal {
        Refusal::QueueFull { reason, waiting, limit, retry_us } => {
            ("queue_full", *reason, waiting, limit, retry_us).into_py_any(py)
        }
        Refusal::OverBudget { limit, spent, reserved, asked } => {
            ("over_budget", limit, spent, reserved, asked).into_py_any(py)
        }
        Refusal::Deadlock { held, in_flight } => ("deadlock", held, in_flight).into_py_any(py),
        Refusal::Closed => Ok(PyTuple::new(py, ["closed"])?.into_any().unbind()),
    }
}
