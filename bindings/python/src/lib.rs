//! The native part of the Python package `fairgate`: one pool and everything that must change together with it.
//!
//! What is here decides nothing by itself: who goes next is the core's word. Around the pool, `desk` keeps who
//! waits and who holds, budgets and counts, under one lock that is never held while Python code runs; `gate` is
//! how Python calls it and how it wakes those who wait.

mod agents;
mod budget;
mod deadlock;
mod desk;
mod gate;
mod journal;
mod owners;
mod report;
mod slot;
mod usage;
mod wake;
mod who;

use fairgate_core::proportional;
use fairgate_journal::schedule::{Layout, read_snapshot, write_assignments, write_explanation};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// The native part of fairgate.
#[pymodule(gil_used = true)]
mod _core {
    #[pymodule_export]
    use super::gate::Gate;
    #[pymodule_export]
    use super::slot::{Slot, SlotFactory};
    #[pymodule_export]
    use super::wake::resolve;
    #[pymodule_export]
    use super::{format_policy, schedule, tokens};
    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}

/// Which ready task goes to which idle agent: a snapshot as JSON in, a list of assignments as JSON out.
#[pyfunction]
fn schedule(py: Python<'_>, snapshot: &str, explain: bool) -> PyResult<String> {
    py.detach(|| {
        let snapshot = read_snapshot(snapshot).map_err(|error| error.to_string())?;
        let mut out = Vec::new();
        let written = match explain {
            true => write_explanation(&mut out, &proportional::explain(&snapshot), Layout::Compact),
            false => {
                write_assignments(&mut out, &proportional::schedule(&snapshot), Layout::Compact)
            }
        };
        written.map_err(|error| error.to_string())?;
        String::from_utf8(out).map_err(|error| error.to_string())
    })
    .map_err(PyValueError::new_err)
}

/// A number of tokens that a program states: a TypeError or ValueError that names `what` where it is none.
#[pyfunction]
fn tokens(what: &str, given: &Bound<'_, PyAny>) -> PyResult<u64> {
    gate::tokens_from(what, given)
}

/// A policy as the journal writes it: every default filled in. Raises ValueError where it is none.
#[pyfunction]
fn format_policy(policy: &str) -> PyResult<String> {
    let policy = fairgate_journal::parse_policy(policy)
        .map_err(|error| PyValueError::new_err(error.to_string()))?;
    Ok(fairgate_journal::format_policy(&policy))
}
