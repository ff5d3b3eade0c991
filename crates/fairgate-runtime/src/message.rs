//! Messages to the pool's task.

use std::sync::Arc;

use fairgate_core::RequestHandle;
use fairgate_core::decision::Grant;
use fairgate_core::event::Submit;
use fairgate_core::units::{Micros, Tokens};
use tokio::time::Instant;

use crate::admit_error::AdmitError;
use crate::handoff::HandoffSender;
use crate::pool_task::PoolTask;

/// Unique number of one admission. Request ids may be reused; tickets never are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AdmissionTicket(pub(crate) u64);

/// Answer to a submitted request: a grant, or the refusal.
pub(crate) type AdmissionAnswer = Result<Grant, AdmitError>;

/// Identifies the request that a message is about.
#[derive(Clone, Debug)]
pub(crate) struct SubmittedRequest {
    pub(crate) id: Arc<str>,
    pub(crate) ticket: AdmissionTicket,
    /// Handle of the request in the pool; set once the request was granted.
    pub(crate) request: Option<RequestHandle>,
}

/// Closure that the task runs on its state. The second argument is the pool's time when it runs.
pub(crate) type PoolOperation = Box<dyn FnOnce(&mut PoolTask, Micros) + Send>;

/// Message to the pool's task.
pub(crate) enum PoolMessage {
    /// Submits a request for a slot.
    Submit { name: SubmittedRequest, submit: Box<Submit>, giver: HandoffSender<AdmissionAnswer> },
    /// Reports that the caller left before the request got its answer.
    Abandoned(SubmittedRequest),
    /// Reports that a permit has ended.
    Ended { name: SubmittedRequest, end: PermitEnd },
    /// Reports the first token of a permit's request.
    FirstToken(SubmittedRequest),
    /// Runs a closure on the task's state, for an operator or an observer.
    Run(PoolOperation),
    /// Reports the result of writing the state file.
    Saved(Result<(), String>),
    /// Closes the gate once nothing is in flight, or at `until`, whichever is first; `None` sets no such time.
    Drain { until: Option<Instant> },
}

/// End of a permit, as its holder reported it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PermitEnd {
    /// Tokens used; `None` if unknown, and then the request's cost is charged.
    pub(crate) tokens: Option<Tokens>,
    /// Tokens that the provider counted; `None` if the provider counted the same number as `tokens`.
    pub(crate) quota: Option<Tokens>,
    /// Call that ended the permit.
    pub(crate) how: PermitOutcome,
}

/// Call by which a permit ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PermitOutcome {
    /// The request completed ([`Permit::settle`](crate::permit::Permit::settle)).
    Settled,
    /// The request failed ([`Permit::fail`](crate::permit::Permit::fail)).
    Failed,
    /// The request never ran ([`Permit::give_back`](crate::permit::Permit::give_back)).
    GivenBack,
    /// The permit was dropped without any call.
    Dropped,
}

impl PoolMessage {
    /// Returns true if sending the message took one of the turns that bound the unread messages.
    pub(crate) fn has_turn(&self) -> bool {
        matches!(self, Self::Submit { .. } | Self::Run(_))
    }
}
