//! The flows that a request goes through under a policy.

use fairgate_core::attribute::{Attribute, Attributes, DEFAULT_FLOW};
use fairgate_core::policy::{Inside, Node, Policy};

/// One level of a request's path: a node's attribute and the flow in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Level {
    pub(crate) by: Attribute,
    pub(crate) flow: Box<str>,
}

/// The flow of a node that a request goes into.
pub(crate) fn flow<'a>(node: &'a Node, attributes: &'a Attributes) -> &'a str {
    let named = attributes.get(node.by());
    let (classes, default): (Vec<&str>, _) = match node {
        Node::Drr(drr) => (drr.classes.iter().map(|class| &*class.name).collect(), &drr.default),
        Node::Share(share) => {
            (share.classes.iter().map(|class| &*class.name).collect(), &share.default)
        }
        Node::Load(_) => (Vec::new(), &None),
    };
    // A node that lists no classes has a flow for every name.
    let Some(first) = classes.first() else { return named.unwrap_or(DEFAULT_FLOW) };
    named.filter(|name| classes.contains(name)).or(default.as_deref()).unwrap_or(first)
}

/// The node inside a flow, where there is one.
pub(crate) fn inside<'a>(node: &'a Node, flow: &str) -> Option<&'a Node> {
    let inside = match node {
        Node::Share(share) if share.classes.is_empty() => &share.inside,
        Node::Share(share) => &share.classes.iter().find(|class| *class.name == *flow)?.inside,
        Node::Load(load) => &load.inside,
        Node::Drr(drr) => &drr.classes.iter().find(|class| *class.name == *flow)?.inside,
    };
    match inside {
        Inside::Node(inner) => Some(inner),
        Inside::Queue(_) => None,
    }
}

/// A request's path, from the root down.
pub(crate) fn path(policy: &Policy, attributes: &Attributes) -> Vec<Level> {
    let mut levels = Vec::new();
    let mut next: Option<&Node> = Some(policy.root());
    while let Some(node) = next {
        let flow = flow(node, attributes);
        levels.push(Level { by: node.by(), flow: flow.into() });
        next = inside(node, flow);
    }
    levels
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_goes_through_the_default_class_and_the_default_flow() {
        let policy = fairgate_journal::parse_policy(
            r#"{"drr":{"by":"class","classes":[{"name":"a","quantum":1},
            {"name":"b","quantum":1,"inside":{"share":{"by":"tenant"}}}],"default":"b"}}"#,
        );
        let policy = policy.unwrap();
        let names = |attributes| {
            let levels = path(&policy, &attributes);
            levels.into_iter().map(|level| level.flow.into_string()).collect::<Vec<_>>()
        };
        let class = |name| Attributes::none().with(Attribute::Class, name);
        assert_eq!(names(class("a")), ["a"]);
        assert_eq!(names(class("x")), ["b", "default"]);
        assert_eq!(names(Attributes::none().with(Attribute::Tenant, "t")), ["b", "t"]);
    }

    #[test]
    fn classes_of_a_share_node_are_its_only_flows() {
        let policy = fairgate_journal::parse_policy(
            r#"{"share":{"by":"class","classes":[{"name":"a","weight":1,"inside":{"load":{"by":"agent"}}},
            {"name":"b","weight":1}]}}"#,
        );
        let policy = policy.unwrap();
        let names = |name| {
            let levels = path(&policy, &Attributes::none().with(Attribute::Class, name));
            levels.into_iter().map(|level| level.flow.into_string()).collect::<Vec<_>>()
        };
        assert_eq!(names("a"), ["a", "default"]);
        assert_eq!(names("b"), ["b"]);
        assert_eq!(names("c"), ["a", "default"], "the first is the default");
    }
}
