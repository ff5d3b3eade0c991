//! What to make of what an upstream did: the one place where its statuses and failures are told apart, and where it is
//! decided whether another worker may try.

use std::sync::Arc;
use std::time::Duration;

use http::Response;
use tokio::time::Instant;

use super::passage::Passage;
use crate::refusal::Refusal;
use crate::upstream::{Blame, Failure, FailureKind, LaneBody, Standing};

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
    passage: &mut Passage,
    answered: Result<Response<LaneBody>, Failure>,
) -> Verdict {
    let answer = match answered {
        Ok(answer) => answer,
        Err(failure) => return failed(passage, &failure),
    };
    let worker = passage.flight.as_ref().map(|flight| flight.worker.upstream.name.clone());
    let as_failure = |kind| Failure { kind, worker: worker.unwrap_or_else(|| "-".into()) };
    let status = answer.status().as_u16();
    let retry = Some(Retry { code: "upstream_status", status });
    match status {
        401 | 403 => failed(passage, &as_failure(FailureKind::Credentials)),
        100..=199 | 300..=399 => failed(passage, &as_failure(FailureKind::Redirect)),
        500 | 502 | 503 | 504 => {
            passage.blame(Blame::Unknown);
            Verdict { answer: Ok(answer), retry }
        }
        429 => {
            passage.answered();
            passage.not_taken();
            Verdict { answer: Ok(answer), retry }
        }
        _ => {
            passage.answered();
            Verdict { answer: Ok(answer), retry: None }
        }
    }
}

fn failed(passage: &mut Passage, failure: &Failure) -> Verdict {
    passage.blame(failure.kind.blame());
    if failure.kind.is_unreached() {
        passage.not_taken();
    }
    let refusal = Refusal::from(failure);
    let retry = Retry { code: refusal.problem.code, status: refusal.problem.status.as_u16() };
    Verdict { answer: Err(refusal), retry: failure.kind.another_may_try().then_some(retry) }
}

/// Whether another worker could try and is well. Without one, a retry would only turn the error into "no worker".
pub(super) fn may_retry(passage: &Passage, tried: &Tried) -> bool {
    if tried.failures + 1 >= FAILURES_MAX {
        return false;
    }
    let Some(pool) = &passage.pool else { return false };
    let setup = pool.setup();
    let dialect = passage.route.dialect();
    let left = setup.workers.iter().any(|worker| {
        let upstream = &worker.upstream;
        upstream.speaks(dialect)
            && !tried.workers.contains(&upstream.name)
            && upstream.condition.standing() == Standing::Up
    });
    left && passage.attempt <= setup.config.retries
}

/// Whether the pool has said that there is no worker, or none that is well.
pub(super) fn is_for_want_of_workers(refusal: &Refusal) -> bool {
    matches!(refusal.problem.code, "no_worker" | "overloaded")
}

/// How long until a worker that is unwell is tried again. Nothing drains meanwhile, so the pool's pace says nothing.
pub(super) fn until_one_is_tried(passage: &Passage, tried: &[Arc<str>]) -> Duration {
    let Some(pool) = &passage.pool else { return Duration::ZERO };
    let (setup, dialect) = (pool.setup(), passage.route.dialect());
    let left = setup.workers.iter().map(|worker| &worker.upstream);
    let left = left.filter(|one| one.speaks(dialect) && !tried.contains(&one.name));
    let soonest = left.filter_map(|upstream| upstream.condition.tried_again_at()).min();
    soonest.map_or(Duration::ZERO, |at| at.saturating_duration_since(Instant::now()))
}
