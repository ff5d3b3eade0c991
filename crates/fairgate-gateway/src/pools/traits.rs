//! What a policy tree makes use of.

use std::sync::Arc;

use fairgate_core::attribute::Attribute;
use fairgate_core::policy::{Node, Policy};

use crate::tree::{flow_of, nodes_inside};

/// Whether any node shares by this attribute.
pub(crate) fn shares_by(policy: &Policy, by: Attribute) -> bool {
    any(policy.root(), &|node| node.by() == by)
}

/// The classes that a policy names: those that its nodes by class list, and those to which they give a weight or a cap.
pub(super) fn class_names(policy: &Policy) -> Vec<Box<str>> {
    let mut names = Vec::new();
    collect_classes(policy.root(), &mut names);
    names.sort_unstable();
    names.dedup();
    names
}

fn collect_classes(node: &Node, names: &mut Vec<Box<str>>) {
    match node {
        Node::Drr(drr) if drr.by == Attribute::Class => {
            names.extend(drr.classes.iter().map(|class| Box::from(&*class.name)));
        }
        Node::Share(share) if share.by == Attribute::Class => {
            names.extend(share.classes.iter().map(|class| Box::from(&*class.name)));
            names.extend(
                share.weights.keys().chain(share.caps.keys()).map(|name| Box::from(&**name)),
            );
        }
        _ => {}
    }
    nodes_inside(node).for_each(|node| collect_classes(node, names));
}

/// Whether any class counts what is in prefill.
pub(super) fn counts_prefill(policy: &Policy) -> bool {
    any(policy.root(), &|node| match node {
        Node::Drr(drr) => drr.classes.iter().any(|class| class.busy.is_stated()),
        Node::Share(share) => share.classes.iter().any(|class| class.busy.is_stated()),
        Node::Load(_) => false,
    })
}

/// The class that a request is queued in which names this one, or none: `None` where no node shares by class. Where several
/// do, the first of them from the root.
pub(super) fn class_of(policy: &Policy, named: Option<&str>) -> Option<Arc<str>> {
    first_by(policy.root(), Attribute::Class).map(|node| flow_of(node, named).into())
}

/// Whether the node that a request's class is for lists its classes, so that any other name stands for the default.
pub(super) fn lists_classes(policy: &Policy) -> bool {
    first_by(policy.root(), Attribute::Class).is_some_and(|node| match node {
        Node::Drr(_) => true,
        Node::Share(share) => !share.classes.is_empty(),
        Node::Load(_) => false,
    })
}

fn first_by(node: &Node, by: Attribute) -> Option<&Node> {
    if node.by() == by {
        Some(node)
    } else {
        nodes_inside(node).find_map(|node| first_by(node, by))
    }
}

fn any(node: &Node, is: &impl Fn(&Node) -> bool) -> bool {
    is(node) || nodes_inside(node).any(|node| any(node, is))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(text: &str) -> Policy {
        fairgate_journal::parse_policy(text).unwrap()
    }

    #[test]
    fn all_levels_are_looked_at() {
        let tree = policy(
            r#"{"share":{"by":"tenant","inside":{"drr":{"by":"class","classes":[
                {"name":"a","quantum":1,"busy_tokens":5,"inside":{"load":{"by":"agent"}}}]}}}}"#,
        );
        assert!(shares_by(&tree, Attribute::Tenant));
        assert!(shares_by(&tree, Attribute::Class));
        assert!(shares_by(&tree, Attribute::Agent));
        assert!(!shares_by(&tree, Attribute::Session));
        assert!(counts_prefill(&tree));
        assert!(!counts_prefill(&policy(r#"{"share":{"by":"tenant"}}"#)));
        assert_eq!(class_names(&tree), ["a".into()]);
        let open = policy(r#"{"share":{"by":"class","weights":{"b":2},"caps":{"a":1,"b":1}}}"#);
        assert_eq!(class_names(&open), ["a".into(), "b".into()]);
        assert!(lists_classes(&tree) && !lists_classes(&open));
        assert!(class_names(&policy(r#"{"share":{"by":"tenant","weights":{"b":2}}}"#)).is_empty());
        let classes = policy(
            r#"{"share":{"by":"class","classes":[
                {"name":"a","weight":1},{"name":"b","weight":1,"busy_tokens":5,"inside":{"share":{"by":"key"}}}]}}"#,
        );
        assert!(counts_prefill(&classes));
        assert!(shares_by(&classes, Attribute::Key));
        assert_eq!(class_of(&classes, Some("b")).as_deref(), Some("b"));
        assert_eq!(class_of(&classes, Some("other")).as_deref(), Some("a"));
        assert_eq!(class_of(&tree, None).as_deref(), Some("a"));
        assert_eq!(class_of(&policy(r#"{"share":{"by":"tenant"}}"#), Some("a")), None);
    }
}
