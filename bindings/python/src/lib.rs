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
mod journal;
mod local_scheduler;
mod owners;
mod pending_error;
mod report;
mod slot;
mod usage;
mod waiter;

use fairgate_core::proportional;
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
    use super::{format_policy, schedule, tokens};
    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
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

/// Checks a number of tokens; raises TypeError or ValueError that names `what` if it is invalid.
#[pyfunction]
fn tokens(what: &str, given: &Bound<'_, PyAny>) -> PyResult<u64> {
    gate::tokens_from(what, given)
}

/// Returns a policy as the journal writes it, with every default filled in. Raises ValueError if it is invalid.
#[pyfunction]
fn format_policy(policy: &str) -> PyResult<String> {
    let policy = fairgate_journal::parse_policy(policy)
        .map_err(|error| PyValueError::new_err(error.to_string()))?;
    Ok(fairgate_journal::format_policy(&policy))
}
