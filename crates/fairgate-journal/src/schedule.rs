//! The text form of the proportional scheduler. A snapshot is one JSON object, and so is an explanation; assignments
//! are a JSON list.
//!
//! Reading is strict. A field that is unknown, is given twice or has the wrong type is an error that names the field,
//! such as `tasks[3].priority`. Numbers are read from their digits, never through a float. The bounds are 2^64 − 1 for
//! tokens and counts, −2^63 to 2^63 − 1 for `priority` and `created`, and 0.001 to 10^15 for weights. `null` means
//! "none" in the optional fields: `budget_limit`, `estimated_tokens`, `preferred_workspace_id`, `global_budget` and the
//! holders in `workspace_locks`.

mod names;
mod read;
mod sentences;
#[cfg(test)]
mod tests;
mod write;

use std::fmt;

use fairgate_core::proportional::{ScheduleSnapshot, ScheduleSnapshotError, TaskAssignment};
pub use read::{read_round, read_snapshot};
pub use write::{write_assignments, write_explanation, write_round, write_snapshot};

use crate::journal_text_error::JournalTextError;
pub use crate::write::json::JsonLayout;

/// One round of the fleet's scheduler with its time, its input and its result. This is a line of the fleet's journal:
/// `{"at":…,"price_per_1000_s":…,"snapshot":{…},"assignments":[…]}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleRound {
    /// Time of the round, in microseconds since 1970-01-01T00:00:00Z.
    pub at: i64,
    /// Tokens that 1000 seconds of an agent's time cost, from which the fleet computed some numbers
    /// of the snapshot. It is information for readers; no decision depends on it.
    pub price_per_1000_s: Option<u64>,
    /// The projects, tasks and agents before the round.
    pub snapshot: ScheduleSnapshot,
    /// The tasks that the round assigned to agents.
    pub assignments: Vec<TaskAssignment>,
}

/// Error for a snapshot or round that cannot be read, with the field and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleReadError {
    /// Path of the bad field from the snapshot's root, such as `tasks[3].project_id`; empty if the snapshot as a whole
    /// is bad.
    pub field: String,
    /// The rule that the field breaks.
    pub message: String,
}

impl ScheduleReadError {
    fn from_fault(fault: JournalTextError, text: &str) -> Self {
        let (lines_before, column) = fault.position(text);
        let place = format!("line {}, column {column}", lines_before + 1);
        let (field, message) = fault.into_parts(place);
        Self { field, message }
    }
}

impl fmt::Display for ScheduleReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.field {
            "" => write!(f, "{}", self.message),
            field => write!(f, "{field}: {}", self.message),
        }
    }
}

impl std::error::Error for ScheduleReadError {}

impl From<ScheduleSnapshotError> for ScheduleReadError {
    fn from(error: ScheduleSnapshotError) -> Self {
        Self { field: error.field, message: error.problem.to_string() }
    }
}
