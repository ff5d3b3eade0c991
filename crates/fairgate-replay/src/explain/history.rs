//! The history of one request in a replay.

use std::sync::Arc;

use fairgate_core::attribute::Attributes;
use fairgate_core::decision::{Grant, RejectedRequest};
use fairgate_core::event::Event;
use fairgate_core::explain::WaitingRequest;
use fairgate_core::units::{Micros, Tokens};
use fairgate_time::UnixMicros;

use super::super::path::PathLevel;
use super::settlement::SettledLevel;

/// History of one request with the wanted id.
#[derive(Debug)]
pub(crate) struct RequestHistory {
    /// Time of the submit event. It has no line if the request was submitted before this journal began.
    pub(crate) submitted: JournalTime,
    pub(crate) attributes: Attributes,
    /// Cost that the request is charged. For a request that was refused on arrival, this is its
    /// stated cost.
    pub(crate) cost: Option<Tokens>,
    pub(crate) priority: i64,
    /// Flows that the request belongs to, from the policy's root down.
    pub(crate) path: Vec<PathLevel>,
    /// State of the waiting request right after its submit; `None` if it did not wait.
    pub(crate) arrival: Option<Box<WaitingState>>,
    /// Events while the request waited.
    pub(crate) wait_events: Vec<WaitEvent>,
    /// Number of further events that may concern the request and were not checked.
    pub(crate) unreported: u64,
    pub(crate) fate: RequestOutcome,
}

/// A time, and the line of the journal with the event at that time; `None` if the journal has no such line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct JournalTime {
    pub(crate) line: Option<u64>,
    pub(crate) at: Micros,
    /// Time of day; `None` if the journal states none.
    pub(crate) time: Option<UnixMicros>,
}

/// An event that happened while a request waited, and the state of the waiting request after the event.
#[derive(Debug)]
pub(crate) struct WaitEvent {
    pub(crate) when: JournalTime,
    pub(crate) event: Event,
    pub(crate) waiting: Box<WaitingState>,
}

/// A waiting request at one moment.
#[derive(Debug)]
pub(crate) struct WaitingState {
    /// Reason why the request waits. If the pool is full, this is not an obstacle of its flows.
    pub(crate) request: WaitingRequest,
    /// Number of requests in flight if flows are blocked because the pool is full; else `None`.
    pub(crate) full_pool: Option<u64>,
}

/// Outcome of a request at the end of the journal: the way in which its wait ended, or that the
/// request still waits.
#[derive(Debug)]
pub(crate) enum RequestOutcome {
    /// The request still waits at the end of the journal.
    Waits,
    /// The request was cancelled while it waited.
    GaveUp { when: JournalTime },
    /// The request was rejected. The cause may be its own submit or another event.
    Refused { when: JournalTime, reject: RejectedRequest, cause: RejectionCause },
    /// The request waited longer than its timeout.
    Expired { when: JournalTime, timeout: Option<Micros> },
    /// The request was granted a slot.
    Granted(Box<GrantedRun>),
}

/// The event that caused a rejection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RejectionCause {
    /// The submit of the request itself.
    OwnSubmit,
    /// The submit of another request.
    OtherSubmit(Arc<str>),
    /// A change of a worker.
    Worker(Box<str>),
}

/// A request that was granted a slot.
#[derive(Debug)]
pub(crate) struct GrantedRun {
    pub(crate) when: JournalTime,
    pub(crate) grant: Grant,
    pub(crate) first_token: Option<JournalTime>,
    pub(crate) ending: Option<GrantedRunEnd>,
}

/// The end of a request in flight, and its effect on the counters.
#[derive(Debug)]
pub(crate) struct GrantedRunEnd {
    pub(crate) when: JournalTime,
    pub(crate) cancelled: bool,
    pub(crate) tokens: Option<Tokens>,
    pub(crate) settled: Vec<SettledLevel>,
}
