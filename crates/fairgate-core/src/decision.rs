//! What a pool decides.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use crate::explain::Why;
use crate::requests::Handle;
use crate::units::{Micros, Tokens};

/// One decision about one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It has a slot.
    Grant(Grant),
    /// It is refused.
    Reject(Reject),
    /// It waited too long.
    Expire {
        /// The handle it had; it may be another's from now on.
        request: Handle,
        /// Which request.
        id: Arc<str>,
    },
}

/// A granted request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Its handle until it ends.
    pub request: Handle,
    /// Which request.
    pub id: Arc<str>,
    /// What it is charged until it ends.
    pub cost: Tokens,
    /// How long it waited.
    pub waited: Micros,
    /// Whether it waited longer than the pool's brownout wait, where the pool has one.
    pub brownout: Option<bool>,
    /// Where it runs, where the pool has workers.
    pub place: Option<GrantedPlace>,
    /// The numbers that decided, where the sink asked for them.
    pub why: Option<Box<Why>>,
}

/// The worker and rank that a granted request goes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantedPlace {
    /// The worker's name.
    pub worker: Arc<str>,
    /// The rank, counted from 0.
    pub rank: u32,
}

/// A refused request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reject {
    /// The handle it had, where it had been accepted before; it may be another's from now on.
    pub request: Option<Handle>,
    /// Which request.
    pub id: Arc<str>,
    /// Which test it failed.
    pub reason: Reason,
    /// The limit that was reached, where the reason is one.
    pub limit: Option<Limit>,
}

/// A limit that refused a request: how full it was and how much it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The class whose limit it is; the pool's own where absent.
    pub class: Option<Arc<str>>,
    /// How much was in it.
    pub current: u128,
    /// How much it holds.
    pub limit: u128,
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// Its id waits or is in flight already.
    Duplicate,
    /// The queue is full, and its own flow is the one that must make room.
    QueueFull,
    /// The queue was full, and it made room for a newcomer of a quieter flow.
    PushedOut,
    /// No worker may ever take it.
    NoWorker,
    /// Every worker that may take it is overloaded.
    Overloaded,
    /// Too many requests wait in its class.
    ClassRequests,
    /// Too many input tokens wait in its class.
    ClassInputTokens,
    /// Too many cached tokens wait in its class.
    ClassCachedTokens,
}

impl Reason {
    /// All reasons.
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

    /// The stable code that journals and callers see.
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

/// An event came with a time before that of the event before it. The pool has not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeWentBack {
    /// The pool's time.
    pub now: Micros,
    /// The event's time.
    pub at: Micros,
}

impl fmt::Display for TimeWentBack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "time goes back from {} µs to {} µs", self.now.0, self.at.0)
    }
}

impl core::error::Error for TimeWentBack {}

/// Where a pool's decisions go.
pub trait Sink {
    /// Takes one decision.
    fn decided(&mut self, decision: Decision);

    /// A submit was accepted: the request waits under this handle until it is decided about, which may be right after
    /// this. No decision of the journal says so; a shell learns here where to keep what belongs to the request.
    fn accepted(&mut self, _request: Handle, _id: &Arc<str>) {}

    /// Whether this request's grant should carry its [`Why`]. It costs a copy of the nodes on its path: ask for the
    /// requests that somebody wants explained, not for all.
    fn wants_why(&self, _id: &str) -> bool {
        false
    }
}

impl Sink for Vec<Decision> {
    fn decided(&mut self, decision: Decision) {
        self.push(decision);
    }
}
