//! Policy classes, which are the queues of a pool that a policy file lists, and the rules that assign a request to a
//! class.
//!
//! A policy file names *families* and *buckets*. Each pair of a family and a bucket is a cell with one class. If a
//! request names a family, it gets the class of that family and of the bucket that contains the request's number of
//! uncached tokens. Besides the cells there are *explicit* classes, which a request names directly.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fairgate_core::attribute::Attribute;
use fairgate_core::policy::{
    BandClass, BandsPolicy, BusyThresholds, ClassLimits, DrrClassPolicy as DrrClass, DrrPolicy,
    FlowInside, Policy, PolicyError, PolicyNode, QueueOrder, QueuePolicy, ShareClass, SharePolicy,
};
use fairgate_core::units::{Micros, Weight};

/// Checked classes of one pool. Every family has a class for every bucket.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyClasses {
    pub(crate) file: PathBuf,
    pub(crate) arbiter: ClassArbiter,
    /// Index of the default family in `families`.
    pub(crate) default_family: usize,
    /// Buckets by rising `min_tokens`; at least one, and the first starts at 0.
    pub(crate) buckets: Vec<ClassBucket>,
    /// Families in the order in which the classes name them; at least one.
    pub(crate) families: Vec<ClassFamily>,
    /// Classes in the order of the file; at least one. This is also the order of turns under drr and of priority under
    /// bands.
    pub(crate) classes: Vec<PolicyClass>,
    pub(crate) policy: Policy,
}

/// Type of the node by which the classes share a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClassArbiter {
    /// Deficit round robin, as in Dynamo's router. A quantum is the cost that a class may spend per
    /// round.
    Drr,
    /// A share node. A quantum is a weight, and measured usage follows the weights.
    Share,
    /// Strict priority. The requests of a class go before those of all classes after it in the
    /// file. Classes have no quantum. A cap on a class leaves slots for the classes after it.
    Bands,
}

impl ClassArbiter {
    /// Returns the value of `arbiter` in a policy file: `drr`, `share` or `bands`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Drr => "drr",
            Self::Share => "share",
            Self::Bands => "bands",
        }
    }
}

/// The name of a class: 1 to 256 letters, digits, `_`, `.` and `-`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PolicyClassName(pub(crate) Arc<str>);

impl PolicyClassName {
    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PolicyClassName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Range of uncached input tokens, from `min_tokens` of this bucket up to, but not including, `min_tokens` of the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassBucket {
    /// Name of the bucket, as `cache_bucket` of a class gives it; unique within a profile.
    pub name: String,
    /// Smallest number of uncached input tokens of a request in this bucket.
    pub min_tokens: u64,
}

/// Classes that requests choose by one family name. The family has one class for each bucket. The
/// uncached tokens of a request decide which of these classes the request gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassFamily {
    /// Name of the family, as requests send it.
    pub name: String,
    /// Index in [`PolicyClasses::all`] of the class for each bucket, in the order of the buckets.
    pub(crate) cells: Vec<usize>,
}

/// A class of requests in a policy file, with its queue and limits.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyClass {
    /// Name of the class in journals, metrics and the live view.
    pub name: PolicyClassName,
    /// The family and bucket that the class serves; `None` for an explicit class, which requests name directly.
    pub cell: Option<ClassCell>,
    /// Credit per round, in the unit of the pool (drr), or weight (share). `None` under bands,
    /// where the order of the file decides.
    pub quantum: Option<Weight>,
    /// The most requests of the class that may be in flight (share and bands); `None` sets no cap.
    pub cap: Option<u64>,
    /// Order of the class's queues, and the wait after which a request goes before all requests that were submitted
    /// after it.
    pub queue: QueuePolicy,
    /// Structure between the class and its queues.
    pub inside: ClassInside,
    /// Thresholds above which a worker counts as busy for requests of this class.
    pub busy: BusyThresholds,
    /// Limits on the requests and tokens that may be queued in the class.
    pub limits: ClassLimits,
    /// Deadline of requests of the class if neither the request nor its key states one. Never longer than the pool's
    /// `queue_timeout`.
    pub deadline: Option<Duration>,
}

/// A family and a bucket, which together identify one class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassCell {
    /// Name of the family, as requests send it.
    pub family: String,
    /// Name of the bucket, listed in `uncached_isl_buckets`.
    pub bucket: String,
}

/// Structure between a class and its queues.
#[derive(Clone, Debug, PartialEq)]
pub enum ClassInside {
    /// Share by group, then tenant, then key, with one queue for each key (default).
    Owners,
    /// One queue for all requests of the class, as in Dynamo's router.
    Queue,
    /// A policy tree with queues of its own.
    Tree(Policy),
}

/// Class that is assigned to a request, and the reason for the choice.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClassResolution<'a> {
    /// Name of the assigned class.
    pub class: &'a PolicyClassName,
    /// The family that led to the class; `None` if the request named the class.
    pub family: Option<&'a str>,
    /// The bucket that led to the class; `None` if the request named the class.
    pub bucket: Option<&'a ClassBucket>,
    /// Kind of the name that the request sent.
    pub reason: ClassReason,
}

/// Kind of the name that a request sent, which decides the request's class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClassReason {
    /// The request sent the name of an explicit class.
    NamedClass,
    /// The request sent the name of a family.
    NamedFamily,
    /// The request sent no name, and gets the default family.
    NamedNothing,
    /// The request sent an unknown name, or the name of a class that has a family and a bucket, and gets the default
    /// family.
    NamedUnknown,
}

impl PolicyClasses {
    /// Returns the path of the policy file that lists the classes.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Returns the node type by which the classes share the pool.
    pub fn arbiter(&self) -> ClassArbiter {
        self.arbiter
    }

    /// Returns the family of requests that name neither a family nor an explicit class.
    pub fn default_family(&self) -> &str {
        &self.families[self.default_family].name
    }

    /// Returns the buckets by rising `min_tokens`. The first starts at 0.
    pub fn buckets(&self) -> &[ClassBucket] {
        &self.buckets
    }

    /// Iterates over the families, in the order in which the file's classes name them.
    pub fn families(&self) -> impl Iterator<Item = &str> {
        self.families.iter().map(|family| &*family.name)
    }

    /// Returns all classes, in the order of the file.
    pub fn all(&self) -> &[PolicyClass] {
        &self.classes
    }

    /// Iterates over the classes that a request may name directly.
    pub fn explicit(&self) -> impl Iterator<Item = &PolicyClassName> {
        self.classes.iter().filter(|class| class.cell.is_none()).map(|class| &class.name)
    }

    /// Returns the class of a request that sent the name `named` and has `uncached_tokens` uncached input tokens.
    pub fn resolve(&self, named: Option<&str>, uncached_tokens: u64) -> ClassResolution<'_> {
        let explicit = named.and_then(|name| self.explicit().find(|class| class.as_str() == name));
        if let Some(class) = explicit {
            return ClassResolution {
                class,
                family: None,
                bucket: None,
                reason: ClassReason::NamedClass,
            };
        }
        let family = named.and_then(|name| self.families.iter().find(|it| it.name == name));
        let why = match (family, named) {
            (Some(_), _) => ClassReason::NamedFamily,
            (None, None) => ClassReason::NamedNothing,
            (None, Some(_)) => ClassReason::NamedUnknown,
        };
        let family = family.unwrap_or(&self.families[self.default_family]);
        let above = self.buckets.partition_point(|bucket| bucket.min_tokens <= uncached_tokens);
        // The first bucket starts at 0, so at least one bucket starts at or below any number of tokens.
        let bucket = above.saturating_sub(1);
        ClassResolution {
            class: &self.classes[family.cells[bucket]].name,
            family: Some(&family.name),
            bucket: Some(&self.buckets[bucket]),
            reason: why,
        }
    }

    /// Returns the uncached input tokens of a bucket: the inclusive start, and the exclusive end (`None` for the last
    /// bucket). Returns `None` for an unknown bucket.
    pub fn range(&self, bucket: &str) -> Option<(u64, Option<u64>)> {
        let at = self.buckets.iter().position(|known| known.name == bucket)?;
        let next = self.buckets.get(at + 1);
        Some((self.buckets[at].min_tokens, next.map(|next| next.min_tokens)))
    }

    /// Builds the policy of these classes with another arbiter, to compare arbiters. Classes without a quantum get
    /// [`Weight::DEFAULT`].
    pub fn policy_under(&self, arbiter: ClassArbiter) -> Policy {
        let default = self.families[self.default_family].cells[0];
        policy(arbiter, &self.classes, default).expect("a tree of the same shape was checked")
    }

    /// Returns the policy tree for the core. Every request must carry the class from [`PolicyClasses::resolve`] as its
    /// attribute `class`.
    pub fn policy(&self) -> Policy {
        self.policy.clone()
    }
}

/// Builds the tree over these classes. Requests without a class get the class at index `default`.
pub(crate) fn policy(
    arbiter: ClassArbiter,
    classes: &[PolicyClass],
    default: usize,
) -> Result<Policy, PolicyError> {
    let default = Some(classes[default].name.as_str().into());
    let by = Attribute::Class;
    Policy::new(match arbiter {
        ClassArbiter::Drr => PolicyNode::Drr(DrrPolicy {
            by,
            classes: listed(classes, drr_class),
            default,
            inside: FlowInside::FCFS,
        }),
        ClassArbiter::Share => PolicyNode::Share(SharePolicy {
            classes: listed(classes, share_class),
            default,
            ..SharePolicy::new(by)
        }),
        ClassArbiter::Bands => PolicyNode::Bands(BandsPolicy {
            by,
            classes: listed(classes, band_class),
            default,
            inside: FlowInside::FCFS,
        }),
    })
}

fn listed<T>(classes: &[PolicyClass], of: fn(&PolicyClass) -> T) -> Vec<T> {
    classes.iter().map(of).collect()
}

fn drr_class(class: &PolicyClass) -> DrrClass {
    DrrClass {
        name: class.name.as_str().into(),
        quantum: class.quantum.unwrap_or(Weight::DEFAULT),
        inside: class.inside(),
        busy: class.busy,
        limits: class.limits,
    }
}

fn share_class(class: &PolicyClass) -> ShareClass {
    ShareClass {
        name: class.name.as_str().into(),
        weight: class.quantum.unwrap_or(Weight::DEFAULT),
        cap: class.cap,
        inside: class.inside(),
        busy: class.busy,
        limits: class.limits,
    }
}

fn band_class(class: &PolicyClass) -> BandClass {
    BandClass {
        name: class.name.as_str().into(),
        cap: class.cap,
        inside: class.inside(),
        busy: class.busy,
        limits: class.limits,
    }
}

impl PolicyClass {
    fn inside(&self) -> FlowInside {
        match &self.inside {
            ClassInside::Owners => FlowInside::Node(Arc::new(owners_tree(false, self.queue))),
            ClassInside::Queue => FlowInside::Queue(self.queue),
            ClassInside::Tree(tree) => FlowInside::Node(tree.root().clone()),
        }
    }
}

/// Builds the tree that shares by group, then tenant, then key, with one `queue` for each key. With
/// `partition`, the groups share slots.
pub(crate) fn owners_tree(partition: bool, queue: QueuePolicy) -> PolicyNode {
    let share = |by, partition, inside| {
        PolicyNode::Share(SharePolicy { partition, inside, ..SharePolicy::new(by) })
    };
    let keys = share(Attribute::Key, false, FlowInside::Queue(queue));
    let tenants = share(Attribute::Tenant, false, FlowInside::Node(Arc::new(keys)));
    share(Attribute::Group, partition, FlowInside::Node(Arc::new(tenants)))
}

pub(crate) fn queue(order: QueueOrder, max_wait: Option<Duration>) -> QueuePolicy {
    let micros = |wait: Duration| Micros(u64::try_from(wait.as_micros()).unwrap_or(u64::MAX));
    QueuePolicy { order, max_wait: max_wait.map(micros) }
}
