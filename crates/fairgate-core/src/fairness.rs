//! The bound, live: how far every backlogged flow is from its share, and how far it could be.
//!
//! The derivations stand where the disciplines do: [`crate::share`] and [`crate::drr`].

use std::sync::Arc;

use crate::attribute::Attribute;
use crate::pool::Pool;
use crate::tree::{Discipline, Flow, NodeState};
use crate::units::{PerWeight, Weight};

/// A share or drr node in which something waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeFairness {
    /// The flows around the node, from the root down; none for the root.
    pub path: Vec<Arc<str>>,
    /// The kind of node: `share` or `drr`.
    pub kind: &'static str,
    /// The attribute by which it shares.
    pub by: Attribute,
    /// Its backlogged flows, by name.
    pub flows: Vec<FlowFairness>,
}

/// How far one backlogged flow is from its share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowFairness {
    /// Its name.
    pub name: Arc<str>,
    /// Its weight, or its class's quantum.
    pub weight: Weight,
    /// How many of its requests wait.
    pub waiting: u32,
    /// How many fly.
    pub flying: u32,
    /// What it is owed, in tokens per weight; below 0 it has had more than its share.
    pub lag: PerWeight,
    /// The range in which the discipline keeps the lag, given what is in flight now; none where a partitioned
    /// root divides slots instead.
    pub bound: Option<(PerWeight, PerWeight)>,
}

impl Pool {
    /// The lag of every backlogged flow of every share and drr node, with the bound it stays in; by path.
    pub fn fairness(&self) -> Vec<NodeFairness> {
        let nodes = self.tree.nodes.iter().filter_map(|node| self.node_fairness(node));
        let mut nodes: Vec<_> = nodes.filter(|node| !node.flows.is_empty()).collect();
        nodes.sort_by(|a, b| a.path.cmp(&b.path));
        nodes
    }

    fn node_fairness(&self, node: &NodeState) -> Option<NodeFairness> {
        if matches!(node.discipline, Discipline::Load(_)) {
            return None;
        }
        let flows = node.flows.values().map(|flow| &self.tree.flows[*flow as usize]);
        let backlogged = flows.filter(|flow| flow.waiting > 0);
        Some(NodeFairness {
            path: self.tree.path(node.parent),
            kind: node.level.node.kind(),
            by: node.level.node.by(),
            flows: backlogged.filter_map(|flow| flow_fairness(node, flow)).collect(),
        })
    }
}

fn flow_fairness(node: &NodeState, flow: &Flow) -> Option<FlowFairness> {
    let (weight, lag, bound) = match &node.discipline {
        Discipline::Share(share) => {
            let bound = share.lag_bound(flow.local);
            let weight = share.flows[flow.local as usize].weight;
            (
                weight,
                PerWeight(share.lag(flow.local)),
                bound.map(|(a, b)| (PerWeight(a), PerWeight(b))),
            )
        }
        Discipline::Drr(drr) => {
            let quantum = drr.classes[flow.local as usize].quantum;
            let (least, most) = drr.deficit_bound(flow.local);
            let per = |tokens| PerWeight::of(tokens, quantum);
            (quantum, per(drr.deficit(flow.local)), Some((per(least), per(most))))
        }
        Discipline::Load(_) => return None,
    };
    let name = flow.name.clone();
    Some(FlowFairness { name, weight, waiting: flow.waiting, flying: flow.flying, lag, bound })
}
