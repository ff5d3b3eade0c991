//! Policy classes: the queues of a pool that a policy file lists, and which of them a request gets.
//!
//! A file names *families* and *buckets*. Each pair of them is a cell with one class: a request that names a family gets
//! the class of that family and of the bucket that its uncached tokens fall into. Beside the cells there are *explicit*
//! classes, which a request names itself.

mod file;
mod read;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fairgate_core::attribute::Attribute;
use fairgate_core::policy::{
    BusyThresholds, Class as DrrClass, ClassLimits, Drr, Inside, Node, Order, Policy, PolicyError,
    Queue, Share, ShareClass,
};
use fairgate_core::units::{Micros, Weight};

use crate::read::owners_tree;

pub use self::file::PolicyFile;
pub(crate) use self::read::{Surroundings, for_pool};

/// The classes of one pool, checked: every family has a class for every bucket.
#[derive(Clone, Debug, PartialEq)]
pub struct Classes {
    file: PathBuf,
    arbiter: Arbiter,
    /// Where in `families` the default family stands.
    default_family: usize,
    /// At least one; floors rise, the first is 0.
    buckets: Vec<Bucket>,
    /// In the order in which classes name them; at least one.
    families: Vec<Family>,
    /// In the order of the file, which is drr's ring order; at least one.
    classes: Vec<PolicyClass>,
    policy: Policy,
}

/// How the classes of a pool share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arbiter {
    /// Deficit round robin, as in Dynamo's router: a quantum is what a class may spend in a round.
    Drr,
    /// Share scores: a quantum is a weight, and real usage keeps to it.
    Share,
}

impl Arbiter {
    /// The word for it in a policy file.
    pub fn word(self) -> &'static str {
        match self {
            Self::Drr => "drr",
            Self::Share => "share",
        }
    }
}

/// The name of a class: letters, digits, `_`, `.` and `-`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClassName(Arc<str>);

impl ClassName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ClassName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A range of uncached tokens: from `min_tokens` to below the next bucket's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// What classes call it.
    pub name: String,
    /// The fewest uncached input tokens of a request in it.
    pub min_tokens: u64,
}

/// Classes that one name stands for; which of them a request gets depends on its uncached tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Family {
    /// What requests call it.
    pub name: String,
    /// Its class for each bucket, in the order of the buckets, by its place in the list of classes.
    cells: Vec<usize>,
}

/// One class.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyClass {
    /// What journals, metrics and the live view call it.
    pub name: ClassName,
    /// The family and bucket that it serves; none for an explicit class, which requests name themselves.
    pub cell: Option<Cell>,
    /// Credit per round in tokens (drr), or weight (share).
    pub quantum: Weight,
    /// The order of its queues, and after which wait a request goes before those that came later.
    pub queue: Queue,
    /// What is between the class and its queues.
    pub inside: ClassInside,
    /// When a worker counts as busy for its requests.
    pub busy: BusyThresholds,
    /// How much may wait in it.
    pub limits: ClassLimits,
}

/// The family and bucket of a class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    /// The family.
    pub family: String,
    /// The bucket.
    pub bucket: String,
}

/// What is inside a class.
#[derive(Clone, Debug, PartialEq)]
pub enum ClassInside {
    /// Share by group, then tenant, then key, with a queue for each key (default).
    Owners,
    /// One queue for everybody, as in Dynamo's router.
    Queue,
    /// A tree with queues of its own.
    Tree(Policy),
}

/// Which class a request gets, and why.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Resolution<'a> {
    /// The class.
    pub class: &'a ClassName,
    /// The family that led to it; none where the request named the class.
    pub family: Option<&'a str>,
    /// The bucket that led to it; none where the request named the class.
    pub bucket: Option<&'a Bucket>,
    /// What the request named.
    pub why: Why,
}

/// What a request named, so that it got its class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// An explicit class.
    NamedClass,
    /// A family.
    NamedFamily,
    /// Nothing: it gets the default family.
    NamedNothing,
    /// Neither a family nor an explicit class (the class of a family and bucket is neither): it gets the default family.
    NamedUnknown,
}

impl Classes {
    /// The policy file that lists them.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// How the classes share the pool.
    pub fn arbiter(&self) -> Arbiter {
        self.arbiter
    }

    /// The family of requests that name neither a family nor an explicit class.
    pub fn default_family(&self) -> &str {
        &self.families[self.default_family].name
    }

    /// The buckets, by rising floors. The first starts at 0.
    pub fn buckets(&self) -> &[Bucket] {
        &self.buckets
    }

    /// The families, in the order in which the file's classes name them.
    pub fn families(&self) -> impl Iterator<Item = &str> {
        self.families.iter().map(|family| &*family.name)
    }

    /// All classes, in the order of the file.
    pub fn all(&self) -> &[PolicyClass] {
        &self.classes
    }

    /// The classes that a request may name itself.
    pub fn explicit(&self) -> impl Iterator<Item = &ClassName> {
        self.classes.iter().filter(|class| class.cell.is_none()).map(|class| &class.name)
    }

    /// The class of a request that names `named` and has that many uncached input tokens.
    pub fn resolve(&self, named: Option<&str>, uncached_tokens: u64) -> Resolution<'_> {
        let explicit = named.and_then(|name| self.explicit().find(|class| class.as_str() == name));
        if let Some(class) = explicit {
            return Resolution { class, family: None, bucket: None, why: Why::NamedClass };
        }
        let family = named.and_then(|name| self.families.iter().find(|it| it.name == name));
        let why = match (family, named) {
            (Some(_), _) => Why::NamedFamily,
            (None, None) => Why::NamedNothing,
            (None, Some(_)) => Why::NamedUnknown,
        };
        let family = family.unwrap_or(&self.families[self.default_family]);
        let above = self.buckets.partition_point(|bucket| bucket.min_tokens <= uncached_tokens);
        // The first floor is 0, so at least one bucket starts at or below any number of tokens.
        let bucket = above.saturating_sub(1);
        Resolution {
            class: &self.classes[family.cells[bucket]].name,
            family: Some(&family.name),
            bucket: Some(&self.buckets[bucket]),
            why,
        }
    }

    /// The uncached input tokens of requests in a bucket: from, and to where the next bucket begins.
    pub fn range(&self, bucket: &str) -> Option<(u64, Option<u64>)> {
        let at = self.buckets.iter().position(|known| known.name == bucket)?;
        let next = self.buckets.get(at + 1);
        Some((self.buckets[at].min_tokens, next.map(|next| next.min_tokens)))
    }

    /// The same classes under another arbiter, for a comparison.
    pub fn policy_under(&self, arbiter: Arbiter) -> Policy {
        let default = self.families[self.default_family].cells[0];
        policy(arbiter, &self.classes, default).expect("a tree of the same shape was checked")
    }

    /// The tree for the core. Every request must carry the class that [`Classes::resolve`] gives as its attribute `class`.
    pub fn policy(&self) -> Policy {
        self.policy.clone()
    }
}

/// The tree over these classes. Requests without a class would get the one at `default`.
fn policy(
    arbiter: Arbiter,
    classes: &[PolicyClass],
    default: usize,
) -> Result<Policy, PolicyError> {
    let default = Some(classes[default].name.as_str().into());
    let by = Attribute::Class;
    Policy::new(match arbiter {
        Arbiter::Drr => Node::Drr(Drr { by, classes: listed(classes, drr_class), default }),
        Arbiter::Share => {
            Node::Share(Share { classes: listed(classes, share_class), default, ..Share::new(by) })
        }
    })
}

fn listed<T>(classes: &[PolicyClass], of: fn(&PolicyClass) -> T) -> Vec<T> {
    classes.iter().map(of).collect()
}

fn drr_class(class: &PolicyClass) -> DrrClass {
    DrrClass {
        name: class.name.as_str().into(),
        quantum: class.quantum,
        inside: class.inside(),
        busy: class.busy,
        limits: class.limits,
    }
}

fn share_class(class: &PolicyClass) -> ShareClass {
    ShareClass {
        name: class.name.as_str().into(),
        weight: class.quantum,
        cap: None,
        inside: class.inside(),
        busy: class.busy,
        limits: class.limits,
    }
}

impl PolicyClass {
    fn inside(&self) -> Inside {
        match &self.inside {
            ClassInside::Owners => Inside::Node(Arc::new(owners_tree(false, self.queue))),
            ClassInside::Queue => Inside::Queue(self.queue),
            ClassInside::Tree(tree) => Inside::Node(tree.root().clone()),
        }
    }
}

fn queue(order: Order, max_wait: Option<Duration>) -> Queue {
    let micros = |wait: Duration| Micros(u64::try_from(wait.as_micros()).unwrap_or(u64::MAX));
    Queue { order, max_wait: max_wait.map(micros) }
}
