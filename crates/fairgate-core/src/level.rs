//! A policy made ready for use: class names indexed once, shared by all copies of a node.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::attribute::{Attributes, DEFAULT_FLOW};
use crate::policy::{BusyThresholds, ClassLimits, Inside, Node, Queue};
use crate::units::Weight;

/// One level of the tree, as every node at that place is built.
#[derive(Debug)]
pub(crate) struct Level {
    pub(crate) node: Arc<Node>,
    /// The classes by name, in a node that lists them.
    by_name: BTreeMap<Box<str>, u32>,
    pub(crate) classes: Vec<ClassLevel>,
    default_class: u32,
    /// What is inside the flows of a node without classes.
    inside: InsideLevel,
    /// Whether any class limits what may wait in it.
    pub(crate) has_limits: bool,
}

/// What a class says besides its weight.
#[derive(Debug)]
pub(crate) struct ClassLevel {
    name: Box<str>,
    inside: InsideLevel,
    busy: BusyThresholds,
    limits: ClassLimits,
}

/// What is inside a flow.
#[derive(Clone, Debug)]
pub(crate) enum InsideLevel {
    Queue(Queue),
    Level(Arc<Level>),
}

impl Level {
    pub(crate) fn new(node: &Arc<Node>) -> Arc<Self> {
        let mut classes = Vec::new();
        let mut add = |name: &str, inside: &Inside, busy, limits| {
            let inside = InsideLevel::new(inside);
            classes.push(ClassLevel { name: name.into(), inside, busy, limits });
        };
        let default = match &**node {
            Node::Drr(drr) => {
                drr.classes.iter().for_each(|c| add(&c.name, &c.inside, c.busy, c.limits));
                drr.default.as_deref()
            }
            Node::Share(share) => {
                share.classes.iter().for_each(|c| add(&c.name, &c.inside, c.busy, c.limits));
                share.default.as_deref()
            }
            Node::Load(_) => None,
        };
        let inside = match &**node {
            Node::Share(share) => InsideLevel::new(&share.inside),
            Node::Load(load) => InsideLevel::new(&load.inside),
            Node::Drr(_) => InsideLevel::Queue(Queue::default()),
        };
        let by_name: BTreeMap<_, _> = classes.iter().map(|c| c.name.clone()).zip(0..).collect();
        let default_class = default.and_then(|name| by_name.get(name)).copied().unwrap_or(0);
        let has_limits = classes.iter().any(|class| class.limits != ClassLimits::default());
        Arc::new(Self { node: node.clone(), by_name, classes, default_class, inside, has_limits })
    }

    /// The name of the flow that a request belongs to.
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

    /// The number of a listed class.
    pub(crate) fn class(&self, name: &str) -> Option<u32> {
        self.by_name.get(name).copied()
    }

    fn class_level(&self, name: &str) -> Option<&ClassLevel> {
        self.class(name).map(|class| &self.classes[class as usize])
    }

    /// What is inside the flow of that name.
    pub(crate) fn inside(&self, name: &str) -> &InsideLevel {
        self.class_level(name).map_or(&self.inside, |class| &class.inside)
    }

    /// The busy thresholds inside a flow: its class's where it states any, else those around the node.
    pub(crate) fn busy(&self, name: &str, around: BusyThresholds) -> BusyThresholds {
        let own = self.class_level(name).map(|class| class.busy);
        own.filter(BusyThresholds::is_stated).unwrap_or(around)
    }

    /// The limits of a listed class; none elsewhere.
    pub(crate) fn limits(&self, name: &str) -> ClassLimits {
        self.class_level(name).map(|class| class.limits).unwrap_or_default()
    }

    /// The weight and the cap that the policy gives a share flow; nothing in other nodes.
    pub(crate) fn share_of(&self, name: &str) -> Option<(Weight, Option<u64>)> {
        let Node::Share(share) = &*self.node else { return None };
        if let Some(class) = self.class(name) {
            let class = &share.classes[class as usize];
            return Some((class.weight, class.cap.or(share.default_cap)));
        }
        let weight = share.weights.get(name).copied().unwrap_or(share.default_weight);
        Some((weight, share.caps.get(name).copied().or(share.default_cap)))
    }

    /// Whether the policy names this flow, so that there are only so many of its kind.
    pub(crate) fn is_listed(&self, name: &str) -> bool {
        match &*self.node {
            Node::Share(share) if share.classes.is_empty() => {
                share.weights.contains_key(name) || share.caps.contains_key(name)
            }
            Node::Load(_) => false,
            _ => true,
        }
    }

    /// Whether two levels on one path share by the same attribute.
    pub(crate) fn repeats(&self, above: &mut Vec<crate::attribute::Attribute>) -> bool {
        let by = self.node.by();
        if above.contains(&by) {
            return true;
        }
        above.push(by);
        let insides = self.classes.iter().map(|class| &class.inside).chain([&self.inside]);
        let repeats = insides.fold(false, |found, inside| match inside {
            InsideLevel::Level(level) => found || level.repeats(above),
            InsideLevel::Queue(_) => found,
        });
        above.pop();
        repeats
    }

    /// The depth of the tree from here down, in nodes.
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
    fn new(inside: &Inside) -> Self {
        match inside {
            Inside::Queue(queue) => Self::Queue(*queue),
            Inside::Node(node) => Self::Level(Level::new(node)),
        }
    }
}
