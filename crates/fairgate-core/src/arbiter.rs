//! What every discipline of the tree can do, so that they compose to any depth.
//!
//! A node's arbiter knows its flows by a local number and what is inside them by one thing only: their
//! head. The tree tells it what arrived, left and ended; after each step the tree *looks*, which is when
//! readiness is noticed; then the arbiter is asked to pick. Picking decides nothing yet: only [`Arbiter::charge`],
//! for the flow that was last picked, moves credit, cursor, scores and virtual time.

use crate::requests::{Handle, Request, Requests, Seq};
use crate::units::{Micros, Ticks, Tokens, Weight};

/// A flow's number within its node.
pub(crate) type Local = u32;

/// What a flow would dispatch next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) request: Handle,
    pub(crate) seq: Seq,
    pub(crate) cost: Tokens,
}

/// What an arbiter may know of the pool around it.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    pub(crate) requests: &'a Requests,
    pub(crate) now: Micros,
    pub(crate) ticks: Ticks,
    pub(crate) capacity: u64,
}

/// A flow as the tree sees it when it looks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View {
    /// What it would dispatch; none where it is held, at its cap, or nothing inside is ready.
    pub(crate) head: Option<Head>,
    pub(crate) waiting: u32,
    pub(crate) in_flight: u32,
    /// Its oldest waiting request; only load nodes are told.
    pub(crate) oldest: Option<Oldest>,
    /// Whether that one has an open place.
    pub(crate) oldest_open: bool,
}

/// The oldest request that waits in a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Oldest {
    pub(crate) request: Handle,
    pub(crate) seq: Seq,
    /// The pool's ticks when it came.
    pub(crate) tick: Ticks,
}

/// The flow that goes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pick {
    pub(crate) flow: Local,
    /// The request that it dispatches instead of its head: its oldest, where that is late.
    pub(crate) late: Option<Handle>,
}

/// How a granted request ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    pub(crate) cost: Tokens,
    /// What it is charged in the end: its real tokens, at least 1; its cost where they are not known.
    pub(crate) used: Tokens,
    /// What [`Arbiter::charge`] gave when the request was granted.
    pub(crate) generation: u64,
}

impl Ended {
    /// How much more it used than it was charged at its grant.
    pub(crate) fn error(&self) -> i128 {
        i128::from(self.used.0) - i128::from(self.cost.0)
    }
}

/// What must be looked at again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Touched {
    /// Nothing: no flow's readiness and no pick can have changed.
    Nothing,
    /// The node: another flow may go next.
    Node,
    /// The flow: it may turn ready.
    Flow,
}

/// A discipline over the flows of one node.
pub(crate) trait Arbiter {
    /// A request starts to wait in a flow. Says whether the flow must be looked at even where its head is the same.
    fn arrived(&mut self, _flow: Local, _request: &Request) -> bool {
        false
    }

    /// A request no longer waits in a flow, in which `remaining` others still do. Says the same.
    fn left(&mut self, _flow: Local, _request: &Request, _remaining: u32) -> bool {
        false
    }

    /// The flow may have changed: its head, its readiness, its counters.
    fn look(&mut self, flow: Local, view: View, cx: Context<'_>);

    /// All flows that may have changed have been looked at. `blocked`: nothing anywhere in the pool has an
    /// open place, whatever the last look said.
    fn looked(&mut self, _blocked: bool) {}

    /// Which flow goes next. Asking changes no decision; a cache may be brought up to date.
    fn pick(&mut self, cx: Context<'_>) -> Option<Pick>;

    /// The picked flow's head is granted; returns what [`Ended::generation`] must carry.
    fn charge(&mut self, flow: Local, cost: Tokens) -> u64;

    /// A granted request of the flow has ended. Says what must be looked at.
    fn settle(&mut self, flow: Local, ended: Ended) -> Touched;

    /// The pool's tick counter has risen.
    fn tick(&mut self, _ticks: Ticks) {}

    /// The flow has a new weight.
    fn reweigh(&mut self, _flow: Local, _weight: Weight) {}
}
