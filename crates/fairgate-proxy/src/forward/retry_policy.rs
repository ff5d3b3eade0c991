//! The retry policy, which classifies an upstream's response and decides if another worker may try the request. The
//! meaning of a status is in `upstream/status.rs`, that of a failure in `upstream_failure.rs`.
//!
//! A retry is a new submit. Its priority is above every priority that clients can choose, so that
//! it goes first in its own queue; other queues are not affected. A retry goes to a worker that was
//! not tried yet, if one of them is up. A request that is pinned to a worker is not tried
//! elsewhere. The answer of the failed attempt is kept, and is sent if no other worker is
//! available.

use std::sync::Arc;
use std::time::Duration;

use fairgate_dialect::Dialect;
use http::Response;
use tokio::time::Instant;

use super::request_guard::RequestIn;
use super::stage::InFlightRequest;
use super::worker_filter::WorkerFilter;
use crate::pools::{PoolHandle, PoolSetup, PoolWorker};
use crate::refusal::{EndCode, Refusal};
use crate::upstream::{FaultParty, StatusClass, UpstreamBody, UpstreamFailure, UpstreamStanding};

/// Number of workers on which a request may fail. After that the failures count as the request's
/// own fault, and there is no further retry.
const FAILURES_MAX: u8 = 2;

/// The workers that a request has been tried on.
#[derive(Debug, Default)]
pub(super) struct TriedWorkers {
    pub(super) workers: Vec<Arc<str>>,
    /// Number of the tried workers on which the request failed; workers that were never reached do not count.
    failures: u8,
}

impl TriedWorkers {
    /// Counts an attempt as failed, unless the upstream was not reached. A success is counted too, which has no effect,
    /// because no retry follows it.
    pub(super) fn note(&mut self, answered: &Result<Response<UpstreamBody>, UpstreamFailure>) {
        let unreached = answered.as_ref().is_err_and(|failure| failure.kind.is_unreached());
        self.failures += u8::from(!unreached);
    }
}

/// The classified result of an attempt.
pub(super) struct ClassifiedAnswer {
    /// The client's response if there is no retry.
    pub(super) answer: Result<Response<UpstreamBody>, Refusal>,
    /// Code and status of the failed attempt, if another worker may try the request; `None` if there is no retry.
    pub(super) retry: Option<RetryRecord>,
}

/// Code and status that the ledger shows for an attempt that is followed by a retry.
pub(super) struct RetryRecord {
    pub(super) code: EndCode,
    pub(super) status: u16,
}

pub(super) fn classify(
    in_flight: &mut RequestIn<'_, InFlightRequest>,
    answered: Result<Response<UpstreamBody>, UpstreamFailure>,
) -> ClassifiedAnswer {
    let answer = match answered {
        Ok(answer) => answer,
        Err(failure) => return failed(in_flight, &failure),
    };
    let status = answer.status().as_u16();
    let retry = Some(RetryRecord { code: EndCode::UpstreamStatus, status });
    match StatusClass::of(status) {
        StatusClass::Failed(kind) => {
            let worker = in_flight.flight.worker.upstream.name.clone();
            failed(in_flight, &UpstreamFailure { kind, worker })
        }
        StatusClass::Unwell => {
            in_flight.blame(FaultParty::Unknown);
            ClassifiedAnswer { answer: Ok(answer), retry }
        }
        StatusClass::Busy => {
            in_flight.flight.report_answered();
            in_flight.flight.mark_not_taken();
            ClassifiedAnswer { answer: Ok(answer), retry }
        }
        StatusClass::Success | StatusClass::ClientError | StatusClass::ServerError => {
            in_flight.flight.report_answered();
            ClassifiedAnswer { answer: Ok(answer), retry: None }
        }
    }
}

fn failed(
    in_flight: &mut RequestIn<'_, InFlightRequest>,
    failure: &UpstreamFailure,
) -> ClassifiedAnswer {
    match failure.kind.is_lost() {
        true => in_flight.report_lost(),
        false => in_flight.blame(failure.kind.blame()),
    }
    if failure.kind.is_unreached() {
        in_flight.flight.mark_not_taken();
    }
    let refusal = Refusal::from(failure);
    let retry = RetryRecord { code: refusal.code.into(), status: refusal.problem.status.as_u16() };
    ClassifiedAnswer {
        answer: Err(refusal),
        retry: failure.kind.another_may_try().then_some(retry),
    }
}

/// Returns true if another worker is healthy and could take the request. Without such a worker, a
/// retry would only replace the error by "no worker".
pub(super) fn may_retry(
    in_flight: &RequestIn<'_, InFlightRequest>,
    tried: &TriedWorkers,
    choice: &WorkerFilter,
) -> bool {
    if tried.failures + 1 >= FAILURES_MAX {
        return false;
    }
    let setup = in_flight.pool.setup();
    let dialect = in_flight.arrival().route.dialect();
    let left = setup.workers.iter().any(|worker| {
        let upstream = &worker.upstream;
        upstream.speaks(dialect)
            && !tried.workers.contains(&upstream.name)
            && choice.allows(&upstream.config)
            && upstream.condition.standing() == UpstreamStanding::Up
    });
    // A rate-limit refusal is an attempt but no failure: its worker is not in the list of tried workers.
    left && tried.workers.len() <= usize::try_from(setup.config.retries).unwrap_or(usize::MAX)
}

/// The conditions that a worker must meet so that the request could still go to it.
#[derive(Clone, Copy)]
pub(super) struct WorkersLeft<'a> {
    pub(super) model: &'a str,
    pub(super) dialect: Dialect,
    /// Names of the upstreams that were tried.
    pub(super) tried: &'a [Arc<str>],
    pub(super) choice: &'a WorkerFilter,
}

impl<'a> WorkersLeft<'a> {
    /// Returns the workers that the request could still go to.
    fn of(self, setup: &'a PoolSetup) -> impl Iterator<Item = &'a Arc<PoolWorker>> {
        let Self { model, dialect, tried, choice } = self;
        setup.workers.iter().filter(move |worker| {
            let upstream = &worker.upstream;
            worker.serves(model)
                && upstream.speaks(dialect)
                && !tried.contains(&upstream.name)
                && choice.allows(&upstream.config)
        })
    }
}

/// Returns true if the pool has a worker that was not tried yet and could take the request.
pub(super) fn has_untried_worker(
    in_flight: &RequestIn<'_, InFlightRequest>,
    tried: &[Arc<str>],
    choice: &WorkerFilter,
) -> bool {
    let dialect = in_flight.arrival().route.dialect();
    let left = WorkersLeft { model: &in_flight.ask.model, dialect, tried, choice };
    left.of(&in_flight.pool.setup()).next().is_some()
}

/// Returns the time from now until the first unhealthy worker is tried again; 0 if no worker is
/// unhealthy. Nothing is granted before that, so the wait cannot be estimated from recent grants.
pub(super) fn time_to_next_probe(pool: &PoolHandle, left: WorkersLeft<'_>) -> Duration {
    let setup = pool.setup();
    let soonest =
        left.of(&setup).filter_map(|worker| worker.upstream.condition.tried_again_at()).min();
    soonest.map_or(Duration::ZERO, |at| at.saturating_duration_since(Instant::now()))
}

/// Returns the name of a worker and the reason why its provider takes no requests. `None` if at
/// least one of the workers in `left` can take requests. The worker is the first in `left`.
pub(super) fn out_of_service(
    pool: &PoolHandle,
    left: WorkersLeft<'_>,
) -> Option<(Arc<str>, String)> {
    let setup = pool.setup();
    let mut first = None;
    for worker in left.of(&setup) {
        let out = worker.account.as_ref().and_then(|account| account.block_reason())?;
        first.get_or_insert((worker.upstream.name.clone(), out.to_string()));
    }
    first
}
