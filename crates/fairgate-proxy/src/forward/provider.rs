//! Evaluates what a provider's answer says about the account: the remaining quota, a refusal because of a rate limit,
//! or that the account is spent or blocked.
//!
//! A refusal because the account is spent or blocked may concern only the one request, so the client gets it unchanged.
//! It only makes the gateway suspect the account (`upstream/account/account_closing.rs`).
//!
//! A rate-limit refusal does not reach the client. The attempt ends with no tokens, and its slot is
//! released. The request returns to its queue under its own id. Its priority is then above every
//! priority that clients can choose, so it goes next in its own flow; other flows are not affected.
//! It waits until the provider takes it or its time to wait has run out.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use fairgate_dialect::rate_limit_headers::{
    self, EpochMicros, IgnoredValue, LimitUnit, ProviderRefusal as Said, RateLimitHeaders,
};
use http::{HeaderMap, Response, StatusCode};
use tokio::time::{Instant, timeout_at};

use fairgate_time::wall_clock;

use super::request_guard::RequestIn;
use super::stage::InFlightRequest;
use crate::refusal::{self, Refusal, RefusalCode};
use crate::upstream::{
    FailureKind, LeaseRefusalReport, ProbeTarget, ProviderAccount, QuotaTicket, ReportedRefusal,
    UpstreamBody, UpstreamFailure,
};

/// Maximum number of bytes of an error body that are read to find the reason.
const BODY_BYTES_MAX: usize = 64 << 10;
/// Longest time for reading the beginning of an error body.
const BODY_WITHIN: Duration = Duration::from_secs(5);

/// Refusal of a provider to take a request, with the reason.
#[derive(Clone, Debug)]
pub(super) struct RefusedByProvider {
    /// The provider's HTTP status.
    pub(super) status: u16,
    why: ProviderRefusalReason,
}

#[derive(Clone, Debug)]
enum ProviderRefusalReason {
    /// A rate limit or an overload, so the same worker may take the request later.
    Later(ReachedProviderLimit),
    /// The account is spent or blocked; `reason` is the provider's text.
    Out { worker: Arc<str>, reason: String },
    /// The request alone is larger than the provider's whole limit, so no retry can succeed.
    TooLarge { limit: Option<u64>, requested: Option<u64> },
}

/// A provider's limit that a worker has reached, and the time after which the worker may be tried again.
#[derive(Clone, Debug)]
struct ReachedProviderLimit {
    worker: Arc<str>,
    counted: Option<LimitUnit>,
    limit: Option<u64>,
    at: Instant,
}

/// A provider's answer that goes to the client.
pub(super) enum ProviderAnswer {
    /// An answer that says nothing about the account, or the failure of the call.
    Usual(Result<Response<UpstreamBody>, UpstreamFailure>),
    /// The provider refused the request because the account is spent or blocked.
    AccountRefused(Response<UpstreamBody>),
}

/// Evaluates an answer of a provider. Returns the answer if it is for the client, else the reason why the provider did
/// not take the request.
pub(super) async fn evaluate_answer(
    in_flight: &RequestIn<'_, InFlightRequest>,
    ticket: QuotaTicket,
    answer: Response<UpstreamBody>,
) -> Result<ProviderAnswer, Box<RefusedByProvider>> {
    let worker = &in_flight.flight.worker;
    let Some(account) = &worker.account else { return Ok(ProviderAnswer::Usual(Ok(answer))) };
    let upstream = &worker.upstream;
    let now = EpochMicros(wall_clock::now().0);
    let mut rate_limits = rate_limit_headers::read_rate_limits(pairs(answer.headers()), now);
    let status = answer.status();
    if !status.is_client_error() && !status.is_server_error() {
        account.accepted(ticket, &rate_limits);
        log_absurd_limits(in_flight, account, &rate_limits);
        return Ok(ProviderAnswer::Usual(Ok(answer)));
    }
    let (head, mut body) = answer.into_parts();
    let read = read_error_body(&mut body).await;
    let said = rate_limit_headers::classify_refusal(status, &read, &mut rate_limits, now);
    log_absurd_limits(in_flight, account, &rate_limits);
    if let Said::Spent { reason } | Said::Blocked { reason } = &said {
        suspect_account(in_flight, account, reason);
        if upstream.is_credential_in(&read) {
            // No client may see the credential.
            let (kind, worker) = (FailureKind::Credentials, upstream.name.clone());
            return Ok(ProviderAnswer::Usual(Err(UpstreamFailure { kind, worker })));
        }
        body.put_back(read);
        return Ok(ProviderAnswer::AccountRefused(Response::from_parts(head, body)));
    }
    match refusal_reason(in_flight, account, ticket, &rate_limits, said) {
        Some(why) => Err(Box::new(RefusedByProvider { status: status.as_u16(), why })),
        None => {
            account.accepted(ticket, &rate_limits);
            body.put_back(read);
            Ok(ProviderAnswer::Usual(Ok(Response::from_parts(head, body))))
        }
    }
}

/// Records that the provider refused this request because the account is spent or blocked.
fn suspect_account(
    in_flight: &RequestIn<'_, InFlightRequest>,
    account: &ProviderAccount,
    reason: &str,
) {
    let arrival = in_flight.arrival();
    let worker = &in_flight.flight.worker.upstream.name;
    let target = ProbeTarget {
        pool: in_flight.pool.name.clone(),
        upstream: worker.clone(),
        model: in_flight.ask.model.as_str().into(),
        route: arrival.route,
    };
    if account.record_account_refusal(&arrival.caller.tenant, reason, target) {
        tracing::error!(account = %account.name, %worker, reason, "a provider accepts no more requests of two tenants; it is tried again in 5 minutes");
    }
}

/// The provider's response to the call of a lease, as the holder of the lease reports it.
pub(super) struct LeaseProviderResponse {
    pub(super) status: StatusCode,
    pub(super) rate_limits: RateLimitHeaders,
    pub(super) refusal: Said,
}

impl LeaseProviderResponse {
    /// Parses the response that the holder of a lease reports.
    pub(super) fn read<'a>(
        status: StatusCode,
        headers: impl IntoIterator<Item = (&'a str, &'a [u8])>,
        body: &[u8],
    ) -> Self {
        let now = EpochMicros(wall_clock::now().0);
        let mut rate_limits = rate_limit_headers::read_rate_limits(headers, now);
        let refusal = rate_limit_headers::classify_refusal(status, body, &mut rate_limits, now);
        Self { status, rate_limits, refusal }
    }
}

/// Records that the provider has accepted the call of a lease, and the remaining quota that the provider's answer
/// states.
pub(super) fn record_accepted(
    in_flight: &RequestIn<'_, InFlightRequest>,
    rate_limits: &RateLimitHeaders,
) {
    let flight = &in_flight.flight;
    if let (Some(account), Some(ticket)) = (&flight.worker.account, flight.ticket) {
        let tenant = &in_flight.arrival().caller.tenant;
        account.record_lease_accepted(tenant, ticket, rate_limits);
        log_absurd_limits(in_flight, account, rate_limits);
    }
}

/// A lease's call that the provider has refused to take.
pub(super) struct RefusedLeaseCall {
    pub(super) refused: Box<RefusedByProvider>,
    /// Time until which this lease alone must wait, because the limit concerns only its tenant and the pool does not
    /// pause. `None` if the pool pauses, or if waiting does not help.
    pub(super) waits_alone_until: Option<Instant>,
}

/// Records that the provider has refused the call of a lease. Returns `None` if the reason was not a limit.
///
/// A reported limit concerns only the tenant that reports it, until a second tenant reports one as well. A report that
/// the account is spent or blocked ends only the lease of the report, because another client may use another account.
pub(super) fn record_refused(
    in_flight: &RequestIn<'_, InFlightRequest>,
    heard: LeaseProviderResponse,
) -> Option<RefusedLeaseCall> {
    let flight = &in_flight.flight;
    let (Some(account), Some(ticket)) = (&flight.worker.account, flight.ticket) else {
        return None;
    };
    let LeaseProviderResponse { status, rate_limits, refusal: said } = heard;
    log_absurd_limits(in_flight, account, &rate_limits);
    let (report, limit, asked) = match said {
        Said::Rate { counted, limit, retry_after, .. } => {
            (LeaseRefusalReport::Rate { ticket, told: &rate_limits, counted }, limit, retry_after)
        }
        Said::Overloaded { retry_after } => (LeaseRefusalReport::Overloaded, None, retry_after),
        said => {
            let why = refusal_reason(in_flight, account, ticket, &rate_limits, said)?;
            let refused = Box::new(RefusedByProvider { status: status.as_u16(), why });
            return Some(RefusedLeaseCall { refused, waits_alone_until: None });
        }
    };
    let tenant = &in_flight.arrival().caller.tenant;
    let ReportedRefusal { pause, is_for_all } =
        account.record_lease_refused(tenant, &report, asked);
    let (worker, at) = (flight.worker.upstream.name.clone(), pause.until);
    if is_for_all {
        note_limit(in_flight, account, &worker, pause.counted, at);
    }
    let limit = ReachedProviderLimit { worker, counted: pause.counted, limit, at };
    let why = ProviderRefusalReason::Later(limit);
    let refused = Box::new(RefusedByProvider { status: status.as_u16(), why });
    Some(RefusedLeaseCall { refused, waits_alone_until: (!is_for_all).then_some(at) })
}

/// Returns the reason for a provider's refusal, and updates the account accordingly. `None` if the reason was not a
/// limit.
fn refusal_reason(
    in_flight: &RequestIn<'_, InFlightRequest>,
    account: &ProviderAccount,
    ticket: QuotaTicket,
    rate_limits: &RateLimitHeaders,
    said: Said,
) -> Option<ProviderRefusalReason> {
    let worker = in_flight.flight.worker.upstream.name.clone();
    match said {
        Said::Rate { counted, limit, retry_after, .. } => {
            let at = account.refused(ticket, rate_limits, counted, retry_after).until;
            note_limit(in_flight, account, &worker, counted, at);
            Some(ProviderRefusalReason::Later(ReachedProviderLimit { worker, counted, limit, at }))
        }
        Said::Overloaded { retry_after } => {
            let at = account.overloaded(retry_after).until;
            Some(ProviderRefusalReason::Later(ReachedProviderLimit {
                worker,
                counted: None,
                limit: None,
                at,
            }))
        }
        Said::Spent { reason } | Said::Blocked { reason } => {
            Some(ProviderRefusalReason::Out { worker, reason })
        }
        Said::TooLargeForLimit { limit, requested, .. } => {
            Some(ProviderRefusalReason::TooLarge { limit, requested })
        }
        Said::Other => None,
    }
}

impl RefusedByProvider {
    /// Returns the refusal for the client if no other worker can take the request.
    pub(super) fn refusal(&self) -> Refusal {
        match &self.why {
            ProviderRefusalReason::Later(later) => later.refusal(),
            ProviderRefusalReason::Out { worker, reason } => refusal::provider_out(worker, reason),
            ProviderRefusalReason::TooLarge { limit, requested } => {
                refusal::larger_than_quota(*limit, *requested)
            }
        }
    }

    /// Returns true if the same worker may take the request later.
    pub(super) fn is_temporary(&self) -> bool {
        matches!(self.why, ProviderRefusalReason::Later(_))
    }

    /// Returns true if another worker may take the request.
    pub(super) fn is_for_this_worker_only(&self) -> bool {
        !matches!(self.why, ProviderRefusalReason::TooLarge { .. })
    }

    /// Returns the code of the attempt in the ledger.
    pub(super) fn code(&self) -> RefusalCode {
        match self.why {
            ProviderRefusalReason::Later(_) => RefusalCode::ProviderLimited,
            ProviderRefusalReason::Out { .. } => RefusalCode::ProviderOut,
            ProviderRefusalReason::TooLarge { .. } => RefusalCode::LargerThanQuota,
        }
    }
}

impl ReachedProviderLimit {
    /// Returns the refusal of a request that has waited for this limit as long as it may wait.
    fn refusal(&self) -> Refusal {
        let after = self.at.saturating_duration_since(Instant::now());
        refusal::provider_limited(&self.worker, counted_words(self.counted), self.limit, after)
    }
}

fn counted_words(counted: Option<LimitUnit>) -> &'static str {
    match counted {
        Some(LimitUnit::Requests) => "requests",
        Some(LimitUnit::Tokens) => "tokens",
        Some(LimitUnit::InputTokens) => "input tokens",
        Some(LimitUnit::OutputTokens) => "output tokens",
        None => "requests or tokens",
    }
}

pub(super) fn pairs(headers: &HeaderMap) -> impl Iterator<Item = (&str, &[u8])> {
    headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()))
}

/// Reads the beginning of an error body, at most [`BODY_BYTES_MAX`].
pub(super) async fn read_error_body(body: &mut UpstreamBody) -> Bytes {
    let mut read = BytesMut::new();
    let reading = async {
        while read.len() < BODY_BYTES_MAX
            && let Some(Ok(chunk)) = poll_fn(|cx| body.poll_chunk(cx)).await
        {
            read.extend_from_slice(&chunk);
        }
    };
    // Later bytes are read with the answer, if it goes to a client.
    let _ = timeout_at(Instant::now() + BODY_WITHIN, reading).await;
    read.freeze()
}

fn note_limit(
    in_flight: &RequestIn<'_, InFlightRequest>,
    account: &ProviderAccount,
    worker: &str,
    counted: Option<LimitUnit>,
    at: Instant,
) {
    let app = &in_flight.arrival().app;
    if let Some(left_out) = app.log_throttle.admit("a provider's limit was met", Instant::now()) {
        let pause = at.saturating_duration_since(Instant::now());
        let limit = counted_words(counted);
        tracing::warn!(account = %account.name, %worker, limit, ?pause, left_out, "a provider's limit was met: nothing is sent there for a while");
    }
}

/// Logs limits that a provider states but that are impossible.
fn log_absurd_limits(
    in_flight: &RequestIn<'_, InFlightRequest>,
    account: &ProviderAccount,
    rate_limits: &RateLimitHeaders,
) {
    let Some(first) = rate_limits.ignored.first() else { return };
    let app = &in_flight.arrival().app;
    if let Some(left_out) = app.log_throttle.admit("a provider's limits are absurd", Instant::now())
    {
        let absurd: &IgnoredValue = first;
        tracing::warn!(account = %account.name, %absurd, left_out, "a provider states limits that cannot be; they are not believed");
    }
}
