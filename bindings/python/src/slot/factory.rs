//! What makes slots: the base of the schedulers in Python.

use pyo3::exceptions::PyAttributeError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};

use super::{Asks, Slot};

/// What the schedulers of Python make slots with.
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

    /// From now on its slots are of this gate.
    #[pyo3(signature = (gate, retry_seconds, hooks))]
    fn _serve(&mut self, gate: Py<PyAny>, retry_seconds: f64, hooks: Option<Py<PyAny>>) {
        (self.gate, self.retry_seconds, self.hooks) = (Some(gate), retry_seconds, hooks);
    }

    #[getter]
    fn _gate(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let gate = self.gate.as_ref().map(|gate| gate.clone_ref(py));
        gate.ok_or_else(|| PyAttributeError::new_err("a scheduler has no gate before its __init__"))
    }

    /// A slot for one call of ``agent``: ``async with`` it in a task, ``with`` it in a thread.
    ///
    /// :param weight: how heavy the call is, 0.001 to 1 000 000 with at most three decimals: what it adds to its
    ///     agent's depth in the load function while it waits.
    /// :param cost: how many tokens the call is expected to use: what ``share`` and ``drr`` charge and what a budget
    ///     reserves, until it is settled (``drr`` goes by the estimate for good). Where not given, a thousand tokens for
    ///     each 1.0 of weight.
    /// :param priority: higher goes first among the waiting calls of the same agent; equals go first come, first
    ///     served.
    /// :param timeout: for how many seconds to wait before :class:`fairgate.SlotTimeout`; for ever where None.
    /// :param model: the model that is called, for :meth:`costs`.
    /// :param attributes: by which a policy tree may share beside the agent: class, tenant, group, key, project,
    ///     session.
    /// :param explain: keep the numbers that decided the grant in :attr:`Slot.why`.
    #[pyo3(signature = (agent, *, weight=1.0, cost=None, priority=0, timeout=None, model=None, attributes=None, explain=false))]
    #[expect(clippy::too_many_arguments, reason = "the options of a call")]
    fn slot(
        &self,
        py: Python<'_>,
        agent: Py<PyString>,
        weight: f64,
        cost: Option<Py<PyAny>>,
        priority: i64,
        timeout: Option<f64>,
        model: Option<String>,
        attributes: Option<Py<PyDict>>,
        explain: bool,
    ) -> Slot {
        let asks = Asks { agent, weight, cost, priority, timeout, attributes, explain };
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
