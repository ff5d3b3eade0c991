//! How much each caller may ask, before anything is submitted: requests and tokens a minute, and how much it may have
//! waiting. All in memory, for this process.

use fairgate_dialect::Problem;
use std::time::{Duration, Instant};

use crate::identity::Caller;

/// The counters of all tenants and keys; bounded by the directory.
pub struct Limits {/* control plane */}

/// A request that waits: counted in its tenant's and key's queue until this is dropped (when it is granted, refused, or
/// its caller leaves).
#[must_use]
pub struct Queued {/* control plane */}

/// Why a limit refuses, and when to come back.
#[derive(Debug)]
pub struct Limited {
    /// 429 `rate_limited_requests`, `rate_limited_tokens`, `queue_requests_exceeded`, `queue_bytes_exceeded`; the message
    /// names whose limit, how full it is and how much it holds.
    pub problem: Problem,
    /// When to come back.
    pub retry_after: Duration,
}

#[allow(clippy::todo, unused_variables, missing_docs, clippy::new_without_default)]
impl Limits {
    pub fn new() -> Self {
        todo!()
    }

    /// Counts a request in: one request, `estimate` tokens, and `bytes` that wait. Refuses and counts nothing where a
    /// limit is reached. Token buckets hold one minute's worth and fill continuously.
    pub fn enter(
        &self,
        caller: &Caller,
        bytes: u64,
        estimate: u64,
        now: Instant,
    ) -> Result<Queued, Limited> {
        todo!()
    }

    /// Corrects the tokens of a minute: `estimate` was taken at [`enter`](Self::enter), `charged` was used.
    pub fn settle(&self, caller: &Caller, estimate: u64, charged: u64, now: Instant) {
        todo!()
    }
}
