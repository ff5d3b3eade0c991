//! Queries on a policy tree: the queue of a request, the nodes inside a flow, and the weight and cap of a flow.

use fairgate_core::attribute::Attribute;
use fairgate_core::policy::{FlowInside, PolicyNode, QueuePolicy};
use fairgate_core::units::Weight;

pub(crate) use fairgate_runtime::flow::{flow_of, inside_of, path_of};

/// Returns the nodes directly below a node, over all its flows; flows that contain only a queue have none.
pub(crate) fn nodes_inside(node: &PolicyNode) -> impl Iterator<Item = &PolicyNode> {
    node.insides().into_iter().filter_map(|inside| match inside {
        FlowInside::Node(node) => Some(&**node),
        FlowInside::Queue(_) => None,
    })
}

/// Returns the rule of the queue in which a request with these attributes waits.
pub(crate) fn queue_of<'a>(
    root: &'a PolicyNode,
    named: impl Fn(Attribute) -> Option<&'a str>,
) -> QueuePolicy {
    path_of(root, named).1
}

/// Returns the weight that the policy gives a flow of this node; in a `drr` node, the quantum of the flow's class.
/// `None` in a `load` or `bands` node.
pub(crate) fn weight_of(node: &PolicyNode, flow: &str) -> Option<Weight> {
    match node {
        PolicyNode::Drr(drr) => {
            drr.classes.iter().find(|class| *class.name == *flow).map(|class| class.quantum)
        }
        PolicyNode::Share(share) if share.classes.is_empty() => {
            Some(*share.weights.get(flow).unwrap_or(&share.default_weight))
        }
        PolicyNode::Share(share) => {
            share.classes.iter().find(|class| *class.name == *flow).map(|class| class.weight)
        }
        PolicyNode::Load(_) | PolicyNode::Bands(_) => None,
    }
}

/// Returns the cap that the policy gives a flow of this node. `None` without a cap, and in nodes other than `share` and
/// `bands`, which have no caps.
pub(crate) fn cap_of(node: &PolicyNode, flow: &str) -> Option<u64> {
    if let PolicyNode::Bands(bands) = node {
        return bands.classes.iter().find(|class| *class.name == *flow)?.cap;
    }
    let PolicyNode::Share(share) = node else { return None };
    let class = share.classes.iter().find(|class| *class.name == *flow);
    class.and_then(|class| class.cap).or(share.caps.get(flow).copied()).or(share.default_cap)
}

#[cfg(test)]
mod tests {
    use fairgate_core::policy::QueueOrder;
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
        assert!(matches!(inside_of(root, "chat"), Some(FlowInside::Node(_))));
        assert!(matches!(inside_of(root, "batch"), Some(FlowInside::Queue(_))));
        assert_eq!(inside_of(root, "other"), None);
        assert_eq!(nodes_inside(root).count(), 1);
    }

    #[test]
    fn a_path_leads_to_one_queue() {
        let policy = parse_policy(
            r#"{"share":{"by":"class","classes":[
                {"name":"chat","weight":4,"inside":{"share":{"by":"tenant","queue":"edf"}}},
                {"name":"batch","weight":1}],"default":"batch"}}"#,
        )
        .unwrap();
        let queue = |class: &'static str| {
            queue_of(policy.root(), |by| (by == Attribute::Class).then_some(class)).order
        };
        assert_eq!((queue("chat"), queue("batch")), (QueueOrder::Edf, QueueOrder::Fcfs));
        assert_eq!(queue("other"), QueueOrder::Fcfs);
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
