//! The flows of a pool, one after another from the root down, each with its numbers.

use std::collections::HashMap;
use std::sync::Arc;

use fairgate_core::apportion::apportion;
use fairgate_core::attribute::Attribute;
use fairgate_core::fairness::FlowFairness;
use fairgate_core::policy::{Inside, Node};
use fairgate_core::snapshot::{FlowSnapshot, NodeCounters, NodeSnapshot, Snapshot};
use fairgate_core::units::{PerWeight, Weight};

use super::activity::Activity;
use super::sights::Sight;
use crate::tree::{cap_of, inside_of, weight_of};

/// One flow of one node.
#[derive(Debug)]
pub(super) struct FlowView<'a> {
    pub(super) by: Attribute,
    pub(super) name: &'a str,
    /// The group around it, or that it is.
    pub(super) group: Option<&'a str>,
    pub(super) weight: Option<Weight>,
    /// How many of its requests may be in flight: its slots where the pool is divided, else its cap.
    pub(super) slots: Option<u64>,
    pub(super) served: Option<u128>,
    pub(super) score: Option<PerWeight>,
    /// The part of the pool that it is due among those that want something now; 1 is all.
    pub(super) due: Option<f64>,
    pub(super) fairness: Option<&'a FlowFairness>,
    /// Its unspent credit in tokens, where it is a class of deficit round robin.
    pub(super) deficit: Option<u128>,
    /// Its requests; none where it has none.
    pub(super) activity: Option<&'a Activity<'a>>,
}

/// What is the same for all flows.
struct Tree<'a> {
    snapshot: &'a Snapshot,
    weights: HashMap<(Attribute, &'a str), Weight>,
    caps: HashMap<(Attribute, &'a str), Option<u64>>,
    fairness: HashMap<Vec<&'a str>, HashMap<&'a str, &'a FlowFairness>>,
}

/// A node, and where it is.
struct Place<'a> {
    node: &'a Node,
    snapshot: &'a NodeSnapshot,
    activity: Option<&'a Activity<'a>>,
    path: Vec<&'a str>,
    group: Option<&'a str>,
    due: Option<f64>,
}

/// Visits all flows of a pool.
pub(super) fn for_each_flow<'a>(
    sight: &'a Sight,
    activity: &'a Activity<'a>,
    mut visit: impl FnMut(FlowView<'a>),
) {
    let snapshot = &sight.snapshot;
    let fairness = sight.fairness.iter().map(|node| {
        let flows = node.flows.iter().map(|flow| (&*flow.name, flow));
        (node.path.iter().map(|name: &Arc<str>| &**name).collect(), flows.collect())
    });
    let tree = Tree {
        snapshot,
        weights: snapshot.weights.iter().map(|(by, flow, w)| ((*by, &**flow), *w)).collect(),
        caps: snapshot.caps.iter().map(|cap| ((cap.by, &*cap.flow), cap.slots)).collect(),
        fairness: fairness.collect(),
    };
    tree.visit(
        &Place {
            node: snapshot.policy.root(),
            snapshot: &snapshot.root,
            activity: Some(activity),
            path: Vec::new(),
            group: None,
            due: Some(1.0),
        },
        &mut visit,
    );
}

impl<'a> Tree<'a> {
    fn visit(&self, place: &Place<'a>, visit: &mut dyn FnMut(FlowView<'a>)) {
        let by = place.node.by();
        let of_flow = |flow: &FlowSnapshot| {
            place.activity.and_then(|activity| activity.inside.get(&*flow.name))
        };
        let active = |flow: &&'a FlowSnapshot| of_flow(flow).is_some_and(Activity::is_active);
        let wanting: Vec<&FlowSnapshot> = place.snapshot.flows.iter().filter(active).collect();
        let slots = self.divided(place, &wanting);
        let weight_of = |flow: &FlowSnapshot| self.weight(place.node, &flow.name);
        let wanted: f64 = wanting.iter().filter_map(|f| weight_of(f)).map(number).sum();
        let fairness = self.fairness.get(&place.path);
        for flow in &place.snapshot.flows {
            let (name, weight, activity) = (&*flow.name, weight_of(flow), of_flow(flow));
            let is_active = activity.is_some_and(Activity::is_active);
            // Who wants nothing now is shown what it would be due if it did.
            let due = weight.zip(place.due).map(|(weight, due)| {
                let others = if is_active { 0.0 } else { number(weight) };
                due * number(weight) / (wanted + others)
            });
            let group = if by == Attribute::Group { Some(name) } else { place.group };
            let served = flow.share.as_ref();
            visit(FlowView {
                by,
                name,
                group,
                weight,
                slots: slots.get(name).copied().or_else(|| self.cap(place.node, name)),
                served: served.map(|share| share.served),
                score: served.zip(weight).map(|(share, weight)| {
                    let tokens = share.served.saturating_add(share.pending);
                    let tokens = i128::try_from(tokens).unwrap_or(i128::MAX);
                    let base = i128::try_from(share.base).unwrap_or(i128::MAX);
                    PerWeight(PerWeight::of(tokens, weight).0.saturating_add(base))
                }),
                due,
                fairness: fairness.and_then(|flows| flows.get(name)).copied(),
                deficit: deficit(place, name),
                activity,
            });
            if let (Some(inner), Some(node)) = (&flow.inside, inside(place.node, name)) {
                let path = place.path.iter().copied().chain([name]).collect();
                self.visit(&Place { node, snapshot: inner, activity, path, group, due }, visit);
            }
        }
    }

    /// The slots of a partitioned root's flows, where there are enough for all.
    fn divided(&self, place: &Place<'a>, wanting: &[&'a FlowSnapshot]) -> HashMap<&'a str, u64> {
        let partitioned = matches!(place.node, Node::Share(share) if share.partition);
        let capacity = self.snapshot.capacity;
        if !partitioned || wanting.is_empty() || capacity < wanting.len() as u64 {
            return HashMap::new();
        }
        // By name, as the core does, for ties go to the earlier.
        let mut names: Vec<(&str, Weight)> = wanting
            .iter()
            .filter_map(|flow| Some((&*flow.name, self.weight(place.node, &flow.name)?)))
            .collect();
        names.sort_unstable_by_key(|(name, _)| *name);
        let weights: Vec<Weight> = names.iter().map(|(_, weight)| *weight).collect();
        names.iter().map(|(name, _)| *name).zip(apportion(capacity, &weights)).collect()
    }

    fn weight(&self, node: &Node, flow: &str) -> Option<Weight> {
        let policy = weight_of(node, flow)?;
        Some(self.weights.get(&(node.by(), flow)).copied().unwrap_or(policy))
    }

    fn cap(&self, node: &Node, flow: &str) -> Option<u64> {
        let Node::Share(_) = node else { return None };
        self.caps.get(&(node.by(), flow)).copied().unwrap_or_else(|| cap_of(node, flow))
    }
}

fn deficit(place: &Place<'_>, class: &str) -> Option<u128> {
    let (Node::Drr(drr), NodeCounters::Drr { classes, .. }) = (place.node, &place.snapshot.state)
    else {
        return None;
    };
    let index = drr.classes.iter().position(|listed| *listed.name == *class)?;
    classes.get(index).map(|class| class.deficit)
}

/// The node inside a flow.
fn inside<'a>(node: &'a Node, flow: &str) -> Option<&'a Node> {
    match inside_of(node, flow)? {
        Inside::Node(node) => Some(node),
        Inside::Queue(_) => None,
    }
}

fn number(weight: Weight) -> f64 {
    weight.get() as f64
}
