//! The stages of a request, and what is known in each.
//!
//! ```text
//! Identified ─► Read ─► Routed ─► Accepted ─► Counted ─► Queued ─► InFlight ─► Ended
//!                                                ▲                     │
//!                                                └────── a retry ──────┘
//! ```
//!
//! A request may end in any stage, and its row shows what was known there. The steps from one to the next are in
//! `passage/step.rs`.

use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fairgate_core::units::Tokens;
use fairgate_dialect::Ask;
use fairgate_dialect::estimate::Expected;

use super::flight::Flight;
use crate::pools::{LastWorker, PoolHandle, Prefix};

/// Where a request is on its way.
#[expect(clippy::large_enum_variant, reason = "it is inside the guard's own box")]
pub(super) enum Stage {
    /// The caller is known. The body is being read.
    Identified,
    Read(Read),
    Routed(Routed),
    Accepted(Accepted),
    Counted(Counted),
    Queued(Queued),
    InFlight(InFlight),
    /// It is settled. Nothing happens to it any more.
    Ended,
}

/// The body was read. Whether its model exists, and whether the caller may use it, is not checked yet.
pub(super) struct Read {
    pub(super) ask: Ask,
}

/// The pool is known. The cost is being estimated.
pub(super) struct Routed {
    pub(super) ask: Ask,
    pub(super) pool: Arc<PoolHandle>,
    /// What the client calls itself, where it does.
    pub(super) agent: Option<Box<str>>,
    pub(super) session: Option<Box<str>>,
}

/// The request is valid and its cost is estimated. Budgets and limits may still refuse it.
pub(super) struct Accepted {
    routed: Routed,
    pub(super) terms: Terms,
}

/// On what terms a request is submitted. They do not change while it waits.
pub(super) struct Terms {
    pub(super) expected: Expected,
    /// What is expected, in charged tokens.
    pub(super) estimate: u64,
    /// The policy class that it is queued in. `None` where the policy has no classes.
    pub(super) class: Option<Arc<str>>,
    /// Where its prompt is cached. `None` where nobody knows.
    pub(super) prefix: Option<Box<Prefix>>,
    /// Where its session's last request ran, where the pool has sessions stick.
    pub(super) last_worker: Option<Box<LastWorker>>,
}

impl Terms {
    /// What is believed to be cached of it, by worker.
    pub(super) fn cached(&self) -> Vec<(Arc<str>, Tokens)> {
        match (&self.prefix, &self.last_worker) {
            (Some(prefix), _) => prefix.cached.clone(),
            (None, Some(last)) => vec![((&*last.worker).into(), last.cached)],
            (None, None) => Vec::new(),
        }
    }

    /// How many of its tokens are believed to be cached on a worker.
    pub(super) fn cached_on(&self, worker: &str) -> u64 {
        match (&self.prefix, &self.last_worker) {
            (Some(prefix), _) => prefix.most_cached(|name| name == worker),
            (None, Some(last)) if *last.worker == *worker => last.cached.0,
            (None, _) => 0,
        }
    }
}

/// The limits have counted it in, so its end must correct them. Its tokens are being reserved.
pub(super) struct Counted {
    accepted: Accepted,
    /// The number of this attempt, from 1.
    pub(super) attempt: u32,
    /// How long it waited for its slots, over all attempts so far. `None` before the first grant.
    pub(super) waited: Option<Duration>,
}

/// It waits at the pool's gate.
pub(super) struct Queued {
    pub(super) counted: Counted,
    pub(super) since: Instant,
}

/// It has a slot on a worker.
pub(super) struct InFlight {
    pub(super) counted: Counted,
    pub(super) flight: Flight,
}

impl Read {
    pub(super) fn routed(
        self,
        pool: Arc<PoolHandle>,
        agent: Option<Box<str>>,
        session: Option<Box<str>>,
    ) -> Routed {
        Routed { ask: self.ask, pool, agent, session }
    }
}

impl Routed {
    pub(super) fn accepted(self, terms: Terms) -> Accepted {
        Accepted { routed: self, terms }
    }
}

impl Accepted {
    pub(super) fn counted(self) -> Counted {
        Counted { accepted: self, attempt: 1, waited: None }
    }
}

impl Counted {
    pub(super) fn queued(self) -> Queued {
        Queued { counted: self, since: Instant::now() }
    }
}

impl Queued {
    /// A slot was granted, after this wait.
    pub(super) fn in_flight(self, waited: Duration, flight: Flight) -> InFlight {
        let mut counted = self.counted;
        counted.waited = Some(counted.waited.unwrap_or_default() + waited);
        InFlight { counted, flight }
    }
}

/// What the row of a request shows, whichever stage it ends in.
impl Stage {
    pub(super) fn ask(&self) -> Option<&Ask> {
        match self {
            Self::Read(read) => Some(&read.ask),
            _ => self.routed().map(|routed| &routed.ask),
        }
    }

    pub(super) fn routed(&self) -> Option<&Routed> {
        match self {
            Self::Routed(routed) => Some(routed),
            _ => self.accepted().map(|accepted| &accepted.routed),
        }
    }

    pub(super) fn accepted(&self) -> Option<&Accepted> {
        match self {
            Self::Accepted(accepted) => Some(accepted),
            _ => self.counted().map(|counted| &counted.accepted),
        }
    }

    pub(super) fn counted(&self) -> Option<&Counted> {
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

    /// The name of its pool, for the metrics and the log.
    pub(super) fn pool_name(&self) -> &str {
        self.routed().map_or("-", |routed| &routed.pool.name)
    }

    /// How long it has waited for slots in all, the current wait included.
    pub(super) fn waited(&self) -> Duration {
        let before = self.counted().and_then(|counted| counted.waited).unwrap_or_default();
        match self {
            Self::Queued(queued) => before + queued.since.elapsed(),
            _ => before,
        }
    }
}

/// A type that holds what one stage knows.
pub(super) trait Known: Into<Stage> {
    fn of(stage: &Stage) -> Option<&Self>;
    fn of_mut(stage: &mut Stage) -> Option<&mut Self>;
    fn taken(stage: Stage) -> Option<Self>;
}

macro_rules! known {
    ($($stage:ident)*) => {$(
        impl From<$stage> for Stage {
            fn from(known: $stage) -> Self {
                Self::$stage(known)
            }
        }

        impl Known for $stage {
            fn of(stage: &Stage) -> Option<&Self> {
                if let Stage::$stage(known) = stage { Some(known) } else { None }
            }

            fn of_mut(stage: &mut Stage) -> Option<&mut Self> {
                if let Stage::$stage(known) = stage { Some(known) } else { None }
            }

            fn taken(stage: Stage) -> Option<Self> {
                if let Stage::$stage(known) = stage { Some(known) } else { None }
            }
        }
    )*};
}

known! { Read Routed Accepted Counted Queued InFlight }

/// A later stage knows all that the earlier ones knew.
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
    Accepted: routed, Routed;
    Counted: accepted, Accepted;
    Queued: counted, Counted;
    InFlight: counted, Counted;
}
