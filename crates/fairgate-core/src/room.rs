//! Room in the queue: which limit a newcomer meets, and who leaves where there is none.
//!
//! The loud make room for the quiet: from the root down, the flow in which the most requests wait, and in its queue
//! the last. The fullest flow of each node is kept at hand, so this too costs O(log flows) a level.

use core::cmp::Reverse;

use crate::attribute::Attributes;
use crate::decision::{Limit, Reason};
use crate::level::InsideLevel;
use crate::requests::{Request, Slot};
use crate::tree::{Child, Discipline, ROOT, Tree};
use crate::workers::Workers;

/// Who must go when the pool's queue is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Victim {
    Newcomer,
    Waiting(Slot),
}

impl Tree {
    /// Who must make room for a newcomer: the last of the fullest flow, level by level.
    pub(crate) fn victim(&self, attributes: &Attributes, newcomer: &Request) -> Victim {
        let mut node = &self.nodes[ROOT as usize];
        let mut counts_newcomer = true;
        loop {
            let own = node.flows.get(node.level.flow_name(attributes)).copied();
            let own_waiting = own.map_or(0, |flow| self.flows[flow as usize].waiting);
            let fullest = node.crowd.first();
            let is_own = counts_newcomer
                && fullest.is_none_or(|(Reverse(most), _, _)| own_waiting + 1 >= *most);
            let chosen = match (is_own, own, fullest) {
                (true, Some(flow), _) => flow,
                (true, None, _) | (false, _, None) => return Victim::Newcomer,
                (false, _, Some((_, _, flow))) => *flow,
            };
            counts_newcomer &= is_own;
            match self.flows[chosen as usize].child {
                Child::Node(inside) => node = &self.nodes[inside as usize],
                Child::Queue(queue) => {
                    let queue = &self.queues[queue as usize];
                    return match queue.last() {
                        Some(last) if !(counts_newcomer && queue.would_be_last(newcomer)) => {
                            Victim::Waiting(last)
                        }
                        _ => Victim::Newcomer,
                    };
                }
            }
        }
    }

    /// The first class limit on a request's path, from the root, that is reached already.
    pub(crate) fn class_limit(
        &self,
        attributes: &Attributes,
        workers: &Workers,
    ) -> Option<(Reason, Limit)> {
        let mut level = &self.nodes[ROOT as usize].level;
        let mut node = self.nodes.first();
        loop {
            let name = level.flow_name(attributes);
            let flow = node.and_then(|n| n.flows.get(name)).map(|f| &self.flows[*f as usize]);
            let waiting = flow.map_or(0, |flow| u128::from(flow.waiting));
            let (input, cached) = match (node.map(|n| &n.discipline), level.class(name)) {
                (Some(Discipline::Drr(drr)), Some(class)) => {
                    let state = &drr.classes[class as usize];
                    (state.input, state.cached)
                }
                _ => (0, 0),
            };
            let limits = level.limits(name);
            let tests = [
                (Reason::ClassRequests, waiting, limits.requests_per_worker),
                (Reason::ClassInputTokens, input, limits.input_tokens_per_worker.map(|t| t.0)),
                (Reason::ClassCachedTokens, cached, limits.cached_tokens_per_worker.map(|t| t.0)),
            ];
            for (reason, current, per_worker) in tests {
                let limit = per_worker.map(|l| u128::from(l) * u128::from(workers.counted()));
                if let Some(limit) = limit.filter(|limit| current >= *limit) {
                    return Some((reason, Limit { class: Some(name.into()), current, limit }));
                }
            }
            match level.inside(name) {
                InsideLevel::Queue(_) => return None,
                InsideLevel::Level(inside) => level = inside,
            }
            node = flow.and_then(|flow| match flow.child {
                Child::Node(inside) => self.nodes.get(inside as usize),
                Child::Queue(_) => None,
            });
        }
    }
}
