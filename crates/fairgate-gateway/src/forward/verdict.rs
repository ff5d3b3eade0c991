//! The retry policy: what to make of what an upstream did, and whether another worker may try. What a status means is in
//! `upstream/status.rs`, what a failure means in `upstream/failure.rs`.

use std::sync::Arc;
use std::time::Duration;

use fairgate_core::event::Pin;
use fairgate_dialect::Dialect;
use http::Response;
use tokio::time::Instant;

use super::passage::In;
use super::stage::InFlight;
use crate::pools::{PoolHandle, Setup};
use crate::refusal::Refusal;
use crate::upstream::{Blame, Failure, LaneBody, Standing, StatusClass, Upstream};

/// A request that has failed on so many workers is taken to be the cause, and not tried again.
const FAILURES_MAX: u8 = 2;

/// Where a request has been.
#[derive(Debug, Default)]
pub(super) struct Tried {
    pub(super) workers: Vec<Arc<str>>,
    /// On how many of these it has failed; those that were never reached do not count.
    failures: u8,
}

impl Tried {
    /// What an upstream did counts as a failure of the request, as long as it is not known to be none.
    pub(super) fn note(&mut self, answered: &Result<Response<LaneBody>, Failure>) {
        let unreached = answered.as_ref().is_err_and(|failure| failure.kind.is_unreached());
        self.failures += u8::from(!unreached);
    }
}

/// What to make of what an upstream did.
pub(super) struct Verdict {
    /// What the client gets.
    pub(super) answer: Result<Response<LaneBody>, Refusal>,
    /// Why another worker may try instead.
    pub(super) retry: Option<Retry>,
}

/// How the ledger calls an attempt after which another one follows.
pub(super) struct Retry {
    pub(super) code: &'static str,
    pub(super) status: u16,
}

pub(super) fn judge(
    in_flight: &mut In<'_, InFlight>,
    answered: Result<Response<LaneBody>, Failure>,
) -> Verdict {
    let answer = match answered {
        Ok(answer) => answer,
        Err(failure) => return failed(in_flight, &failure),
    };
    let status = answer.status().as_u16();
    let retry = Some(Retry { code: "upstream_status", status });
    match StatusClass::of(status) {
        StatusClass::Failed(kind) => {
            let worker = in_flight.flight.worker.upstream.name.clone();
            failed(in_flight, &Failure { kind, worker })
        }
        StatusClass::Unwell => {
            in_flight.blame(Blame::Unknown);
            Verdict { answer: Ok(answer), retry }
        }
        StatusClass::Busy => {
            in_flight.flight.answered();
            in_flight.flight.not_taken();
            Verdict { answer: Ok(answer), retry }
        }
        StatusClass::Success | StatusClass::ClientError | StatusClass::ServerError => {
            in_flight.flight.answered();
            Verdict { answer: Ok(answer), retry: None }
        }
    }
}

fn failed(in_flight: &mut In<'_, InFlight>, failure: &Failure) -> Verdict {
    in_flight.blame(failure.kind.blame());
    if failure.kind.is_unreached() {
        in_flight.flight.not_taken();
    }
    let refusal = Refusal::from(failure);
    let retry = Retry { code: refusal.problem.code, status: refusal.problem.status.as_u16() };
    Verdict { answer: Err(refusal), retry: failure.kind.another_may_try().then_some(retry) }
}

/// Whether another worker could try and is well. Without one, a retry would only turn the error into "no worker".
pub(super) fn may_retry(in_flight: &In<'_, InFlight>, tried: &Tried) -> bool {
    if tried.failures + 1 >= FAILURES_MAX {
        return false;
    }
    let setup = in_flight.pool.setup();
    let dialect = in_flight.arrival().route.dialect();
    let left = setup.workers.iter().any(|worker| {
        let upstream = &worker.upstream;
        upstream.speaks(dialect)
            && !tried.workers.contains(&upstream.name)
            && upstream.condition.standing() == Standing::Up
    });
    // A provider's refusal for a rate is an attempt, but no failure: the worker is not among those that were tried.
    left && tried.workers.len() <= usize::try_from(setup.config.retries).unwrap_or(usize::MAX)
}

/// Whether the pool has said that there is no worker, or none that is well.
pub(super) fn is_for_want_of_workers(refusal: &Refusal) -> bool {
    matches!(refusal.problem.code, "no_worker" | "overloaded")
}

/// The upstreams that a request could still go to.
fn left<'a>(
    setup: &'a Setup,
    dialect: Dialect,
    tried: &[Arc<str>],
    pin: Option<&Pin>,
) -> impl Iterator<Item = &'a Arc<Upstream>> {
    let upstreams = setup.workers.iter().map(|worker| &worker.upstream);
    upstreams.filter(move |one| {
        one.speaks(dialect)
            && !tried.contains(&one.name)
            && pin.is_none_or(|pin| *pin.worker == *one.name)
    })
}

/// How long until a worker that is unwell is tried again. Nothing drains meanwhile, so the pool's pace says nothing.
pub(super) fn until_one_is_tried(
    pool: &PoolHandle,
    dialect: Dialect,
    tried: &[Arc<str>],
    pin: Option<&Pin>,
) -> Duration {
    let setup = pool.setup();
    let soonest = left(&setup, dialect, tried, pin)
        .filter_map(|upstream| upstream.condition.tried_again_at())
        .min();
    soonest.map_or(Duration::ZERO, |at| at.saturating_duration_since(Instant::now()))
}

/// The worker whose provider takes nothing more on, and why, where that is true of all that a request could go to.
pub(super) fn out_of_service(
    pool: &PoolHandle,
    dialect: Dialect,
    tried: &[Arc<str>],
    pin: Option<&Pin>,
) -> Option<(Arc<str>, String)> {
    let setup = pool.setup();
    let mut first = None;
    for upstream in left(&setup, dialect, tried, pin) {
        let out = upstream.account.as_ref().and_then(|account| account.out())?;
        first.get_or_insert((upstream.name.clone(), out.reason.to_string()));
    }
    first
}
