//! The policy tree as it is configured: one node per level, checked once.
//!
//! [`Policy::new`] is the only way in; whoever holds a [`Policy`] need not check again.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use crate::attribute::Attribute;
use crate::units::{Alpha, Fraction, Micros, Tokens, Weight};

/// How deep a tree may be, in nodes from the root to the queue.
pub const MAX_DEPTH: usize = 64;

/// How many nodes a tree may have. A node inside a share node counts once more for every class that has it too, so
/// that no short text unfolds to a tree that fills the memory.
pub const MAX_NODES: u64 = 1 << 20;

/// A checked policy tree. Cloning is cheap: the tree is shared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    root: Arc<Node>,
}

/// One level of the tree: how flows found by one attribute share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    /// Deficit round robin over a fixed list of classes.
    Drr(Drr),
    /// Share score over weighted flows.
    Share(Share),
    /// The load function over flows.
    Load(Load),
}

/// What is inside a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inside {
    /// A queue of requests.
    Queue(Queue),
    /// Another node; each flow has its own copy of it.
    Node(Arc<Node>),
}

impl Inside {
    /// A queue that serves first come, first served: what is inside a flow that says nothing.
    pub const FCFS: Self = Self::Queue(Queue { order: Order::Fcfs, max_wait: None });
    /// A queue that serves the cheapest first.
    pub const WSPT: Self = Self::Queue(Queue { order: Order::Wspt, max_wait: None });
}

/// A queue at the bottom of the tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Queue {
    /// Who goes first among those of equal priority.
    pub order: Order,
    /// After this wait a request goes before everything that came later, whatever its priority and cost; never
    /// where absent.
    pub max_wait: Option<Micros>,
}

/// The order of a queue, after priority (higher first).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// First come, first served.
    #[default]
    Fcfs,
    /// Cheapest first (weighted shortest processing time with equal weights), then first come.
    Wspt,
}

/// Deficit round robin: see [`crate::drr`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drr {
    /// The attribute that names a request's class.
    pub by: Attribute,
    /// The classes in ring order; at least one, names unique.
    pub classes: Vec<Class>,
    /// The class of requests that name none of the classes; the first where absent.
    pub default: Option<Box<str>>,
}

/// A class of a drr node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Class {
    /// Its name.
    pub name: Box<str>,
    /// The credit it earns per round, in tokens.
    pub quantum: Weight,
    /// What is inside it.
    pub inside: Inside,
    /// When a worker counts as busy for its requests; overrides the pool's where either is stated.
    pub busy: BusyThresholds,
    /// How much may wait in it.
    pub limits: ClassLimits,
}

/// From when on a worker's rank counts as busy. Neither stated: only `slots` make it busy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BusyThresholds {
    /// Busy when more prefill tokens than this are under way.
    pub tokens: Option<Tokens>,
    /// Busy when more prefill tokens than this part of the worker's batch are under way.
    pub fraction: Option<Fraction>,
}

impl BusyThresholds {
    /// Whether either threshold is stated.
    pub fn is_stated(&self) -> bool {
        self.tokens.is_some() || self.fraction.is_some()
    }
}

/// Limits on what waits in a class, each times the number of workers that are up or overloaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassLimits {
    /// Waiting requests per worker.
    pub requests_per_worker: Option<u64>,
    /// Waiting input tokens per worker.
    pub input_tokens_per_worker: Option<Tokens>,
    /// Waiting cached tokens per worker.
    pub cached_tokens_per_worker: Option<Tokens>,
}

/// Share score: see [`crate::share`].
///
/// Without `classes` every name is a flow; with them the flows are just those listed, and there are no `weights`,
/// `default_weight` or `caps`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// The attribute that names a request's flow.
    pub by: Attribute,
    /// The only flows, where any are listed; names unique.
    pub classes: Vec<ShareClass>,
    /// The class of requests that name none of the classes; the first where absent.
    pub default: Option<Box<str>>,
    /// Weights of flows by name.
    pub weights: BTreeMap<Box<str>, Weight>,
    /// The weight of every other flow.
    pub default_weight: Weight,
    /// How many requests of a flow may be in flight, by name.
    pub caps: BTreeMap<Box<str>, u64>,
    /// The cap of every other flow; none where absent.
    pub default_cap: Option<u64>,
    /// Whether the pool's capacity is divided among the flows first; on the root only.
    pub partition: bool,
    /// What is inside each flow, and inside each class that says nothing else.
    pub inside: Inside,
}

impl Share {
    /// A share of flows by this attribute, all of [`DEFAULT_WEIGHT`], each with a first-come queue inside.
    pub fn new(by: Attribute) -> Self {
        Self {
            by,
            classes: Vec::new(),
            default: None,
            weights: BTreeMap::new(),
            default_weight: Weight::DEFAULT,
            caps: BTreeMap::new(),
            default_cap: None,
            partition: false,
            inside: Inside::FCFS,
        }
    }
}

/// A class of a share node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShareClass {
    /// What requests call it.
    pub name: Box<str>,
    /// Its share against the other classes'.
    pub weight: Weight,
    /// How many of its requests may be in flight; the node's `default_cap` where absent.
    pub cap: Option<u64>,
    /// What is inside it.
    pub inside: Inside,
    /// When a worker counts as busy for its requests; overrides the pool's where either is stated.
    pub busy: BusyThresholds,
    /// How much may wait in it.
    pub limits: ClassLimits,
}

/// The load function: see [`crate::load`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Load {
    /// The attribute that names a request's flow.
    pub by: Attribute,
    /// The trade-off between depth and age at the start.
    pub alpha: Alpha,
    /// Whether alpha follows the load.
    pub auto_tune: bool,
    /// After how many ticks a flow's oldest request goes before all others; only with a queue inside.
    pub max_wait_ticks: Option<u64>,
    /// What is inside each flow.
    pub inside: Inside,
}

/// The weight of share flows that no policy names.
pub const DEFAULT_WEIGHT: u64 = 100;

impl Node {
    /// The attribute this node shares by.
    pub fn by(&self) -> Attribute {
        match self {
            Self::Drr(n) => n.by,
            Self::Share(n) => n.by,
            Self::Load(n) => n.by,
        }
    }

    /// The word by which policies call this kind of node.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Drr(_) => "drr",
            Self::Share(_) => "share",
            Self::Load(_) => "load",
        }
    }
}

/// A policy that cannot be: where in the tree, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyError {
    /// The field, from the policy's root: `share.inside.drr.classes[1].name`.
    pub field: String,
    /// What is wrong with it.
    pub problem: PolicyProblem,
}

/// What may be wrong with a policy whose single values are in range.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PolicyProblem {
    /// A drr node without classes.
    NoClasses,
    /// Two classes of one name in one node.
    DuplicateClass(Box<str>),
    /// `default` names no class of its node.
    UnknownDefault(Box<str>),
    /// `partition` on a node that is not the root.
    PartitionBelowRoot,
    /// `max_wait_ticks` on a load node that has another node inside.
    MaxWaitNeedsQueue,
    /// Weights or caps by name in a share node that lists its classes, which have their own.
    WeightsBesideClasses,
    /// A `default` in a share node that lists no classes.
    DefaultWithoutClasses,
    /// More than [`MAX_DEPTH`] nodes from the root to a queue.
    TooDeep,
    /// More than [`MAX_NODES`] nodes.
    TooManyNodes,
}

impl fmt::Display for PolicyProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoClasses => write!(f, "a drr node needs at least one class"),
            Self::DuplicateClass(name) => write!(f, "class {name:?} is listed twice"),
            Self::UnknownDefault(name) => write!(f, "{name:?} is none of the classes"),
            Self::PartitionBelowRoot => write!(f, "only the root node may be partitioned"),
            Self::MaxWaitNeedsQueue => {
                write!(f, "max_wait_ticks needs a queue inside, not another node")
            }
            Self::WeightsBesideClasses => {
                write!(f, "a node with classes has them there: give each class its weight and cap")
            }
            Self::DefaultWithoutClasses => write!(f, "names a class, but the node lists none"),
            Self::TooDeep => write!(f, "the tree is deeper than {MAX_DEPTH} nodes"),
            Self::TooManyNodes => write!(f, "the tree has more than {MAX_NODES} nodes"),
        }
    }
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.problem)
    }
}

impl core::error::Error for PolicyError {}

impl Policy {
    /// Checks a tree and makes it a policy.
    pub fn new(root: Node) -> Result<Self, PolicyError> {
        if check(&root, 1, &mut String::new())? > MAX_NODES {
            let problem = PolicyProblem::TooManyNodes;
            return Err(PolicyError { field: root.kind().into(), problem });
        }
        Ok(Self { root: Arc::new(root) })
    }

    /// The root node.
    pub fn root(&self) -> &Arc<Node> {
        &self.root
    }
}

/// Checks what is below a node, and counts it.
fn check(node: &Node, depth: usize, path: &mut String) -> Result<u64, PolicyError> {
    let mark = path.len();
    path.push_str(node.kind());
    let fail = |path: &str, field: &str, problem| {
        Err(PolicyError { field: format!("{path}{field}"), problem })
    };
    if depth > MAX_DEPTH {
        return fail(path, "", PolicyProblem::TooDeep);
    }
    let below = match node {
        Node::Drr(drr) => {
            if drr.classes.is_empty() {
                return fail(path, ".classes", PolicyProblem::NoClasses);
            }
            let classes = drr.classes.iter().map(|class| (&*class.name, &class.inside));
            check_classes(classes, drr.default.as_deref(), None, depth, path)?
        }
        Node::Share(share) => {
            if share.partition && depth > 1 {
                return fail(path, ".partition", PolicyProblem::PartitionBelowRoot);
            }
            // First the node's own inside: where classes have it too, an error in it is the node's.
            let inside = check_inside(&share.inside, depth, path)?;
            inside.saturating_add(check_share_classes(share, inside, depth, path)?)
        }
        Node::Load(load) => {
            if load.max_wait_ticks.is_some() && matches!(load.inside, Inside::Node(_)) {
                return fail(path, ".max_wait_ticks", PolicyProblem::MaxWaitNeedsQueue);
            }
            check_inside(&load.inside, depth, path)?
        }
    };
    path.truncate(mark);
    Ok(below.saturating_add(1))
}

/// `inside` is the count of what is inside the node.
fn check_share_classes(
    share: &Share,
    inside: u64,
    depth: usize,
    path: &mut String,
) -> Result<u64, PolicyError> {
    let fail =
        |field: &str, problem| Err(PolicyError { field: format!("{path}.{field}"), problem });
    if share.classes.is_empty() {
        return match share.default {
            Some(_) => fail("default", PolicyProblem::DefaultWithoutClasses),
            None => Ok(0),
        };
    }
    let by_name = [
        ("weights", !share.weights.is_empty()),
        ("default_weight", share.default_weight != Weight::DEFAULT),
        ("caps", !share.caps.is_empty()),
    ];
    if let Some((field, _)) = by_name.iter().find(|(_, stated)| *stated) {
        return fail(field, PolicyProblem::WeightsBesideClasses);
    }
    let classes = share.classes.iter().map(|class| (&*class.name, &class.inside));
    let counted = Some((&share.inside, inside));
    check_classes(classes, share.default.as_deref(), counted, depth, path)
}

/// Names are unique, the default is one of them, and what is inside each class can be. What was `counted` before is
/// not looked at again.
fn check_classes<'a>(
    classes: impl Iterator<Item = (&'a str, &'a Inside)> + Clone,
    default: Option<&str>,
    counted: Option<(&Inside, u64)>,
    depth: usize,
    path: &mut String,
) -> Result<u64, PolicyError> {
    let fail = |field: String, problem| Err(PolicyError { field, problem });
    let mut seen = BTreeSet::new();
    for (i, (name, _)) in classes.clone().enumerate() {
        if !seen.insert(name) {
            let problem = PolicyProblem::DuplicateClass(name.into());
            return fail(format!("{path}.classes[{i}].name"), problem);
        }
    }
    if let Some(name) = default.filter(|name| !seen.contains(name)) {
        let problem = PolicyProblem::UnknownDefault(name.into());
        return fail(format!("{path}.default"), problem);
    }
    let mut nodes = 0u64;
    for (i, (_, inside)) in classes.enumerate() {
        let mark = path.len();
        path.push_str(&format!(".classes[{i}]"));
        let below = match counted {
            Some((same, count)) if is_same_node(inside, same) => count,
            _ => check_inside(inside, depth, path)?,
        };
        nodes = nodes.saturating_add(below);
        path.truncate(mark);
    }
    Ok(nodes)
}

fn is_same_node(one: &Inside, other: &Inside) -> bool {
    matches!((one, other), (Inside::Node(one), Inside::Node(other)) if Arc::ptr_eq(one, other))
}

fn check_inside(inside: &Inside, depth: usize, path: &mut String) -> Result<u64, PolicyError> {
    let Inside::Node(node) = inside else { return Ok(0) };
    let mark = path.len();
    path.push_str(".inside.");
    let nodes = check(node, depth + 1, path)?;
    path.truncate(mark);
    Ok(nodes)
}
