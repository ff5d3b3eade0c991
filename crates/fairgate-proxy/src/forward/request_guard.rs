//! The guard of one request, from the moment that its caller is known. Whatever happens to the request, it ends exactly
//! once: its permit is settled, its limits are corrected, and its row is written.
//!
//! Completion, refusal, a dropped future, a client that left and a panic all end the request through this guard, in
//! whatever stage the request is. Exactly one row of a request is marked as its last.

mod step;

use std::mem;
use std::sync::Arc;

use fairgate_api::leases::LEASES;
use fairgate_dialect::Route;
use fairgate_store::{AttemptOutcome, AttemptRow, MicroUnits, UnixMicros};
use fairgate_time::wall_clock;
use tokio::time::Instant;

pub(super) use self::step::RequestIn;

use super::attempt_charge::UsageBasis;
use super::data_plane::DataPlane;
use super::settlement::AttemptResult;
use super::stage::{InFlightRequest, RequestStage};
use crate::forward::row_write::RowWrite;
use crate::identity::Caller;
use crate::phase;
use crate::refusal::{EndCode, Refusal};
use crate::slot_time_books::WorkKind;

/// The ledger's status for a client that left before the answer.
pub(super) const CLIENT_LEFT: u16 = 499;
/// The ledger's status for an internal error of the gateway.
const OUR_FAULT: u16 = 500;

/// Guard of a request with a known caller. If the guard is dropped before the request has ended, it ends the request:
/// with 500 `internal_error` in a panic, with `drained` if the gateway closes, else with `client_left`.
pub(crate) struct RequestGuard {
    pub(super) arrival: RequestArrival,
    /// Current stage of the request; changed only by the steps in `step` and by the request's end.
    stage: RequestStage,
}

/// The facts about a request that are known in every stage: its caller, its id, its time of arrival.
pub(super) struct RequestArrival {
    pub(super) app: Arc<DataPlane>,
    pub(super) caller: Arc<Caller>,
    pub(super) id: Box<str>,
    pub(super) route: Route,
    /// Kind of the request's work. Each kind has its own price of time.
    pub(super) kind: WorkKind,
    /// Name of the route in the ledger and the metrics.
    pub(super) path: &'static str,
    /// Time at which the request's head had been read, before the caller was looked up.
    pub(super) at: Instant,
    pub(super) started_at: UnixMicros,
}

/// How a request, or one of its attempts, ended.
pub(super) struct RequestEnd {
    /// The HTTP status that the caller sees.
    pub(super) status: u16,
    pub(super) outcome: AttemptOutcome,
    pub(super) code: Option<EndCode>,
    pub(super) used: UsageBasis,
}

/// The total cost of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RequestCharge {
    /// Weighted tokens that the tenant is charged.
    pub(super) charged: u64,
    pub(super) provider_tokens: u64,
    pub(super) money: MicroUnits,
}

impl RequestGuard {
    /// Creates the guard, boxed because it is moved several times.
    pub(super) fn new(
        app: Arc<DataPlane>,
        caller: Arc<Caller>,
        id: Box<str>,
        route: Route,
        at: Instant,
    ) -> Box<Self> {
        let started_at = wall_clock::now();
        let (path, kind) = (route.path(), WorkKind::of(route));
        let arrival = RequestArrival { app, caller, id, route, kind, path, at, started_at };
        Box::new(Self { arrival, stage: RequestStage::Identified })
    }

    /// Creates the guard of a lease, whose caller makes the call itself. Checks that depend on the
    /// API treat the lease as a call that generates text.
    pub(super) fn for_lease(app: Arc<DataPlane>, caller: Arc<Caller>, id: Box<str>) -> Box<Self> {
        let mut guard = Self::new(app, caller, id, Route::ChatCompletions, Instant::now());
        guard.arrival.path = LEASES;
        guard.arrival.kind = WorkKind::Leases;
        guard
    }

    /// Returns true if the request has ended and is settled.
    pub(super) fn has_ended(&self) -> bool {
        matches!(self.stage, RequestStage::Ended)
    }

    /// Returns the time that the request waited for its slot so far, in milliseconds.
    pub(super) fn waited_ms(&self) -> u64 {
        u64::try_from(self.stage.waited().as_millis()).unwrap_or(u64::MAX)
    }

    /// Ends the request with a refusal. The row is written once the returned future is ready.
    pub(super) fn refuse(&mut self, refusal: &Refusal) -> RowWrite {
        self.end(&RequestEnd {
            status: refusal.problem.status.as_u16(),
            outcome: refusal.outcome,
            code: Some(refusal.code.into()),
            used: UsageBasis::SoFar,
        })
    }

    /// Ends the request of a client that has left or is treated as if it had.
    pub(super) fn end_as_client_left(&mut self, used: UsageBasis) -> RowWrite {
        let code = Some(EndCode::ClientLeft);
        self.end(&RequestEnd {
            status: CLIENT_LEFT,
            outcome: AttemptOutcome::ClientLeft,
            code,
            used,
        })
    }

    /// Ends the request. The row is written once the returned future is ready.
    pub(super) fn end(&mut self, end: &RequestEnd) -> RowWrite {
        self.settle(end).1
    }

    /// Ends the request, and returns its total cost and the write of its row.
    pub(super) fn settle(&mut self, end: &RequestEnd) -> (RequestCharge, RowWrite) {
        debug_assert!(!self.has_ended(), "a request ends once");
        let row = self.close(end);
        let AttemptRow { charged, provider_tokens, money, .. } = *row;
        let charge = RequestCharge { charged, provider_tokens, money };
        (charge, RowWrite::start(self.arrival.app.clone(), row))
    }

    /// Ends the request except for writing its row, which is returned. No other function ends a request.
    fn close(&mut self, end: &RequestEnd) -> Box<AttemptRow> {
        // Replaced first, so that a panic below cannot end the request a second time.
        let (stage, flown) = match mem::replace(&mut self.stage, RequestStage::Ended) {
            RequestStage::InFlight(InFlightRequest { counted, flight }) => {
                let flown = flight.finish(&self.arrival, &counted, end);
                (RequestStage::Counted(counted), flown)
            }
            stage => (stage, AttemptResult::default()),
        };
        flown.count_out(&self.arrival, &stage, end);
        flown.row(&self.arrival, &stage, end, true)
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        if self.has_ended() {
            return;
        }
        let (status, outcome, code) = if std::thread::panicking() {
            (OUR_FAULT, AttemptOutcome::UpstreamError, EndCode::InternalError)
        } else if self.arrival.app.phase.now() == phase::GatewayPhase::Closing {
            (CLIENT_LEFT, AttemptOutcome::Timeout, EndCode::Drained)
        } else {
            (CLIENT_LEFT, AttemptOutcome::ClientLeft, EndCode::ClientLeft)
        };
        // Nothing waits for this write, so a separate task finishes it.
        drop(self.end(&RequestEnd { status, outcome, code: Some(code), used: UsageBasis::SoFar }));
    }
}

#[cfg(test)]
mod tests;
