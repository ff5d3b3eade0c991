//! Counts and health of a gate, for observers.

use std::time::Duration;

/// State of a gate at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GateStatus {
    /// Maximum number of requests in flight at once.
    pub capacity: u64,
    /// Requests in flight now.
    pub in_flight: u64,
    /// Requests that wait in the queues now.
    pub waiting: u64,
    /// True once the gate has begun to drain.
    pub draining: bool,
    /// Outcomes of requests since the start.
    pub counts: GateCounts,
    /// Health of the journal.
    pub journal: JournalHealth,
    /// Health of the state file.
    pub state: StateHealth,
}

/// Outcomes of requests since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GateCounts {
    /// Requests that were granted a slot.
    pub granted: u64,
    /// Requests that the pool rejected.
    pub rejected: u64,
    /// Requests that timed out in the queue.
    pub expired: u64,
    /// Requests whose callers left while they were queued, or before the caller received the grant.
    pub abandoned: u64,
    /// Requests that were refused because the gate was draining.
    pub drained: u64,
    /// Permits that were settled.
    pub settled: u64,
    /// Permits that ended as failed.
    pub failed: u64,
    /// Permits that were given back unused.
    pub given_back: u64,
    /// Permits that were dropped without a report.
    pub dropped: u64,
}

/// Health of a journal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JournalHealth {
    /// Current status of the journal.
    pub status: JournalStatus,
    /// Events that are missing in the files, because the journal had stopped.
    pub events_lost: u64,
    /// Number of times that the journal has stopped. After each stop, the next file's name ends in `-gap`.
    pub gaps: u64,
}

/// Status of a journal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum JournalStatus {
    /// No journal is kept.
    #[default]
    Off,
    /// The journal is being written.
    Writing,
    /// The journal could not be written. The gate tries again at intervals, with a new file.
    Stopped {
        /// Reason why the journal stopped.
        error: String,
    },
}

/// Health of a state file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StateHealth {
    /// Number of successful writes of the state file since the start.
    pub saved: u64,
    /// Error of the last write of the state file; `None` if that write succeeded.
    pub error: Option<String>,
}

/// Result of a drain, with the health of the files at its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrainResult {
    /// Permits that had not ended at the deadline.
    pub still_in_flight: u64,
    /// Health of the journal at the end.
    pub journal: JournalHealth,
    /// Health of the state file at the end.
    pub state: StateHealth,
}

/// Maximum time from now to a deadline: a hundred years. A later deadline is moved to this time.
pub(crate) const DEADLINE_MAX: Duration = Duration::from_secs(100 * 365 * 86_400);
