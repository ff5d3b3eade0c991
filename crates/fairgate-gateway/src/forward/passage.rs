//! One request's way through the gateway, from the moment that its caller is known. Whatever happens to it, it ends
//! exactly once: its permit is settled, its limits are corrected, and its row is written.

mod step;

use std::mem;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use fairgate_dialect::Route;
use fairgate_store::{Attempt, MicroUnits, Outcome, UnixMicros};

pub(super) use self::step::In;

use super::bill::Used;
use super::leases::LEASES;
use super::settlement::Flown;
use super::stage::{InFlight, Stage};
use crate::app::App;
use crate::identity::Caller;
use crate::phase;
use crate::recording::Recording;
use crate::refusal::Refusal;

/// The status in the ledger of a client that left.
pub(super) const CLIENT_LEFT: u16 = 499;
/// The status in the ledger of a fault of our own.
const OUR_FAULT: u16 = 500;

/// The guard of a request with a caller. Dropped in any stage before its end, it ends the request as one whose client has
/// left.
pub(crate) struct Passage {
    pub(super) arrival: Arrival,
    /// Changed by the steps and by the end, and by nothing else.
    stage: Stage,
}

/// Who sent a request, and when: what is known of it in every stage.
pub(super) struct Arrival {
    pub(super) app: Arc<App>,
    pub(super) caller: Arc<Caller>,
    pub(super) id: Box<str>,
    pub(super) route: Route,
    /// What the ledger and the metrics call its route.
    pub(super) path: &'static str,
    pub(super) at: Instant,
    pub(super) started_at: UnixMicros,
}

/// How a request, or one attempt at it, ends.
pub(super) struct End {
    /// What the caller sees.
    pub(super) status: u16,
    pub(super) outcome: Outcome,
    pub(super) code: Option<&'static str>,
    pub(super) used: Used,
}

/// What a request came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Charge {
    /// In weighted tokens.
    pub(super) charged: u64,
    pub(super) provider_tokens: u64,
    pub(super) money: MicroUnits,
}

impl Passage {
    /// In a box, since it is handed on several times.
    pub(super) fn new(app: Arc<App>, caller: Arc<Caller>, id: Box<str>, route: Route) -> Box<Self> {
        let (at, started_at) = (Instant::now(), unix_now());
        let arrival = Arrival { app, caller, id, route, path: route.path(), at, started_at };
        Box::new(Self { arrival, stage: Stage::Identified })
    }

    /// A call that its caller makes elsewhere, with a lease. Where it matters which API that is, it counts as one that
    /// generates.
    pub(super) fn elsewhere(app: Arc<App>, caller: Arc<Caller>, id: Box<str>) -> Box<Self> {
        let mut passage = Self::new(app, caller, id, Route::ChatCompletions);
        passage.arrival.path = LEASES;
        passage
    }

    /// Whether it is settled.
    pub(super) fn has_ended(&self) -> bool {
        matches!(self.stage, Stage::Ended)
    }

    /// Ends the request with a refusal. The row is written once what this returns is ready.
    pub(super) fn refuse(&mut self, refusal: &Refusal) -> Recording {
        self.end(&End {
            status: refusal.problem.status.as_u16(),
            outcome: refusal.outcome,
            code: Some(refusal.problem.code),
            used: Used::SoFar,
        })
    }

    /// The caller is gone, or taken for gone.
    pub(super) fn leave(&mut self, used: Used) -> Recording {
        let code = Some("client_left");
        self.end(&End { status: CLIENT_LEFT, outcome: Outcome::ClientLeft, code, used })
    }

    /// Ends the request.
    pub(super) fn end(&mut self, end: &End) -> Recording {
        self.settle(end).1
    }

    /// Ends the request, and says what it came to.
    pub(super) fn settle(&mut self, end: &End) -> (Charge, Recording) {
        debug_assert!(!self.has_ended(), "a request ends once");
        let row = self.close(end);
        let Attempt { charged, provider_tokens, money, .. } = row;
        let charge = Charge { charged, provider_tokens, money };
        (charge, Recording::start(self.arrival.app.clone(), row))
    }

    /// Everything about the end but the writing of its row. The only place where a request comes to its end.
    fn close(&mut self, end: &End) -> Attempt {
        // First of all, so that a panic below cannot end it a second time.
        let (stage, flown) = match mem::replace(&mut self.stage, Stage::Ended) {
            Stage::InFlight(InFlight { counted, flight }) => {
                let flown = flight.land(&self.arrival, &counted, end);
                (Stage::Counted(counted), flown)
            }
            stage => (stage, Flown::default()),
        };
        flown.count_out(&self.arrival, &stage, end);
        flown.row(&self.arrival, &stage, end, true)
    }
}

impl Drop for Passage {
    fn drop(&mut self) {
        if self.has_ended() {
            return;
        }
        let (status, outcome, code) = if std::thread::panicking() {
            (OUR_FAULT, Outcome::UpstreamError, "internal_error")
        } else if self.arrival.app.phase.now() == phase::Stage::Closing {
            (CLIENT_LEFT, Outcome::Timeout, "drained")
        } else {
            (CLIENT_LEFT, Outcome::ClientLeft, "client_left")
        };
        // Nobody waits for it any more: the row is written by a task of its own.
        drop(self.end(&End { status, outcome, code: Some(code), used: Used::SoFar }));
    }
}

/// The time of day.
pub(crate) fn unix_now() -> UnixMicros {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixMicros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests;
