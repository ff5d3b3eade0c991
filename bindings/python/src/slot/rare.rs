//! What the slots call in Python, looked up once.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

/// Functions of the module `fairgate.slot`, each of which takes a slot first, and `fairgate.context.covers`.
pub(super) struct Rare {
    pub(super) wait_in_thread: Py<PyAny>,
    /// The error for a refusal.
    pub(super) refused: Py<PyAny>,
    /// The block ends with an error.
    pub(super) ends_with: Py<PyAny>,
    /// The block ends well, after the provider had refused the call.
    pub(super) taken_on: Py<PyAny>,
    pub(super) retry: Py<PyAny>,
    pub(super) retry_blocking: Py<PyAny>,
    pub(super) heard: Py<PyAny>,
    pub(super) why: Py<PyAny>,
    /// Nobody refers to the slot any more that this is a copy of.
    pub(super) forgotten: Py<PyAny>,
    /// What is held around the code that runs, in its context.
    pub(super) get_cover: Py<PyAny>,
    pub(super) set_cover: Py<PyAny>,
}

impl Rare {
    pub(super) fn of(py: Python<'_>) -> PyResult<&Self> {
        static RARE: PyOnceLock<Rare> = PyOnceLock::new();
        RARE.get_or_try_init(py, || {
            let module = py.import("fairgate.slot")?;
            let function = |name| PyResult::Ok(module.getattr(name)?.unbind());
            let covers = py.import("fairgate.context")?.getattr("covers")?;
            Ok(Self {
                wait_in_thread: function("wait_in_thread")?,
                refused: function("refusal")?,
                ends_with: function("ends_with")?,
                taken_on: function("taken_on")?,
                retry: function("retry")?,
                retry_blocking: function("retry_blocking")?,
                heard: function("heard")?,
                why: function("why")?,
                forgotten: function("forgotten")?,
                get_cover: covers.getattr("get")?.unbind(),
                set_cover: covers.getattr("set")?.unbind(),
            })
        })
    }
}
