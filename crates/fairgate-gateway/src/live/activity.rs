//! How many requests wait and fly in each flow.

use std::collections::HashMap;

use fairgate_core::attribute::{Attributes, DEFAULT_FLOW};
use fairgate_core::policy::{Drr, Inside, Node};
use fairgate_core::snapshot::RequestSnapshot;

/// A flow's requests, and those of the flows inside it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Activity<'a> {
    pub(super) flying: u64,
    pub(super) waiting: u64,
    pub(super) inside: HashMap<&'a str, Activity<'a>>,
}

impl<'a> Activity<'a> {
    /// Counts all requests down the tree.
    pub(super) fn of(root: &'a Node, requests: &'a [RequestSnapshot]) -> Self {
        let mut all = Self::default();
        requests.iter().for_each(|request| all.count(root, request));
        all
    }

    fn count(&mut self, root: &'a Node, request: &'a RequestSnapshot) {
        let mut activity = self;
        let mut node = Some(root);
        loop {
            match request.flight.is_some() {
                true => activity.flying += 1,
                false => activity.waiting += 1,
            }
            let Some(level) = node else { return };
            let (flow, inside) = flow_of(level, &request.attributes);
            activity = activity.inside.entry(flow).or_default();
            node = match inside {
                Inside::Node(node) => Some(node),
                Inside::Queue(_) => None,
            };
        }
    }

    pub(super) fn is_active(&self) -> bool {
        self.flying + self.waiting > 0
    }
}

/// The flow that a request falls into, and what is inside it.
fn flow_of<'a>(node: &'a Node, attributes: &'a Attributes) -> (&'a str, &'a Inside) {
    let named = attributes.get(node.by());
    match node {
        Node::Drr(drr) => class_of(drr, named),
        Node::Share(share) => (named.unwrap_or(DEFAULT_FLOW), &share.inside),
        Node::Load(load) => (named.unwrap_or(DEFAULT_FLOW), &load.inside),
    }
}

fn class_of<'a>(drr: &'a Drr, named: Option<&str>) -> (&'a str, &'a Inside) {
    let find = |name: &str| drr.classes.iter().find(|class| *class.name == *name);
    let class = named
        .and_then(find)
        .or_else(|| drr.default.as_deref().and_then(find))
        .unwrap_or(&drr.classes[0]);
    (&class.name, &class.inside)
}
