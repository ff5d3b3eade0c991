//! What there is to tell about a request.

use std::sync::Arc;

use fairgate_core::attribute::Attributes;
use fairgate_core::decision::{Grant, Reject};
use fairgate_core::event::Event;
use fairgate_core::explain::Waiting;
use fairgate_core::units::{Micros, Tokens};

use super::super::path::Level;
use super::settlement::Settled;

/// One request of the id that was asked for.
#[derive(Debug)]
pub(crate) struct Chapter {
    /// Where it was submitted; before this journal where no line says it.
    pub(crate) submitted: When,
    pub(crate) attributes: Attributes,
    /// What it is charged. Of one that was refused as it came, what it said.
    pub(crate) cost: Option<Tokens>,
    pub(crate) priority: i64,
    /// The flows it goes into.
    pub(crate) path: Vec<Level>,
    /// What it had to wait for when it came.
    pub(crate) arrival: Option<Box<Waiting>>,
    /// What happened while it waited.
    pub(crate) moments: Vec<Moment>,
    /// How much more happened that could have changed its place.
    pub(crate) untold: u64,
    pub(crate) fate: Fate,
}

/// A time, and the line of the journal that brought it; none where no line says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct When {
    pub(crate) line: Option<u64>,
    pub(crate) at: Micros,
}

/// Something that happened while a request waited, and what it waited for then.
#[derive(Debug)]
pub(crate) struct Moment {
    pub(crate) when: When,
    pub(crate) event: Event,
    pub(crate) waiting: Box<Waiting>,
}

/// What became of a request.
#[derive(Debug)]
pub(crate) enum Fate {
    /// It still waits at the end of the journal.
    Waits,
    /// It was cancelled while it waited.
    GaveUp { when: When },
    /// It was rejected, maybe because of something else that came then.
    Refused { when: When, reject: Reject, cause: Cause },
    /// It waited too long.
    Expired { when: When, timeout: Option<Micros> },
    /// It was granted.
    Granted(Box<Flight>),
}

/// What a rejection was decided on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The request itself, as it came.
    ItsOwn,
    /// The submit of another request.
    Newcomer(Arc<str>),
    /// A change of a worker.
    Worker(Box<str>),
}

/// A request that was granted.
#[derive(Debug)]
pub(crate) struct Flight {
    pub(crate) when: When,
    pub(crate) grant: Grant,
    pub(crate) first_token: Option<When>,
    pub(crate) ending: Option<Ending>,
}

/// How a flight ended, and what that did to the books.
#[derive(Debug)]
pub(crate) struct Ending {
    pub(crate) when: When,
    pub(crate) cancelled: bool,
    pub(crate) tokens: Option<Tokens>,
    pub(crate) settled: Vec<Settled>,
}
