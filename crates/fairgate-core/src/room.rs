//! Room in the queue: which limit a newcomer meets, and who leaves where there is none.
//!
//! The loud make room for the quiet: from the root down, the flow in which the most requests wait, and in its queue
//! the last. The fullest flow of each node is kept at hand, so this too costs O(log flows) a level.

use alloc::vec::Vec;

use crate::decision::{Limit, Reason};
use crate::requests::{Handle, Request, Requests};
use crate::tree::{Child, Tree};
use crate::workers::Workers;

/// Who must go when the pool's queue is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Victim {
    Newcomer,
    Waiting(Handle),
}

impl Tree {
    /// The flows on the way to a queue, from the root down.
    fn way_to(&self, queue: u32) -> Vec<u32> {
        let mut way: Vec<u32> = self.flows_around(queue).collect();
        way.reverse();
        way
    }

    /// Who must make room for a newcomer to a queue: the last of the fullest flow, level by level.
    pub(crate) fn victim(&self, queue: u32, newcomer: &Request, requests: &Requests) -> Victim {
        let way = self.way_to(queue);
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
                (None, None) => return Victim::Newcomer,
            };
            counts_newcomer &= own == Some(chosen);
            match self.flows[chosen as usize].child {
                Child::Node(inside) => node = inside,
                Child::Queue(queue) => {
                    let queue = &self.queues[queue as usize];
                    return match queue.last() {
                        Some(last)
                            if !(counts_newcomer && queue.would_be_last(newcomer, requests)) =>
                        {
                            Victim::Waiting(last)
                        }
                        _ => Victim::Newcomer,
                    };
                }
            }
        }
    }

    /// The first class limit on the way to a queue, from the root, that is reached already.
    pub(crate) fn class_limit(&self, queue: u32, workers: &Workers) -> Option<(Reason, Limit)> {
        let has_limits =
            |flow: &u32| self.nodes[self.flows[*flow as usize].node as usize].has_limits;
        if !self.flows_around(queue).any(|flow| has_limits(&flow)) {
            return None;
        }
        self.way_to(queue).into_iter().filter(has_limits).find_map(|flow| {
            let flow = &self.flows[flow as usize];
            let limits = self.nodes[flow.node as usize].level.limits(&flow.name);
            let waiting = u128::from(flow.waiting);
            let tests = [
                (Reason::ClassRequests, waiting, limits.requests_per_worker),
                (Reason::ClassInputTokens, flow.input, limits.input_tokens_per_worker.map(|t| t.0)),
                (
                    Reason::ClassCachedTokens,
                    flow.cached,
                    limits.cached_tokens_per_worker.map(|t| t.0),
                ),
            ];
            tests.into_iter().find_map(|(reason, current, per_worker)| {
                let limit = u128::from(per_worker?) * u128::from(workers.counted());
                let class = Some(flow.name.clone());
                (current >= limit).then_some((reason, Limit { class, current, limit }))
            })
        })
    }
}
