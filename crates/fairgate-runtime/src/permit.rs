//! A granted slot, given back exactly once.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use fairgate_core::decision::{Grant, GrantedPlace};
use fairgate_core::units::Tokens;

use crate::mailbox::Mailbox;
use crate::message::{End, How, Message, Name};

/// A slot of the pool. It is given back exactly once: by [`settle`](Self::settle), [`fail`](Self::fail) or
/// [`give_back`](Self::give_back), and where none of them is called (a panic, an early return, a client that left
/// and whose future was dropped) by its `Drop`.
///
/// Dropped, it is charged what [`note_used`](Self::note_used) said last. Where nothing was noted, what it used is
/// unknown, and its cost is charged: were it free, leaving before the end would be a way to more than one's share.
///
/// Giving back never waits and never fails. Where the gate's task has ended there is nothing left to give back to:
/// the state that the task saved counts the request as in flight, and the next start resolves it.
#[must_use = "a permit that is dropped gives its slot back"]
pub struct Permit {
    mailbox: Arc<Mailbox<Message>>,
    name: Name,
    grant: Grant,
    used: Option<Tokens>,
    quota: Option<Tokens>,
    first_token_seen: bool,
    over: bool,
}

impl Permit {
    pub(crate) fn new(mailbox: Arc<Mailbox<Message>>, name: Name, grant: Grant) -> Self {
        Self { mailbox, name, grant, used: None, quota: None, first_token_seen: false, over: false }
    }

    /// The request's id.
    pub fn id(&self) -> &str {
        &self.name.id
    }

    /// The worker and rank that the request goes to, where the pool has workers.
    pub fn place(&self) -> Option<&GrantedPlace> {
        self.grant.place.as_ref()
    }

    /// Whether it waited longer than the pool's brownout wait, where the pool has one.
    pub fn brownout(&self) -> Option<bool> {
        self.grant.brownout
    }

    /// How long it waited.
    pub fn waited(&self) -> Duration {
        Duration::from_micros(self.grant.waited.0)
    }

    /// Says that the first token has come: the worker's prefill is done. Only the first call counts.
    pub fn first_token(&mut self) {
        if !self.first_token_seen {
            self.first_token_seen = true;
            let _ = self.mailbox.send(Message::FirstToken(self.name.clone()));
        }
    }

    /// Notes how many tokens were used so far, in all: what is charged if the permit is dropped. The last note counts.
    pub fn note_used(&mut self, so_far: Tokens) {
        self.used = Some(so_far);
    }

    /// Notes how many tokens the provider counts for this request, where that is not what the scheduler charges: what
    /// is taken from the worker's token rate at the end. The last note counts.
    pub fn note_quota(&mut self, quota: Tokens) {
        self.quota = Some(quota);
    }

    /// The request is complete and used this many tokens.
    pub fn settle(mut self, tokens: Tokens) {
        self.end(Some(tokens), How::Settled);
    }

    /// The request failed, having used this many tokens.
    pub fn fail(mut self, tokens_so_far: Tokens) {
        self.end(Some(tokens_so_far), How::Failed);
    }

    /// The request never ran: the slot goes back, with 0 tokens used.
    ///
    /// A `share` node counts 1 token for it, the least for a request that was granted, and so does the meter of what its
    /// flows got. A `drr` class has paid the cost at the grant and does not get it back. A worker's token rate gets back
    /// what the grant took, or all but what [`note_quota`](Self::note_quota) said; its request rate gets nothing back.
    pub fn give_back(mut self) {
        self.end(Some(Tokens(0)), How::GivenBack);
    }

    fn end(&mut self, tokens: Option<Tokens>, how: How) {
        if std::mem::replace(&mut self.over, true) {
            return;
        }
        let end = End { tokens, quota: self.quota, how };
        // Returned where the task has ended: then there is nothing left to give back to.
        let _ = self.mailbox.send(Message::Ended { name: self.name.clone(), end });
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.end(self.used, How::Dropped);
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
