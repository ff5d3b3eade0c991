//! Path of a request through a policy tree: its flow at each level, and the queue in which it waits.

use fairgate_core::attribute::{Attribute, DEFAULT_FLOW};
use fairgate_core::policy::{FlowInside, PolicyNode, QueuePolicy};

/// Returns the flow of a request at this node. `named` is the request's value of the node's attribute, if it has one.
pub fn flow_of<'a>(node: &'a PolicyNode, named: Option<&'a str>) -> &'a str {
    let (classes, default): (Vec<&str>, _) = match node {
        PolicyNode::Drr(drr) => {
            (drr.classes.iter().map(|class| &*class.name).collect(), &drr.default)
        }
        PolicyNode::Share(share) if !share.classes.is_empty() => {
            (share.classes.iter().map(|class| &*class.name).collect(), &share.default)
        }
        PolicyNode::Bands(bands) => {
            (bands.classes.iter().map(|class| &*class.name).collect(), &bands.default)
        }
        PolicyNode::Share(_) | PolicyNode::Load(_) => return named.unwrap_or(DEFAULT_FLOW),
    };
    let listed = named.and_then(|named| classes.iter().find(|class| **class == named));
    listed.copied().or(default.as_deref()).unwrap_or(classes[0])
}

/// Returns the node or queue inside a flow; `None` if the node lists its classes and `flow` is not one of them.
pub fn inside_of<'a>(node: &'a PolicyNode, flow: &str) -> Option<&'a FlowInside> {
    match node {
        PolicyNode::Drr(drr) => {
            drr.classes.iter().find(|class| *class.name == *flow).map(|class| &class.inside)
        }
        PolicyNode::Share(share) if share.classes.is_empty() => Some(&share.inside),
        PolicyNode::Share(share) => {
            share.classes.iter().find(|class| *class.name == *flow).map(|class| &class.inside)
        }
        PolicyNode::Bands(bands) => {
            bands.classes.iter().find(|class| *class.name == *flow).map(|class| &class.inside)
        }
        PolicyNode::Load(load) => Some(&load.inside),
    }
}

/// Returns the flows of a request, from the root down, and the queue in which it waits. `named` returns the request's
/// attributes.
pub fn path_of<'a>(
    root: &'a PolicyNode,
    named: impl Fn(Attribute) -> Option<&'a str>,
) -> (Vec<&'a str>, QueuePolicy) {
    let mut path = Vec::new();
    let mut node = root;
    loop {
        let flow = flow_of(node, named(node.by()));
        path.push(flow);
        match inside_of(node, flow) {
            Some(FlowInside::Node(inside)) => node = inside,
            Some(FlowInside::Queue(queue)) => return (path, *queue),
            None => return (path, QueuePolicy::default()),
        }
    }
}
