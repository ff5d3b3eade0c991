//! The base class of the schedulers in Python, which creates their slots.

use pyo3::exceptions::PyAttributeError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};

use super::{Slot, SlotParams};
use crate::arguments;

/// Base class of the Python schedulers, which creates their slots.
#[pyclass(subclass, module = "fairgate._core")]
pub(crate) struct SlotFactory {
    gate: Option<Py<PyAny>>,
    retry_seconds: f64,
    hooks: Option<Py<PyAny>>,
}

#[pymethods]
impl SlotFactory {
    #[new]
    #[pyo3(signature = (*_args, **_options))]
    fn new(_args: &Bound<'_, PyTuple>, _options: Option<&Bound<'_, PyDict>>) -> Self {
        Self { gate: None, retry_seconds: 0.0, hooks: None }
    }

    /// Sets the gate, the retry time and the hooks of all slots that are created later.
    #[pyo3(signature = (gate, retry_seconds, hooks))]
    fn _serve(&mut self, gate: Py<PyAny>, retry_seconds: f64, hooks: Option<Py<PyAny>>) {
        (self.gate, self.retry_seconds, self.hooks) = (Some(gate), retry_seconds, hooks);
    }

    #[getter]
    fn _gate(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let gate = self.gate.as_ref().map(|gate| gate.clone_ref(py));
        gate.ok_or_else(|| PyAttributeError::new_err("a scheduler has no gate before its __init__"))
    }

    /// Creates a slot for one call of ``agent``. Use the slot as ``async with`` in a task or as ``with`` in a thread.
    ///
    /// :param weight: weight of the call, 0.001 to 1 000 000 with at most three decimals. While the call waits, its
    ///     weight is added to the agent's depth in the load function.
    /// :param cost: tokens that the call is expected to use. ``share`` and ``drr`` charge this estimate and a budget
    ///     reserves it, until the call is settled (``drr`` keeps the estimate). Default: a thousand tokens for each 1.0
    ///     of weight.
    /// :param priority: a call with a higher priority gets a slot first among the waiting calls of the same agent.
    ///     Calls with the same priority keep the order of the agent's queue.
    /// :param timeout: longest wait in seconds before :class:`fairgate.SlotTimeout`; None for no limit. An ``"edf"``
    ///     queue orders calls by their timeouts. Waits for retries after a provider's limit count too. A call that
    ///     already has its slot is not ended by its timeout.
    /// :param model: name of the model that is called, for :meth:`costs`.
    /// :param attributes: attributes besides the agent by which a policy tree may share: class, tenant, group, key,
    ///     project, session.
    /// :param explain: keep the numbers that decided the grant in :attr:`Slot.why`.
    #[pyo3(signature = (agent, *, weight=1.0, cost=None, priority=0, timeout=None, model=None, attributes=None, explain=false))]
    #[expect(clippy::too_many_arguments, reason = "the options of a call")]
    fn slot(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::agent)] agent: Py<PyString>,
        #[pyo3(from_py_with = arguments::weight)] weight: f64,
        cost: Option<Py<PyAny>>,
        #[pyo3(from_py_with = arguments::priority)] priority: i64,
        #[pyo3(from_py_with = arguments::timeout)] timeout: Option<f64>,
        #[pyo3(from_py_with = arguments::model)] model: Option<String>,
        #[pyo3(from_py_with = arguments::attributes)] attributes: Option<Py<PyDict>>,
        #[pyo3(from_py_with = arguments::explain)] explain: bool,
    ) -> Slot {
        let asks = SlotParams { agent, weight, cost, priority, timeout, attributes, explain };
        let gate = self.gate.as_ref().map(|gate| gate.clone_ref(py));
        let hooks = self.hooks.as_ref().map(|hooks| hooks.clone_ref(py));
        Slot::new(gate, asks, model, self.retry_seconds, hooks)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.gate)?;
        visit.call(&self.hooks)
    }

    fn __clear__(&mut self) {
        self.hooks = None;
    }
}
