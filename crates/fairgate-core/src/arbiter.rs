//! The interface of every scheduling discipline, so that disciplines nest to any depth.
//!
//! An arbiter schedules the flows of one node. The arbiter knows each flow by its index within the node. Of a flow's
//! requests it knows only the head, the request that the flow would dispatch next. The tree reports arrivals,
//! departures and ended requests to the arbiter. After each step comes a *look*, in which the tree reports the flows
//! whose readiness may have changed. Then the arbiter picks a flow. A pick alone changes no state that decides. Credit,
//! cursor, scores and virtual time change only when the tree calls [`Arbiter::charge`] for the picked flow.

use crate::requests::{PoolRequestState, RequestHandle, RequestTable, SubmitSeq};
use crate::units::{Micros, Ticks, Tokens, Weight};

/// The index of a flow within its node.
pub(crate) type LocalFlow = u32;

/// The request that a flow would dispatch next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FlowHead {
    pub(crate) request: RequestHandle,
    pub(crate) seq: SubmitSeq,
    pub(crate) cost: Tokens,
}

/// The part of the pool's state that an arbiter may read.
#[derive(Clone, Copy)]
pub(crate) struct ArbiterContext<'a> {
    pub(crate) requests: &'a RequestTable,
    pub(crate) now: Micros,
    pub(crate) ticks: Ticks,
    pub(crate) capacity: u64,
}

/// The state of a flow as the tree reports it in a look.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlowUpdate {
    /// The request that the flow would dispatch next; `None` if the flow is held, at its cap, or nothing inside it is
    /// ready.
    pub(crate) head: Option<FlowHead>,
    pub(crate) waiting: u32,
    pub(crate) in_flight: u32,
    /// The flow's oldest waiting request; filled in for load nodes only.
    pub(crate) oldest: Option<OldestRequest>,
    /// True if a worker has room for the request in `oldest`.
    pub(crate) oldest_open: bool,
    /// True if the flow is held or at its cap. Such a flow is not ready, even if a worker has room.
    pub(crate) is_kept: bool,
    /// True if the flow may join a group, which is a set of flows that always become ready together and stop being
    /// ready together. Filled in for share nodes only.
    pub(crate) may_join: bool,
}

/// The oldest request that waits in a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OldestRequest {
    pub(crate) request: RequestHandle,
    pub(crate) seq: SubmitSeq,
    /// The pool's tick count when the request was submitted.
    pub(crate) tick: Ticks,
}

/// The flow that a node dispatches from next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FlowPick {
    pub(crate) flow: LocalFlow,
    /// The request that the flow dispatches instead of its head. This is the flow's oldest request if that request is
    /// late, and `None` otherwise.
    pub(crate) late: Option<RequestHandle>,
}

/// The settlement of a granted request that has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EndedRequest {
    pub(crate) cost: Tokens,
    /// Tokens that the request is charged after it has ended: its real usage, but at least 1; its cost if the usage is
    /// unknown.
    pub(crate) used: Tokens,
    /// The value that [`Arbiter::charge`] returned when the request was granted.
    pub(crate) generation: u64,
}

impl EndedRequest {
    /// Returns the tokens used beyond the charge at the grant; below 0 if the request used less than its cost.
    pub(crate) fn error(&self) -> i128 {
        i128::from(self.used.0) - i128::from(self.cost.0)
    }
}

/// The part of the tree that a settlement may have changed. The tree must look at that part again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SettleEffect {
    /// No flow's readiness and no pick can have changed.
    Nothing,
    /// The node may pick another flow than before the settlement.
    Node,
    /// The flow may have become ready.
    Flow,
}

/// A scheduling discipline over the flows of one node.
pub(crate) trait Arbiter {
    /// Reports that a request starts to wait in a flow. Returns true if the flow must be looked at even if its head
    /// stays the same.
    fn arrived(&mut self, _flow: LocalFlow, _request: &PoolRequestState) -> bool {
        false
    }

    /// Reports that a request no longer waits in a flow. `remaining` is the number of requests that still wait in that
    /// flow. Returns true if the flow must be looked at even if its head stays the same.
    fn left(&mut self, _flow: LocalFlow, _request: &PoolRequestState, _remaining: u32) -> bool {
        false
    }

    /// Reports the present state of a flow whose head, readiness or counters may have changed.
    fn look(&mut self, flow: LocalFlow, view: FlowUpdate, cx: ArbiterContext<'_>);

    /// Reports that all flows that may have changed have been looked at. If `blocked` is true, no head of a queue in
    /// the pool has an open worker, even if a look reported one.
    fn looked(&mut self, _blocked: bool) {}

    /// Returns the flow that goes next; `None` if no flow is ready. Picking changes no decision, but may bring a cache
    /// up to date.
    fn pick(&mut self, cx: ArbiterContext<'_>) -> Option<FlowPick>;

    /// Reports that the head of the picked flow is granted. Returns the value that [`EndedRequest::generation`] must
    /// carry when the request ends.
    fn charge(&mut self, flow: LocalFlow, cost: Tokens) -> u64;

    /// Reports that a granted request of the flow has ended. Returns the part of the tree that must be looked at.
    fn settle(&mut self, flow: LocalFlow, ended: EndedRequest) -> SettleEffect;

    /// Reports that the pool's tick counter has risen.
    fn tick(&mut self, _ticks: Ticks) {}

    /// Changes the weight of a flow, or the quantum of a class. Disciplines without weights ignore the call.
    fn set_weight(&mut self, _flow: LocalFlow, _weight: Weight) {}
}
