//! The flow of a request in each node of a policy tree, with the flow's weight, its cap and its inside. Other crates
//! call these methods, so that no other crate interprets the tree.

use crate::attribute::{Attribute, DEFAULT_FLOW};
use crate::policy::{FlowInside, Policy, PolicyNode, QueuePolicy};
use crate::units::Weight;

impl PolicyNode {
    /// Returns the name of the flow of a request in this node. `named` is the request's value of the node's attribute;
    /// `None` if the request has no such attribute. If the node lists its classes and `named` is none of them, returns
    /// the default class.
    pub fn flow_of<'a>(&'a self, named: Option<&'a str>) -> &'a str {
        match (named, self.default_class()) {
            (Some(name), Some(_)) if self.inside_of(name).is_some() => name,
            (_, Some(default)) => default,
            (name, None) => name.unwrap_or(DEFAULT_FLOW),
        }
    }

    /// Returns the class for requests that name none of the node's classes; `None` if the node lists no classes, so
    /// that every name is a flow.
    pub fn default_class(&self) -> Option<&str> {
        let (default, first) = match self {
            Self::Drr(n) => (&n.default, n.classes.first().map(|class| &class.name)),
            Self::Share(n) => (&n.default, n.classes.first().map(|class| &class.name)),
            Self::Bands(n) => (&n.default, n.classes.first().map(|class| &class.name)),
            Self::Load(_) => return None,
        };
        first.map(|first| &**default.as_ref().unwrap_or(first))
    }

    /// Returns the queue or node inside a flow; `None` if the node lists its classes and `flow` is none of them.
    pub fn inside_of(&self, flow: &str) -> Option<&FlowInside> {
        match self {
            Self::Drr(n) => {
                n.classes.iter().find(|class| *class.name == *flow).map(|class| &class.inside)
            }
            Self::Share(n) if n.classes.is_empty() => Some(&n.inside),
            Self::Share(n) => {
                n.classes.iter().find(|class| *class.name == *flow).map(|class| &class.inside)
            }
            Self::Bands(n) => {
                n.classes.iter().find(|class| *class.name == *flow).map(|class| &class.inside)
            }
            Self::Load(n) => Some(&n.inside),
        }
    }

    /// Returns the node inside a flow; `None` if a queue is inside the flow, or if the node has no such class.
    pub fn node_inside_of(&self, flow: &str) -> Option<&PolicyNode> {
        match self.inside_of(flow)? {
            FlowInside::Node(node) => Some(node),
            FlowInside::Queue(_) => None,
        }
    }

    /// Returns the nodes directly below this one, over all its flows; flows that contain only a queue have none.
    pub fn nodes_inside(&self) -> impl Iterator<Item = &PolicyNode> {
        self.insides().into_iter().filter_map(|inside| match inside {
            FlowInside::Node(node) => Some(&**node),
            FlowInside::Queue(_) => None,
        })
    }

    /// Returns the weight that the policy gives a flow; in a drr node, this is the quantum of the flow's class. Returns
    /// `None` in a load or bands node, and for a name that is none of the listed classes.
    pub fn weight_of(&self, flow: &str) -> Option<Weight> {
        match self {
            Self::Drr(n) => {
                n.classes.iter().find(|class| *class.name == *flow).map(|class| class.quantum)
            }
            Self::Share(n) if n.classes.is_empty() => {
                Some(*n.weights.get(flow).unwrap_or(&n.default_weight))
            }
            Self::Share(n) => {
                n.classes.iter().find(|class| *class.name == *flow).map(|class| class.weight)
            }
            Self::Load(_) | Self::Bands(_) => None,
        }
    }

    /// Returns the cap that the policy gives a flow; `None` if the flow has no cap, and always in drr and load nodes.
    pub fn cap_of(&self, flow: &str) -> Option<u64> {
        match self {
            Self::Bands(n) => n.classes.iter().find(|class| *class.name == *flow)?.cap,
            Self::Share(n) => {
                let class = n.classes.iter().find(|class| *class.name == *flow);
                class.and_then(|class| class.cap).or(n.caps.get(flow).copied()).or(n.default_cap)
            }
            Self::Drr(_) | Self::Load(_) => None,
        }
    }
}

impl Policy {
    /// Iterates over the nodes on a request's path, from the root down, each with the request's flow in that node.
    /// `named` returns the request's value of an attribute.
    pub fn path_of<'a>(
        &'a self,
        named: impl Fn(Attribute) -> Option<&'a str>,
    ) -> impl Iterator<Item = (&'a PolicyNode, &'a str)> {
        let mut next = Some(&**self.root());
        core::iter::from_fn(move || {
            let node = next?;
            let flow = node.flow_of(named(node.by()));
            next = node.node_inside_of(flow);
            Some((node, flow))
        })
    }

    /// Returns the rules of the queue in which a request waits. `named` returns the request's value of an attribute.
    pub fn queue_of<'a>(&'a self, named: impl Fn(Attribute) -> Option<&'a str>) -> QueuePolicy {
        let innermost = self.path_of(named).last();
        match innermost.and_then(|(node, flow)| node.inside_of(flow)) {
            Some(FlowInside::Queue(queue)) => *queue,
            Some(FlowInside::Node(_)) | None => QueuePolicy::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::boxed::Box;
    use alloc::sync::Arc;
    use alloc::vec;
    use alloc::vec::Vec;

    use super::*;
    use crate::policy::{
        BandClass, BandsPolicy, BusyThresholds, ClassLimits, QueueOrder, ShareClass, SharePolicy,
    };

    fn class(name: &str, weight: u64, cap: Option<u64>, inside: FlowInside) -> ShareClass {
        ShareClass {
            name: name.into(),
            weight: Weight::new(weight).expect("a weight"),
            cap,
            inside,
            busy: BusyThresholds::default(),
            limits: ClassLimits::default(),
        }
    }

    /// Builds a share node with the classes `chat` and `batch`, of which `batch` is the default. Inside `chat` is a
    /// share node by tenant with `edf` queues.
    fn by_class() -> Policy {
        let tenants =
            SharePolicy { inside: FlowInside::EDF, ..SharePolicy::new(Attribute::Tenant) };
        let inside = FlowInside::Node(Arc::new(PolicyNode::Share(tenants)));
        let classes =
            vec![class("chat", 4, Some(8), inside), class("batch", 1, None, FlowInside::FCFS)];
        let default = Some(Box::from("batch"));
        let root = SharePolicy { classes, default, ..SharePolicy::new(Attribute::Class) };
        Policy::new(PolicyNode::Share(root)).expect("a policy")
    }

    #[test]
    fn listed_classes_are_the_only_flows() {
        let policy = by_class();
        let root = policy.root();
        assert_eq!(root.flow_of(Some("chat")), "chat");
        assert_eq!([root.flow_of(Some("other")), root.flow_of(None)], ["batch"; 2]);
        assert_eq!(root.weight_of("chat").map(Weight::get), Some(4));
        assert_eq!(root.weight_of("other"), None);
        assert_eq!((root.cap_of("chat"), root.cap_of("batch")), (Some(8), None));
        assert!(matches!(root.inside_of("batch"), Some(FlowInside::Queue(_))));
        assert_eq!(root.inside_of("other"), None);
        assert_eq!(root.nodes_inside().count(), 1);
    }

    #[test]
    fn the_first_class_is_the_default_unless_another_is_named() {
        let classes = ["a", "b"].map(|name| BandClass {
            name: name.into(),
            cap: Some(3),
            inside: FlowInside::FCFS,
            busy: BusyThresholds::default(),
            limits: ClassLimits::default(),
        });
        let bands = BandsPolicy {
            by: Attribute::Class,
            classes: classes.into(),
            default: None,
            inside: FlowInside::FCFS,
        };
        let first = PolicyNode::Bands(bands.clone());
        assert_eq!((first.flow_of(Some("x")), first.flow_of(Some("b"))), ("a", "b"));
        assert_eq!((first.weight_of("a"), first.cap_of("a")), (None, Some(3)));
        let named = PolicyNode::Bands(BandsPolicy { default: Some("b".into()), ..bands });
        assert_eq!(named.flow_of(None), "b");
    }

    #[test]
    fn without_classes_every_name_is_a_flow() {
        let weight = |weight| Weight::new(weight).expect("a weight");
        let share = SharePolicy {
            weights: [("chat".into(), weight(4))].into(),
            caps: [("chat".into(), 8)].into(),
            default_cap: Some(2),
            ..SharePolicy::new(Attribute::Tenant)
        };
        let node = PolicyNode::Share(share);
        assert_eq!((node.flow_of(Some("other")), node.flow_of(None)), ("other", "default"));
        assert_eq!(
            [node.weight_of("chat"), node.weight_of("x")],
            [Some(weight(4)), Some(weight(100))]
        );
        assert_eq!([node.cap_of("chat"), node.cap_of("x")], [Some(8), Some(2)]);
    }

    #[test]
    fn a_path_leads_to_one_queue() {
        let policy = by_class();
        let named = |class: &'static str| {
            move |by| match by {
                Attribute::Class => Some(class),
                Attribute::Tenant => Some("t"),
                _ => None,
            }
        };
        let path =
            |class| -> Vec<_> { policy.path_of(named(class)).map(|(_, flow)| flow).collect() };
        assert_eq!(path("chat"), ["chat", "t"]);
        assert_eq!(path("other"), ["batch"]);
        assert_eq!(policy.queue_of(named("chat")).order, QueueOrder::Edf);
        assert_eq!(policy.queue_of(named("other")).order, QueueOrder::Fcfs);
    }
}
