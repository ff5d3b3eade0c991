//! The flows that a request belongs to under a policy, from the root down.

use fairgate_core::attribute::{Attribute, Attributes};
use fairgate_core::policy::Policy;

/// One level of a request's path, with the attribute of the node and the name of the request's flow in this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PathLevel {
    pub(crate) by: Attribute,
    pub(crate) flow: Box<str>,
}

/// Returns a request's path, from the root down.
pub(crate) fn path(policy: &Policy, attributes: &Attributes) -> Vec<PathLevel> {
    let path = policy.path_of(|by| attributes.get(by));
    path.map(|(node, flow)| PathLevel { by: node.by(), flow: flow.into() }).collect()
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
