//! What a gate looks like from outside.

use std::time::Duration;

/// A gate at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Live {
    /// How many requests may be in flight at once.
    pub capacity: u64,
    /// How many are in flight.
    pub in_flight: u64,
    /// How many wait.
    pub waiting: u64,
    /// Whether the gate is closing.
    pub draining: bool,
    /// What became of requests since the start.
    pub counts: Counts,
    /// How the journal is.
    pub journal: JournalHealth,
    /// How the state file is.
    pub state: StateHealth,
}

/// What became of requests since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// They were granted a slot.
    pub granted: u64,
    /// They were refused.
    pub rejected: u64,
    /// They waited too long.
    pub expired: u64,
    /// Their owners left while they waited, or before their grant reached them.
    pub left: u64,
    /// They were refused because the gate was closing.
    pub drained: u64,
    /// Their permits were settled.
    pub settled: u64,
    /// Their permits failed.
    pub failed: u64,
    /// Their permits were given back unused.
    pub given_back: u64,
    /// Their permits were dropped.
    pub dropped: u64,
}

/// How a journal is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JournalHealth {
    /// What it does.
    pub status: JournalStatus,
    /// How many events are in no journal, because it had stopped.
    pub events_lost: u64,
    /// How often it has stopped. Each time the next file's name ends in `-gap`.
    pub gaps: u64,
}

/// What a journal does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum JournalStatus {
    /// None is kept.
    #[default]
    Off,
    /// It is written.
    Writing,
    /// It could not be written; it starts again with a new file, which is tried now and then.
    Stopped {
        /// Why.
        error: String,
    },
}

/// How a state file is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StateHealth {
    /// How often it was written since the start.
    pub saved: u64,
    /// Why it could not be written the last time, where it could not.
    pub error: Option<String>,
}

/// A gate that has closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drained {
    /// How many permits had not ended at the deadline.
    pub still_in_flight: u64,
    /// How the journal was in the end.
    pub journal: JournalHealth,
    /// How the state file was in the end.
    pub state: StateHealth,
}

/// The longest that a deadline may be away: a hundred years.
pub(crate) const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 86_400);
