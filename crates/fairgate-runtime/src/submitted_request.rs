//! Types for the messages between callers and the pool's task about one submitted request: its
//! identity, its answer and its end.

use std::sync::Arc;

use fairgate_core::RequestHandle;
use fairgate_core::decision::Grant;
use fairgate_core::units::Tokens;

use crate::admit_error::AdmitError;

/// Unique number of one admission. Request ids may be used again; tickets never are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AdmissionTicket(pub(crate) u64);

/// Answer to a submitted request: a grant, or the refusal.
pub(crate) type AdmissionAnswer = Result<Grant, AdmitError>;

/// Identifies one submitted request in the messages to the pool's task.
#[derive(Clone, Debug)]
pub(crate) struct SubmittedRequest {
    pub(crate) id: Arc<str>,
    pub(crate) ticket: AdmissionTicket,
    /// Handle of the request in the pool; set once the request was granted.
    pub(crate) request: Option<RequestHandle>,
}

/// End of a permit, as its holder reported it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PermitEnd {
    /// Used tokens; `None` if they are unknown, so that the request's cost is charged.
    pub(crate) tokens: Option<Tokens>,
    /// Tokens that the provider counted; `None` if the provider counted the same number as `tokens`.
    pub(crate) quota: Option<Tokens>,
    /// Call by which the permit ended.
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
    /// The permit was dropped without such a call.
    Dropped,
}
