//! Python functions that slots call. They are looked up once per process.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

/// Functions of the module `fairgate.slot`, whose first argument is a slot, and the getter and setter of
/// `fairgate.context.covers`.
pub(super) struct SlotFunctions {
    pub(super) wait_in_thread: Py<PyAny>,
    /// Builds the Python error for a refusal.
    pub(super) refused: Py<PyAny>,
    /// Handles a block that ends with an error.
    pub(super) ends_with: Py<PyAny>,
    /// Handles a block that ends without an error after the provider had refused the call.
    pub(super) taken_on: Py<PyAny>,
    pub(super) retry: Py<PyAny>,
    pub(super) retry_blocking: Py<PyAny>,
    pub(super) heard: Py<PyAny>,
    pub(super) why: Py<PyAny>,
    /// Handles a slot that no code refers to any more. Its argument is a copy of that slot.
    pub(super) forgotten: Py<PyAny>,
    /// Returns the slot whose block the running code is in, from the code's context.
    pub(super) get_cover: Py<PyAny>,
    pub(super) set_cover: Py<PyAny>,
}

impl SlotFunctions {
    pub(super) fn of(py: Python<'_>) -> PyResult<&Self> {
        static RARE: PyOnceLock<SlotFunctions> = PyOnceLock::new();
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
