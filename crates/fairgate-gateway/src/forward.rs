//! Handles one request from its arrival to its settlement: the request is checked, queued, granted a slot and sent, and
//! the answer is streamed back.
//!
//! `request_guard` ends a request exactly once. It holds the request's current `stage`; the steps between stages are in
//! `request_guard/step`. `request_checks`, `client_choices`, `body`, `cost` and `budget` check the incoming request;
//! `send` brings it to a worker; `retry_policy` decides about another attempt; `answer` forwards the upstream's answer;
//! `attempt`, `bill` and `settlement` end an attempt. HTTP statuses are decided in `refusal`.

mod answer;
mod attempt;
mod bill;
mod body;
mod budget;
mod client_choices;
mod cost;
mod deadline;
mod headers;
mod leases;
mod models;
mod previous_response;
mod provider;
mod provider_wait;
mod request_checks;
mod request_guard;
mod retry_policy;
mod rules;
mod send;
mod settlement;
mod stage;
mod streamed_answer;

use std::future::poll_fn;
use std::sync::Arc;

use fairgate_config::OnStoreFailure;
use fairgate_dialect::{BodyFraming, RequestFields, Route};
use http::header::CONTENT_TYPE;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use hyper::body::Incoming;
use tokio::time::Instant;

pub(crate) use self::deadline::DeadlineSource;
pub(crate) use self::leases::{LEASES, LeaseTable, LeasesApi, leases};
pub(crate) use self::models::models;
pub(crate) use self::request_guard::unix_now;
pub(crate) use self::settlement::outcome_name;
pub(crate) use self::streamed_answer::StreamedAnswer;

use self::answer::UpstreamAnswer;
use self::deadline::RequestDeadline;
use self::provider_wait::ProviderWaitForTask;
use self::request_guard::{RequestArrival, RequestGuard, RequestIn};
use self::send::{AnsweredRequest, PoolRequest, RequestPayload};
use self::stage::{AcceptedRequest, SubmitTerms};
use crate::app::App;
use crate::refusal::{self, Refusal};
use crate::reply::{Reply, ReplyBody, whole_body};

const BROWNOUT: HeaderName = HeaderName::from_static("x-fairgate-brownout");

/// Serves a request on one of the routes that go to an upstream.
pub(crate) async fn forward(app: Arc<App>, route: Route, request: Request<Incoming>) -> Reply {
    let (id, arrived) = (app.request_ids.next(), Instant::now());
    let (http::request::Parts { headers, uri, .. }, body) = request.into_parts();
    let caller = match app.caller(&headers).await {
        Ok(caller) => caller,
        Err(refusal) => {
            app.metrics.count_refusal(refusal.code);
            return refusal.reply(route.dialect(), &id);
        }
    };
    let mut passage = RequestGuard::new(app, caller, id, route, arrived);
    let sent = match accept(&mut passage, headers, uri, body).await {
        // No other worker is tried after `send` returns, so the body is dropped here.
        Ok((accepted, mut payload)) => send::send(accepted, &mut payload).await,
        Err(refusal) => Err(refusal),
    };
    if let Some(limited) = ProviderWaitForTask::of(&passage.arrival, &sent) {
        // Boxed to keep this future small: many requests wait, and few are refused by a provider.
        Box::pin(limited.report_to_fleet(&passage.arrival)).await;
    }
    match sent {
        Ok(sent) => deliver(passage, sent).await,
        Err(refusal) => {
            // The client gets the refusal even if the row could not be written.
            let _ = passage.refuse(&refusal).await;
            refusal.reply(route.dialect(), &passage.arrival.id)
        }
    }
}

/// Runs every check that can refuse a request before it is submitted, except the rate limits. Nothing is kept of a
/// refused request.
async fn accept(
    passage: &mut RequestGuard,
    headers: HeaderMap,
    uri: http::Uri,
    body: Incoming,
) -> Result<(RequestIn<'_, AcceptedRequest>, RequestPayload), Refusal> {
    let (app, route) = (passage.arrival.app.clone(), passage.arrival.route);
    let config = app.config.load_full();
    if config.on_store_failure == OnStoreFailure::Refuse && !app.store.can_record() {
        return Err(refusal::rows_not_writable());
    }
    let limits = &config.limits;
    // A caller that is over its limits is refused before it sends its body.
    let bytes = body::announced_length(&headers).unwrap_or(0);
    app.limits.check(&passage.arrival.caller, bytes, Instant::now().into_std())?;
    let held = app.body_memory.start_body(&passage.arrival.caller.tenant);
    let body = body::read(&headers, body, limits, held).await?;
    let read = passage.read(RequestFields::read(route, &body.bytes)?);
    let (ask, caller) = (&read.ask, &read.arrival().caller);
    let model = app.pools.model(&ask.model).ok_or_else(|| refusal::unknown_model(&ask.model))?;
    let setup = model.pool.setup();
    request_checks::check_model(caller, &setup, route, &ask.model)?;
    rules::check(&setup, route, ask, &body.bytes, &headers)?;
    let chosen =
        Box::new(client_choices::read(&caller.rights, &setup, &headers, ask, &body.bytes)?);
    let own = request_checks::read_client_names(&headers)?;
    let routed = read.route(model.pool.clone(), own.agent, own.session);
    let behind =
        previous_response::history_tokens(&app, &routed.arrival().caller, &routed.ask, limits)?;
    let expected = cost::expect(&routed, &model.config, &setup, &body.bytes).await;
    let expected = expected.with_more_input(behind);
    let prefix = cost::look_up_prefix(&routed, &model.config, &body.bytes, expected.input);
    let cached = cost::most_cached(&setup, &chosen, route.dialect(), prefix.as_deref());
    let usual = cost::estimate(setup.weights, expected, cached);
    let estimate = routed.pool.slot_time_price.expected(&routed.arrival().caller.tenant, usual);
    let uncached = expected.input.saturating_sub(cached);
    let class = setup.class(chosen.class.as_deref(), uncached);
    let last_worker = cost::last_worker(&routed, expected.input);
    let accepted = routed.accept(SubmitTerms { expected, estimate, class, prefix, last_worker });
    let deadline = RequestDeadline::of(&accepted, chosen.deadline)?;
    let cap = match accepted.arrival().caller.budgeted {
        true => Box::pin(budget::check(&accepted)).await?,
        false => None,
    };
    let path = own_path(route, uri.query());
    let headers = headers::outbound(headers);
    Ok((
        accepted,
        RequestPayload { wish: PoolRequest { model, chosen, cap, deadline }, body, path, headers },
    ))
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
async fn deliver(passage: Box<RequestGuard>, sent: AnsweredRequest) -> Reply {
    let AnsweredRequest { answer, deadlines, hide_usage, brownout } = sent;
    let RequestArrival { app, id, route, .. } = &passage.arrival;
    let (dialect, id) = (route.dialect(), id.clone());
    let framing = framing(answer.headers());
    let patience = app.config.load().limits.body_timeout;
    let (theirs, body) = answer.into_parts();
    let mut answer =
        UpstreamAnswer::new(passage, theirs.status, body, framing, hide_usage, deadlines);
    let body = if framing == BodyFraming::Sse {
        ReplyBody::Answer(StreamedAnswer::new(answer.with_head_sent(), deadlines.total, patience))
    } else {
        poll_fn(|cx| answer.poll_whole(cx)).await;
        match answer.into_whole() {
            Ok(Ok(bytes)) => whole_body(bytes),
            Ok(Err(more)) => ReplyBody::Answer(StreamedAnswer::new(
                more.with_head_sent(),
                deadlines.total,
                patience,
            )),
            Err(refusal) => return refusal.reply(dialect, &id),
        }
    };
    let mut reply = Response::new(body);
    *reply.status_mut() = theirs.status;
    *reply.headers_mut() = theirs.headers;
    headers::inbound(reply.headers_mut(), hide_usage && framing == BodyFraming::Sse);
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
