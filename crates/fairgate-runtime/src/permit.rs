//! A granted slot, which is given back exactly once.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use fairgate_core::decision::{Grant, GrantedPlace};
use fairgate_core::units::Tokens;

use crate::mailbox::TaskMailbox;
use crate::message::PoolMessage;
use crate::submitted_request::{PermitEnd, PermitOutcome, SubmittedRequest};

/// A slot of the pool. It is given back exactly once: by [`settle`](Self::settle),
/// [`fail`](Self::fail) or [`give_back`](Self::give_back), or by dropping the permit if none of
/// them was called. This covers a panic, an early return, and a future that was dropped because its
/// client left.
///
/// A dropped permit is charged the last value of [`note_used`](Self::note_used). Without such a
/// value, the usage is unknown and the request's cost is charged. Otherwise clients could get more
/// than their share by leaving before the end.
///
/// Giving back never waits and never fails. If the gate's task has ended, giving back has no effect: the state file
/// lists the request as in flight, and the next [`start`](fn@crate::start) ends it.
#[must_use = "a permit that is dropped gives its slot back"]
pub struct Permit {
    mailbox: Arc<TaskMailbox<PoolMessage>>,
    name: SubmittedRequest,
    grant: Grant,
    used: Option<Tokens>,
    quota: Option<Tokens>,
    first_token_seen: bool,
    over: bool,
}

impl Permit {
    pub(crate) fn new(
        mailbox: Arc<TaskMailbox<PoolMessage>>,
        name: SubmittedRequest,
        grant: Grant,
    ) -> Self {
        Self { mailbox, name, grant, used: None, quota: None, first_token_seen: false, over: false }
    }

    /// Returns the id of the request.
    pub fn id(&self) -> &str {
        &self.name.id
    }

    /// Returns the worker and rank that must run the request; `None` if the pool has no workers.
    pub fn place(&self) -> Option<&GrantedPlace> {
        self.grant.place.as_ref()
    }

    /// Returns true if the request waited longer than the pool's brownout wait; `None` if the pool has no brownout
    /// wait.
    pub fn brownout(&self) -> Option<bool> {
        self.grant.brownout
    }

    /// Returns the time for which the request was queued.
    pub fn waited(&self) -> Duration {
        Duration::from_micros(self.grant.waited.0)
    }

    /// Reports the first token, which shows that the worker has finished the prefill. Only the
    /// first call has an effect.
    pub fn first_token(&mut self) {
        if !self.first_token_seen {
            self.first_token_seen = true;
            let _ = self.mailbox.send(PoolMessage::FirstToken(self.name.clone()));
        }
    }

    /// Sets the total number of tokens that the request has used so far. Each call replaces the value of the call
    /// before. If the permit is dropped without a report, the request is charged the last value.
    pub fn note_used(&mut self, so_far: Tokens) {
        self.used = Some(so_far);
    }

    /// Sets the number of tokens that the provider counts for this request, if it differs from the tokens that the
    /// scheduler charges. When the permit ends, the worker's token rate is corrected to this number. Each call replaces
    /// the value of the call before.
    pub fn note_quota(&mut self, quota: Tokens) {
        self.quota = Some(quota);
    }

    /// Ends the permit of a request that completed and used this many tokens.
    pub fn settle(mut self, tokens: Tokens) {
        self.end(Some(tokens), PermitOutcome::Settled);
    }

    /// Ends the permit of a request that failed after it used this many tokens.
    pub fn fail(mut self, tokens_so_far: Tokens) {
        self.end(Some(tokens_so_far), PermitOutcome::Failed);
    }

    /// Ends the permit of a request that never ran. The slot is free again, with 0 tokens used.
    ///
    /// A `share` node charges 1 token, the minimum for a granted request, and the flow's service meter also counts 1. A
    /// `drr` class paid the cost at the grant and does not get it back. The worker's token rate gets back the tokens
    /// that the grant took, minus the value of [`note_quota`](Self::note_quota) if one was set. The worker's request
    /// rate gets nothing back.
    pub fn give_back(mut self) {
        self.end(Some(Tokens(0)), PermitOutcome::GivenBack);
    }

    fn end(&mut self, tokens: Option<Tokens>, how: PermitOutcome) {
        if std::mem::replace(&mut self.over, true) {
            return;
        }
        let end = PermitEnd { tokens, quota: self.quota, how };
        // Sending fails if the task has ended; there is then no pool to give the slot back to.
        let _ = self.mailbox.send(PoolMessage::Ended { name: self.name.clone(), end });
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.end(self.used, PermitOutcome::Dropped);
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit")
            .field("id", &self.name.id)
            .field("grant", &self.grant)
            .field("used", &self.used)
            .finish_non_exhaustive()
    }
}
