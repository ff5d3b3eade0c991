//! A policy made ready for use: class names indexed once, shared by all copies of a node.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::attribute::{Attributes, DEFAULT_FLOW};
use crate::policy::{BusyThresholds, ClassLimits, Inside, Node, Order};

/// One level of the tree, as every node at that place is built.
#[derive(Debug)]
pub(crate) struct Level {
    pub(crate) node: Arc<Node>,
    /// The classes of a drr node by name.
    classes: BTreeMap<Box<str>, u32>,
    default_class: u32,
    /// What is inside the flows: one for all, or one per drr class.
    insides: Vec<InsideLevel>,
}

/// What is inside a flow.
#[derive(Clone, Debug)]
pub(crate) enum InsideLevel {
    Queue(Order),
    Level(Arc<Level>),
}

impl Level {
    pub(crate) fn new(node: &Arc<Node>) -> Arc<Self> {
        let (mut classes, mut default_class) = (BTreeMap::new(), 0);
        let insides = match &**node {
            Node::Share(share) => vec![InsideLevel::new(&share.inside)],
            Node::Load(load) => vec![InsideLevel::new(&load.inside)],
            Node::Drr(drr) => {
                classes.extend(drr.classes.iter().map(|c| c.name.clone()).zip(0..));
                let named = drr.default.as_ref().and_then(|name| classes.get(name));
                default_class = named.copied().unwrap_or(0);
                drr.classes.iter().map(|c| InsideLevel::new(&c.inside)).collect()
            }
        };
        Arc::new(Self { node: node.clone(), classes, default_class, insides })
    }

    /// The name of the flow that a request belongs to.
    pub(crate) fn flow_name<'a>(&'a self, attributes: &'a Attributes) -> &'a str {
        let name = attributes.get(self.node.by());
        match &*self.node {
            Node::Drr(drr) => match name {
                Some(name) if self.classes.contains_key(name) => name,
                _ => &drr.classes[self.default_class as usize].name,
            },
            _ => name.unwrap_or(DEFAULT_FLOW),
        }
    }

    /// The number of a drr class.
    pub(crate) fn class(&self, name: &str) -> Option<u32> {
        self.classes.get(name).copied()
    }

    /// What is inside the flow of that name.
    pub(crate) fn inside(&self, name: &str) -> &InsideLevel {
        &self.insides[self.class(name).unwrap_or(0) as usize]
    }

    /// The busy thresholds inside a flow: its class's where it states any, else those around the node.
    pub(crate) fn busy(&self, name: &str, around: BusyThresholds) -> BusyThresholds {
        match (&*self.node, self.class(name)) {
            (Node::Drr(drr), Some(class)) => {
                let own = drr.classes[class as usize].busy;
                if own.is_stated() { own } else { around }
            }
            _ => around,
        }
    }

    /// The limits of a drr class; none elsewhere.
    pub(crate) fn limits(&self, name: &str) -> ClassLimits {
        match (&*self.node, self.class(name)) {
            (Node::Drr(drr), Some(class)) => drr.classes[class as usize].limits,
            _ => ClassLimits::default(),
        }
    }
}

impl InsideLevel {
    fn new(inside: &Inside) -> Self {
        match inside {
            Inside::Queue(order) => Self::Queue(*order),
            Inside::Node(node) => Self::Level(Level::new(node)),
        }
    }
}
