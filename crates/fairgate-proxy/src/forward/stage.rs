//! The stages of a request, and the data of each stage.
//!
//! ```text
//! Identified ─► Read ─► Routed ─► Accepted ─► Counted ─► Queued ─► InFlight ─► Ended
//!                                                ▲                     │
//!                                                └────── a retry ──────┘
//! ```
//!
//! A request may end in any stage, and its row shows the data of that stage. The steps between the stages are in
//! `request_guard/step.rs`.
//!
//! Each stage adds data to the row: tenant, key and route (`Identified`); model and stream (`Read`); pool, agent and
//! session (`Routed`); the estimate (`Accepted`); the number of the attempt (`Counted`); the time waited (`Queued`);
//! the worker and, once the request was sent, the usage (`InFlight`). A retry returns the request from `InFlight` to
//! `Counted`, and the waits of all attempts are summed.

use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fairgate_core::units::Tokens;
use fairgate_dialect::RequestFields;
use fairgate_dialect::estimate::TokenEstimate;

use super::attempt::WorkerAttempt;
use crate::pools::{LastWorker, PoolHandle, RequestPrefix, UncachedCostGuard};

/// The current stage of a request.
#[expect(clippy::large_enum_variant, reason = "it is inside the guard's own box")]
pub(super) enum RequestStage {
    /// The caller is known. The body is being read.
    Identified,
    Read(ReadRequest),
    Routed(RoutedRequest),
    Accepted(AcceptedRequest),
    Counted(CountedRequest),
    Queued(QueuedRequest),
    InFlight(InFlightRequest),
    /// The request is settled. This stage is final.
    Ended,
}

/// A request whose body was read. The model and the caller's right to use it are not checked yet.
pub(super) struct ReadRequest {
    pub(super) ask: RequestFields,
}

/// A request whose pool is known, and whose cost is being estimated.
pub(super) struct RoutedRequest {
    pub(super) ask: RequestFields,
    pub(super) pool: Arc<PoolHandle>,
    /// Name of the agent that the client states, if any. The field `session` is the name of the session.
    pub(super) agent: Option<Box<str>>,
    pub(super) session: Option<Box<str>>,
}

/// A valid request with an estimated cost. Budgets and limits may still refuse it.
pub(super) struct AcceptedRequest {
    routed: RoutedRequest,
    pub(super) terms: SubmitTerms,
}

/// The terms on which a request is submitted. They do not change while the request waits.
pub(super) struct SubmitTerms {
    pub(super) expected: TokenEstimate,
    /// Expected cost in charged tokens.
    pub(super) estimate: u64,
    /// Expected cost as if no worker had the prompt cached, in charged tokens. All numbers that the tenant can see are
    /// based on this cost, because what is cached depends on the prompts of others.
    pub(super) estimate_uncached: u64,
    /// Expected cost that the scheduler counts, in the unit of the pool.
    pub(super) scheduled: u64,
    /// The same as if no worker had the prompt cached.
    pub(super) scheduled_uncached: u64,
    /// Policy class in which the request is queued; `None` if the policy has no classes.
    pub(super) class: Option<Arc<str>>,
    /// Workers that have the request's prompt cached; `None` if the pool has no prefix index.
    pub(super) prefix: Option<Box<RequestPrefix>>,
    /// Worker that ran the last request of the same session, if the pool has sticky sessions.
    pub(super) last_worker: Option<Box<LastWorker>>,
    /// Entry of `scheduled_uncached` in the pool's table of uncached costs; `None` if no worker may have the prompt
    /// cached.
    pub(super) uncached_cost: Option<Box<UncachedCostGuard>>,
    /// Output cap that the gateway sets, because the caller has a budget and the client states no cap.
    pub(super) output_cap: Option<u64>,
}

impl SubmitTerms {
    /// Adds `scheduled_uncached` to the pool's table of uncached costs, which the views of tenants show. Adds nothing if
    /// no part of the prompt is cached, because then the submitted cost is the same.
    pub(super) fn with_uncached_cost(mut self, pool: &PoolHandle, id: &str) -> Self {
        if !self.cached().is_empty() {
            let cost = self.scheduled_uncached.max(1);
            self.uncached_cost = Some(Box::new(pool.uncached_costs.add(id, cost)));
        }
        self
    }

    /// Returns the tokens of the prompt that are believed to be cached, by worker.
    pub(super) fn cached(&self) -> Vec<(Arc<str>, Tokens)> {
        match (&self.prefix, &self.last_worker) {
            (Some(prefix), _) => prefix.cached.clone(),
            (None, Some(last)) => vec![((&*last.worker).into(), last.cached)],
            (None, None) => Vec::new(),
        }
    }

    /// Returns the tokens of the prompt that are believed to be cached on `worker`.
    pub(super) fn cached_on(&self, worker: &str) -> u64 {
        match (&self.prefix, &self.last_worker) {
            (Some(prefix), _) => prefix.most_cached(|name| name == worker),
            (None, Some(last)) if *last.worker == *worker => last.cached.0,
            (None, _) => 0,
        }
    }
}

/// A request that the limits have counted, so that its end must correct them. Its tokens are being reserved.
pub(super) struct CountedRequest {
    /// Boxed, because the request is moved at every step from here on, and this is most of it.
    accepted: Box<AcceptedRequest>,
    /// Number of this attempt, from 1.
    pub(super) attempt: u32,
    /// Total wait for slots over all attempts so far. `None` before the first grant.
    pub(super) waited: Option<Duration>,
}

/// The request waits at the pool's gate.
pub(super) struct QueuedRequest {
    pub(super) counted: CountedRequest,
    pub(super) since: Instant,
}

/// The request has a slot on a worker.
pub(super) struct InFlightRequest {
    pub(super) counted: CountedRequest,
    pub(super) flight: WorkerAttempt,
}

impl ReadRequest {
    pub(super) fn routed(
        self,
        pool: Arc<PoolHandle>,
        agent: Option<Box<str>>,
        session: Option<Box<str>>,
    ) -> RoutedRequest {
        RoutedRequest { ask: self.ask, pool, agent, session }
    }
}

impl RoutedRequest {
    pub(super) fn accepted(self, terms: SubmitTerms) -> AcceptedRequest {
        AcceptedRequest { routed: self, terms }
    }
}

impl AcceptedRequest {
    pub(super) fn counted(self) -> CountedRequest {
        CountedRequest { accepted: Box::new(self), attempt: 1, waited: None }
    }
}

impl CountedRequest {
    pub(super) fn queued(self) -> QueuedRequest {
        QueuedRequest { counted: self, since: Instant::now() }
    }
}

impl QueuedRequest {
    /// Returns the data of the next stage after a grant, and adds `waited` to the total wait.
    pub(super) fn in_flight(self, waited: Duration, flight: WorkerAttempt) -> InFlightRequest {
        let mut counted = self.counted;
        counted.waited = Some(counted.waited.unwrap_or_default() + waited);
        InFlightRequest { counted, flight }
    }
}

/// Access to the data of any stage, for the row of a request.
impl RequestStage {
    pub(super) fn ask(&self) -> Option<&RequestFields> {
        match self {
            Self::Read(read) => Some(&read.ask),
            _ => self.routed().map(|routed| &routed.ask),
        }
    }

    pub(super) fn routed(&self) -> Option<&RoutedRequest> {
        match self {
            Self::Routed(routed) => Some(routed),
            _ => self.accepted().map(|accepted| &accepted.routed),
        }
    }

    pub(super) fn accepted(&self) -> Option<&AcceptedRequest> {
        match self {
            Self::Accepted(accepted) => Some(accepted),
            _ => self.counted().map(|counted| &*counted.accepted),
        }
    }

    pub(super) fn counted(&self) -> Option<&CountedRequest> {
        match self {
            Self::Counted(counted) => Some(counted),
            Self::Queued(queued) => Some(&queued.counted),
            Self::InFlight(in_flight) => Some(&in_flight.counted),
            Self::Identified
            | Self::Read(_)
            | Self::Routed(_)
            | Self::Accepted(_)
            | Self::Ended => None,
        }
    }

    /// Returns the name of the request's pool for the metrics and the log; `-` before the pool is known.
    pub(super) fn pool_name(&self) -> &str {
        self.routed().map_or("-", |routed| &routed.pool.name)
    }

    /// Returns the total wait for slots over all attempts, including the current wait.
    pub(super) fn waited(&self) -> Duration {
        let before = self.counted().and_then(|counted| counted.waited).unwrap_or_default();
        match self {
            Self::Queued(queued) => before + queued.since.elapsed(),
            _ => before,
        }
    }
}

/// A type that holds the data of one stage.
pub(super) trait StageData: Into<RequestStage> {
    fn of(stage: &RequestStage) -> Option<&Self>;
    fn of_mut(stage: &mut RequestStage) -> Option<&mut Self>;
    fn taken(stage: RequestStage) -> Option<Self>;
}

/// Implements `StageData` for the type of each stage's data.
macro_rules! stage_data {
    ($($stage:ident $data:ident)*) => {$(
        impl From<$data> for RequestStage {
            fn from(data: $data) -> Self {
                Self::$stage(data)
            }
        }

        impl StageData for $data {
            fn of(stage: &RequestStage) -> Option<&Self> {
                if let RequestStage::$stage(data) = stage { Some(data) } else { None }
            }

            fn of_mut(stage: &mut RequestStage) -> Option<&mut Self> {
                if let RequestStage::$stage(data) = stage { Some(data) } else { None }
            }

            fn taken(stage: RequestStage) -> Option<Self> {
                if let RequestStage::$stage(data) = stage { Some(data) } else { None }
            }
        }
    )*};
}

stage_data! {
    Read ReadRequest
    Routed RoutedRequest
    Accepted AcceptedRequest
    Counted CountedRequest
    Queued QueuedRequest
    InFlight InFlightRequest
}

/// Makes each stage dereference to the data of the stage before.
macro_rules! knows_all_of {
    ($($later:ident: $field:ident, $earlier:ident;)*) => {$(
        impl Deref for $later {
            type Target = $earlier;

            fn deref(&self) -> &$earlier {
                &self.$field
            }
        }
    )*};
}

knows_all_of! {
    AcceptedRequest: routed, RoutedRequest;
    CountedRequest: accepted, AcceptedRequest;
    QueuedRequest: counted, CountedRequest;
    InFlightRequest: counted, CountedRequest;
}
