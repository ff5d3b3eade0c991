//! The effect of a request's end on the counters of its flows.

use fairgate_core::Pool;
use fairgate_core::attribute::{Attribute, Attributes};
use fairgate_core::event::Event;
use fairgate_core::fairness::{FlowFairness, NodeFairness};
use fairgate_core::policy::PolicyNode;
use fairgate_core::snapshot::{NodeCounters, NodeSnapshot, Snapshot};
use fairgate_core::units::{Micros, PerWeight, Weight};

use super::super::path::{self, PathLevel};

/// Counters of one flow on a request's path, before and after the request ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SettledLevel {
    pub(crate) level: PathLevel,
    pub(crate) before: FlowCounters,
    /// Counters after the request ended; `None` if the flow was removed, because it had no requests left. Such a flow
    /// starts with new counters when it returns.
    pub(crate) after: Option<FlowCounters>,
}

/// Counters of a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FlowCounters {
    pub(crate) kept: DisciplineCounters,
    /// Service that the flow got and was due.
    pub(crate) service: FlowFairness,
}

/// Counters that a node of the policy keeps for a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DisciplineCounters {
    /// Score of a flow of a share node, tokens of its ended requests (`served`), and tokens of its requests in flight
    /// (`pending`).
    Share { score: PerWeight, served: u128, pending: u128 },
    /// Deficit of a class of a drr node, in tokens.
    Drr { deficit: u128 },
    /// The pool's ticks, for a flow of a load node, which keeps no counters of its own.
    Load { ticks: u64 },
    /// A class of a bands node, which has no counters. The end of a request changes only the service that the class
    /// got.
    Bands,
}

/// Computes the counters before and after a request's end, by ending the request in a copy of the pool that has no
/// slots to grant.
pub(crate) fn settle(
    pool: &Pool,
    at: Micros,
    end: &Event,
    attributes: &Attributes,
) -> Vec<SettledLevel> {
    let mut copy = pool.clone();
    let mut applied =
        |event| copy.apply(at, event, &mut Vec::new()).map(|()| (copy.snapshot(), copy.fairness()));
    let before = applied(Event::Capacity { slots: 0 });
    let after = applied(end.clone());
    let (Ok(before), Ok(after)) = (before, after) else { return Vec::new() };
    let levels = path::path(&before.0.policy, attributes);
    (0..levels.len())
        .filter_map(|depth| {
            let levels = &levels[..=depth];
            let before = flow_counters(&before.0, &before.1, levels)?;
            let after = flow_counters(&after.0, &after.1, levels);
            Some(SettledLevel { level: levels[depth].clone(), before, after })
        })
        .collect()
}

/// Returns the counters of the flow at the last of these levels; `None` if there is no such flow.
fn flow_counters(
    snapshot: &Snapshot,
    fairness: &[NodeFairness],
    levels: &[PathLevel],
) -> Option<FlowCounters> {
    let (last, around) = levels.split_last()?;
    let mut node: &PolicyNode = snapshot.policy.root();
    let mut counters = &snapshot.root;
    for level in around {
        node = node.node_inside_of(&level.flow)?;
        let flow = counters.flows.iter().find(|flow| *flow.name == *level.flow)?;
        counters = flow.inside.as_deref()?;
    }
    let names = || around.iter().map(|level| &*level.flow);
    let metered = fairness.iter().find(|of| of.path.iter().map(|name| &**name).eq(names()))?;
    let service = metered.flows.iter().find(|flow| *flow.name == *last.flow)?.clone();
    let kept = kept(node, counters, &last.flow, snapshot)?;
    Some(FlowCounters { kept, service })
}

fn kept(
    node: &PolicyNode,
    counters: &NodeSnapshot,
    name: &str,
    snapshot: &Snapshot,
) -> Option<DisciplineCounters> {
    match (node, &counters.state) {
        (PolicyNode::Drr(drr), NodeCounters::Drr { classes, .. }) => {
            let class = drr.classes.iter().position(|class| *class.name == *name)?;
            Some(DisciplineCounters::Drr { deficit: classes.get(class)?.deficit })
        }
        (PolicyNode::Share(share), _) => {
            let weight =
                weight(&snapshot.weights, share.by, name).or_else(|| node.weight_of(name))?;
            let flow = counters.flows.iter().find(|flow| *flow.name == *name)?.share.as_ref()?;
            let tokens = i128::try_from(flow.served + flow.pending).ok()?;
            let base = i128::try_from(flow.base).ok()?;
            let score = PerWeight(base.saturating_add(PerWeight::of(tokens, weight).0));
            Some(DisciplineCounters::Share { score, served: flow.served, pending: flow.pending })
        }
        (PolicyNode::Bands(_), _) => Some(DisciplineCounters::Bands),
        _ => Some(DisciplineCounters::Load { ticks: snapshot.ticks.0 }),
    }
}

/// Returns the weight that an operator's event gave to a flow; `None` if there was no such event.
fn weight(
    event_weights: &[(Attribute, Box<str>, Weight)],
    wanted: Attribute,
    name: &str,
) -> Option<Weight> {
    let found = event_weights.iter().find(|(by, flow, _)| *by == wanted && **flow == *name);
    found.map(|(_, _, weight)| *weight)
}
