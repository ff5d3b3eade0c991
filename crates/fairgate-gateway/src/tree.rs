//! A policy tree, asked: which flow a request falls into, what is inside a flow, and what the policy gives it.

use fairgate_core::attribute::DEFAULT_FLOW;
use fairgate_core::policy::{Inside, Node};
use fairgate_core::units::Weight;

/// What is inside any of a node's flows.
pub(crate) fn insides(node: &Node) -> Vec<&Inside> {
    match node {
        Node::Drr(drr) => drr.classes.iter().map(|class| &class.inside).collect(),
        Node::Share(share) if share.classes.is_empty() => vec![&share.inside],
        Node::Share(share) => share.classes.iter().map(|class| &class.inside).collect(),
        Node::Load(load) => vec![&load.inside],
    }
}

/// The nodes that are inside any of a node's flows.
pub(crate) fn nodes_inside(node: &Node) -> impl Iterator<Item = &Node> {
    insides(node).into_iter().filter_map(|inside| match inside {
        Inside::Node(node) => Some(&**node),
        Inside::Queue(_) => None,
    })
}

/// The flow that a request falls into which names itself so, or not at all.
pub(crate) fn flow_of<'a>(node: &'a Node, named: Option<&'a str>) -> &'a str {
    let (classes, default): (Vec<&str>, _) = match node {
        Node::Drr(drr) => (drr.classes.iter().map(|class| &*class.name).collect(), &drr.default),
        Node::Share(share) if !share.classes.is_empty() => {
            (share.classes.iter().map(|class| &*class.name).collect(), &share.default)
        }
        Node::Share(_) | Node::Load(_) => return named.unwrap_or(DEFAULT_FLOW),
    };
    let listed = named.and_then(|named| classes.iter().find(|class| **class == named));
    listed.copied().or(default.as_deref()).unwrap_or(classes[0])
}

/// What is inside a flow; nothing where the node lists its classes and this is none of them.
pub(crate) fn inside_of<'a>(node: &'a Node, flow: &str) -> Option<&'a Inside> {
    match node {
        Node::Drr(drr) => {
            drr.classes.iter().find(|class| *class.name == *flow).map(|class| &class.inside)
        }
        Node::Share(share) if share.classes.is_empty() => Some(&share.inside),
        Node::Share(share) => {
            share.classes.iter().find(|class| *class.name == *flow).map(|class| &class.inside)
        }
        Node::Load(load) => Some(&load.inside),
    }
}

/// The weight that the policy gives a flow, or its class's quantum; none in a load node.
pub(crate) fn weight_of(node: &Node, flow: &str) -> Option<Weight> {
    match node {
        Node::Drr(drr) => {
            drr.classes.iter().find(|class| *class.name == *flow).map(|class| class.quantum)
        }
        Node::Share(share) if share.classes.is_empty() => {
            Some(*share.weights.get(flow).unwrap_or(&share.default_weight))
        }
        Node::Share(share) => {
            share.classes.iter().find(|class| *class.name == *flow).map(|class| class.weight)
        }
        Node::Load(_) => None,
    }
}

/// The cap that the policy gives a flow; only share nodes have caps.
pub(crate) fn cap_of(node: &Node, flow: &str) -> Option<u64> {
    let Node::Share(share) = node else { return None };
    let class = share.classes.iter().find(|class| *class.name == *flow);
    class.and_then(|class| class.cap).or(share.caps.get(flow).copied()).or(share.default_cap)
}

#[cfg(test)]
mod tests {
    use fairgate_journal::parse_policy;

    use super::*;

    #[test]
    fn classes_of_a_share_node_are_its_only_flows() {
        let policy = parse_policy(
            r#"{"share":{"by":"class","classes":[
                {"name":"chat","weight":4,"cap":8,"inside":{"share":{"by":"tenant"}}},
                {"name":"batch","weight":1}],"default":"batch"}}"#,
        )
        .unwrap();
        let root = policy.root();
        assert_eq!(flow_of(root, Some("chat")), "chat");
        assert_eq!(flow_of(root, Some("other")), "batch");
        assert_eq!(flow_of(root, None), "batch");
        assert_eq!(weight_of(root, "chat").map(Weight::get), Some(4));
        assert_eq!((cap_of(root, "chat"), cap_of(root, "batch")), (Some(8), None));
        assert!(matches!(inside_of(root, "chat"), Some(Inside::Node(_))));
        assert!(matches!(inside_of(root, "batch"), Some(Inside::Queue(_))));
        assert_eq!(inside_of(root, "other"), None);
        assert_eq!(nodes_inside(root).count(), 1);
    }

    #[test]
    fn without_classes_every_name_is_a_flow() {
        let policy = parse_policy(
            r#"{"share":{"by":"tenant","weights":{"chat":4},"caps":{"chat":8},"default_cap":2}}"#,
        )
        .unwrap();
        let root = policy.root();
        assert_eq!((flow_of(root, Some("other")), flow_of(root, None)), ("other", "default"));
        assert_eq!(weight_of(root, "chat").map(Weight::get), Some(4));
        assert_eq!(weight_of(root, "other").map(Weight::get), Some(100));
        assert_eq!((cap_of(root, "chat"), cap_of(root, "other")), (Some(8), Some(2)));
    }
}
