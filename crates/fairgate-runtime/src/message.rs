//! What reaches the task.

use std::sync::Arc;

use fairgate_core::Handle;
use fairgate_core::decision::Grant;
use fairgate_core::event::Submit;
use fairgate_core::units::{Micros, Tokens};
use tokio::time::Instant;

use crate::desk::Desk;
use crate::handoff::Giver;
use crate::refused::Refused;

/// One admission: ids may be used again, tickets never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket(pub(crate) u64);

/// What becomes of a request that was submitted.
pub(crate) type Answer = Result<Grant, Refused>;

/// Which request a letter is about.
#[derive(Clone, Debug)]
pub(crate) struct Name {
    pub(crate) id: Arc<str>,
    pub(crate) ticket: Ticket,
    /// Its handle, once it was granted.
    pub(crate) request: Option<Handle>,
}

/// Work that the task does at the desk, with the time at which it comes to it.
pub(crate) type Errand = Box<dyn FnOnce(&mut Desk, Micros) + Send>;

/// A letter to the task.
pub(crate) enum Message {
    /// A request asks for a slot.
    Submit { name: Name, submit: Box<Submit>, giver: Giver<Answer> },
    /// Its owner left before it had its answer.
    Left(Name),
    /// A permit has ended.
    Ended { name: Name, end: End },
    /// A permit's request has given its first token.
    FirstToken(Name),
    /// An operator or an observer wants something.
    Errand(Errand),
    /// The state file was written, or could not be.
    Saved(Result<(), String>),
    /// The gate is to close.
    Drain { until: Option<Instant> },
}

/// How a permit ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct End {
    /// What was used; unknown where absent.
    pub(crate) tokens: Option<Tokens>,
    /// What its provider counted; its tokens where absent.
    pub(crate) quota: Option<Tokens>,
    /// Whether the holder said that it was done.
    pub(crate) how: How,
}

/// What the holder of a permit said at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// It is complete.
    Settled,
    /// It failed.
    Failed,
    /// It never ran.
    GivenBack,
    /// Nothing: the permit was dropped.
    Dropped,
}

impl Message {
    /// Whether it took one of the turns that bound the mailbox.
    pub(crate) fn has_turn(&self) -> bool {
        matches!(self, Self::Submit { .. } | Self::Errand(_))
    }
}
