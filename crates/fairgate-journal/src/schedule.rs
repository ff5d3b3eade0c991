//! The text form of the proportional scheduler: a snapshot as one JSON object, assignments and explanations as
//! JSON.
//!
//! Reading is strict. A field that is not known, is given twice or has the wrong type is an error that names the
//! field: `tasks[3].priority`. Numbers are read from their digits, never through a float. The bounds are
//! 2^64 − 1 for tokens and counts, −2^63 to 2^63 − 1 for `priority` and `created`, and 0.001 to 10^15 for
//! weights. `null` means "none" where there may be none: `budget_limit`, `estimated_tokens`,
//! `preferred_workspace_id`, `global_budget` and the holders in `workspace_locks`.

mod names;
mod read;
mod sentences;
#[cfg(test)]
mod tests;
mod write;

use std::fmt;

use fairgate_core::proportional::{Assignment, Snapshot, SnapshotError};
pub use read::{read_round, read_snapshot};
pub use write::{write_assignments, write_explanation, write_round, write_snapshot};

use crate::read::fault::Fault;
pub use crate::write::json::Layout;

/// One call of the scheduler as a fleet keeps it: when, what it saw, and what it decided. A line of the fleet's journal:
/// `{"at":…,"snapshot":{…},"assignments":[…]}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Round {
    /// The moment, in microseconds since 1970.
    pub at: i64,
    /// What the scheduler saw.
    pub snapshot: Snapshot,
    /// What it decided.
    pub assignments: Vec<Assignment>,
}

/// A snapshot that cannot be read: which field, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadError {
    /// The field, from the snapshot's root: `tasks[3].project_id`. Empty for the snapshot as a whole.
    pub field: String,
    /// What is wrong with it.
    pub message: String,
}

impl ReadError {
    fn from_fault(fault: Fault, text: &str) -> Self {
        let (lines_before, column) = fault.position(text);
        let place = format!("line {}, column {column}", lines_before + 1);
        let (field, message) = fault.into_parts(place);
        Self { field, message }
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.field {
            "" => write!(f, "{}", self.message),
            field => write!(f, "{field}: {}", self.message),
        }
    }
}

impl std::error::Error for ReadError {}

impl From<SnapshotError> for ReadError {
    fn from(error: SnapshotError) -> Self {
        Self { field: error.field, message: error.problem.to_string() }
    }
}
