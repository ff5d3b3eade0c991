//! Who is calling: the task that runs here, else the thread.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU64, Ordering};

use pyo3::exceptions::PyRuntimeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyWeakrefReference};

use crate::owners::Owner;

/// Who asks.
pub(crate) struct Asker {
    pub(crate) owner: Owner,
    /// The task, where it is one: its address is the owner's number for as long as this refers to it.
    pub(crate) task: Option<Py<PyAny>>,
}

impl Asker {
    /// Nobody in particular.
    pub(crate) const NOBODY: Self = Self { owner: Owner::NOBODY, task: None };

    fn task(task: Py<PyAny>) -> Self {
        Self { owner: Owner(task.as_ptr().addr() as u64), task: Some(task) }
    }
}

/// The task that runs here; nobody in a callback of the event loop.
pub(crate) fn task_here(py: Python<'_>) -> PyResult<Asker> {
    let asyncio = Asyncio::of(py)?;
    let task = match &asyncio.tasks_by_loop {
        Some(tasks) => task_of_loop(py, asyncio, tasks.bind(py))?,
        None => asyncio.current_task.call0(py).map_err(|error| no_event_loop(py, error))?,
    };
    Ok(if task.is_none(py) { Asker::NOBODY } else { Asker::task(task) })
}

/// The task that runs here, else the thread.
pub(crate) fn task_or_thread_here(py: Python<'_>) -> PyResult<Asker> {
    let asyncio = Asyncio::of(py)?;
    let event_loop = asyncio.running_loop.call0(py)?;
    if !event_loop.is_none(py) {
        let task = asyncio.current_task.call1(py, (event_loop,))?;
        if !task.is_none(py) {
            return Ok(Asker::task(task));
        }
    }
    Ok(Asker { owner: thread_here(), task: None })
}

fn no_event_loop(py: Python<'_>, error: PyErr) -> PyErr {
    if !error.is_instance_of::<PyRuntimeError>(py) {
        return error;
    }
    let made = || py.import("fairgate.errors")?.getattr("no_event_loop")?.call0();
    made().map_or_else(|error| error, PyErr::from_value)
}

/// The event loop that ran in this thread when a slot was last asked for.
struct KnownLoop {
    event_loop: Py<PyWeakrefReference>,
    /// The object that the loop has as the number of its thread for as long as it runs there.
    thread_id: Py<PyAny>,
}

thread_local! {
    static KNOWN_LOOP: RefCell<Option<KnownLoop>> = const { RefCell::new(None) };
}

/// As `asyncio.current_task()`, without asking for the running loop each time: before Python 3.12 that is a system call.
/// A loop that still has the same `_thread_id` has been running in this thread ever since.
fn task_of_loop(
    py: Python<'_>,
    asyncio: &Asyncio,
    tasks: &Bound<'_, PyDict>,
) -> PyResult<Py<PyAny>> {
    let known = KNOWN_LOOP.with_borrow(|known| {
        let KnownLoop { event_loop, thread_id } = known.as_ref()?;
        Some((event_loop.bind(py).upgrade()?, thread_id.clone_ref(py)))
    });
    if let Some((event_loop, thread_id)) = known
        && event_loop.getattr(intern!(py, "_thread_id")).is_ok_and(|id| id.is(&thread_id))
    {
        let task = tasks.get_item(event_loop)?;
        return Ok(task.map_or_else(|| py.None(), Bound::unbind));
    }
    let task = asyncio.current_task.call0(py).map_err(|error| no_event_loop(py, error))?;
    let event_loop = asyncio.running_loop.bind(py).call0()?;
    // Loops of other packages have no such attribute, or none that Python can see.
    let thread_id = event_loop.getattr(intern!(py, "_thread_id")).ok().filter(|id| !id.is_none());
    let known = thread_id.and_then(|thread_id| {
        let event_loop = PyWeakrefReference::new(&event_loop).ok()?.unbind();
        Some(KnownLoop { event_loop, thread_id: thread_id.unbind() })
    });
    let before = KNOWN_LOOP.replace(known);
    drop(before);
    Ok(task)
}

/// The number of this thread. It is odd, and addresses are even.
fn thread_here() -> Owner {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static HERE: Cell<u64> = const { Cell::new(0) };
    }
    let mut number = HERE.get();
    if number == 0 {
        number = NEXT.fetch_add(2, Ordering::Relaxed);
        HERE.set(number);
    }
    Owner(number)
}

struct Asyncio {
    current_task: Py<PyAny>,
    running_loop: Py<PyAny>,
    /// The running task of each event loop, where to ask for the running loop is slow: before Python 3.12, which keeps this
    /// dict in one place.
    tasks_by_loop: Option<Py<PyDict>>,
}

impl Asyncio {
    fn of(py: Python<'_>) -> PyResult<&Self> {
        static ASYNCIO: PyOnceLock<Asyncio> = PyOnceLock::new();
        ASYNCIO.get_or_try_init(py, || {
            let asyncio = py.import("asyncio")?;
            let function = |name| PyResult::Ok(asyncio.getattr(name)?.unbind());
            let tasks = || {
                let tasks = asyncio.getattr("tasks").ok()?.getattr("_current_tasks").ok()?;
                tasks.cast_into::<PyDict>().ok().map(Bound::unbind)
            };
            let is_slow = py.version_info() < (3, 12);
            Ok(Self {
                current_task: function("current_task")?,
                running_loop: function("_get_running_loop")?,
                tasks_by_loop: if is_slow { tasks() } else { None },
            })
        })
    }
}
