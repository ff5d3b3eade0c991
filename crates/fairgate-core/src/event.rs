//! What may happen to a pool. Everything that a decision depends on arrives as one of these.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::attribute::{Attribute, Attributes};
use crate::policy::{BusyThresholds, Policy};
use crate::units::{BurstSeconds, Micros, PerMinute, TaskWeight, Tokens, Weight};

/// How a pool starts: its capacity, its policy and its limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolConfig {
    /// How many requests may be in flight at once.
    pub capacity: u64,
    /// Who goes next.
    pub policy: Policy,
    /// How many requests may wait; no limit where absent.
    pub max_queue: Option<u64>,
    /// How long a request may wait; for ever where absent.
    pub queue_timeout: Option<Micros>,
    /// After how long a wait a grant is marked as browned out; never marked where absent.
    pub brownout_wait: Option<Micros>,
    /// The workers that are there from the start.
    pub workers: Vec<WorkerChange>,
    /// When a worker counts as busy, for classes that state no thresholds of their own.
    pub busy: BusyThresholds,
}

impl PoolConfig {
    /// A pool with this capacity and policy, and no limits and no workers.
    pub fn new(capacity: u64, policy: Policy) -> Self {
        Self {
            capacity,
            policy,
            max_queue: None,
            queue_timeout: None,
            brownout_wait: None,
            workers: Vec::new(),
            busy: BusyThresholds::default(),
        }
    }
}

/// An event, as in the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A request asks for a slot.
    Submit(Box<Submit>),
    /// A granted request has ended, with the tokens it really used where they are known.
    Release {
        /// Which request.
        id: Arc<str>,
        /// What it really used; its cost where absent.
        tokens: Option<Tokens>,
        /// What it took from its worker's token rate, as its provider counts; its tokens where absent.
        quota: Option<Tokens>,
    },
    /// A waiting request leaves, or a granted one ends without tokens.
    Cancel {
        /// Which request.
        id: Arc<str>,
    },
    /// A flow stops dispatching.
    Hold {
        /// The attribute that names the flow.
        by: Attribute,
        /// The flow's name.
        flow: Box<str>,
    },
    /// A held flow goes on.
    Resume {
        /// The attribute that names the flow.
        by: Attribute,
        /// The flow's name.
        flow: Box<str>,
    },
    /// The pool has another number of slots.
    Capacity {
        /// How many requests may be in flight from now on.
        slots: u64,
    },
    /// Time goes on.
    Tick,
    /// A flow's weight, or its class's quantum, changes.
    Weight {
        /// The attribute that names the flow.
        by: Attribute,
        /// The flow's name.
        flow: Box<str>,
        /// Its new weight.
        weight: Weight,
    },
    /// A new tree takes the place of the old.
    Policy(Policy),
    /// A flow's cap changes; without slots it has none.
    Cap {
        /// The attribute that names the flow.
        by: Attribute,
        /// The flow's name.
        flow: Box<str>,
        /// How many of its requests may be in flight; any number where absent.
        slots: Option<u64>,
    },
    /// A worker comes, changes or goes.
    Worker(WorkerChange),
    /// A granted request has given its first token: its prefill is done.
    FirstToken {
        /// Which request.
        id: Arc<str>,
    },
}

/// A request that asks for a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Submit {
    /// Its name, unique among what waits and what is in flight.
    pub id: Arc<str>,
    /// Who it belongs to.
    pub attributes: Attributes,
    /// Its cost in tokens as stated; worked out from `input` and `cached` where absent.
    pub cost: Option<Tokens>,
    /// Higher goes first within its queue.
    pub priority: i64,
    /// How much it counts in `load`'s queue depth.
    pub weight: TaskWeight,
    /// Its input tokens; the stated cost, else 1, where absent.
    pub input: Option<Tokens>,
    /// How many of its input tokens are cached, by worker; names are unique.
    pub cached: Vec<(Arc<str>, Tokens)>,
    /// The one worker, and maybe rank, it must run on.
    pub pin: Option<Pin>,
    /// The workers it may run on; any where absent.
    pub allow: Option<Vec<Box<str>>>,
    /// The taints its worker must have.
    pub requires: Vec<Box<str>>,
    /// What it is expected to take from its worker's token rate, as its provider counts; its cost where absent.
    pub quota: Option<Tokens>,
}

impl Submit {
    /// A request with this id and no more: cost 1, priority 0, weight 1.0, any worker.
    pub fn new(id: &str) -> Self {
        Self {
            id: id.into(),
            attributes: Attributes::none(),
            cost: None,
            priority: 0,
            weight: TaskWeight::ONE,
            input: None,
            cached: Vec::new(),
            pin: None,
            allow: None,
            requires: Vec::new(),
            quota: None,
        }
    }
}

/// Where a request must run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pin {
    /// The worker's name.
    pub worker: Box<str>,
    /// The rank; any where absent.
    pub rank: Option<u32>,
}

/// What is new about a worker. What is absent stays as it was, or has its default on a new worker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkerChange {
    /// The worker's name.
    pub name: Box<str>,
    /// Its state; up on a new worker.
    pub state: Option<WorkerState>,
    /// Its number of ranks, at most [`MAX_RANKS`]; one on a new worker.
    pub ranks: Option<u32>,
    /// How many requests each rank takes at once; any number on a new worker.
    pub slots: Option<u64>,
    /// Its taints; none on a new worker.
    pub taints: Option<Vec<Box<str>>>,
    /// The tokens of one batch, for `busy_fraction`; unknown on a new worker.
    pub batch_tokens: Option<Tokens>,
    /// Its tier: a request goes to the lowest tier that has an open place; 0 on a new worker.
    pub tier: Option<u64>,
    /// How many requests a minute it may start; `Some(None)` takes the rate away, none on a new worker.
    pub requests_per_minute: Option<Option<PerMinute>>,
    /// How many tokens a minute it may use; `Some(None)` takes the rate away, none on a new worker.
    pub tokens_per_minute: Option<Option<PerMinute>>,
    /// How much of its rates it may save up; 10 seconds on a new worker.
    pub burst_seconds: Option<BurstSeconds>,
    /// How many requests it may start at once as of now; ignored without a rate of requests.
    pub requests_remaining: Option<u64>,
    /// How many tokens it may use at once as of now; ignored without a rate of tokens.
    pub tokens_remaining: Option<u64>,
    /// Until when it takes nothing.
    pub pause_until: Option<Micros>,
}

/// The most ranks that one worker may have.
pub const MAX_RANKS: u32 = 65_536;

/// Whether a worker takes requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerState {
    /// It takes requests.
    Up,
    /// It takes nothing new for now; requests may wait for it.
    Overloaded,
    /// It takes nothing; what is in flight on it goes on.
    Drain,
    /// It is forgotten.
    Gone,
}

impl WorkerState {
    /// All states.
    pub const ALL: [Self; 4] = [Self::Up, Self::Overloaded, Self::Drain, Self::Gone];

    /// The name by which journals call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Overloaded => "overloaded",
            Self::Drain => "drain",
            Self::Gone => "gone",
        }
    }

    /// The state of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|s| s.name() == name)
    }
}
