//! The task of one lease. It takes the lease's request through the same checks, and behind the same guard, as any other
//! request. Only the call to the provider is made by the client.

use std::sync::Arc;

use fairgate_api::leases::LeaseSubmissionBody;
use fairgate_dialect::TokenUsage;
use fairgate_dialect::estimate::TokenEstimate;
use fairgate_store::{AttemptOutcome, UsageSource};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::super::accept::accept;
use super::super::attempt_charge::{StatedUsage, UsageBasis};
use super::super::provider::RefusedLeaseCall;
use super::super::request_guard::{
    CLIENT_LEFT, RequestCharge, RequestEnd, RequestGuard, RequestIn,
};
use super::super::send::{ProviderRetry, reserve_and_queue};
use super::super::stage::{CountedRequest, InFlightRequest};
use super::super::{cost, provider};
use super::lease::{LeaseHandle, LeaseMessage, LeaseReport, LeaseResult, LeaseStatus};
use super::lease_source::LeaseSource;
use crate::forward::DataPlane;
use crate::phase;
use crate::pools::PoolHandle;
use crate::refusal::{self, EndCode, Refusal, RefusalCode};

/// The reason why a lease ended.
enum LeaseTaskEnd {
    Refused(Refusal),
    Settled(LeaseReport),
    Cancelled,
    Lost,
    /// The gateway closes, and the request's guard writes the row when it is dropped.
    Drained,
}

/// Marks the lease as ended when it is dropped, however the lease's task ends, even by a panic.
struct RunningLease {
    lease: Arc<LeaseHandle>,
    app: Arc<DataPlane>,
    key: Arc<str>,
}

impl Drop for RunningLease {
    fn drop(&mut self) {
        // Changes nothing, unless the task did not finish.
        self.lease.enter(LeaseStatus::Over(Arc::new(LeaseResult::Lost(RequestCharge::default()))));
        self.app.leases.mark_ended(&self.key, &self.lease);
    }
}

/// Runs the task of a lease until the lease has ended.
pub(super) async fn run_lease(
    mut guard: Box<RequestGuard>,
    lease: Arc<LeaseHandle>,
    mut words: mpsc::Receiver<LeaseMessage>,
    pool: Arc<PoolHandle>,
    submission: LeaseSubmissionBody,
) {
    let app = guard.arrival.app.clone();
    let _counted = app.leases.running.count_one();
    let running = RunningLease { lease, app, key: guard.arrival.caller.key.clone() };
    let lease = &running.lease;
    let fate = Box::pin(run_request(&mut guard, lease, &mut words, pool, submission)).await;
    if let Some(over) = close(&mut guard, fate).await {
        lease.enter(LeaseStatus::Over(Arc::new(over)));
    }
    // If the request has not ended, the guard ends it now, before the lease is shown as ended.
    drop(guard);
}

/// Runs the checks, the wait for a slot and the time in the slot. Returns the reason why the lease ended.
async fn run_request(
    guard: &mut RequestGuard,
    lease: &LeaseHandle,
    words: &mut mpsc::Receiver<LeaseMessage>,
    pool: Arc<PoolHandle>,
    submission: LeaseSubmissionBody,
) -> LeaseTaskEnd {
    if let Some(refusal) = refused_alone(guard, &pool) {
        return LeaseTaskEnd::Refused(refusal);
    }
    let (accepted, pool_request) = match accept(guard, LeaseSource { pool, submission }).await {
        Ok((accepted, pool_request, _)) => (accepted, pool_request),
        Err(refusal) => return LeaseTaskEnd::Refused(refusal),
    };
    lease.set_weight(pool_request.chosen.weight);
    let (mut counted, listed) = match accepted.count_in(0) {
        Ok(counted) => counted,
        Err(limited) => return LeaseTaskEnd::Refused(limited),
    };
    let mut listed = Some(listed);
    let mut again = ProviderRetry::default();
    loop {
        lease.enter(LeaseStatus::Queued);
        let admitted = tokio::select! {
            biased;
            admitted = reserve_and_queue(counted, &pool_request, &[], &again) => admitted,
            fate = wait_given_up(lease, words) => return fate,
        };
        let mut in_flight = match admitted {
            Ok((in_flight, _)) => in_flight,
            Err(refusal) => return LeaseTaskEnd::Refused(refusal),
        };
        drop(listed.take());
        let quota = cost::quota(&in_flight, None);
        in_flight.mark_sent(false, quota);
        let (attempt, waited) = (in_flight.attempt, in_flight.waited.unwrap_or_default());
        lease.enter(LeaseStatus::Granted { attempt, waited });
        let heard = match wait_call_end(&mut in_flight, lease, words).await {
            Ok(heard) => heard,
            Err(fate) => return fate,
        };
        let waits_alone_until;
        (counted, waits_alone_until) = match return_to_queue(in_flight, &mut again, heard).await {
            Ok(returned) => returned,
            Err(refusal) => return LeaseTaskEnd::Refused(refusal),
        };
        if let Some(until) = waits_alone_until {
            lease.enter(LeaseStatus::Queued);
            tokio::select! {
                () = sleep_until(until) => {}
                fate = wait_given_up(lease, words) => return fate,
            }
        }
    }
}

/// Records that the tenant opens a lease. Refuses the lease if this tenant alone has reported a
/// limit of the provider and that limit still applies.
fn refused_alone(guard: &RequestGuard, pool: &PoolHandle) -> Option<Refusal> {
    let setup = pool.setup();
    let account = setup.workers.iter().find_map(|worker| worker.account.as_ref())?;
    let tenant = &guard.arrival.caller.tenant;
    account.record_lease_opened(tenant);
    let until = account.lease_limited_until(tenant)?;
    let after = until.saturating_duration_since(Instant::now());
    Some(refusal::lease_limited(&pool.name, after))
}

/// Waits until the client of a queued lease cancels it or stops renewing it.
async fn wait_given_up(
    lease: &LeaseHandle,
    words: &mut mpsc::Receiver<LeaseMessage>,
) -> LeaseTaskEnd {
    let cancelled = async {
        // Before the call is made, only a cancellation is expected.
        while let Some(word) = words.recv().await {
            if matches!(word, LeaseMessage::Cancel) {
                return;
            }
        }
    };
    tokio::select! {
        () = cancelled => LeaseTaskEnd::Cancelled,
        () = lease.wait_expired() => LeaseTaskEnd::Lost,
    }
}

/// Waits until the client reports that its call is over. Returns the provider's response if the provider has refused
/// the call.
async fn wait_call_end(
    in_flight: &mut RequestIn<'_, InFlightRequest>,
    lease: &LeaseHandle,
    words: &mut mpsc::Receiver<LeaseMessage>,
) -> Result<Box<provider::LeaseProviderResponse>, LeaseTaskEnd> {
    let mut phase = in_flight.arrival().app.phase.watch();
    let word = tokio::select! {
        biased;
        word = words.recv() => word,
        () = lease.wait_expired() => return Err(LeaseTaskEnd::Lost),
        _ = phase.wait_for(|stage| *stage == phase::GatewayPhase::Closing) => return Err(LeaseTaskEnd::Drained),
    };
    match word {
        Some(LeaseMessage::Limited(heard)) => Ok(heard),
        Some(LeaseMessage::Settle(mut report)) => {
            if let Some(heard) = report.provider_response.take() {
                report.succeeded &= record_last_response(in_flight, *heard);
                Box::pin(in_flight.pool.reporter.wait_flushed()).await;
            }
            Err(LeaseTaskEnd::Settled(report))
        }
        Some(LeaseMessage::Cancel) => Err(LeaseTaskEnd::Cancelled),
        // Not reached: the lease holds its own sender.
        None => Err(LeaseTaskEnd::Lost),
    }
}

/// Records the provider's response to a call that is not repeated. Returns true if the provider
/// took the call. If the provider refused it, only the time in the slot is charged, unless the call
/// was larger than the provider's whole limit.
fn record_last_response(
    in_flight: &mut RequestIn<'_, InFlightRequest>,
    heard: provider::LeaseProviderResponse,
) -> bool {
    if matches!(heard.refusal, fairgate_dialect::rate_limit_headers::ProviderRefusal::Other) {
        provider::record_accepted(in_flight, &heard.rate_limits);
        return true;
    }
    let refused = provider::record_refused(in_flight, heard).map(|call| call.refused);
    if refused.is_some_and(|not_taken| not_taken.is_for_this_worker_only()) {
        in_flight.flight.mark_not_taken();
    }
    false
}

/// Ends the attempt of a call that its provider has refused. Releases the slot and charges its
/// time; the request may then wait again, first in its flow. If the pool does not pause, also
/// returns the time before which the request must not be queued.
async fn return_to_queue<'p>(
    mut in_flight: RequestIn<'p, InFlightRequest>,
    again: &mut ProviderRetry,
    heard: Box<provider::LeaseProviderResponse>,
) -> Result<(RequestIn<'p, CountedRequest>, Option<Instant>), Refusal> {
    let Some(call) = provider::record_refused(&in_flight, *heard) else {
        return Err(refusal::not_a_limit());
    };
    let RefusedLeaseCall { refused: not_taken, waits_alone_until } = call;
    if not_taken.is_for_this_worker_only() {
        in_flight.flight.mark_not_taken();
    }
    if !again.may_wait_again(&in_flight, &not_taken, || false)
        || waits_alone_until.is_some_and(|until| !again.may_wait_until(until))
    {
        return Err(not_taken.refusal());
    }
    // Otherwise the slot would go to the next request before the pool knows of the pause.
    Box::pin(in_flight.pool.reporter.wait_flushed()).await;
    let (code, status) = (not_taken.code().into(), not_taken.status);
    again.after = Some(not_taken);
    let (counted, recording) = in_flight.end_attempt(code, status);
    recording.await.map_err(|_| refusal::rows_not_writable())?;
    Ok((counted, waits_alone_until))
}

/// Ends the request for the reason `fate`, and waits until its row is written. Returns `None` if the gateway closes,
/// because then the guard ends the request.
async fn close(guard: &mut RequestGuard, fate: LeaseTaskEnd) -> Option<LeaseResult> {
    let left = |code: RefusalCode| RequestEnd {
        status: CLIENT_LEFT,
        outcome: AttemptOutcome::ClientLeft,
        code: Some(code.into()),
        used: UsageBasis::SoFar,
    };
    let (end, over): (RequestEnd, fn(RequestCharge) -> LeaseResult) = match fate {
        LeaseTaskEnd::Drained => return None,
        LeaseTaskEnd::Refused(refusal) => {
            let recorded = guard.refuse(&refusal).await;
            let refusal = recorded.map_or_else(|_| refusal::rows_not_writable(), |()| refusal);
            return Some(LeaseResult::Refused(refusal));
        }
        LeaseTaskEnd::Cancelled => (left(RefusalCode::LeaseCancelled), LeaseResult::Cancelled),
        LeaseTaskEnd::Lost => (left(RefusalCode::LeaseLost), LeaseResult::Lost),
        LeaseTaskEnd::Settled(report) => (settled(guard, &report), LeaseResult::Settled),
    };
    let (charge, recording) = guard.settle(&end);
    match recording.await {
        Ok(()) => Some(over(charge)),
        Err(_) => Some(LeaseResult::Refused(refusal::rows_not_writable())),
    }
}

/// Converts the client's report to the end of its request. If the report states no usage, the
/// estimate is charged.
fn settled(guard: &mut RequestGuard, report: &LeaseReport) -> RequestEnd {
    let stated = report.stated.or_else(|| {
        let terms = &guard.in_flight()?.terms;
        let TokenEstimate { input, output, .. } = terms.expected;
        let usage = TokenUsage { input, cached: 0, output };
        Some(StatedUsage { usage, charged: Some(terms.estimate), source: UsageSource::Assumed })
    });
    let used = stated.map_or(UsageBasis::Expected, UsageBasis::Stated);
    match report.succeeded {
        true => RequestEnd { status: 200, outcome: AttemptOutcome::Completed, code: None, used },
        false => RequestEnd {
            status: 502,
            outcome: AttemptOutcome::UpstreamError,
            code: Some(EndCode::LeaseFailed),
            used,
        },
    }
}
