//! A policy in a few words.

use fairgate_core::policy::{Inside, Node, Policy};

use crate::tree::insides;

/// Such as `share by group, share by tenant, share by key`; a node with classes is followed by what is inside the
/// first.
pub(crate) fn algorithm(policy: &Policy) -> String {
    let mut levels = Vec::new();
    let mut node = Some(policy.root().as_ref());
    while let Some(level) = node {
        let partitioned = matches!(level, Node::Share(share) if share.partition);
        let slots = if partitioned { " in slots" } else { "" };
        levels.push(format!("{} by {}{slots}", level.kind(), level.by().name()));
        node = match insides(level)[0] {
            Inside::Node(node) => Some(node),
            Inside::Queue(_) => None,
        };
    }
    levels.join(", ")
}
