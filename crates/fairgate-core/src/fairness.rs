//! How fair a pool is, live: what every flow got beside what it was due, and how far each may be from the other.
//!
//! The derivations stand where they belong: of due, got and their bound in [`crate::meter`], of the lag in
//! [`crate::share`] and of the deficit in [`crate::drr`].

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::attribute::Attribute;
use crate::engine::Engine;
use crate::meter::{CapMeter, FlowMeter, NodeMeter};
use crate::pool::Pool;
use crate::tree::{Discipline, Flow, NodeState};
use crate::units::{PerWeight, Weight};

/// A node that has served something or in which something waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeFairness {
    /// The flows around the node, from the root down; none for the root.
    pub path: Vec<Arc<str>>,
    /// The kind of node: `share`, `drr` or `load`.
    pub kind: &'static str,
    /// The attribute by which it shares.
    pub by: Attribute,
    /// Its flows, by name.
    pub flows: Vec<FlowFairness>,
}

/// How one flow fares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowFairness {
    /// Its name.
    pub name: Arc<str>,
    /// Its weight, or its class's quantum; none in a load node.
    pub weight: Option<Weight>,
    /// How many of its requests wait.
    pub waiting: u32,
    /// How many are in flight.
    pub in_flight: u32,
    /// The tokens it was served: costs at grants, corrected to what was really used when requests end.
    pub got: i128,
    /// What it was due and how far got may be from that; none in a load node, which promises no shares.
    pub due: Option<Due>,
    /// How its cap is used, where it has one and something has waited.
    pub cap_use: Option<CapUse>,
    /// How far it is behind the node's own clock, where something waits in it.
    pub lag: Option<Lag>,
}

/// What a flow was due, by weight, of all that was served while it was ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    /// In tokens.
    pub tokens: i128,
    /// The most that got should differ from it, in tokens, were the weights shares.
    pub bound: u128,
}

impl FlowFairness {
    /// got − due, in tokens, where the node promises shares.
    pub fn difference(&self) -> Option<i128> {
        self.due.map(|due| self.got - due.tokens)
    }

    /// Whether got is as near to due as it should be; yes where nothing is promised.
    pub fn is_within_bound(&self) -> bool {
        let over = self.due.zip(self.difference());
        over.is_none_or(|(due, difference)| difference.unsigned_abs() <= due.bound)
    }
}

/// Requests in flight ÷ cap, over the time in which something waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapUse {
    /// Requests in flight × µs.
    pub used: u128,
    /// Cap × µs.
    pub allowed: u128,
}

impl CapUse {
    /// In thousandths: 1000 is a cap that was always full while something waited.
    pub fn thousandths(self) -> u64 {
        let thousandths = self.used.saturating_mul(1000).checked_div(self.allowed).unwrap_or(0);
        u64::try_from(thousandths).unwrap_or(u64::MAX)
    }
}

/// How far a backlogged flow is from the node's own clock: virtual time in share, credit in drr.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lag {
    /// In tokens per weight; below 0 it is ahead.
    pub lag: PerWeight,
    /// The range in which the discipline keeps the lag, given what is in flight now; none where a partitioned
    /// root divides slots instead.
    pub bound: Option<(PerWeight, PerWeight)>,
}

impl Pool {
    /// How every flow of every node fares; by path.
    pub fn fairness(&self) -> Vec<NodeFairness> {
        self.engine.fairness()
    }
}

impl Engine {
    /// How every flow of every node fares; by path.
    pub fn fairness(&self) -> Vec<NodeFairness> {
        let mut found = Vec::new();
        let mut nodes = Vec::from([crate::tree::ROOT]);
        while let Some(index) = nodes.pop() {
            let node = &self.tree.nodes[index as usize];
            let flows = node.flows.values().map(|flow| &self.tree.flows[*flow as usize]);
            for flow in flows.clone() {
                if let crate::tree::Child::Node(inside) = flow.child {
                    nodes.push(inside);
                }
            }
            let fairness = NodeFairness {
                path: self.tree.path(node.parent),
                kind: node.level.node.kind(),
                by: node.level.node.by(),
                flows: flows.map(|flow| self.flow_fairness(node, flow)).collect(),
            };
            if !fairness.flows.is_empty() {
                found.push(fairness);
            }
        }
        found.sort_by(|a, b| a.path.cmp(&b.path));
        found
    }

    fn flow_fairness(&self, node: &NodeState, flow: &Flow) -> FlowFairness {
        let waits = flow.waiting > 0;
        let name = &self.tree.names.list[flow.named as usize];
        let (weight, got, due, cap, lag) = match &node.discipline {
            Discipline::Share(share) => {
                let state = &share.flows[flow.local as usize];
                let bound = share.lag_bound(flow.local);
                let lag = Lag {
                    lag: PerWeight(share.lag(flow.local)),
                    bound: bound.map(|(a, b)| (PerWeight(a), PerWeight(b))),
                };
                let due = due(&state.meter, &share.meter, state.weight);
                let cap = match name.said.cap {
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
                let lag = Lag { lag: per(drr.deficit(flow.local)), bound: Some(bound) };
                let due = due(&state.meter, &drr.meter, state.quantum);
                (Some(state.quantum), state.meter.got, Some(due), None, Some(lag))
            }
            Discipline::Load(load) => (None, load.flows[flow.local as usize].got, None, None, None),
        };
        FlowFairness {
            name: flow.name.clone(),
            weight,
            waiting: flow.waiting,
            in_flight: flow.in_flight,
            got,
            due,
            cap_use: cap.and_then(|meter| self.cap_use(&meter)),
            lag: lag.filter(|_| waits),
        }
    }

    fn cap_use(&self, meter: &CapMeter) -> Option<CapUse> {
        let (used, allowed) = meter.read(self.now);
        (allowed > 0).then_some(CapUse { used, allowed })
    }
}

fn due(flow: &FlowMeter, node: &NodeMeter, weight: Weight) -> Due {
    Due { tokens: flow.due(node, weight), bound: flow.bound(node, weight) }
}
