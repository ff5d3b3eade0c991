//! A policy in a few words.

use fairgate_core::policy::{Inside, Node, Policy};

/// Such as `share by group, share by tenant, share by key`; a drr node is followed by what is inside its first class.
pub(crate) fn algorithm(policy: &Policy) -> String {
    let mut levels = Vec::new();
    let mut node = Some(policy.root().as_ref());
    while let Some(level) = node {
        let partitioned = matches!(level, Node::Share(share) if share.partition);
        let slots = if partitioned { " in slots" } else { "" };
        levels.push(format!("{} by {}{slots}", level.kind(), level.by().name()));
        let inside = match level {
            Node::Drr(drr) => &drr.classes[0].inside,
            Node::Share(share) => &share.inside,
            Node::Load(load) => &load.inside,
        };
        node = match inside {
            Inside::Node(node) => Some(node),
            Inside::Queue(_) => None,
        };
    }
    levels.join(", ")
}
