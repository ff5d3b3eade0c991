//! Queries about the attributes, classes and queue orders that a policy tree uses.

use std::sync::Arc;

use fairgate_core::attribute::Attribute;
use fairgate_core::policy::{FlowInside, Policy, PolicyNode, QueueOrder};

/// Returns true if any node shares by this attribute.
pub fn shares_by(policy: &Policy, by: Attribute) -> bool {
    any(policy.root(), &|node| node.by() == by)
}

/// Returns the classes that a policy names, sorted. These are the classes that nodes by class list, and the classes to
/// which such nodes give a weight or a cap.
pub fn class_names(policy: &Policy) -> Vec<Box<str>> {
    let mut names = Vec::new();
    collect_classes(policy.root(), &mut names);
    names.sort_unstable();
    names.dedup();
    names
}

fn collect_classes(node: &PolicyNode, names: &mut Vec<Box<str>>) {
    match node {
        PolicyNode::Drr(drr) if drr.by == Attribute::Class => {
            names.extend(drr.classes.iter().map(|class| Box::from(&*class.name)));
        }
        PolicyNode::Bands(bands) if bands.by == Attribute::Class => {
            names.extend(bands.classes.iter().map(|class| Box::from(&*class.name)));
        }
        PolicyNode::Share(share) if share.by == Attribute::Class => {
            names.extend(share.classes.iter().map(|class| Box::from(&*class.name)));
            names.extend(
                share.weights.keys().chain(share.caps.keys()).map(|name| Box::from(&**name)),
            );
        }
        _ => {}
    }
    node.nodes_inside().for_each(|node| collect_classes(node, names));
}

/// Returns the classes that a key without a list of classes may name if classes have a strict
/// order. Such a key may name only a class that is the default of every bands node by class, so the
/// result has one class or none. `None` if the policy has no bands node by class; the key may then
/// name any class.
///
/// Bands nodes by other attributes need no such right. A request's tenant, group and project follow
/// from its key, and a policy may share by agents and sessions only below a tenant or key.
pub(super) fn strict_defaults(policy: &Policy) -> Option<Vec<Box<str>>> {
    let mut defaults = Vec::new();
    collect_strict_defaults(policy.root(), &mut defaults);
    defaults.dedup();
    match &defaults[..] {
        [] => None,
        [default] => Some(vec![Box::from(*default)]),
        _ => Some(Vec::new()),
    }
}

fn collect_strict_defaults<'a>(node: &'a PolicyNode, defaults: &mut Vec<&'a str>) {
    if let PolicyNode::Bands(bands) = node
        && bands.by == Attribute::Class
    {
        defaults.extend(bands.default_class());
    }
    node.nodes_inside().for_each(|node| collect_strict_defaults(node, defaults));
}

/// Returns the class that a request gets in every node by class if it names none. Every key may
/// name this class. The result is empty if the policy has no node by class, if nodes have different
/// defaults, or if a node makes every name a class of its own.
pub(super) fn default_classes(policy: &Policy) -> Vec<Box<str>> {
    let mut defaults = Vec::new();
    collect_defaults(policy.root(), &mut defaults);
    defaults.dedup();
    match &defaults[..] {
        [Some(default)] => vec![Box::from(*default)],
        _ => Vec::new(),
    }
}

fn collect_defaults<'a>(node: &'a PolicyNode, defaults: &mut Vec<Option<&'a str>>) {
    if node.by() == Attribute::Class {
        defaults.push(node.default_class());
    }
    node.nodes_inside().for_each(|node| collect_defaults(node, defaults));
}

/// Returns true if a bands node by this attribute lists this name as a class.
pub fn is_band(policy: &Policy, by: Attribute, name: &str) -> bool {
    any(policy.root(), &|node| match node {
        PolicyNode::Bands(bands) => {
            bands.by == by && bands.classes.iter().any(|class| *class.name == *name)
        }
        _ => false,
    })
}

/// Returns true if the policy has a share node by this attribute that uses the weights of the
/// directory. Such a node does not list its classes.
pub fn takes_weights(policy: &Policy, by: Attribute) -> bool {
    any(policy.root(), &|node| match node {
        PolicyNode::Share(share) => share.by == by && share.classes.is_empty(),
        _ => false,
    })
}

/// Returns true if the policy has a node by this attribute whose flows may have caps.
pub fn has_caps(policy: &Policy, by: Attribute) -> bool {
    any(policy.root(), &|node| {
        node.by() == by && matches!(node, PolicyNode::Share(_) | PolicyNode::Bands(_))
    })
}

/// Returns true if any class counts requests in prefill.
pub(super) fn counts_prefill(policy: &Policy) -> bool {
    any(policy.root(), &|node| match node {
        PolicyNode::Drr(drr) => drr.classes.iter().any(|class| class.busy.is_stated()),
        PolicyNode::Share(share) => share.classes.iter().any(|class| class.busy.is_stated()),
        PolicyNode::Bands(bands) => bands.classes.iter().any(|class| class.busy.is_stated()),
        PolicyNode::Load(_) => false,
    })
}

/// Returns true if any queue serves the earliest deadline first.
pub(super) fn has_edf_queues(policy: &Policy) -> bool {
    any(policy.root(), &|node| {
        let is_edf = |inside: &&FlowInside| matches!(inside, FlowInside::Queue(queue) if queue.order == QueueOrder::Edf);
        node.insides().iter().any(is_edf)
    })
}

/// Returns the class in which a request is queued; `named` is the class that the request names, if any. If several
/// nodes share by class, the first one from the root counts. `None` if no node shares by class.
pub(super) fn class_of(policy: &Policy, named: Option<&str>) -> Option<Arc<str>> {
    first_by(policy.root(), Attribute::Class).map(|node| node.flow_of(named).into())
}

/// Returns true if the first node by class lists its classes, so that any other name stands for the
/// default class.
pub(super) fn lists_classes(policy: &Policy) -> bool {
    first_by(policy.root(), Attribute::Class).is_some_and(|node| node.default_class().is_some())
}

fn first_by(node: &PolicyNode, by: Attribute) -> Option<&PolicyNode> {
    if node.by() == by {
        Some(node)
    } else {
        node.nodes_inside().find_map(|node| first_by(node, by))
    }
}

fn any(node: &PolicyNode, is: &impl Fn(&PolicyNode) -> bool) -> bool {
    is(node) || node.nodes_inside().any(|node| any(node, is))
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

    #[test]
    fn in_a_strict_order_only_its_default_is_open_to_all() {
        let bands =
            r#"{"bands":{"by":"class","classes":[{"name":"a"},{"name":"b"}],"default":"b"}}"#;
        let defaults = |text: &str| strict_defaults(&policy(text));
        assert_eq!(defaults(bands), Some(vec!["b".into()]));
        let below = format!(r#"{{"share":{{"by":"tenant","inside":{bands}}}}}"#);
        assert_eq!(defaults(&below), Some(vec!["b".into()]));
        assert_eq!(
            defaults(r#"{"bands":{"by":"class","classes":[{"name":"a"},{"name":"b"}]}}"#),
            Some(vec!["a".into()])
        );
        // Two nodes with different defaults: no name stands for the default of both.
        let nested = format!(
            r#"{{"bands":{{"by":"class","classes":[{{"name":"c"}},{{"name":"a","inside":{bands}}}]}}}}"#
        );
        assert_eq!(defaults(&nested), Some(Vec::new()));
        assert_eq!(defaults(r#"{"bands":{"by":"tenant","classes":[{"name":"a"}]}}"#), None);
        assert_eq!(defaults(r#"{"share":{"by":"class"}}"#), None);
    }

    #[test]
    fn weights_act_in_share_nodes_without_classes() {
        let tree = policy(
            r#"{"bands":{"by":"group","classes":[{"name":"prod"},{"name":"dev","inside":{"share":{"by":"tenant"}}}]}}"#,
        );
        assert!(is_band(&tree, Attribute::Group, "prod"));
        assert!(!is_band(&tree, Attribute::Group, "other"));
        assert!(!is_band(&tree, Attribute::Tenant, "prod"));
        assert!(takes_weights(&tree, Attribute::Tenant));
        assert!(!takes_weights(&tree, Attribute::Group));
        let classes = policy(r#"{"share":{"by":"group","classes":[{"name":"a","weight":1}]}}"#);
        assert!(!takes_weights(&classes, Attribute::Group));
    }
}
