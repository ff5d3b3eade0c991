//! The policy tree as it is configured, with one node per level. A policy is checked once, when it is made.
//!
//! [`Policy::new`] is the only constructor, so a [`Policy`] never needs another check.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use crate::attribute::Attribute;
use crate::units::{Alpha, BatchFraction, Micros, Tokens, Weight};

/// Greatest depth of a tree, in nodes from the root to the queue.
pub const MAX_DEPTH: usize = 64;

/// Greatest number of nodes of a tree. A node that several classes share counts once for each of them, so that no short
/// text can describe a tree that fills the memory.
pub const MAX_NODES: u64 = 1 << 20;

/// A checked policy tree. Cloning is cheap, because clones share the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    root: Arc<PolicyNode>,
}

/// One level of the tree, which divides service between flows by the value of one attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolicyNode {
    /// Deficit round robin over a fixed list of classes; see [`crate::drr`].
    Drr(DrrPolicy),
    /// Share score over weighted flows; see [`crate::share`].
    Share(SharePolicy),
    /// The load function over flows; see [`crate::load`].
    Load(LoadPolicy),
    /// Strict priority between a fixed list of classes; see [`crate::bands`].
    Bands(BandsPolicy),
}

/// The inside of a flow, which is a queue or another node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FlowInside {
    /// A queue of requests.
    Queue(QueuePolicy),
    /// Another node. Each flow has its own copy of the node.
    Node(Arc<PolicyNode>),
}

impl FlowInside {
    /// A queue that serves first come, first served. This is the default inside of a flow.
    pub const FCFS: Self = Self::Queue(QueuePolicy { order: QueueOrder::Fcfs, max_wait: None });
    /// A queue that serves the cheapest request first.
    pub const WSPT: Self = Self::Queue(QueuePolicy { order: QueueOrder::Wspt, max_wait: None });
    /// A queue that serves the earliest deadline first.
    pub const EDF: Self = Self::Queue(QueuePolicy { order: QueueOrder::Edf, max_wait: None });
}

/// Settings of a queue at the bottom of the tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueuePolicy {
    /// Order among requests of equal priority.
    pub order: QueueOrder,
    /// Wait after which a request goes before all requests that were submitted after it, whatever their priorities and
    /// costs; no such limit if absent.
    pub max_wait: Option<Micros>,
}

/// The order of requests with equal priority in a queue. Requests of higher priority always go first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueueOrder {
    /// First come, first served.
    #[default]
    Fcfs,
    /// Cheapest first, and first come at equal cost. This is weighted shortest processing time with equal weights.
    Wspt,
    /// Earliest deadline first, and first come at equal deadline. Requests without a deadline go last.
    Edf,
}

impl QueueOrder {
    /// All orders, in the order of their definition.
    pub const ALL: [Self; 3] = [Self::Fcfs, Self::Wspt, Self::Edf];

    /// Returns the word that policies use for this order.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fcfs => "fcfs",
            Self::Wspt => "wspt",
            Self::Edf => "edf",
        }
    }
}

/// Settings of a deficit round robin node; see [`crate::drr`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrrPolicy {
    /// The attribute whose value names a request's class.
    pub by: Attribute,
    /// The classes in ring order. There is at least one, and names are unique.
    pub classes: Vec<DrrClassPolicy>,
    /// The class of requests whose attribute names none of the classes; the first class if absent.
    pub default: Option<Box<str>>,
    /// The inside of each class that states no inside of its own.
    pub inside: FlowInside,
}

/// A class of a drr node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrrClassPolicy {
    /// Name of the class; unique within its node.
    pub name: Box<str>,
    /// Credit that the class earns per round, in tokens.
    pub quantum: Weight,
    /// The queue or node inside the class.
    pub inside: FlowInside,
    /// The thresholds at which a worker counts as busy for the class's requests. If the class states either threshold,
    /// both of the pool's are replaced.
    pub busy: BusyThresholds,
    /// Limits on the requests and tokens that may wait in the class.
    pub limits: ClassLimits,
}

/// The load above which a rank of a worker counts as busy. If neither threshold is stated, a rank is busy only because
/// of the worker's slots, rates or pause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BusyThresholds {
    /// A rank is busy if it has more prefill tokens under way than this; no threshold if absent.
    pub tokens: Option<Tokens>,
    /// A rank is busy if it has more prefill tokens under way than this multiple of the worker's batch; no threshold if
    /// absent.
    pub fraction: Option<BatchFraction>,
}

impl BusyThresholds {
    /// Returns true if either threshold is stated.
    pub fn is_stated(&self) -> bool {
        self.tokens.is_some() || self.fraction.is_some()
    }
}

/// Limits on the requests and tokens that wait in a class. Each limit is multiplied by the number of workers that are
/// up or overloaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassLimits {
    /// Greatest number of waiting requests per worker; no limit if absent.
    pub requests_per_worker: Option<u64>,
    /// Greatest number of waiting input tokens per worker; no limit if absent.
    pub input_tokens_per_worker: Option<Tokens>,
    /// Greatest number of waiting cached tokens per worker; no limit if absent.
    pub cached_tokens_per_worker: Option<Tokens>,
}

/// Settings of a share node; see [`crate::share`].
///
/// Without `classes` every name is a flow. With `classes` the only flows are those listed, and there must be no
/// `weights`, `default_weight` or `caps`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharePolicy {
    /// The attribute whose value names a request's flow.
    pub by: Attribute,
    /// The only flows of the node; empty if every name is a flow. Names are unique.
    pub classes: Vec<ShareClass>,
    /// The class of requests whose attribute names none of the classes; the first class if absent.
    pub default: Option<Box<str>>,
    /// Weights of flows, by the flow's name.
    pub weights: BTreeMap<Box<str>, Weight>,
    /// Weight of every flow that `weights` does not name.
    pub default_weight: Weight,
    /// Greatest number of a flow's requests in flight, by the flow's name.
    pub caps: BTreeMap<Box<str>, u64>,
    /// Cap of every flow that `caps` does not name; no cap if absent.
    pub default_cap: Option<u64>,
    /// True if the pool's slots are divided among the flows by weight first; allowed on the root only.
    pub partition: bool,
    /// The inside of each flow, and of each class that states no inside of its own.
    pub inside: FlowInside,
}

impl SharePolicy {
    /// Creates a share node over the flows of this attribute, all with [`DEFAULT_WEIGHT`] and a first-come queue
    /// inside.
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
            inside: FlowInside::FCFS,
        }
    }
}

/// A class of a share node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShareClass {
    /// Name of the class; unique within its node.
    pub name: Box<str>,
    /// Weight of the class, relative to the other classes.
    pub weight: Weight,
    /// Greatest number of the class's requests in flight; the node's `default_cap` if absent.
    pub cap: Option<u64>,
    /// The queue or node inside the class.
    pub inside: FlowInside,
    /// The thresholds at which a worker counts as busy for the class's requests. If the class states either threshold,
    /// both of the pool's are replaced.
    pub busy: BusyThresholds,
    /// Limits on the requests and tokens that may wait in the class.
    pub limits: ClassLimits,
}

/// Settings of a load node; see [`crate::load`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadPolicy {
    /// The attribute whose value names a request's flow.
    pub by: Attribute,
    /// The trade-off between depth and age with which the node starts.
    pub alpha: Alpha,
    /// True if the node adapts alpha to the ages and the backlog of its flows; see [`crate::load`].
    pub auto_tune: bool,
    /// Ticks after which a flow's oldest request goes before all others; no such limit if absent. Only allowed with a
    /// queue inside.
    pub max_wait_ticks: Option<u64>,
    /// The queue or node inside each flow.
    pub inside: FlowInside,
}

/// Settings of a strict priority node; see [`crate::bands`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BandsPolicy {
    /// The attribute whose value names a request's class.
    pub by: Attribute,
    /// The classes in order of priority. A class always goes before the classes that are listed after it. There is at
    /// least one, and names are unique.
    pub classes: Vec<BandClass>,
    /// The class of requests whose attribute names none of the classes; the first class if absent.
    pub default: Option<Box<str>>,
    /// The inside of each class that states no inside of its own.
    pub inside: FlowInside,
}

impl BandsPolicy {
    /// Returns the name of the class for requests whose attribute names none of the classes.
    pub fn default_class(&self) -> Option<&str> {
        let first = || self.classes.first().map(|class| &*class.name);
        self.default.as_deref().or_else(first)
    }
}

/// A class of a bands node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BandClass {
    /// The value of the node's attribute that puts a request in this class.
    pub name: Box<str>,
    /// Greatest number of the class's requests in flight; no cap if absent. A cap leaves the other slots to the classes
    /// below.
    pub cap: Option<u64>,
    /// The queue or node inside the class.
    pub inside: FlowInside,
    /// The thresholds at which a worker counts as busy for the class's requests. If the class states either threshold,
    /// both of the pool's are replaced.
    pub busy: BusyThresholds,
    /// Limits on the requests and tokens that may wait in the class.
    pub limits: ClassLimits,
}

/// The weight of a share flow for which the policy states none.
pub const DEFAULT_WEIGHT: u64 = 100;

impl PolicyNode {
    /// Returns the attribute by which this node divides service.
    pub fn by(&self) -> Attribute {
        match self {
            Self::Drr(n) => n.by,
            Self::Share(n) => n.by,
            Self::Load(n) => n.by,
            Self::Bands(n) => n.by,
        }
    }

    /// Returns the word that policies use for this kind of node.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Drr(_) => "drr",
            Self::Share(_) => "share",
            Self::Load(_) => "load",
            Self::Bands(_) => "bands",
        }
    }

    /// Returns the inside of each class of this node, in the order of the classes. If the node lists no classes, the
    /// list has one entry, the inside that all flows have.
    pub fn insides(&self) -> Vec<&FlowInside> {
        match self {
            Self::Drr(n) => n.classes.iter().map(|class| &class.inside).collect(),
            Self::Share(n) if n.classes.is_empty() => Vec::from([&n.inside]),
            Self::Share(n) => n.classes.iter().map(|class| &class.inside).collect(),
            Self::Load(n) => Vec::from([&n.inside]),
            Self::Bands(n) => n.classes.iter().map(|class| &class.inside).collect(),
        }
    }
}

/// Error for a policy that is not valid, with the field and the problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyError {
    /// Path of the bad field from the policy's root, such as `share.inside.drr.classes[1].name`.
    pub field: String,
    /// The rule that the field breaks.
    pub problem: PolicyErrorKind,
}

/// A rule that a policy can break although its single values are in range.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PolicyErrorKind {
    /// A drr or bands node lists no classes.
    NoClasses,
    /// Two classes of one node have this name.
    DuplicateClass(Box<str>),
    /// The `default` of a node is this name, which none of its classes has.
    UnknownDefault(Box<str>),
    /// A node that is not the root has `partition`.
    PartitionBelowRoot,
    /// A load node that has another node inside states `max_wait_ticks`.
    MaxWaitNeedsQueue,
    /// A share node that lists its classes also states `weights`, `default_weight` or `caps`, although its classes have
    /// their own.
    WeightsBesideClasses,
    /// A share node that lists no classes states a `default`.
    DefaultWithoutClasses,
    /// The tree has more than [`MAX_DEPTH`] nodes from the root to a queue.
    TooDeep,
    /// The whole tree has more than [`MAX_NODES`] nodes.
    TooManyNodes,
}

impl fmt::Display for PolicyErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoClasses => write!(f, "this node needs at least one class"),
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
    /// Checks a tree and makes it a policy; fails with the first rule that the tree breaks.
    pub fn new(root: PolicyNode) -> Result<Self, PolicyError> {
        if check(&root, 1, &mut String::new())? > MAX_NODES {
            let problem = PolicyErrorKind::TooManyNodes;
            return Err(PolicyError { field: root.kind().into(), problem });
        }
        Ok(Self { root: Arc::new(root) })
    }

    /// Returns the root node of the tree.
    pub fn root(&self) -> &Arc<PolicyNode> {
        &self.root
    }
}

/// Checks a node and everything below it. Returns the number of nodes, including the node itself.
fn check(node: &PolicyNode, depth: usize, path: &mut String) -> Result<u64, PolicyError> {
    let mark = path.len();
    path.push_str(node.kind());
    let fail = |path: &str, field: &str, problem| {
        Err(PolicyError { field: format!("{path}{field}"), problem })
    };
    if depth > MAX_DEPTH {
        return fail(path, "", PolicyErrorKind::TooDeep);
    }
    let below = match node {
        PolicyNode::Drr(drr) => {
            if drr.classes.is_empty() {
                return fail(path, ".classes", PolicyErrorKind::NoClasses);
            }
            let inside = check_inside(&drr.inside, depth, path)?;
            let classes = drr.classes.iter().map(|class| (&*class.name, &class.inside));
            let counted = (&drr.inside, inside);
            let below = check_classes(classes, drr.default.as_deref(), counted, depth, path)?;
            inside.saturating_add(below)
        }
        PolicyNode::Share(share) => {
            if share.partition && depth > 1 {
                return fail(path, ".partition", PolicyErrorKind::PartitionBelowRoot);
            }
            // The node's own inside is checked first, so that an error in it is reported at the node and not at a class
            // that shares it.
            let inside = check_inside(&share.inside, depth, path)?;
            inside.saturating_add(check_share_classes(share, inside, depth, path)?)
        }
        PolicyNode::Load(load) => {
            if load.max_wait_ticks.is_some() && matches!(load.inside, FlowInside::Node(_)) {
                return fail(path, ".max_wait_ticks", PolicyErrorKind::MaxWaitNeedsQueue);
            }
            check_inside(&load.inside, depth, path)?
        }
        PolicyNode::Bands(bands) => {
            if bands.classes.is_empty() {
                return fail(path, ".classes", PolicyErrorKind::NoClasses);
            }
            let inside = check_inside(&bands.inside, depth, path)?;
            let classes = bands.classes.iter().map(|class| (&*class.name, &class.inside));
            let counted = (&bands.inside, inside);
            let below = check_classes(classes, bands.default.as_deref(), counted, depth, path)?;
            inside.saturating_add(below)
        }
    };
    path.truncate(mark);
    Ok(below.saturating_add(1))
}

/// Checks the classes of a share node, and returns the number of policy nodes below the classes. `inside` is the number
/// of nodes in the node's own inside, which the caller has checked.
fn check_share_classes(
    share: &SharePolicy,
    inside: u64,
    depth: usize,
    path: &mut String,
) -> Result<u64, PolicyError> {
    let fail =
        |field: &str, problem| Err(PolicyError { field: format!("{path}.{field}"), problem });
    if share.classes.is_empty() {
        return match share.default {
            Some(_) => fail("default", PolicyErrorKind::DefaultWithoutClasses),
            None => Ok(0),
        };
    }
    let by_name = [
        ("weights", !share.weights.is_empty()),
        ("default_weight", share.default_weight != Weight::DEFAULT),
        ("caps", !share.caps.is_empty()),
    ];
    if let Some((field, _)) = by_name.iter().find(|(_, stated)| *stated) {
        return fail(field, PolicyErrorKind::WeightsBesideClasses);
    }
    let classes = share.classes.iter().map(|class| (&*class.name, &class.inside));
    let counted = (&share.inside, inside);
    check_classes(classes, share.default.as_deref(), counted, depth, path)
}

/// Checks that class names are unique, that the default is one of them, and that the inside of each class is valid.
/// Returns the number of nodes inside all classes. `counted` is an inside that the caller has checked, with its number
/// of nodes. For a class with that same inside, the number is added without another check.
fn check_classes<'a>(
    classes: impl Iterator<Item = (&'a str, &'a FlowInside)> + Clone,
    default: Option<&str>,
    counted: (&FlowInside, u64),
    depth: usize,
    path: &mut String,
) -> Result<u64, PolicyError> {
    let fail = |field: String, problem| Err(PolicyError { field, problem });
    let mut seen = BTreeSet::new();
    for (i, (name, _)) in classes.clone().enumerate() {
        if !seen.insert(name) {
            let problem = PolicyErrorKind::DuplicateClass(name.into());
            return fail(format!("{path}.classes[{i}].name"), problem);
        }
    }
    if let Some(name) = default.filter(|name| !seen.contains(name)) {
        let problem = PolicyErrorKind::UnknownDefault(name.into());
        return fail(format!("{path}.default"), problem);
    }
    let mut nodes = 0u64;
    for (i, (_, inside)) in classes.enumerate() {
        let mark = path.len();
        path.push_str(&format!(".classes[{i}]"));
        let (same, count) = counted;
        let below = match is_same_node(inside, same) {
            true => count,
            false => check_inside(inside, depth, path)?,
        };
        nodes = nodes.saturating_add(below);
        path.truncate(mark);
    }
    Ok(nodes)
}

fn is_same_node(one: &FlowInside, other: &FlowInside) -> bool {
    matches!((one, other), (FlowInside::Node(one), FlowInside::Node(other)) if Arc::ptr_eq(one, other))
}

fn check_inside(inside: &FlowInside, depth: usize, path: &mut String) -> Result<u64, PolicyError> {
    let FlowInside::Node(node) = inside else { return Ok(0) };
    let mark = path.len();
    path.push_str(".inside.");
    let nodes = check(node, depth + 1, path)?;
    path.truncate(mark);
    Ok(nodes)
}
