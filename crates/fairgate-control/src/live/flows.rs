//! Visits the flows of a pool from the root down, with the weight, score, share and counts of each flow.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use fairgate_core::apportion::apportion;
use fairgate_core::attribute::Attribute;
use fairgate_core::fairness::{FlowFairness, NodeFairness};
use fairgate_core::policy::PolicyNode;
use fairgate_core::snapshot::{FlowSnapshot, NodeCounters, NodeSnapshot, Snapshot};
use fairgate_core::units::{PerWeight, Weight};

use super::activity::FlowActivity;

/// One flow of one node, with its weight, score, share and counts.
#[derive(Debug)]
pub(super) struct FlowView<'a> {
    pub(super) by: Attribute,
    pub(super) name: &'a str,
    /// Name of the group that contains the flow, or of the flow itself if it is a group.
    pub(super) group: Option<&'a str>,
    pub(super) weight: Option<Weight>,
    /// Maximum number of requests in flight: the slots that the policy's `partition` gives the flow, else its cap.
    pub(super) slots: Option<u64>,
    pub(super) served: Option<u128>,
    /// Estimated cost of the requests in flight, in the unit of the pool; `None` unless the flow is
    /// in a share node.
    pub(super) pending: Option<u128>,
    pub(super) score: Option<PerWeight>,
    /// Share of the pool that the flow is due among the active flows; 1 is the whole pool. For an idle flow, this is
    /// the share that it would be due if it became active.
    pub(super) due: Option<f64>,
    pub(super) fairness: Option<&'a FlowFairness>,
    /// Unspent credit in the unit of the pool; `None` unless the flow is a class of deficit round
    /// robin.
    pub(super) deficit: Option<u128>,
    /// True if an operator holds the flow, or a flow that contains it.
    pub(super) held: bool,
    /// True if the node promises its flows shares of the service. A partitioned node promises
    /// slots, and the quanta of deficit round robin are not shares.
    pub(super) promised: bool,
    /// Counts of the flow's requests; `None` if the flow has no requests and no recent grants.
    pub(super) activity: Option<&'a FlowActivity<'a>>,
}

/// Data of the snapshot that all flows need, indexed for lookup.
struct FlowTree<'a> {
    snapshot: &'a Snapshot,
    weights: HashMap<(Attribute, &'a str), Weight>,
    caps: HashMap<(Attribute, &'a str), Option<u64>>,
    holds: HashSet<(Attribute, &'a str)>,
    fairness: HashMap<Vec<&'a str>, HashMap<&'a str, &'a FlowFairness>>,
}

/// A node of the policy, with its path from the root and its state.
struct NodePosition<'a> {
    node: &'a PolicyNode,
    snapshot: &'a NodeSnapshot,
    activity: Option<&'a FlowActivity<'a>>,
    path: Vec<&'a str>,
    group: Option<&'a str>,
    due: Option<f64>,
    held: bool,
}

/// Visits all flows of a pool, each before the flows inside it.
pub(super) fn for_each_flow<'a>(
    snapshot: &'a Snapshot,
    fairness: &'a [NodeFairness],
    activity: &'a FlowActivity<'a>,
    mut visit: impl FnMut(FlowView<'a>),
) {
    let fairness = fairness.iter().map(|node| {
        let flows = node.flows.iter().map(|flow| (&*flow.name, flow));
        (node.path.iter().map(|name: &Arc<str>| &**name).collect(), flows.collect())
    });
    let tree = FlowTree {
        snapshot,
        weights: snapshot.weights.iter().map(|(by, flow, w)| ((*by, &**flow), *w)).collect(),
        caps: snapshot.caps.iter().map(|cap| ((cap.by, &*cap.flow), cap.slots)).collect(),
        holds: snapshot.holds.iter().map(|(by, flow)| (*by, &**flow)).collect(),
        fairness: fairness.collect(),
    };
    tree.visit(
        &NodePosition {
            node: snapshot.policy.root(),
            snapshot: &snapshot.root,
            activity: Some(activity),
            path: Vec::new(),
            group: None,
            due: Some(1.0),
            held: false,
        },
        &mut visit,
    );
}

impl<'a> FlowTree<'a> {
    fn visit(&self, place: &NodePosition<'a>, visit: &mut dyn FnMut(FlowView<'a>)) {
        let by = place.node.by();
        let of_flow = |flow: &FlowSnapshot| {
            place.activity.and_then(|activity| activity.inside.get(&*flow.name))
        };
        let active = |flow: &&'a FlowSnapshot| of_flow(flow).is_some_and(FlowActivity::is_active);
        let wanting: Vec<&FlowSnapshot> = place.snapshot.flows.iter().filter(active).collect();
        let slots = self.partition_slots(place, &wanting);
        let weight_of = |flow: &FlowSnapshot| self.weight(place.node, &flow.name);
        let wanted: f64 = wanting.iter().filter_map(|f| weight_of(f)).map(weight_as_f64).sum();
        let fairness = self.fairness.get(&place.path);
        let promised = matches!(place.node, PolicyNode::Share(share) if !share.partition);
        for flow in &place.snapshot.flows {
            let (name, weight, activity) = (&*flow.name, weight_of(flow), of_flow(flow));
            let is_active = activity.is_some_and(FlowActivity::is_active);
            // For an idle flow: the share that it would be due if it became active.
            let due = weight.zip(place.due).map(|(weight, due)| {
                let others = if is_active { 0.0 } else { weight_as_f64(weight) };
                due * weight_as_f64(weight) / (wanted + others)
            });
            let group = if by == Attribute::Group { Some(name) } else { place.group };
            let served = flow.share.as_ref();
            let held = place.held || self.holds.contains(&(by, name));
            visit(FlowView {
                by,
                name,
                group,
                weight,
                slots: slots.get(name).copied().or_else(|| self.cap(place.node, name)),
                served: served.map(|share| share.served),
                pending: served.map(|share| share.pending),
                score: served.zip(weight).map(|(share, weight)| {
                    let tokens = share.served.saturating_add(share.pending);
                    let tokens = i128::try_from(tokens).unwrap_or(i128::MAX);
                    let base = i128::try_from(share.base).unwrap_or(i128::MAX);
                    PerWeight(PerWeight::of(tokens, weight).0.saturating_add(base))
                }),
                due,
                fairness: fairness.and_then(|flows| flows.get(name)).copied(),
                deficit: deficit(place, name),
                held,
                promised,
                activity,
            });
            if let (Some(inner), Some(node)) = (&flow.inside, place.node.node_inside_of(name)) {
                let path = place.path.iter().copied().chain([name]).collect();
                self.visit(
                    &NodePosition { node, snapshot: inner, activity, path, group, due, held },
                    visit,
                );
            }
        }
    }

    /// Returns the slots that the policy's `partition` gives each flow of the root. The result is empty if the node has
    /// no `partition`, or has more active flows than slots.
    fn partition_slots(
        &self,
        place: &NodePosition<'a>,
        wanting: &[&'a FlowSnapshot],
    ) -> HashMap<&'a str, u64> {
        let partitioned = matches!(place.node, PolicyNode::Share(share) if share.partition);
        let capacity = self.snapshot.capacity;
        if !partitioned || wanting.is_empty() || capacity < wanting.len() as u64 {
            return HashMap::new();
        }
        // Sorted by name as in the core, because ties go to the earlier one.
        let mut names: Vec<(&str, Weight)> = wanting
            .iter()
            .filter_map(|flow| Some((&*flow.name, self.weight(place.node, &flow.name)?)))
            .collect();
        names.sort_unstable_by_key(|(name, _)| *name);
        let weights: Vec<Weight> = names.iter().map(|(_, weight)| *weight).collect();
        names.iter().map(|(name, _)| *name).zip(apportion(capacity, &weights)).collect()
    }

    fn weight(&self, node: &PolicyNode, flow: &str) -> Option<Weight> {
        let policy = node.weight_of(flow)?;
        Some(self.weights.get(&(node.by(), flow)).copied().unwrap_or(policy))
    }

    fn cap(&self, node: &PolicyNode, flow: &str) -> Option<u64> {
        let (PolicyNode::Share(_) | PolicyNode::Bands(_)) = node else { return None };
        self.caps.get(&(node.by(), flow)).copied().unwrap_or_else(|| node.cap_of(flow))
    }
}

fn deficit(place: &NodePosition<'_>, class: &str) -> Option<u128> {
    let (PolicyNode::Drr(drr), NodeCounters::Drr { classes, .. }) =
        (place.node, &place.snapshot.state)
    else {
        return None;
    };
    let index = drr.classes.iter().position(|listed| *listed.name == *class)?;
    classes.get(index).map(|class| class.deficit)
}

fn weight_as_f64(weight: Weight) -> f64 {
    weight.get() as f64
}
