//! What the end of a flight does to the counters of the flows around it.

use fairgate_core::Pool;
use fairgate_core::attribute::{Attribute, Attributes};
use fairgate_core::event::Event;
use fairgate_core::policy::Node;
use fairgate_core::snapshot::{NodeCounters, NodeSnapshot, Snapshot};
use fairgate_core::units::{Micros, PerWeight, Weight};

use super::super::path::{self, Level};

/// One level's counters before and after a flight ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settled {
    pub(crate) level: Level,
    pub(crate) books: Books,
}

/// What a discipline keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Books {
    /// A share flow's score.
    Share { score: (PerWeight, PerWeight), served: (u128, u128), pending: (u128, u128) },
    /// A drr class's deficit.
    Drr { deficit: (i128, i128) },
    /// A load node keeps no books; the pool counts ticks.
    Load { ticks: (u64, u64) },
}

/// The counters before and after, found by ending the flight in a copy that has no slots to grant.
pub(crate) fn settle(
    pool: &Pool,
    at: Micros,
    end: &Event,
    attributes: &Attributes,
) -> Vec<Settled> {
    let mut copy = pool.clone();
    let mut applied = |event| copy.apply(at, event, &mut Vec::new()).map(|()| copy.snapshot());
    let before = applied(Event::Capacity { slots: 0 });
    let after = applied(end.clone());
    let (Ok(before), Ok(after)) = (before, after) else { return Vec::new() };
    compare(&before, &after, attributes)
}

fn compare(before: &Snapshot, after: &Snapshot, attributes: &Attributes) -> Vec<Settled> {
    let mut settled = Vec::new();
    let mut next: Option<&Node> = Some(before.policy.root());
    let mut nodes = Some((&before.root, &after.root));
    while let (Some(node), Some((was, is))) = (next, nodes) {
        let name = path::flow(node, attributes);
        let level = Level { by: node.by(), flow: name.into() };
        let ticks = (before.ticks.0, after.ticks.0);
        if let Some(books) = books(node, name, (was, is), &before.weights, ticks) {
            settled.push(Settled { level, books });
        }
        next = path::inside(node, name);
        nodes = inside(was, name).zip(inside(is, name));
    }
    settled
}

fn books(
    node: &Node,
    name: &str,
    (was, is): (&NodeSnapshot, &NodeSnapshot),
    weights: &[(Attribute, Box<str>, Weight)],
    ticks: (u64, u64),
) -> Option<Books> {
    match (node, &was.state, &is.state) {
        (
            Node::Drr(drr),
            NodeCounters::Drr { deficits, .. },
            NodeCounters::Drr { deficits: then, .. },
        ) => {
            let class = drr.classes.iter().position(|class| *class.name == *name)?;
            Some(Books::Drr { deficit: (deficits.get(class)?.0, then.get(class)?.0) })
        }
        (Node::Share(share), ..) => {
            let changed = weights.iter().find(|(by, flow, _)| *by == share.by && **flow == *name);
            let listed = || share.weights.get(name).copied().unwrap_or(share.default_weight);
            let weight = changed.map_or_else(listed, |(_, _, weight)| *weight);
            let counters = |node: &NodeSnapshot| {
                let flow = node.flows.iter().find(|flow| *flow.name == *name)?;
                let share = flow.share.as_ref()?;
                let tokens = i128::try_from(share.served + share.pending).ok()?;
                let base = i128::try_from(share.base).ok()?;
                let score = PerWeight(base.saturating_add(PerWeight::of(tokens, weight).0));
                Some((score, share.served, share.pending))
            };
            let ((score, served, pending), then) = (counters(was)?, counters(is)?);
            Some(Books::Share {
                score: (score, then.0),
                served: (served, then.1),
                pending: (pending, then.2),
            })
        }
        _ => Some(Books::Load { ticks }),
    }
}

fn inside<'a>(node: &'a NodeSnapshot, name: &str) -> Option<&'a NodeSnapshot> {
    node.flows.iter().find(|flow| *flow.name == *name)?.inside.as_deref()
}
