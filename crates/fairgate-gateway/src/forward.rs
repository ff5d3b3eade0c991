//! The way of one request: checked, queued, granted, sent, streamed back, settled.
//!
//! `passage` is the one guard that ends a request exactly once. It holds the `stage` that the request is in; the steps
//! between stages are in `passage/step`. `ask`, `chosen`, `body`, `cost` and `budget` look at what comes in; `send` brings it to a worker and
//! `verdict` is the retry policy; `answer` carries what the upstream says; `flight`, `bill` and `settlement` are the end.
//! Statuses are decided in `refusal`.

mod answer;
mod ask;
mod bill;
mod body;
mod budget;
mod chosen;
mod continued;
mod cost;
mod flight;
mod headers;
mod leases;
mod limited;
mod models;
mod passage;
mod provider;
mod rules;
mod send;
mod settlement;
mod stage;
mod streamed;
mod verdict;

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Instant;

use fairgate_config::OnStoreFailure;
use fairgate_dialect::{Ask, Framing, Route};
use http::header::CONTENT_TYPE;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use hyper::body::Incoming;

pub(crate) use self::leases::{LEASES, Leases, LeasesApi, leases};
pub(crate) use self::models::models;
pub(crate) use self::passage::unix_now;
pub(crate) use self::settlement::outcome_name;
pub(crate) use self::streamed::Streamed;

use self::answer::Answer;
use self::limited::Limited;
use self::passage::{Arrival, In, Passage};
use self::send::{Payload, Sent, Wish};
use self::stage::{Accepted, Terms};
use crate::app::App;
use crate::refusal::{self, Refusal};
use crate::reply::{Reply, ReplyBody, whole};

const BROWNOUT: HeaderName = HeaderName::from_static("x-fairgate-brownout");

/// Serves a request of one of the routes that go to an upstream.
pub(crate) async fn forward(app: Arc<App>, route: Route, request: Request<Incoming>) -> Reply {
    let id = app.ids.next();
    let (http::request::Parts { headers, uri, .. }, body) = request.into_parts();
    let caller = match app.caller(&headers).await {
        Ok(caller) => caller,
        Err(refusal) => {
            app.metrics.turned_away(refusal.problem.code);
            return refusal.reply(route.dialect(), &id);
        }
    };
    let mut passage = Passage::new(app, caller, id, route);
    let sent = match accept(&mut passage, headers, uri, body).await {
        // No other worker is tried after this: the body is needed no more.
        Ok((accepted, mut payload)) => send::send(accepted, &mut payload).await,
        Err(refusal) => Err(refusal),
    };
    if let Some(limited) = Limited::of(&passage.arrival, &sent) {
        // Boxed: there are many waiting requests, and few of them are refused by a provider.
        Box::pin(limited.tell_fleet(&passage.arrival)).await;
    }
    match sent {
        Ok(sent) => deliver(passage, sent).await,
        Err(refusal) => {
            // It is refused with or without a row.
            let _ = passage.refuse(&refusal).await;
            refusal.reply(route.dialect(), &passage.arrival.id)
        }
    }
}

/// Everything that is refused before it is submitted, but for the limits. Nothing is kept of what is refused.
async fn accept(
    passage: &mut Passage,
    headers: HeaderMap,
    uri: http::Uri,
    body: Incoming,
) -> Result<(In<'_, Accepted>, Payload), Refusal> {
    let (app, route) = (passage.arrival.app.clone(), passage.arrival.route);
    let config = app.config.load_full();
    if config.on_store_failure == OnStoreFailure::Refuse && !app.store.can_record() {
        return Err(refusal::unrecorded());
    }
    let limits = &config.limits;
    // Who may send nothing now need not send its body first.
    let bytes = body::announced(&headers).unwrap_or(0);
    app.limits.look(&passage.arrival.caller, bytes, Instant::now())?;
    let held = app.held.part(&passage.arrival.caller.tenant);
    let body = body::read(&headers, body, limits, held).await?;
    let read = passage.read(Ask::read(route, &body.bytes)?);
    let (ask, caller) = (&read.ask, &read.arrival().caller);
    let model = app.pools.model(&ask.model).ok_or_else(|| refusal::unknown_model(&ask.model))?;
    let setup = model.pool.setup();
    ask::check_model(caller, &setup, route, &ask.model)?;
    rules::check(&setup, route, ask, &body.bytes, &headers)?;
    let chosen = Box::new(chosen::chosen(&caller.rights, &setup, &headers, ask, &body.bytes)?);
    let own = ask::own_names(&headers)?;
    let routed = read.route(model.pool.clone(), own.agent, own.session);
    let behind = continued::tokens_behind(&app, &routed.arrival().caller, &routed.ask, limits)?;
    let expected = cost::expect(&routed, &body.bytes, setup.tokens).await;
    let expected = expected.with_more_input(behind);
    let prefix = cost::look_up_prefix(&routed, &model.config, &body.bytes, expected.input);
    let cached = cost::most_cached(&setup, &chosen, route.dialect(), prefix.as_deref());
    let usual = cost::estimate(setup.weights, expected, cached);
    let estimate = routed.pool.occupation.expected(&routed.arrival().caller.tenant, usual);
    let uncached = expected.input.saturating_sub(cached);
    let class = setup.class(chosen.class.as_deref(), uncached);
    let last_worker = cost::last_worker(&routed, expected.input);
    let accepted = routed.accept(Terms { expected, estimate, class, prefix, last_worker });
    let cap = match accepted.arrival().caller.budgeted {
        true => Box::pin(budget::look(&accepted)).await?,
        false => None,
    };
    let path = own_path(route, uri.query());
    let headers = headers::outbound(headers);
    Ok((accepted, Payload { wish: Wish { model, chosen, cap }, body, path, headers }))
}

/// The route's path with what may go on of the client's query. A copy, as the client's own is a part of the
/// connection's read buffer.
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

/// Gives the answer to the client: at once where it is a stream, in one piece where all of it is there.
async fn deliver(passage: Box<Passage>, sent: Sent) -> Reply {
    let Sent { answer, deadlines, hide_usage, brownout } = sent;
    let Arrival { app, id, route, .. } = &passage.arrival;
    let (dialect, id) = (route.dialect(), id.clone());
    let framing = framing(answer.headers());
    let patience = app.config.load().limits.body_timeout;
    let (theirs, body) = answer.into_parts();
    let mut answer = Answer::new(passage, theirs.status, body, framing, hide_usage, deadlines);
    let body = if framing == Framing::Sse {
        ReplyBody::Answer(Streamed::new(answer.head_given(), deadlines.total, patience))
    } else {
        poll_fn(|cx| answer.poll_whole(cx)).await;
        match answer.into_whole() {
            Ok(Ok(bytes)) => whole(bytes),
            Ok(Err(more)) => {
                ReplyBody::Answer(Streamed::new(more.head_given(), deadlines.total, patience))
            }
            Err(refusal) => return refusal.reply(dialect, &id),
        }
    };
    let mut reply = Response::new(body);
    *reply.status_mut() = theirs.status;
    *reply.headers_mut() = theirs.headers;
    headers::inbound(reply.headers_mut(), hide_usage && framing == Framing::Sse);
    if let Some(cap) = brownout {
        reply.headers_mut().insert(BROWNOUT, HeaderValue::from(cap));
    }
    refusal::name(&mut reply, dialect, &id);
    reply
}

fn framing(headers: &HeaderMap) -> Framing {
    Framing::of(headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()))
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
