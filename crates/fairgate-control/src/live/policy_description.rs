//! One-line description of a policy.

use fairgate_core::policy::{FlowInside, Policy, PolicyNode};

/// Describes a policy, such as `share by group, share by tenant, share by key`. Below a node with classes, only the
/// first class is described.
pub(crate) fn describe_policy(policy: &Policy) -> String {
    let mut levels = Vec::new();
    let mut node = Some(policy.root().as_ref());
    while let Some(level) = node {
        let partitioned = matches!(level, PolicyNode::Share(share) if share.partition);
        let slots = match level {
            _ if partitioned => " in slots",
            PolicyNode::Bands(_) => " in strict order",
            _ => "",
        };
        levels.push(format!("{} by {}{slots}", level.kind(), level.by().name()));
        node = match level.insides()[0] {
            FlowInside::Node(node) => Some(node),
            FlowInside::Queue(_) => None,
        };
    }
    levels.join(", ")
}
