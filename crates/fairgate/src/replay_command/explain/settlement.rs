//! What the end of a flight does to the counters of the flows around it.

use fairgate_core::Pool;
use fairgate_core::attribute::{Attribute, Attributes};
use fairgate_core::event::Event;
use fairgate_core::fairness::{FlowFairness, NodeFairness};
use fairgate_core::policy::Node;
use fairgate_core::snapshot::{NodeCounters, NodeSnapshot, Snapshot};
use fairgate_core::units::{Micros, PerWeight, Weight};

use super::super::path::{self, Level};

/// One level's counters before and after a flight ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settled {
    pub(crate) level: Level,
    pub(crate) before: Books,
    /// None where the flow was forgotten: nothing of it is left, and it starts anew when it comes back.
    pub(crate) after: Option<Books>,
}

/// A flow's counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Books {
    pub(crate) kept: Kept,
    /// What it got beside what it was due.
    pub(crate) service: FlowFairness,
}

/// What a discipline keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// A share flow's score, and the tokens of its ended requests and of those in flight.
    Share { score: PerWeight, served: u128, pending: u128 },
    /// A drr class's deficit.
    Drr { deficit: u128 },
    /// A load node keeps no books; the pool counts ticks.
    Load { ticks: u64 },
}

/// The counters before and after, found by ending the flight in a copy that has no slots to grant.
pub(crate) fn settle(
    pool: &Pool,
    at: Micros,
    end: &Event,
    attributes: &Attributes,
) -> Vec<Settled> {
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
            let before = books(&before.0, &before.1, levels)?;
            let after = books(&after.0, &after.1, levels);
            Some(Settled { level: levels[depth].clone(), before, after })
        })
        .collect()
}

/// The books of the last of these levels.
fn books(snapshot: &Snapshot, fairness: &[NodeFairness], levels: &[Level]) -> Option<Books> {
    let (last, around) = levels.split_last()?;
    let mut node: &Node = snapshot.policy.root();
    let mut counters = &snapshot.root;
    for level in around {
        node = path::inside(node, &level.flow)?;
        let flow = counters.flows.iter().find(|flow| *flow.name == *level.flow)?;
        counters = flow.inside.as_deref()?;
    }
    let names = || around.iter().map(|level| &*level.flow);
    let metered = fairness.iter().find(|of| of.path.iter().map(|name| &**name).eq(names()))?;
    let service = metered.flows.iter().find(|flow| *flow.name == *last.flow)?.clone();
    let kept = kept(node, counters, &last.flow, snapshot)?;
    Some(Books { kept, service })
}

fn kept(node: &Node, counters: &NodeSnapshot, name: &str, snapshot: &Snapshot) -> Option<Kept> {
    match (node, &counters.state) {
        (Node::Drr(drr), NodeCounters::Drr { classes, .. }) => {
            let class = drr.classes.iter().position(|class| *class.name == *name)?;
            Some(Kept::Drr { deficit: classes.get(class)?.deficit })
        }
        (Node::Share(share), _) => {
            let weight = weight(&snapshot.weights, share.by, name).or_else(|| {
                let class = share.classes.iter().find(|class| *class.name == *name);
                class.map(|class| class.weight).or(share.weights.get(name).copied())
            });
            let weight = weight.unwrap_or(share.default_weight);
            let flow = counters.flows.iter().find(|flow| *flow.name == *name)?.share.as_ref()?;
            let tokens = i128::try_from(flow.served + flow.pending).ok()?;
            let base = i128::try_from(flow.base).ok()?;
            let score = PerWeight(base.saturating_add(PerWeight::of(tokens, weight).0));
            Some(Kept::Share { score, served: flow.served, pending: flow.pending })
        }
        _ => Some(Kept::Load { ticks: snapshot.ticks.0 }),
    }
}

/// The weight that an event gave a flow.
fn weight(said: &[(Attribute, Box<str>, Weight)], wanted: Attribute, name: &str) -> Option<Weight> {
    let found = said.iter().find(|(by, flow, _)| *by == wanted && **flow == *name);
    found.map(|(_, _, weight)| *weight)
}
