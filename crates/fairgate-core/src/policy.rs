//! The policy tree as it is configured: one node per level, checked once.
//!
//! [`Policy::new`] is the only way in; whoever holds a [`Policy`] need not check again.

use core::fmt;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::attribute::Attribute;
use crate::units::{Alpha, Fraction, Tokens, Weight};

/// How deep a tree may be, in nodes from the root to the queue.
pub const MAX_DEPTH: usize = 64;

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
    Queue(Order),
    /// Another node; each flow has its own copy of it.
    Node(Arc<Node>),
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
    /// Whether a release with tokens corrects the class's deficit by tokens − cost.
    pub settle: bool,
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

/// Limits on what waits in a drr class, each times the number of workers that are up or overloaded.
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// The attribute that names a request's flow.
    pub by: Attribute,
    /// Weights of flows by name.
    pub weights: BTreeMap<Box<str>, Weight>,
    /// The weight of every other flow.
    pub default_weight: Weight,
    /// How many requests of a flow may fly, by name.
    pub caps: BTreeMap<Box<str>, u64>,
    /// The cap of every other flow; none where absent.
    pub default_cap: Option<u64>,
    /// Whether the pool's capacity is divided among the flows first; on the root only.
    pub partition: bool,
    /// What is inside each flow.
    pub inside: Inside,
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
    /// Two classes of one name in one drr node.
    DuplicateClass(Box<str>),
    /// `default` names no class of its node.
    UnknownDefault(Box<str>),
    /// `partition` on a node that is not the root.
    PartitionBelowRoot,
    /// `max_wait_ticks` on a load node that has another node inside.
    MaxWaitNeedsQueue,
    /// More than [`MAX_DEPTH`] nodes from the root to a queue.
    TooDeep,
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
            Self::TooDeep => write!(f, "the tree is deeper than {MAX_DEPTH} nodes"),
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
        check(&root, 1, &mut String::new())?;
        Ok(Self { root: Arc::new(root) })
    }

    /// The root node.
    pub fn root(&self) -> &Arc<Node> {
        &self.root
    }
}

fn check(node: &Node, depth: usize, path: &mut String) -> Result<(), PolicyError> {
    let mark = path.len();
    path.push_str(node.kind());
    let fail = |path: &str, field: &str, problem| {
        Err(PolicyError { field: format!("{path}{field}"), problem })
    };
    if depth > MAX_DEPTH {
        return fail(path, "", PolicyProblem::TooDeep);
    }
    match node {
        Node::Drr(drr) => check_drr(drr, depth, path)?,
        Node::Share(share) => {
            if share.partition && depth > 1 {
                return fail(path, ".partition", PolicyProblem::PartitionBelowRoot);
            }
            check_inside(&share.inside, depth, path)?;
        }
        Node::Load(load) => {
            if load.max_wait_ticks.is_some() && matches!(load.inside, Inside::Node(_)) {
                return fail(path, ".max_wait_ticks", PolicyProblem::MaxWaitNeedsQueue);
            }
            check_inside(&load.inside, depth, path)?;
        }
    }
    path.truncate(mark);
    Ok(())
}

fn check_drr(drr: &Drr, depth: usize, path: &mut String) -> Result<(), PolicyError> {
    let fail = |field: String, problem| Err(PolicyError { field, problem });
    if drr.classes.is_empty() {
        return fail(format!("{path}.classes"), PolicyProblem::NoClasses);
    }
    let mut seen = std::collections::BTreeSet::new();
    for (i, class) in drr.classes.iter().enumerate() {
        if !seen.insert(&class.name) {
            let problem = PolicyProblem::DuplicateClass(class.name.clone());
            return fail(format!("{path}.classes[{i}].name"), problem);
        }
    }
    if let Some(name) = &drr.default
        && !seen.contains(name)
    {
        let problem = PolicyProblem::UnknownDefault(name.clone());
        return fail(format!("{path}.default"), problem);
    }
    for (i, class) in drr.classes.iter().enumerate() {
        let mark = path.len();
        path.push_str(&format!(".classes[{i}]"));
        check_inside(&class.inside, depth, path)?;
        path.truncate(mark);
    }
    Ok(())
}

fn check_inside(inside: &Inside, depth: usize, path: &mut String) -> Result<(), PolicyError> {
    let Inside::Node(node) = inside else { return Ok(()) };
    let mark = path.len();
    path.push_str(".inside.");
    check(node, depth + 1, path)?;
    path.truncate(mark);
    Ok(())
}
