//! Identifies the caller: the running task or, outside of any task, the thread.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU64, Ordering};

use pyo3::exceptions::PyRuntimeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyWeakrefReference};

use crate::interrupt::value_if_any;
use crate::owners::SlotOwner;

/// The task or thread that requests a slot.
pub(crate) struct SlotCaller {
    pub(crate) owner: SlotOwner,
    /// The task; `None` for a thread or for no particular caller. The owner's number is the task's address. This
    /// reference keeps the task alive, so that no other task gets the same address.
    pub(crate) task: Option<Py<PyAny>>,
}

impl SlotCaller {
    /// A caller that is neither a task nor a thread, such as a callback of an event loop.
    pub(crate) const NOBODY: Self = Self { owner: SlotOwner::NOBODY, task: None };

    fn task(task: Py<PyAny>) -> Self {
        Self { owner: SlotOwner(task.as_ptr().addr() as u64), task: Some(task) }
    }
}

/// Returns the running task, or [`SlotCaller::NOBODY`] in a callback of the event loop.
pub(crate) fn task_here(py: Python<'_>) -> PyResult<SlotCaller> {
    let asyncio = AsyncioFunctions::of(py)?;
    let task = match &asyncio.tasks_by_loop {
        Some(tasks) => task_of_loop(py, asyncio, tasks.bind(py))?,
        None => asyncio.current_task.call0(py).map_err(|error| no_event_loop(py, error))?,
    };
    Ok(if task.is_none(py) { SlotCaller::NOBODY } else { SlotCaller::task(task) })
}

/// Returns the running task, or the thread if no task runs.
pub(crate) fn task_or_thread_here(py: Python<'_>) -> PyResult<SlotCaller> {
    let asyncio = AsyncioFunctions::of(py)?;
    let event_loop = asyncio.running_loop.call0(py)?;
    if !event_loop.is_none(py) {
        let task = asyncio.current_task.call1(py, (event_loop,))?;
        if !task.is_none(py) {
            return Ok(SlotCaller::task(task));
        }
    }
    Ok(SlotCaller { owner: thread_here(), task: None })
}

fn no_event_loop(py: Python<'_>, error: PyErr) -> PyErr {
    if !error.is_instance_of::<PyRuntimeError>(py) {
        return error;
    }
    let made = || py.import("fairgate.errors")?.getattr("no_event_loop")?.call0();
    made().map_or_else(|error| error, PyErr::from_value)
}

/// The event loop that ran in this thread at the last request.
struct KnownEventLoop {
    event_loop: Py<PyWeakrefReference>,
    /// The object in the loop's attribute `_thread_id`, which does not change while the loop runs in this thread.
    thread_id: Py<PyAny>,
}

thread_local! {
    static KNOWN_LOOP: RefCell<Option<KnownEventLoop>> = const { RefCell::new(None) };
}

/// Returns the same as `asyncio.current_task()`, but does not look up the running loop each time, because that is a
/// system call before Python 3.12. A loop whose `_thread_id` is still the same object has been running in this thread
/// since the last request.
fn task_of_loop(
    py: Python<'_>,
    asyncio: &AsyncioFunctions,
    tasks: &Bound<'_, PyDict>,
) -> PyResult<Py<PyAny>> {
    let known = KNOWN_LOOP.with_borrow(|known| {
        let KnownEventLoop { event_loop, thread_id } = known.as_ref()?;
        Some((event_loop.bind(py).upgrade()?, thread_id.clone_ref(py)))
    });
    if let Some((event_loop, thread_id)) = known
        && loop_thread_id(&event_loop)?.is_some_and(|id| id.is(&thread_id))
    {
        let task = tasks.get_item(event_loop)?;
        return Ok(task.map_or_else(|| py.None(), Bound::unbind));
    }
    let task = asyncio.current_task.call0(py).map_err(|error| no_event_loop(py, error))?;
    let event_loop = asyncio.running_loop.bind(py).call0()?;
    let known = match loop_thread_id(&event_loop)? {
        Some(thread_id) => {
            let event_loop = value_if_any(py, PyWeakrefReference::new(&event_loop))?;
            let thread_id = thread_id.unbind();
            event_loop.map(|it| KnownEventLoop { event_loop: it.unbind(), thread_id })
        }
        None => None,
    };
    let before = KNOWN_LOOP.replace(known);
    drop(before);
    Ok(task)
}

/// Returns the object in a loop's attribute `_thread_id`; `None` if it is not set. Loops of other packages have no such
/// attribute, or one that Python code cannot see.
fn loop_thread_id<'py>(event_loop: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = event_loop.py();
    let id = value_if_any(py, event_loop.getattr(intern!(py, "_thread_id")))?;
    Ok(id.filter(|id| !id.is_none()))
}

/// Returns the owner number of this thread. The number is odd. The numbers of tasks are addresses, which are even.
fn thread_here() -> SlotOwner {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static HERE: Cell<u64> = const { Cell::new(0) };
    }
    let mut number = HERE.get();
    if number == 0 {
        number = NEXT.fetch_add(2, Ordering::Relaxed);
        HERE.set(number);
    }
    SlotOwner(number)
}

struct AsyncioFunctions {
    current_task: Py<PyAny>,
    running_loop: Py<PyAny>,
    /// Python's dict of the running task of each event loop. `None` from Python 3.12 on, where looking up the running
    /// loop is fast.
    tasks_by_loop: Option<Py<PyDict>>,
}

impl AsyncioFunctions {
    fn of(py: Python<'_>) -> PyResult<&Self> {
        static ASYNCIO: PyOnceLock<AsyncioFunctions> = PyOnceLock::new();
        ASYNCIO.get_or_try_init(py, || {
            let asyncio = py.import("asyncio")?;
            let function = |name| PyResult::Ok(asyncio.getattr(name)?.unbind());
            let tasks = || {
                let tasks = asyncio.getattr("tasks").and_then(|it| it.getattr("_current_tasks"));
                let tasks = value_if_any(py, tasks)?;
                PyResult::Ok(tasks.and_then(|it| it.cast_into::<PyDict>().ok()).map(Bound::unbind))
            };
            let is_slow = py.version_info() < (3, 12);
            Ok(Self {
                current_task: function("current_task")?,
                running_loop: function("_get_running_loop")?,
                tasks_by_loop: if is_slow { tasks()? } else { None },
            })
        })
    }
}
