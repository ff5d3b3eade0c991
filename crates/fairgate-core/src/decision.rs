//! The decisions of a pool about its requests, and the trait whose implementations receive them.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use crate::explain::GrantExplanation;
use crate::requests::RequestHandle;
use crate::units::{Micros, Tokens};

/// One decision about one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The request gets a slot at a worker.
    Grant(Grant),
    /// The request is refused.
    Reject(RejectedRequest),
    /// The request has waited past its timeout and leaves the queue.
    Expire {
        /// The handle that the expired request had; the pool may give this handle to another request from now on.
        request: RequestHandle,
        /// The request's id, as submitted.
        id: Arc<str>,
    },
}

/// A request that gets a slot, with the tokens it is charged and the worker that runs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The handle of the request, which stays valid until the request ends.
    pub request: RequestHandle,
    /// The request's id, as submitted.
    pub id: Arc<str>,
    /// Tokens that the request is charged at its grant, before its real usage is known.
    pub cost: Tokens,
    /// Time from the submit to the grant, in microseconds.
    pub waited: Micros,
    /// True if the request waited longer than the pool's brownout wait; `None` if the pool has no brownout wait.
    pub brownout: Option<bool>,
    /// The worker and rank that run the request; `None` if the pool has no workers.
    pub place: Option<GrantedPlace>,
    /// The numbers that decided the grant; `None` unless [`DecisionSink::wants_why`] returned true for the request.
    pub why: Option<Box<GrantExplanation>>,
}

/// The worker and rank that a granted request goes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantedPlace {
    /// Name of the worker; unique within a pool.
    pub worker: Arc<str>,
    /// Number of the worker's rank, counted from 0.
    pub rank: u32,
}

/// A request that is refused, with the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RejectedRequest {
    /// The handle that the request had, if it was accepted before and is refused only now; `None` if it was never
    /// accepted. The pool may give this handle to another request from now on.
    pub request: Option<RequestHandle>,
    /// The request's id, as submitted.
    pub id: Arc<str>,
    /// The test that the request did not pass.
    pub reason: RejectionReason,
    /// The limit that was reached; `None` if the request was refused for another reason than a limit.
    pub limit: Option<RejectionLimit>,
}

/// A limit because of which a request was refused, with the amount that waited and the greatest amount allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RejectionLimit {
    /// The class that the limit belongs to; `None` for the pool's own limit.
    pub class: Option<Arc<str>>,
    /// The amount that waited when the request was refused. The unit is requests or tokens, depending on the
    /// rejection's reason.
    pub current: u128,
    /// The greatest amount that may wait, in the unit of `current`.
    pub limit: u128,
}

/// The reason why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RejectionReason {
    /// Another request with this id already waits or is in flight.
    Duplicate,
    /// The queue is full, and the newcomer belongs to the flow that must make room, so the newcomer itself is refused.
    QueueFull,
    /// The queue was full, and this waiting request was removed to make room for a newcomer of a flow with
    /// fewer waiting requests.
    PushedOut,
    /// No worker that is up or overloaded may run the request, given its pin, its allow-list and required taints.
    NoWorker,
    /// Every worker that may take the request is overloaded.
    Overloaded,
    /// Too many requests wait in the request's class.
    ClassRequests,
    /// Too many input tokens wait in the request's class.
    ClassInputTokens,
    /// Too many cached tokens wait in the request's class.
    ClassCachedTokens,
}

impl RejectionReason {
    /// All reasons, in the order of their definition.
    pub const ALL: [Self; 8] = [
        Self::Duplicate,
        Self::QueueFull,
        Self::PushedOut,
        Self::NoWorker,
        Self::Overloaded,
        Self::ClassRequests,
        Self::ClassInputTokens,
        Self::ClassCachedTokens,
    ];

    /// Returns the stable code of this reason that journals and callers see.
    pub fn code(self) -> &'static str {
        match self {
            Self::Duplicate => "duplicate",
            Self::QueueFull => "queue_full",
            Self::PushedOut => "pushed_out",
            Self::NoWorker => "no_worker",
            Self::Overloaded => "overloaded",
            Self::ClassRequests => "class_requests",
            Self::ClassInputTokens => "class_input_tokens",
            Self::ClassCachedTokens => "class_cached_tokens",
        }
    }
}

/// Error for an event whose time is before the time of the last event. The pool has not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeWentBackError {
    /// Present time of the pool, which is the time of its last event.
    pub now: Micros,
    /// Time of the event that was refused.
    pub at: Micros,
}

impl fmt::Display for TimeWentBackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "time goes back from {} µs to {} µs", self.now.0, self.at.0)
    }
}

impl core::error::Error for TimeWentBackError {}

/// Receiver of the decisions of a pool.
pub trait DecisionSink {
    /// Receives one decision, in the order in which decisions are made.
    fn decided(&mut self, decision: Decision);

    /// Reports that a submit was accepted. The request has this handle while it waits and while it is in flight. A
    /// decision about it may follow at once. The journal has no line for the acceptance. A caller that keeps its own
    /// data about a request can store the data under this handle.
    fn accepted(&mut self, _request: RequestHandle, _id: &Arc<str>) {}

    /// Returns true if this request's grant should carry its [`GrantExplanation`]. An explanation costs a copy of the
    /// nodes on the request's path, so return true for single requests only, not for all.
    fn wants_why(&self, _id: &str) -> bool {
        false
    }
}

impl DecisionSink for Vec<Decision> {
    fn decided(&mut self, decision: Decision) {
        self.push(decision);
    }
}
