//! Room in a full queue: tests the limits of classes for a newcomer, and finds the request that leaves if the pool's
//! queue is full.
//!
//! The flow with the largest backlog makes room. At each node, from the root down, the flow with the most waiting
//! requests is chosen. The last request of the queue at the end of this path leaves. Each node keeps its fullest flow
//! in a tournament tree, so the choice costs O(log flows) per level.

use alloc::vec::Vec;

use crate::decision::{RejectionLimit, RejectionReason};
use crate::requests::{PoolRequestState, RequestHandle, RequestTable};
use crate::tree::{FlowChild, PolicyTree};
use crate::workers::PoolWorkers;

/// The request that must leave when the pool's queue is full, which is the newcomer or a waiting request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EvictionVictim {
    Newcomer,
    Waiting(RequestHandle),
}

impl PolicyTree {
    /// Returns the flows on the path to a queue, from the root down.
    fn path_to(&self, queue: u32) -> Vec<u32> {
        let mut way: Vec<u32> = self.flows_around(queue).collect();
        way.reverse();
        way
    }

    /// Returns the request that must make room for a newcomer to a queue. This is the last request of the fullest flow,
    /// which is chosen level by level with the newcomer counted in.
    pub(crate) fn victim(
        &self,
        queue: u32,
        newcomer: &PoolRequestState,
        requests: &RequestTable,
    ) -> EvictionVictim {
        let way = self.path_to(queue);
        let mut node = crate::tree::ROOT;
        let mut own_way = way.iter().copied();
        let mut counts_newcomer = true;
        loop {
            let own = own_way.next().filter(|_| counts_newcomer);
            let most = self.fullest(node);
            let waiting = |flow: u32| self.flows[flow as usize].waiting;
            let chosen = match (own, most) {
                (Some(own), Some(most)) if waiting(own) + 1 < waiting(most) => most,
                (Some(own), _) => own,
                (None, Some(most)) => most,
                (None, None) => return EvictionVictim::Newcomer,
            };
            counts_newcomer &= own == Some(chosen);
            match self.flows[chosen as usize].child {
                FlowChild::Node(inside) => node = inside,
                FlowChild::Queue(queue) => {
                    let queue = &self.queues[queue as usize];
                    return match queue.last() {
                        Some(last)
                            if !(counts_newcomer && queue.would_be_last(newcomer, requests)) =>
                        {
                            EvictionVictim::Waiting(last)
                        }
                        _ => EvictionVictim::Newcomer,
                    };
                }
            }
        }
    }

    /// Returns the first class limit, from the root down, that is already reached on the path to a queue; `None` if no
    /// limit is reached.
    pub(crate) fn class_limit(
        &self,
        queue: u32,
        workers: &PoolWorkers,
    ) -> Option<(RejectionReason, RejectionLimit)> {
        let has_limits =
            |flow: &u32| self.nodes[self.flows[*flow as usize].node as usize].has_limits;
        if !self.flows_around(queue).any(|flow| has_limits(&flow)) {
            return None;
        }
        self.path_to(queue).into_iter().filter(has_limits).find_map(|flow| {
            let flow = &self.flows[flow as usize];
            let limits = self.nodes[flow.node as usize].level.limits(&flow.name);
            let waiting = u128::from(flow.waiting);
            let tests = [
                (RejectionReason::ClassRequests, waiting, limits.requests_per_worker),
                (
                    RejectionReason::ClassInputTokens,
                    flow.input,
                    limits.input_tokens_per_worker.map(|t| t.0),
                ),
                (
                    RejectionReason::ClassCachedTokens,
                    flow.cached,
                    limits.cached_tokens_per_worker.map(|t| t.0),
                ),
            ];
            tests.into_iter().find_map(|(reason, current, per_worker)| {
                let limit = u128::from(per_worker?) * u128::from(workers.counted());
                let class = Some(flow.name.clone());
                (current >= limit).then_some((reason, RejectionLimit { class, current, limit }))
            })
        })
    }
}
