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
    let Node::Drr(drr) = node else { return named.unwrap_or(DEFAULT_FLOW) };
    let known = |name: &&str| drr.classes.iter().any(|class| *class.name == **name);
    let first = || drr.classes.first().map_or(DEFAULT_FLOW, |class| &class.name);
    named.filter(known).unwrap_or_else(|| drr.default.as_deref().unwrap_or_else(first))
}

/// The node inside a flow, where there is one.
pub(crate) fn inside<'a>(node: &'a Node, flow: &str) -> Option<&'a Node> {
    let inside = match node {
        Node::Share(share) => &share.inside,
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
}
