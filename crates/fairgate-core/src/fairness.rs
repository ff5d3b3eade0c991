//! Live fairness of a pool: the tokens that every flow got, the tokens that the flow was due, and the bound on the
//! difference between the two.
//!
//! Each derivation is with the code that it describes: that of due, got and their bound in [`crate::meter`], that of
//! the lag in [`crate::share`], and that of the deficit in [`crate::drr`].

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::attribute::Attribute;
use crate::engine::PoolEngine;
use crate::meter::{CapMeter, FlowMeter, NodeMeter};
use crate::pool::Pool;
use crate::share::ScoreSums;
use crate::tree::{Discipline, FlowChild, TreeFlow, TreeNode};
use crate::units::{Micros, PerWeight, Percentage, Weight};

/// The fairness of a node that has at least one flow. Forgotten flows are not included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeFairness {
    /// Names of the flows around the node, from the root down; empty for the root.
    pub path: Vec<Arc<str>>,
    /// Kind of the node: `share`, `drr`, `load` or `bands`.
    pub kind: &'static str,
    /// The attribute by which the node divides service.
    pub by: Attribute,
    /// The fairness of each flow of the node, sorted by the flow's name.
    pub flows: Vec<FlowFairness>,
}

/// The tokens that one flow was served, and the tokens that it was due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowFairness {
    /// Name of the flow; unique within its node.
    pub name: Arc<str>,
    /// Weight of the flow, or quantum of the class in a drr node; `None` in a load or bands node.
    pub weight: Option<Weight>,
    /// Number of the flow's requests that wait.
    pub waiting: u32,
    /// Number of the flow's requests in flight.
    pub in_flight: u32,
    /// Submission time of the flow's request that has waited longest; `None` if nothing waits.
    pub oldest: Option<Micros>,
    /// Tokens that the flow was served. A grant counts at its cost, which is corrected to the real usage when the
    /// request ends.
    pub got: i128,
    /// Tokens that the flow was due, with the bound of got − due; `None` in a load or bands node, which promises no
    /// shares.
    pub due: Option<DueService>,
    /// Use of the flow's cap; `None` if the flow has no cap, or if no request has waited in the flow since the cap was
    /// set.
    pub cap_use: Option<CapUse>,
    /// Lag of the flow in a share node, or unspent credit of the class in a drr node, with its bound; `None` in other
    /// nodes, and if nothing waits in the flow.
    pub lag: Option<LagWithBound>,
    /// Names of the classes that go after this class; `None` outside of bands nodes.
    pub goes_before: Option<Vec<Arc<str>>>,
}

/// The tokens that a flow was due: its share, by weight, of all tokens served while it was ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DueService {
    /// Tokens that the flow was due so far.
    pub tokens: i128,
    /// Greatest expected difference between the tokens that the flow got and those it was due. The bound assumes that
    /// the node divides service by weight. In a share node it includes how far apart the flows started, which is
    /// computed from their scores; see "What the bound of a share node tells" in [`crate::meter`].
    pub bound: u128,
}

impl FlowFairness {
    /// Returns got − due in tokens; `None` if the node promises no shares.
    pub fn difference(&self) -> Option<i128> {
        self.due.map(|due| self.got - due.tokens)
    }

    /// Returns true if the difference between got and due is within the bound, or if the node promises no shares.
    pub fn is_within_bound(&self) -> bool {
        let over = self.due.zip(self.difference());
        over.is_none_or(|(due, difference)| difference.unsigned_abs() <= due.bound)
    }
}

/// Use of a cap: requests in flight ÷ cap, averaged over the times in which at least one request waited in a flow to
/// which the cap applies. Times in which nothing waited are left out, because the cap then held nothing back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapUse {
    /// Sum of requests in flight × microseconds, over the times in which a request waited.
    pub used: u128,
    /// Sum of cap × microseconds, over the times in which a request waited.
    pub allowed: u128,
}

impl CapUse {
    /// Returns the use in thousandths. The use is 1000 if the cap was reached whenever a request waited.
    pub fn thousandths(self) -> u64 {
        let thousandths = self.used.saturating_mul(1000).checked_div(self.allowed).unwrap_or(0);
        u64::try_from(thousandths).unwrap_or(u64::MAX)
    }

    /// Returns the use as a percentage for people.
    pub fn percentage(self) -> Percentage {
        Percentage::of(self.used, self.allowed)
    }
}

/// The lag of a flow with waiting requests, and its bound. In a share node the lag is virtual time minus the tokens per
/// weight of the flow's ended requests. In a drr node it is the deficit of the class ÷ its quantum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LagWithBound {
    /// The lag in tokens per weight, or per quantum in a drr node; below 0 if the flow is ahead of its share.
    pub lag: PerWeight,
    /// The least and the greatest lag that the discipline allows, given the requests in flight; `None` in a partitioned
    /// share node, which divides slots and not tokens.
    pub bound: Option<(PerWeight, PerWeight)>,
}

impl Pool {
    /// Reports the fairness of every flow of every node, sorted by path.
    pub fn fairness(&self) -> Vec<NodeFairness> {
        self.engine.fairness()
    }
}

impl PoolEngine {
    /// Reports the fairness of every flow of every node, sorted by path.
    pub fn fairness(&self) -> Vec<NodeFairness> {
        let mut found = Vec::new();
        let mut nodes = Vec::from([crate::tree::ROOT]);
        while let Some(index) = nodes.pop() {
            let node = &self.tree.nodes[index as usize];
            let flows = node.flows.values().map(|flow| &self.tree.flows[*flow as usize]);
            for flow in flows.clone() {
                if let FlowChild::Node(inside) = flow.child {
                    nodes.push(inside);
                }
            }
            let sums = match &node.discipline {
                Discipline::Share(share) => share.score_sums(),
                _ => ScoreSums::default(),
            };
            let fairness = NodeFairness {
                path: self.tree.path(node.parent),
                kind: node.level.node.kind(),
                by: node.level.node.by(),
                flows: flows.map(|flow| self.flow_fairness(node, flow, &sums)).collect(),
            };
            if !fairness.flows.is_empty() {
                found.push(fairness);
            }
        }
        found.sort_by(|a, b| a.path.cmp(&b.path));
        found
    }

    fn flow_fairness(&self, node: &TreeNode, flow: &TreeFlow, sums: &ScoreSums) -> FlowFairness {
        let waits = flow.waiting > 0;
        let name = &self.tree.names.list[flow.name_number as usize];
        let (weight, got, due, cap, lag) = match &node.discipline {
            Discipline::Share(share) => {
                let state = share.flow_now(flow.local);
                let bound = share.lag_bound(flow.local);
                let lag = LagWithBound {
                    lag: PerWeight(share.lag(flow.local)),
                    bound: bound.map(|(a, b)| (PerWeight(a), PerWeight(b))),
                };
                let due = DueService {
                    tokens: state.meter.due(&share.meter, state.weight),
                    bound: share.due_bound(flow.local, sums),
                };
                let cap = match name.directive.cap {
                    Some(_) => name.cap_meter,
                    None => state.cap_meter,
                };
                (Some(state.weight), state.meter.got, Some(due), Some(cap), Some(lag))
            }
            Discipline::Drr(drr) => {
                let state = &drr.classes[flow.local as usize];
                let per = |tokens: u128| {
                    PerWeight::of(i128::try_from(tokens).unwrap_or(i128::MAX), state.quantum)
                };
                let bound =
                    (per(0), per(drr.deficit_bound(flow.local, self.workers.all_blocked())));
                let lag = LagWithBound { lag: per(drr.deficit(flow.local)), bound: Some(bound) };
                let due = due(&state.meter, &drr.meter, state.quantum);
                (Some(state.quantum), state.meter.got, Some(due), None, Some(lag))
            }
            Discipline::Load(load) => (None, load.flows[flow.local as usize].got, None, None, None),
            Discipline::Bands(bands) => {
                let state = &bands.classes[flow.local as usize];
                let cap = match name.directive.cap {
                    Some(_) => name.cap_meter,
                    None => state.cap_meter,
                };
                (None, state.got, None, Some(cap), None)
            }
        };
        FlowFairness {
            name: flow.name.clone(),
            weight,
            waiting: flow.waiting,
            in_flight: flow.in_flight,
            oldest: self.oldest(flow),
            got,
            due,
            cap_use: cap.and_then(|meter| self.cap_use(&meter)),
            lag: lag.filter(|_| waits),
            goes_before: node.goes_before(flow.local),
        }
    }

    /// Returns the submission time of the request that has waited longest in a flow; `None` if nothing waits. Each
    /// queue knows its oldest request, so the cost depends on the number of queues in the flow and not on the number of
    /// requests.
    fn oldest(&self, flow: &TreeFlow) -> Option<Micros> {
        if flow.waiting == 0 {
            return None;
        }
        match flow.child {
            FlowChild::Queue(queue) => {
                let oldest = self.tree.queues[queue as usize].oldest()?;
                Some(self.requests.get(oldest).at)
            }
            FlowChild::Node(inside) => {
                let flows = self.tree.nodes[inside as usize].flows.values();
                flows.filter_map(|flow| self.oldest(&self.tree.flows[*flow as usize])).min()
            }
        }
    }

    fn cap_use(&self, meter: &CapMeter) -> Option<CapUse> {
        let (used, allowed) = meter.read(self.now);
        (allowed > 0).then_some(CapUse { used, allowed })
    }
}

fn due(flow: &FlowMeter, node: &NodeMeter, weight: Weight) -> DueService {
    DueService { tokens: flow.due(node, weight), bound: flow.bound(node, weight) }
}
