//! What every discipline of the tree can do, so that they compose to any depth.
//!
//! A node's arbiter knows its flows by a local number and what is inside them by one thing only: their
//! head. The tree tells it what arrived, left and ended; after each step the tree *looks*, which is when
//! readiness is noticed; then the arbiter is asked to pick. Picking decides nothing yet: only [`Arbiter::charge`],
//! for the flow that was last picked, moves credit, cursor, scores and virtual time.

use crate::requests::{Requests, Seq, Slot};
use crate::units::{Ticks, Tokens, Weight};

/// A flow's number within its node.
pub(crate) type Local = u32;

/// What a flow would dispatch next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) slot: Slot,
    pub(crate) seq: Seq,
    pub(crate) cost: Tokens,
}

/// What an arbiter may know of the pool around it.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    pub(crate) requests: &'a Requests,
    pub(crate) ticks: Ticks,
    pub(crate) capacity: u64,
}

/// A flow as the tree sees it when it looks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View {
    /// What it would dispatch; none where it is held or nothing inside is ready.
    pub(crate) head: Option<Head>,
    pub(crate) waiting: u32,
    pub(crate) flying: u32,
    /// Whether its oldest request has an open place.
    pub(crate) oldest_open: bool,
}

/// The flow that goes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pick {
    pub(crate) flow: Local,
    /// Whether it dispatches its oldest request instead of its head.
    pub(crate) oldest: bool,
}

/// How a granted request ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    pub(crate) cost: Tokens,
    /// The real usage, where it was told.
    pub(crate) tokens: Option<Tokens>,
    /// What [`Arbiter::charge`] gave when the request was granted.
    pub(crate) generation: u64,
}

impl Ended {
    /// What the request is charged in the end: its real tokens, else its cost.
    pub(crate) fn used(&self) -> Tokens {
        self.tokens.unwrap_or(self.cost)
    }
}

/// A discipline over the flows of one node.
pub(crate) trait Arbiter {
    /// A request starts to wait in a flow in which `before` others do.
    fn arrived(&mut self, flow: Local, slot: Slot, before: u32, cx: Context<'_>);

    /// A request no longer waits in a flow, in which `remaining` others still do.
    fn left(&mut self, flow: Local, slot: Slot, remaining: u32, cx: Context<'_>);

    /// The flow may have changed: its head, its readiness, its counters.
    fn look(&mut self, flow: Local, view: View);

    /// All flows that may have changed have been looked at. `blocked`: nothing anywhere in the pool has an
    /// open place, whatever the last look said.
    fn looked(&mut self, _blocked: bool) {}

    /// Which flow goes next. Asking changes no decision; a cache may be brought up to date.
    fn pick(&mut self, cx: Context<'_>) -> Option<Pick>;

    /// The picked flow's head is granted; returns what [`Ended::generation`] must carry.
    fn charge(&mut self, flow: Local, cost: Tokens) -> u64;

    /// A granted request of the flow has ended.
    fn settle(&mut self, flow: Local, ended: Ended);

    /// The pool's tick counter has risen.
    fn tick(&mut self, _ticks: Ticks) {}

    /// The flow has a new weight.
    fn reweigh(&mut self, _flow: Local, _weight: Weight) {}

    /// The flow has a new cap.
    fn recap(&mut self, _flow: Local, _cap: Option<u64>) {}
}
