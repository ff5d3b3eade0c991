//! Handles one request from its arrival to its settlement: the request is checked, queued, granted a slot and sent, and
//! the answer is streamed back.
//!
//! `request_guard` ends a request exactly once. It holds the request's current `stage`; the steps between stages are in
//! `request_guard/step`. The modules, in the order in which a request meets them:
//!
//! - `accept` runs the checks, in the same order for requests and for leases. The checks themselves are in
//!   `request_checks`, `client_choices`, `body`, `cost` and `budget`.
//! - `send` brings the request to a worker, and `retry_policy` decides about another attempt.
//! - `answer` forwards the upstream's answer.
//! - `attempt`, `attempt_charge` and `settlement` end an attempt.
//!
//! HTTP statuses are decided in `refusal`.

mod accept;
mod answer;
mod attempt;
mod attempt_charge;
mod body;
mod budget;
mod cache_salt;
mod caller;
mod client_choices;
mod cost;
mod data_plane;
mod deadline;
mod ended_rows;
mod headers;
mod leases;
mod models;
mod previous_response;
mod provider;
mod recent_refusals;
mod request_checks;
mod request_guard;
mod response_id_owners;
mod retry_policy;
mod row_write;
mod rules;
mod send;
mod settlement;
mod stage;
mod streamed_answer;
mod task_limit;
mod unsent_pieces;
mod worker_filter;

use std::future::poll_fn;
use std::sync::Arc;

use fairgate_dialect::{BodyFraming, Route};
use http::header::CONTENT_TYPE;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use hyper::body::Incoming;
use tokio::time::Instant;

pub(crate) use self::cache_salt::SECRET_NAME as SALT_SECRET_NAME;
pub use self::data_plane::DataPlane;
pub use self::ended_rows::EndedRows;
pub use self::leases::LeasesApi;
pub(crate) use self::leases::{ConnectionLeases, LeaseTable, leases};
pub(crate) use self::models::models;
pub use self::recent_refusals::{LastRefusalOf, RecentRefusals, RefusalKind};
pub(crate) use self::response_id_owners::{ResponseIdOwners, store_ids};
pub(crate) use self::row_write::RowWrite;
pub use self::settlement::outcome_name;

use self::accept::{HttpSource, ReadHttpSource, accept};
use self::answer::UpstreamAnswer;
use self::request_guard::{RequestArrival, RequestGuard};
use self::send::{AnsweredRequest, RequestPayload};
use self::streamed_answer::StreamedAnswer;
use self::task_limit::TaskLimitReport;
use crate::refusal;
use crate::reply::{Reply, ReplyBody, whole_body};

/// Header with the time that a request waited for slots, in milliseconds, over all attempts.
const WAITED: HeaderName = HeaderName::from_static("x-fairgate-waited-ms");
const BROWNOUT: HeaderName = HeaderName::from_static("x-fairgate-brownout");

/// Serves a request on one of the routes that go to an upstream.
pub(crate) async fn forward(
    app: Arc<DataPlane>,
    route: Route,
    request: Request<Incoming>,
) -> Reply {
    let (id, arrived) = (app.request_ids.next(), Instant::now());
    let (http::request::Parts { headers, uri, .. }, body) = request.into_parts();
    let caller = match app.caller(&headers).await {
        Ok(caller) => caller,
        Err(refusal) => {
            app.metrics.count_refusal(refusal.code);
            return refusal.reply(route.dialect(), &id);
        }
    };
    let mut guard = RequestGuard::new(app, caller, id, route, arrived);
    let sent = match accept(&mut guard, HttpSource { headers, body }).await {
        Ok((accepted, pool_request, ReadHttpSource { headers, body })) => {
            let path = own_path(route, uri.query());
            let headers = headers::outbound(headers);
            // No other worker is tried after `send` returns, so the body is dropped here.
            send::send(accepted, &mut RequestPayload { pool_request, body, path, headers }).await
        }
        Err(refusal) => Err(refusal),
    };
    if let Some(limited) = TaskLimitReport::of(&guard.arrival, &sent) {
        // Boxed to keep this future small: many requests wait, and few are refused because of a limit.
        Box::pin(limited.report_to_fleet(&guard.arrival)).await;
    }
    match sent {
        Ok(sent) => deliver(guard, sent).await,
        Err(refusal) => {
            let recorded = guard.refuse(&refusal).await;
            let refusal = recorded.map_or_else(|_| refusal::rows_not_writable(), |()| refusal);
            refusal.reply(route.dialect(), &guard.arrival.id)
        }
    }
}

/// Returns the route's path plus the allowed options of the client's query. The text is copied, because a slice of the
/// connection's read buffer would keep the whole buffer alive.
fn own_path(route: Route, query: Option<&str>) -> PathAndQuery {
    let path = PathAndQuery::from_static(route.path());
    match query
        .and_then(headers::query)
        .map(|query| PathAndQuery::try_from(format!("{path}?{query}")))
    {
        Some(Ok(with_query)) => with_query,
        _ => path,
    }
}

/// Sends the answer to the client. A stream is sent as it arrives; a short document is sent in one piece when all of it
/// has arrived.
async fn deliver(guard: Box<RequestGuard>, sent: AnsweredRequest) -> Reply {
    let AnsweredRequest { answer, deadlines, hide_usage, brownout } = sent;
    let RequestArrival { app, id, route, .. } = &guard.arrival;
    let (dialect, id) = (route.dialect(), id.clone());
    let waited = guard.waited_ms();
    let framing = framing(answer.headers());
    let patience = app.config.load().limits.body_timeout;
    let (theirs, body) = answer.into_parts();
    let mut answer =
        UpstreamAnswer::new(guard, theirs.status, body, framing, hide_usage, deadlines);
    let body = if framing == BodyFraming::Sse {
        ReplyBody::Answer(Box::new(StreamedAnswer::new(
            answer.with_head_sent(),
            deadlines.total,
            patience,
        )))
    } else {
        poll_fn(|cx| answer.poll_whole(cx)).await;
        match answer.into_whole() {
            Ok(Ok(bytes)) => whole_body(bytes),
            Ok(Err(more)) => ReplyBody::Answer(Box::new(StreamedAnswer::new(
                more.with_head_sent(),
                deadlines.total,
                patience,
            ))),
            Err(refusal) => return refusal.reply(dialect, &id),
        }
    };
    let mut reply = Response::new(body);
    *reply.status_mut() = theirs.status;
    *reply.headers_mut() = theirs.headers;
    headers::inbound(reply.headers_mut(), hide_usage && framing == BodyFraming::Sse);
    reply.headers_mut().insert(WAITED, HeaderValue::from(waited));
    if let Some(cap) = brownout {
        reply.headers_mut().insert(BROWNOUT, HeaderValue::from(cap));
    }
    refusal::set_request_id(&mut reply, dialect, &id);
    reply
}

fn framing(headers: &HeaderMap) -> BodyFraming {
    BodyFraming::of(headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size<A, B, C, F>(_: fn(A, B, C) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn a_waiting_request_is_small() {
        let bytes = size(forward);
        assert!(bytes <= 2600, "{bytes} bytes");
    }
}
