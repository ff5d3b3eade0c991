//! A policy prepared for use. The classes of each level are indexed by name once, and all nodes built from one level
//! share the index.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::attribute::{Attributes, DEFAULT_FLOW};
use crate::policy::{BusyThresholds, ClassLimits, FlowInside, PolicyNode, QueuePolicy};
use crate::units::Weight;

/// One level of the policy tree, from which every node at that level is built.
#[derive(Debug)]
pub(crate) struct PolicyLevel {
    pub(crate) node: Arc<PolicyNode>,
    /// Numbers of the classes by name; empty in a node that lists no classes.
    by_name: BTreeMap<Box<str>, u32>,
    pub(crate) classes: Vec<ClassLevel>,
    default_class: u32,
    /// The inside of every flow of a node that lists no classes.
    inside: InsideLevel,
    /// True if any class limits the requests or tokens that may wait in it.
    pub(crate) has_limits: bool,
}

/// The settings of a class, apart from its weight and its cap.
#[derive(Debug)]
pub(crate) struct ClassLevel {
    name: Box<str>,
    inside: InsideLevel,
    busy: BusyThresholds,
    limits: ClassLimits,
}

/// The inside of a flow, which is a queue or a further level.
#[derive(Clone, Debug)]
pub(crate) enum InsideLevel {
    Queue(QueuePolicy),
    Level(Arc<PolicyLevel>),
}

impl PolicyLevel {
    pub(crate) fn new(node: &Arc<PolicyNode>) -> Arc<Self> {
        let mut classes = Vec::new();
        let mut add = |name: &str, inside: &FlowInside, busy, limits| {
            let inside = InsideLevel::new(inside);
            classes.push(ClassLevel { name: name.into(), inside, busy, limits });
        };
        let default = match &**node {
            PolicyNode::Drr(drr) => {
                drr.classes.iter().for_each(|c| add(&c.name, &c.inside, c.busy, c.limits));
                drr.default.as_deref()
            }
            PolicyNode::Share(share) => {
                share.classes.iter().for_each(|c| add(&c.name, &c.inside, c.busy, c.limits));
                share.default.as_deref()
            }
            PolicyNode::Bands(bands) => {
                bands.classes.iter().for_each(|c| add(&c.name, &c.inside, c.busy, c.limits));
                bands.default.as_deref()
            }
            PolicyNode::Load(_) => None,
        };
        let inside = match &**node {
            PolicyNode::Share(share) => InsideLevel::new(&share.inside),
            PolicyNode::Load(load) => InsideLevel::new(&load.inside),
            PolicyNode::Drr(_) | PolicyNode::Bands(_) => InsideLevel::Queue(QueuePolicy::default()),
        };
        let by_name: BTreeMap<_, _> = classes.iter().map(|c| c.name.clone()).zip(0..).collect();
        let default_class = default.and_then(|name| by_name.get(name)).copied().unwrap_or(0);
        let has_limits = classes.iter().any(|class| class.limits != ClassLimits::default());
        Arc::new(Self { node: node.clone(), by_name, classes, default_class, inside, has_limits })
    }

    /// Returns the name of the flow to which a request with these attributes belongs in a node of this level.
    pub(crate) fn flow_name<'a>(&'a self, attributes: &'a Attributes) -> &'a str {
        let name = attributes.get(self.node.by());
        if self.classes.is_empty() {
            return name.unwrap_or(DEFAULT_FLOW);
        }
        match name {
            Some(name) if self.by_name.contains_key(name) => name,
            _ => &self.classes[self.default_class as usize].name,
        }
    }

    /// Returns the number of a listed class; `None` if the node lists no class with this name.
    pub(crate) fn class(&self, name: &str) -> Option<u32> {
        self.by_name.get(name).copied()
    }

    fn class_level(&self, name: &str) -> Option<&ClassLevel> {
        self.class(name).map(|class| &self.classes[class as usize])
    }

    /// Returns the inside of the flow with this name.
    pub(crate) fn inside(&self, name: &str) -> &InsideLevel {
        self.class_level(name).map_or(&self.inside, |class| &class.inside)
    }

    /// Returns the busy thresholds inside a flow: those of the flow's class if the class states any, otherwise those
    /// that apply around the node.
    pub(crate) fn busy(&self, name: &str, around: BusyThresholds) -> BusyThresholds {
        let own = self.class_level(name).map(|class| class.busy);
        own.filter(BusyThresholds::is_stated).unwrap_or(around)
    }

    /// Returns the limits of a listed class; no limits for any other flow.
    pub(crate) fn limits(&self, name: &str) -> ClassLimits {
        self.class_level(name).map(|class| class.limits).unwrap_or_default()
    }

    /// Returns the weight that the policy gives a flow of a share node; `None` in nodes of other kinds.
    pub(crate) fn weight(&self, name: &str) -> Option<Weight> {
        let PolicyNode::Share(share) = &*self.node else { return None };
        Some(match self.class(name) {
            Some(class) => share.classes[class as usize].weight,
            None => share.weights.get(name).copied().unwrap_or(share.default_weight),
        })
    }

    /// Returns the cap that the policy gives a flow; `None` if the flow has no cap, and always in drr and load nodes.
    pub(crate) fn cap(&self, name: &str) -> Option<u64> {
        let class = self.class(name).map(|class| class as usize);
        match &*self.node {
            PolicyNode::Share(share) => {
                let stated = match class {
                    Some(class) => share.classes[class].cap,
                    None => share.caps.get(name).copied(),
                };
                stated.or(share.default_cap)
            }
            PolicyNode::Bands(bands) => bands.classes[class?].cap,
            PolicyNode::Drr(_) | PolicyNode::Load(_) => None,
        }
    }

    /// Returns the names of the listed classes, in the order in which the policy lists them.
    pub(crate) fn class_names(&self) -> impl Iterator<Item = &str> + '_ {
        self.classes.iter().map(|class| &*class.name)
    }

    /// Returns true if the policy lists this flow by name. The size of the policy bounds the number of such flows.
    pub(crate) fn is_listed(&self, name: &str) -> bool {
        match &*self.node {
            PolicyNode::Share(share) if share.classes.is_empty() => {
                share.weights.contains_key(name) || share.caps.contains_key(name)
            }
            PolicyNode::Load(_) => false,
            _ => true,
        }
    }

    /// Returns true if two levels on one path divide service by the same attribute.
    pub(crate) fn has_repeated_attribute(
        &self,
        above: &mut Vec<crate::attribute::Attribute>,
    ) -> bool {
        let by = self.node.by();
        if above.contains(&by) {
            return true;
        }
        above.push(by);
        let insides = self.classes.iter().map(|class| &class.inside).chain([&self.inside]);
        let repeats = insides.fold(false, |found, inside| match inside {
            InsideLevel::Level(level) => found || level.has_repeated_attribute(above),
            InsideLevel::Queue(_) => found,
        });
        above.pop();
        repeats
    }

    /// Returns the height of the tree from this level down, in nodes, with this level included.
    pub(crate) fn height(&self) -> usize {
        let insides = self.classes.iter().map(|class| &class.inside).chain([&self.inside]);
        let below = insides.map(|inside| match inside {
            InsideLevel::Level(level) => level.height(),
            InsideLevel::Queue(_) => 0,
        });
        1 + below.max().unwrap_or(0)
    }
}

impl InsideLevel {
    fn new(inside: &FlowInside) -> Self {
        match inside {
            FlowInside::Queue(queue) => Self::Queue(*queue),
            FlowInside::Node(node) => Self::Level(PolicyLevel::new(node)),
        }
    }
}
