//! The native module of the Python package `fairgate`. It holds one pool for each scheduler, and all state that must
//! change together with the pool.
//!
//! This crate makes no scheduling decisions, because the core does. The module `local_scheduler` keeps the pool's
//! waiting and running requests, budgets and counters under one lock that is never held while Python code runs. The
//! module `gate` is the interface to Python and wakes the waiting clients.

mod agents;
mod arguments;
mod budget;
mod caller;
mod deadlock;
mod gate;
mod interrupt;
mod journal;
mod local_scheduler;
mod owners;
mod pending_error;
mod report;
mod request_number;
mod shared_scheduler;
mod slot;
mod usage;
mod waiter;

use fairgate_core::proportional;
use fairgate_dialect::ModelWeights;
use fairgate_journal::schedule::{JsonLayout, read_snapshot, write_assignments, write_explanation};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// The native module of the Python package fairgate.
#[pymodule(gil_used = true)]
mod _core {
    #[pymodule_export]
    use super::gate::Gate;
    #[pymodule_export]
    use super::slot::{Slot, SlotFactory};
    #[pymodule_export]
    use super::waiter::resolve;
    #[pymodule_export]
    use super::{format_policy, model_name_words, model_weight, schedule, tokens};
    use fairgate_dialect::{MODEL_WEIGHTS, OTHER_MODEL_WEIGHT};
    use pyo3::prelude::*;
    use pyo3::types::PyTuple;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        let entries = MODEL_WEIGHTS.iter().map(|&(name, weight)| (name, super::decimal(weight)));
        let table = PyTuple::new(module.py(), entries.collect::<Vec<_>>())?;
        module.add("MODEL_WEIGHTS", table)?;
        module.add("OTHER_WEIGHT", super::decimal(OTHER_MODEL_WEIGHT))?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}

/// Assigns ready tasks to idle agents. Takes a snapshot as JSON and returns a list of assignments as JSON; with
/// `explain`, also the reasons.
#[pyfunction]
fn schedule(py: Python<'_>, snapshot: &str, explain: bool) -> PyResult<String> {
    py.detach(|| {
        let snapshot = read_snapshot(snapshot).map_err(|error| error.to_string())?;
        let mut out = Vec::new();
        let written = match explain {
            true => {
                write_explanation(&mut out, &proportional::explain(&snapshot), JsonLayout::Compact)
            }
            false => {
                write_assignments(&mut out, &proportional::schedule(&snapshot), JsonLayout::Compact)
            }
        };
        written.map_err(|error| error.to_string())?;
        String::from_utf8(out).map_err(|error| error.to_string())
    })
    .map_err(PyValueError::new_err)
}

/// Returns a weight in thousandths as a decimal.
fn decimal(thousandths: u32) -> f64 {
    f64::from(thousandths) / 1000.0
}

/// Returns the weight of a short call to a model: the weight of the longest entry of `table` that fits the model's
/// name, or `other` if no entry fits. Without a table, the built-in table is used.
#[pyfunction]
#[pyo3(signature = (model, table=None, other=2.0))]
fn model_weight(model: &str, table: Option<Vec<(String, f64)>>, other: f64) -> f64 {
    match table {
        None => decimal(fairgate_dialect::model_weight(model)),
        Some(table) => {
            let entries = table.iter().map(|(name, weight)| (name.as_str(), *weight));
            ModelWeights::new(entries, other).weight(model)
        }
    }
}

/// Splits a model's name into words, in lower case.
#[pyfunction]
fn model_name_words(name: &str) -> Vec<String> {
    fairgate_dialect::model_name_words(name)
}

/// Checks a number of tokens. If it is invalid, raises a TypeError or ValueError that names `what`.
#[pyfunction]
fn tokens(what: &str, given: &Bound<'_, PyAny>) -> PyResult<u64> {
    gate::tokens_from(what, given)
}

/// Returns a policy as the journal writes it, with every default filled in. Raises ValueError if the policy is invalid.
#[pyfunction]
fn format_policy(policy: &str) -> PyResult<String> {
    let policy = fairgate_journal::parse_policy(policy)
        .map_err(|error| PyValueError::new_err(error.to_string()))?;
    Ok(fairgate_journal::format_policy(&policy))
}
