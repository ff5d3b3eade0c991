//! The events of a pool. Apart from the pool's configuration, every input of a decision arrives as an event.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::attribute::{Attribute, Attributes};
use crate::policy::{BusyThresholds, Policy};
use crate::units::{BurstSeconds, Micros, OverlapCredit, PerMinute, TaskWeight, Tokens, Weight};

/// The capacity, the policy, the limits and the workers with which a pool starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolConfig {
    /// Greatest number of requests in flight at once.
    pub capacity: u64,
    /// The policy tree that orders the requests.
    pub policy: Policy,
    /// Greatest number of requests that may wait; no limit if absent.
    pub max_queue: Option<u64>,
    /// Longest time a request may wait; no limit if absent.
    pub queue_timeout: Option<Micros>,
    /// Wait above which a grant is marked with `brownout`; no grant is marked if absent.
    pub brownout_wait: Option<Micros>,
    /// The workers that the pool has at the start.
    pub workers: Vec<WorkerChange>,
    /// The thresholds at which a worker counts as busy, for classes that state none of their own.
    pub busy: BusyThresholds,
    /// Number of waiting tokens that one cached token counts for when a worker is chosen.
    pub overlap_credit: OverlapCredit,
}

impl PoolConfig {
    /// Creates a configuration with this capacity and policy, without limits and workers.
    pub fn new(capacity: u64, policy: Policy) -> Self {
        Self {
            capacity,
            policy,
            max_queue: None,
            queue_timeout: None,
            brownout_wait: None,
            workers: Vec::new(),
            busy: BusyThresholds::default(),
            overlap_credit: OverlapCredit::DEFAULT,
        }
    }
}

/// One input of a pool, as a line of the journal states it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A client submits a request, which needs a slot.
    Submit(Box<Submit>),
    /// A granted request has ended; the event states the real usage if it is known.
    Release {
        /// Id of the request that ended.
        id: Arc<str>,
        /// Tokens that the request really used; if absent, the request is charged its cost.
        tokens: Option<Tokens>,
        /// Tokens that the request took from its worker's token rate, as the provider counts them; if absent, `tokens`
        /// is used instead.
        quota: Option<Tokens>,
    },
    /// A client gives up a request. A waiting request leaves its queue; a granted request ends without a known usage.
    Cancel {
        /// Id of the request that is cancelled.
        id: Arc<str>,
    },
    /// An operator holds a flow, which then dispatches nothing until it is resumed.
    Hold {
        /// The attribute by whose value the flow is named.
        by: Attribute,
        /// Name of the flow that is held.
        flow: Box<str>,
    },
    /// An operator lets a held flow continue.
    Resume {
        /// The attribute by whose value the flow is named.
        by: Attribute,
        /// Name of the flow that continues.
        flow: Box<str>,
    },
    /// The number of the pool's slots changes.
    Capacity {
        /// Greatest number of requests in flight at once from now on.
        slots: u64,
    },
    /// Time passes and nothing else happens.
    Tick,
    /// The weight of a flow, or the quantum of a drr class, changes.
    Weight {
        /// The attribute by whose value the flow is named.
        by: Attribute,
        /// Name of the flow whose weight changes.
        flow: Box<str>,
        /// The weight or quantum that applies from now on.
        weight: Weight,
    },
    /// A new policy tree replaces the old one.
    Policy(Policy),
    /// The cap of a flow changes; without `slots` the flow has no cap.
    Cap {
        /// The attribute by whose value the flow is named.
        by: Attribute,
        /// Name of the flow whose cap changes.
        flow: Box<str>,
        /// Greatest number of the flow's requests in flight; no cap if absent.
        slots: Option<u64>,
    },
    /// A worker arrives, changes or leaves.
    Worker(WorkerChange),
    /// A granted request has produced its first token, so its prefill is done.
    FirstToken {
        /// Id of the request whose prefill is done.
        id: Arc<str>,
    },
}

/// A new request, which needs a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Submit {
    /// Id of the request; unique among the requests that wait or are in flight.
    pub id: Arc<str>,
    /// The attributes by which the policy finds the request's flows.
    pub attributes: Attributes,
    /// Stated cost in tokens. If absent, the cost is the number of input tokens minus the number that the eligible
    /// worker with the most cached tokens has cached, but at least 1.
    pub cost: Option<Tokens>,
    /// Priority of the request; within its queue, a request with a higher priority goes first.
    pub priority: i64,
    /// Weight of the request in the queue depth of a `load` node.
    pub weight: TaskWeight,
    /// Input tokens, including cached ones. If absent, the stated cost is used instead, and 1 if there is no stated
    /// cost either.
    pub input: Option<Tokens>,
    /// Number of the request's input tokens that each worker has cached; no worker is named twice.
    pub cached: Vec<(Arc<str>, Tokens)>,
    /// The one worker, and optionally the one rank, that must run the request; any worker if absent.
    pub pin: Option<Pin>,
    /// The workers that may run the request; all workers if absent.
    pub allow: Option<Vec<Box<str>>>,
    /// The taints that a worker must have to run the request; empty if none is required.
    pub requires: Vec<Box<str>>,
    /// Tokens that the request is expected to take from its worker's token rate, as the provider counts them; the
    /// request's cost if absent.
    pub quota: Option<Tokens>,
    /// Longest time the request may wait. If the pool has a queue timeout too, the shorter of the two applies. An `edf`
    /// queue orders by the resulting deadline.
    pub timeout: Option<Micros>,
}

impl Submit {
    /// Creates a submit with this id that any worker may take. The cost is 1, the priority 0 and the weight 1.0.
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
            timeout: None,
        }
    }
}

/// The worker on which a request must run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pin {
    /// Name of the worker; unique within a pool.
    pub worker: Box<str>,
    /// The rank on which the request must run, counted from 0; any rank of the worker if absent.
    pub rank: Option<u32>,
}

/// A new, changed or leaving worker. A field that is absent stays as it was, or gets its default on a new worker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkerChange {
    /// Name of the worker; unique within a pool.
    pub name: Box<str>,
    /// State of the worker; [`WorkerState::Up`] on a new worker.
    pub state: Option<WorkerState>,
    /// Number of ranks, at most [`MAX_RANKS`]; one on a new worker.
    pub ranks: Option<u32>,
    /// Greatest number of requests that each rank runs at once; no limit on a new worker.
    pub slots: Option<u64>,
    /// Taints of the worker; none on a new worker.
    pub taints: Option<Vec<Box<str>>>,
    /// Tokens that the worker processes in one batch, for the threshold `busy_fraction`; unknown on a new worker.
    pub batch_tokens: Option<Tokens>,
    /// Tier of the worker; 0 on a new worker. A request goes to the lowest tier with an open worker.
    pub tier: Option<u64>,
    /// Requests that the worker may start per minute; `Some(None)` removes the rate. A new worker has no request rate.
    pub requests_per_minute: Option<Option<PerMinute>>,
    /// Tokens that the worker may use per minute; `Some(None)` removes the rate. A new worker has no token rate.
    pub tokens_per_minute: Option<Option<PerMinute>>,
    /// Burst of the worker's rates, as the number of seconds of a rate that may be saved up; 10 on a new worker.
    pub burst_seconds: Option<BurstSeconds>,
    /// Number of requests that the worker may start right now; sets the level of its request rate. Ignored without a
    /// request rate.
    pub requests_remaining: Option<u64>,
    /// Number of tokens that the worker may use right now; sets the level of its token rate. Ignored without a token
    /// rate.
    pub tokens_remaining: Option<u64>,
    /// Time until which the worker takes no requests; a new worker is not paused.
    pub pause_until: Option<Micros>,
}

/// Greatest number of ranks that one worker may have.
pub const MAX_RANKS: u32 = 65_536;

/// The state of a worker, which decides whether the worker takes requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerState {
    /// The worker takes requests as far as it has room.
    Up,
    /// The worker takes no new requests for now. Requests that already wait may go on waiting for it. A new request
    /// that only overloaded workers may run is rejected.
    Overloaded,
    /// The worker takes no new requests, and no request may wait for it. Its requests in flight continue.
    Drain,
    /// The worker leaves the pool and is forgotten, and its requests in flight no longer count at any worker.
    Gone,
}

impl WorkerState {
    /// All states, in the order of their definition.
    pub const ALL: [Self; 4] = [Self::Up, Self::Overloaded, Self::Drain, Self::Gone];

    /// Returns the name that journals use for this state.
    pub fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Overloaded => "overloaded",
            Self::Drain => "drain",
            Self::Gone => "gone",
        }
    }

    /// Returns the state with this name; `None` if no state has it.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|s| s.name() == name)
    }
}
