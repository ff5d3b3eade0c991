//! The flows that a request belongs to under a policy, from the root down.

use fairgate_core::attribute::{Attribute, Attributes, DEFAULT_FLOW};
use fairgate_core::policy::{FlowInside, Policy, PolicyNode};

/// One level of a request's path, with the attribute of the node and the name of the request's flow in this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PathLevel {
    pub(crate) by: Attribute,
    pub(crate) flow: Box<str>,
}

/// Returns the flow of a node that a request belongs to.
pub(crate) fn flow<'a>(node: &'a PolicyNode, attributes: &'a Attributes) -> &'a str {
    let named = attributes.get(node.by());
    let (classes, default): (Vec<&str>, _) = match node {
        PolicyNode::Drr(drr) => {
            (drr.classes.iter().map(|class| &*class.name).collect(), &drr.default)
        }
        PolicyNode::Share(share) => {
            (share.classes.iter().map(|class| &*class.name).collect(), &share.default)
        }
        PolicyNode::Bands(bands) => {
            (bands.classes.iter().map(|class| &*class.name).collect(), &bands.default)
        }
        PolicyNode::Load(_) => (Vec::new(), &None),
    };
    // A node without a list of classes has a flow for every name.
    let Some(first) = classes.first() else { return named.unwrap_or(DEFAULT_FLOW) };
    named.filter(|name| classes.contains(name)).or(default.as_deref()).unwrap_or(first)
}

/// Returns the node inside a flow; `None` if the flow has a queue inside.
pub(crate) fn inside<'a>(node: &'a PolicyNode, flow: &str) -> Option<&'a PolicyNode> {
    let inside = match node {
        PolicyNode::Share(share) if share.classes.is_empty() => &share.inside,
        PolicyNode::Share(share) => {
            &share.classes.iter().find(|class| *class.name == *flow)?.inside
        }
        PolicyNode::Load(load) => &load.inside,
        PolicyNode::Drr(drr) => &drr.classes.iter().find(|class| *class.name == *flow)?.inside,
        PolicyNode::Bands(bands) => {
            &bands.classes.iter().find(|class| *class.name == *flow)?.inside
        }
    };
    match inside {
        FlowInside::Node(inner) => Some(inner),
        FlowInside::Queue(_) => None,
    }
}

/// Returns a request's path, from the root down.
pub(crate) fn path(policy: &Policy, attributes: &Attributes) -> Vec<PathLevel> {
    let mut levels = Vec::new();
    let mut next: Option<&PolicyNode> = Some(policy.root());
    while let Some(node) = next {
        let flow = flow(node, attributes);
        levels.push(PathLevel { by: node.by(), flow: flow.into() });
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
