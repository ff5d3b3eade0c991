//! What a provider says about its account beside its answers: how much is left, that a request was one too many, that
//! nothing will be taken until somebody pays.
//!
//! A refusal for a rate is not the client's affair. The attempt ends with no tokens, and the request goes back to its queue,
//! first in its flow, until the provider takes it or it has waited for as long as requests may.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use fairgate_dialect::limits::{self, Absurd, Counted, Refusal as Said, Told, UnixMicros};
use http::{HeaderMap, Response, StatusCode};
use tokio::time::{Instant, timeout_at};

use super::passage::{In, unix_now};
use super::stage::InFlight;
use crate::refusal::{self, Refusal};
use crate::upstream::{Account, LaneBody, Ticket};

/// How much of a refusal is read.
const BODY_BYTES_MAX: usize = 64 << 10;
/// How long that may take.
const BODY_WITHIN: Duration = Duration::from_secs(5);

/// A request that a provider has not taken on.
#[derive(Clone, Debug)]
pub(super) struct NotTaken {
    /// What it answered.
    pub(super) status: u16,
    why: Why,
}

#[derive(Clone, Debug)]
enum Why {
    /// A rate. It may try again then.
    Later(Later),
    /// Its account is spent or blocked: this is its word for it.
    Out { worker: Arc<str>, reason: String },
    /// It asks for more at once than the whole limit.
    TooLarge { limit: Option<u64>, requested: Option<u64> },
}

/// Which limit of which worker was met, and when it may try again.
#[derive(Clone, Debug)]
struct Later {
    worker: Arc<str>,
    counted: Option<Counted>,
    limit: Option<u64>,
    at: Instant,
}

/// Hears what a provider said with an answer. An answer that is not for the client is not returned.
pub(super) async fn hear(
    in_flight: &In<'_, InFlight>,
    ticket: Ticket,
    answer: Response<LaneBody>,
) -> Result<Response<LaneBody>, Box<NotTaken>> {
    let Some(account) = &in_flight.flight.worker.upstream.account else { return Ok(answer) };
    let now = UnixMicros(unix_now().0);
    let mut told = limits::told(pairs(answer.headers()), now);
    let status = answer.status();
    if !status.is_client_error() && !status.is_server_error() {
        account.accepted(ticket, &told);
        doubt(in_flight, account, &told);
        return Ok(answer);
    }
    let (head, mut body) = answer.into_parts();
    let read = read(&mut body).await;
    let said = limits::refusal(status, &read, &mut told, now);
    doubt(in_flight, account, &told);
    let worker = &in_flight.flight.worker.upstream.name;
    if let Said::Spent { reason } | Said::Blocked { reason } = &said
        && account.close(reason)
    {
        tracing::error!(account = %account.name, %worker, reason, "a provider takes nothing more on; it is asked again in 5 minutes");
    }
    match why(in_flight, account, ticket, &told, said) {
        Some(why) => Err(Box::new(NotTaken { status: status.as_u16(), why })),
        None => {
            account.accepted(ticket, &told);
            body.put_back(read);
            Ok(Response::from_parts(head, body))
        }
    }
}

/// What the holder of a lease was answered by its provider.
pub(super) struct Heard {
    pub(super) status: StatusCode,
    pub(super) told: Told,
    pub(super) said: Said,
}

impl Heard {
    /// Reads what a client has seen.
    pub(super) fn read<'a>(
        status: StatusCode,
        headers: impl IntoIterator<Item = (&'a str, &'a [u8])>,
        body: &[u8],
    ) -> Self {
        let now = UnixMicros(unix_now().0);
        let mut told = limits::told(headers, now);
        let said = limits::refusal(status, body, &mut told, now);
        Self { status, told, said }
    }
}

/// The provider has taken on the call of a lease, and said this beside its answer.
pub(super) fn hear_accepted(in_flight: &In<'_, InFlight>, told: &Told) {
    let flight = &in_flight.flight;
    if let (Some(account), Some(ticket)) = (&flight.worker.upstream.account, flight.ticket) {
        account.accepted(ticket, told);
        doubt(in_flight, account, told);
    }
}

/// The provider has not taken on the call of a lease. `None` where that was not for a limit of its.
///
/// That an account is spent or blocked ends that lease alone: another client may have an account of its own.
pub(super) fn hear_refused(in_flight: &In<'_, InFlight>, heard: Heard) -> Option<Box<NotTaken>> {
    let flight = &in_flight.flight;
    let (Some(account), Some(ticket)) = (&flight.worker.upstream.account, flight.ticket) else {
        return None;
    };
    let Heard { status, told, said } = heard;
    doubt(in_flight, account, &told);
    let why = why(in_flight, account, ticket, &told, said)?;
    Some(Box::new(NotTaken { status: status.as_u16(), why }))
}

/// Why a request was not taken on, and what follows from that for its account. `None` where it was for no limit.
fn why(
    in_flight: &In<'_, InFlight>,
    account: &Account,
    ticket: Ticket,
    told: &Told,
    said: Said,
) -> Option<Why> {
    let worker = in_flight.flight.worker.upstream.name.clone();
    match said {
        Said::Rate { counted, limit, retry_after, .. } => {
            let at = account.refused(ticket, told, counted, retry_after).until;
            note_limit(in_flight, account, &worker, counted, at);
            Some(Why::Later(Later { worker, counted, limit, at }))
        }
        Said::Overloaded { retry_after } => {
            let at = account.overloaded(retry_after).until;
            Some(Why::Later(Later { worker, counted: None, limit: None, at }))
        }
        Said::Spent { reason } | Said::Blocked { reason } => Some(Why::Out { worker, reason }),
        Said::TooLargeForLimit { limit, requested, .. } => Some(Why::TooLarge { limit, requested }),
        Said::Other => None,
    }
}

impl NotTaken {
    /// What the client is told where nobody else can take the request.
    pub(super) fn refusal(&self) -> Refusal {
        match &self.why {
            Why::Later(later) => later.refusal(),
            Why::Out { worker, reason } => refusal::provider_out(worker, reason),
            Why::TooLarge { limit, requested } => refusal::larger_than_quota(*limit, *requested),
        }
    }

    /// Whether the same worker may take it later.
    pub(super) fn is_for_now(&self) -> bool {
        matches!(self.why, Why::Later(_))
    }

    /// Whether another worker may take it.
    pub(super) fn is_for_this_worker(&self) -> bool {
        !matches!(self.why, Why::TooLarge { .. })
    }

    /// How the ledger calls the attempt.
    pub(super) fn code(&self) -> &'static str {
        match self.why {
            Why::Later(_) => "provider_limited",
            Why::Out { .. } => "provider_out",
            Why::TooLarge { .. } => "larger_than_quota",
        }
    }
}

impl Later {
    /// It has waited for as long as requests may.
    fn refusal(&self) -> Refusal {
        let after = self.at.saturating_duration_since(Instant::now());
        refusal::provider_limited(&self.worker, counted_words(self.counted), self.limit, after)
    }
}

fn counted_words(counted: Option<Counted>) -> &'static str {
    match counted {
        Some(Counted::Requests) => "requests",
        Some(Counted::Tokens) => "tokens",
        Some(Counted::InputTokens) => "input tokens",
        Some(Counted::OutputTokens) => "output tokens",
        None => "requests or tokens",
    }
}

pub(super) fn pairs(headers: &HeaderMap) -> impl Iterator<Item = (&str, &[u8])> {
    headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()))
}

/// The beginning of a body; all of it, where it is no longer than a refusal should be.
async fn read(body: &mut LaneBody) -> Bytes {
    let mut read = BytesMut::new();
    let reading = async {
        while read.len() < BODY_BYTES_MAX
            && let Some(Ok(chunk)) = poll_fn(|cx| body.poll_chunk(cx)).await
        {
            read.extend_from_slice(&chunk);
        }
    };
    // What has not come by then is read with the answer, if it is given to anybody.
    let _ = timeout_at(Instant::now() + BODY_WITHIN, reading).await;
    read.freeze()
}

fn note_limit(
    in_flight: &In<'_, InFlight>,
    account: &Account,
    worker: &str,
    counted: Option<Counted>,
    at: Instant,
) {
    let app = &in_flight.arrival().app;
    if let Some(left_out) = app.complaints.admit("a provider's limit was met", Instant::now()) {
        let pause = at.saturating_duration_since(Instant::now());
        let limit = counted_words(counted);
        tracing::warn!(account = %account.name, %worker, limit, ?pause, left_out, "a provider's limit was met: nothing is sent there for a while");
    }
}

/// Says in the log what a provider stated that cannot be.
fn doubt(in_flight: &In<'_, InFlight>, account: &Account, told: &Told) {
    let Some(first) = told.absurd.first() else { return };
    let app = &in_flight.arrival().app;
    if let Some(left_out) = app.complaints.admit("a provider's limits are absurd", Instant::now()) {
        let absurd: &Absurd = first;
        tracing::warn!(account = %account.name, %absurd, left_out, "a provider states limits that cannot be; they are not believed");
    }
}
