//! Random policy trees, drawn according to a shape.

use std::collections::BTreeMap;
use std::sync::Arc;

use fairgate_core::attribute::{Attribute, DEFAULT_FLOW};
use fairgate_core::policy::{
    BandClass, BandsPolicy, BusyThresholds, ClassLimits, DEFAULT_WEIGHT, DrrClassPolicy, DrrPolicy,
    FlowInside, LoadPolicy, Policy, PolicyNode, QueueOrder, QueuePolicy, ShareClass, SharePolicy,
};
use fairgate_core::units::{Alpha, BatchFraction, Micros, Tokens, Weight};

use super::shape::{NodeKind, WorkloadShape};
use fairgate_random::SeededRng;

/// Greatest number of classes in a node's list. Shapes with many flows sometimes have more.
const CLASSES: usize = 6;

/// Greatest number of flows for which a share node states a weight or a cap.
const LISTED: usize = 64;

/// Returns the name of the flow with this number: the first letter of the attribute, then the
/// number.
pub(super) fn flow_name(by: Attribute, number: usize) -> String {
    format!("{}{number}", &by.name()[..1])
}

/// Returns the attributes by which the nodes of a policy share, at any depth.
pub(super) fn attributes_of(policy: &Policy) -> Vec<Attribute> {
    let mut attributes = Vec::new();
    collect_attributes(policy.root(), &mut attributes);
    attributes
}

fn collect_attributes(node: &PolicyNode, into: &mut Vec<Attribute>) {
    into.push(node.by());
    for inside in node.insides() {
        if let FlowInside::Node(node) = inside {
            collect_attributes(node, into);
        }
    }
}

/// Draws a policy of this shape, with `names` flow names for each attribute.
pub(super) fn policy(
    rng: &mut SeededRng,
    shape: &WorkloadShape,
    names: usize,
    time_scale: u64,
) -> Policy {
    let depth = rng.count(shape.depth.clone());
    let mut grower = PolicyGrower { rng, shape, names, time_scale, path: Vec::new() };
    Policy::new(grower.node(depth)).expect("a tree is grown by the rules")
}

struct PolicyGrower<'a> {
    rng: &'a mut SeededRng,
    shape: &'a WorkloadShape,
    names: usize,
    time_scale: u64,
    /// Attributes by which the nodes from the root to the current one share.
    path: Vec<Attribute>,
}

impl PolicyGrower<'_> {
    fn node(&mut self, depth: usize) -> PolicyNode {
        let by = self.attribute();
        self.path.push(by);
        let node = match self.rng.one_of(&self.shape.kinds) {
            NodeKind::Drr => PolicyNode::Drr(self.drr(by, depth)),
            NodeKind::Share => PolicyNode::Share(self.share(by, depth)),
            NodeKind::Load => PolicyNode::Load(self.load(by, depth)),
            NodeKind::Bands => PolicyNode::Bands(self.bands(by, depth)),
        };
        self.path.pop();
        node
    }

    /// Draws an attribute. Most often no node above shares by it.
    fn attribute(&mut self) -> Attribute {
        let new: Vec<Attribute> =
            Attribute::ALL.into_iter().filter(|by| !self.path.contains(by)).collect();
        if new.is_empty() || self.rng.percent(5) {
            return self.rng.one_of(&Attribute::ALL);
        }
        if !self.path.is_empty() && self.rng.percent(20) {
            return self.rng.one_of(&self.path);
        }
        self.rng.one_of(&new)
    }

    fn inside(&mut self, depth: usize) -> FlowInside {
        if depth > 1 {
            return FlowInside::Node(Arc::new(self.node(depth - 1)));
        }
        let deadlines = self.shape.timeouts && self.rng.percent(60);
        let order = if deadlines { QueueOrder::Edf } else { self.rng.one_of(&QueueOrder::ALL) };
        let max_wait = self.rng.weighted(&[(1, 0), (3, 200), (4, 1000), (3, 4000)]);
        let max_wait = self.rng.percent(30).then_some(Micros(max_wait * self.time_scale));
        FlowInside::Queue(QueuePolicy { order, max_wait })
    }

    fn drr(&mut self, by: Attribute, depth: usize) -> DrrPolicy {
        let many = depth == 1 && self.names > CLASSES && self.rng.percent(25);
        let most = if many { self.names } else { CLASSES };
        let count = self.rng.count(1..=most);
        let scale = self.rng.weighted(&[(3, 10), (4, 3000), (1, 1), (1, u64::MAX)]);
        let names = self.class_names(by, count);
        let inside = if self.rng.percent(50) { self.inside(depth) } else { FlowInside::FCFS };
        let classes: Vec<DrrClassPolicy> =
            names.iter().map(|name| self.class(name, scale, depth, &inside)).collect();
        let default = self.rng.percent(50).then(|| self.rng.index(classes.len()));
        let default = default.map(|index| classes[index].name.clone());
        DrrPolicy { by, default, classes, inside }
    }

    fn bands(&mut self, by: Attribute, depth: usize) -> BandsPolicy {
        let count = self.rng.count(1..=CLASSES);
        let inside = self.inside(depth);
        let names = self.class_names(by, count);
        let classes: Vec<BandClass> =
            names.iter().map(|name| self.band_class(name, depth, &inside)).collect();
        let default = self.rng.percent(50).then(|| self.rng.index(classes.len()));
        let default = default.map(|index| classes[index].name.clone());
        BandsPolicy { by, default, classes, inside }
    }

    /// Draws a class of a `bands` node. The class has a node or queue of its own inside, or the one that the `bands`
    /// node gives to its classes.
    fn band_class(&mut self, name: &str, depth: usize, inside: &FlowInside) -> BandClass {
        let own = self.rng.percent(60);
        let depth = self.depth_of_class(depth);
        BandClass {
            name: name.into(),
            cap: self.rng.percent(50).then(|| self.rng.one_of(&[0, 1, 1, 2, 2, 3, 4])),
            inside: if own { self.inside(depth) } else { inside.clone() },
            busy: self.class_busy(),
            limits: self.limits(),
        }
    }

    /// Returns the names of `count` classes, in random order. In some cases the name of the default
    /// flow is added.
    fn class_names(&mut self, by: Attribute, count: usize) -> Vec<String> {
        let mut names: Vec<String> = (0..count).map(|number| flow_name(by, number)).collect();
        if self.rng.percent(15) {
            names.push(DEFAULT_FLOW.to_owned());
        }
        self.shuffle(&mut names);
        names
    }

    fn shuffle(&mut self, names: &mut [String]) {
        for last in (1..names.len()).rev() {
            names.swap(last, self.rng.index(last + 1));
        }
    }

    /// Draws a class of a `drr` node. Most classes have a node or queue of their own inside; the others have the one
    /// that the `drr` node gives to its classes.
    fn class(
        &mut self,
        name: &str,
        scale: u64,
        depth: usize,
        inside: &FlowInside,
    ) -> DrrClassPolicy {
        let own = self.rng.percent(70);
        let depth = self.depth_of_class(depth);
        DrrClassPolicy {
            name: name.into(),
            quantum: self.weight(scale),
            inside: if own { self.inside(depth) } else { inside.clone() },
            busy: self.class_busy(),
            limits: self.limits(),
        }
    }

    /// Draws the depth of the tree inside a class. In a quarter of cases it is only 1, so that some
    /// branches are shorter than others.
    fn depth_of_class(&mut self, depth: usize) -> usize {
        if depth > 1 && self.rng.percent(25) { 1 } else { depth }
    }

    fn class_busy(&mut self) -> BusyThresholds {
        if self.shape.workers { busy(self.rng) } else { BusyThresholds::default() }
    }

    fn limits(&mut self) -> ClassLimits {
        if !self.shape.workers {
            return ClassLimits::default();
        }
        let tokens =
            |rng: &mut SeededRng| Tokens(rng.weighted(&[(1, 1), (3, 300), (3, 2000), (3, 9000)]));
        ClassLimits {
            requests_per_worker: self.rng.percent(20).then(|| self.rng.range(1..=6)),
            input_tokens_per_worker: self.rng.percent(15).then(|| tokens(self.rng)),
            cached_tokens_per_worker: self.rng.percent(15).then(|| tokens(self.rng)),
        }
    }

    fn share(&mut self, by: Attribute, depth: usize) -> SharePolicy {
        if self.rng.percent(35) {
            return self.share_of_classes(by, depth);
        }
        let scale = self.rng.weighted(&[(2, 1), (2, 5), (5, 500), (1, u64::MAX)]);
        let mut weights = BTreeMap::new();
        let mut caps = BTreeMap::new();
        let capped = self.rng.percent(40);
        for number in 0..self.names.min(LISTED) {
            let name: Box<str> = flow_name(by, number).into();
            if self.rng.percent(60) {
                weights.insert(name.clone(), self.weight(scale));
            }
            if capped && self.rng.percent(30) {
                caps.insert(name, self.rng.one_of(&[0, 1, 1, 2, 2, 3, 4]));
            }
        }
        if self.rng.percent(15) {
            weights.insert(DEFAULT_FLOW.into(), self.weight(scale));
        }
        let default_weight = self.rng.one_of(&[1, scale, DEFAULT_WEIGHT]);
        SharePolicy {
            weights,
            default_weight: Weight::new(default_weight).expect("not 0"),
            caps,
            default_cap: self.default_cap(),
            partition: self.path.len() == 1 && self.rng.percent(40),
            inside: self.inside(depth),
            ..SharePolicy::new(by)
        }
    }

    fn default_cap(&mut self) -> Option<u64> {
        self.rng.percent(15).then(|| self.rng.one_of(&[0, 1, 1, 2, 3, 5]))
    }

    fn share_of_classes(&mut self, by: Attribute, depth: usize) -> SharePolicy {
        let count = self.rng.count(1..=CLASSES);
        let scale = self.rng.weighted(&[(2, 1), (4, 5), (3, 500), (1, u64::MAX)]);
        let inside = self.inside(depth);
        let names = self.class_names(by, count);
        let classes: Vec<ShareClass> =
            names.iter().map(|name| self.share_class(name, scale, depth, &inside)).collect();
        let default = self.rng.percent(50).then(|| self.rng.index(classes.len()));
        SharePolicy {
            default: default.map(|index| classes[index].name.clone()),
            classes,
            default_cap: self.default_cap(),
            partition: self.path.len() == 1 && self.rng.percent(30),
            inside,
            ..SharePolicy::new(by)
        }
    }

    /// Draws a class of a `share` node. The class has a node or queue of its own inside, or the one that the `share`
    /// node gives to its classes.
    fn share_class(
        &mut self,
        name: &str,
        scale: u64,
        depth: usize,
        inside: &FlowInside,
    ) -> ShareClass {
        let own = self.rng.percent(60);
        let depth = self.depth_of_class(depth);
        ShareClass {
            name: name.into(),
            weight: self.weight(scale),
            cap: self.rng.percent(25).then(|| self.rng.one_of(&[0, 1, 1, 2, 2, 3, 4])),
            inside: if own { self.inside(depth) } else { inside.clone() },
            busy: self.class_busy(),
            limits: self.limits(),
        }
    }

    fn weight(&mut self, scale: u64) -> Weight {
        Weight::new(self.rng.range(1..=scale)).expect("not 0")
    }

    fn load(&mut self, by: Attribute, depth: usize) -> LoadPolicy {
        let alphas =
            [0, 250_000, 500_000, 1_000_000, 490_000, 505_000, self.rng.range(0..=999_999)];
        let alpha = Alpha::from_millionths(self.rng.one_of(&alphas)).expect("at most 1");
        let inside = self.inside(depth);
        let late = matches!(inside, FlowInside::Queue(_)) && self.rng.percent(40);
        LoadPolicy {
            by,
            alpha,
            auto_tune: self.rng.percent(50),
            max_wait_ticks: late.then(|| self.rng.weighted(&[(1, 0), (3, 3), (3, 10), (1, 40)])),
            inside,
        }
    }
}

/// Draws busy thresholds, of which often none is set.
pub(super) fn busy(rng: &mut SeededRng) -> BusyThresholds {
    let fraction = rng.percent(20).then(|| rng.one_of(&[0, 1, 250, 500, 1000, 1500]));
    BusyThresholds {
        tokens: rng.percent(25).then(|| Tokens(rng.one_of(&[0, 500, 3000, 9000]))),
        fraction: fraction.map(|f| BatchFraction::from_thousandths(f).expect("in range")),
    }
}
