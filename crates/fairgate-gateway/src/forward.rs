//! The way of one request: checked, queued, granted, sent, streamed back, settled.
//!
//! `ask`, `body` and `budget` look at what comes in; `verdict` says what to make of what an upstream did; `passage` is the
//! one guard that ends a request exactly once; `answer` carries what the upstream says. Statuses are decided in `refusal`.

mod answer;
mod ask;
mod body;
mod budget;
mod continued;
mod headers;
mod models;
mod passage;
mod rules;
mod streamed;
mod verdict;

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Instant as StdInstant;

use bytes::Bytes;
use fairgate_config::OnStoreFailure;
use fairgate_core::event::Submit;
use fairgate_core::units::Tokens;
use fairgate_dialect::estimate::{Expected, Table};
use fairgate_dialect::{Ask, Changes, Framing, Route, Usage};
use http::header::CONTENT_TYPE;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use hyper::body::Incoming;
use tokio::time::Instant;

pub(crate) use self::models::models;
pub(crate) use self::passage::unix_now;
pub(crate) use self::streamed::Streamed;

use self::answer::{Answer, Deadlines};
use self::body::Taken;
use self::passage::Passage;
use self::verdict::{
    Retry, Tried, Verdict, is_for_want_of_workers, judge, may_retry, until_one_is_tried,
};
use crate::app::App;
use crate::pools::Model;
use crate::refusal::{self, Refusal};
use crate::reply::{Reply, ReplyBody, length, whole};
use crate::upstream::{LaneBody, Outgoing, Upstream};

const BROWNOUT: HeaderName = HeaderName::from_static("x-fairgate-brownout");

/// Serves a request of one of the routes that go to an upstream.
pub(crate) async fn forward(app: Arc<App>, route: Route, request: Request<Incoming>) -> Reply {
    let id = app.ids.next();
    let (http::request::Parts { headers, uri, .. }, body) = request.into_parts();
    let caller = match app.identity.caller(&headers, unix_now()) {
        Ok(caller) => caller,
        Err(problem) => {
            app.metrics.turned_away(problem.code);
            return Refusal::from(problem).reply(route.dialect(), &id);
        }
    };
    let mut passage = Passage::new(app, caller, id, route);
    let sent = match accept(&mut passage, headers, uri, body).await {
        Ok(mut request) => send(&mut passage, &mut request).await.map(|sent| (request, sent)),
        Err(refusal) => Err(refusal),
    };
    match sent {
        Ok((request, sent)) => deliver(passage, request, sent).await,
        Err(refusal) => {
            // It is refused with or without a row.
            let _ = passage.refuse(&refusal).await;
            refusal.reply(route.dialect(), &passage.id)
        }
    }
}

/// A request that was accepted.
struct Accepted {
    model: Arc<Model>,
    class: Option<Box<str>>,
    /// The body as it came.
    body: Taken,
    path: PathAndQuery,
    headers: HeaderMap,
    /// The output cap of a budgeted request that states none.
    cap: Option<u64>,
}

/// Everything that is refused before it is submitted. Nothing is kept of what is refused.
async fn accept(
    passage: &mut Passage,
    headers: HeaderMap,
    uri: http::Uri,
    body: Incoming,
) -> Result<Accepted, Refusal> {
    let app = passage.app.clone();
    let config = app.config.load_full();
    if config.on_store_failure == OnStoreFailure::Refuse && !app.store.can_record() {
        return Err(refusal::unrecorded());
    }
    let limits = &config.limits;
    // Who may send nothing now need not send its body first.
    let bytes = body::announced(&headers).unwrap_or(0);
    app.limits.look(&passage.caller, bytes, StdInstant::now())?;
    let held = app.held.part(&passage.caller.tenant);
    let body = body::read(&headers, body, limits, held).await?;
    let ask = passage.ask.insert(Ask::read(passage.route, &body.bytes)?);
    let model = app.pools.model(&ask.model).ok_or_else(|| refusal::unknown_model(&ask.model))?;
    let setup = model.pool.setup();
    ask::check_model(&passage.caller, &setup, passage.route, &ask.model)?;
    rules::check(&setup, passage.route, ask, &body.bytes, &headers)?;
    let own = ask::own_names(&headers, &passage.caller)?;
    passage.pool = Some(model.pool.clone());
    (passage.agent, passage.session) = (own.agent, own.session);
    let behind = continued::tokens_behind(&app, &passage.caller, ask, limits)?;
    let expected = expect(passage, &model, &body.bytes, setup.tokens).await;
    let expected = expected.with_more_input(behind);
    passage.expected = Some(expected);
    passage.estimate = setup.weights.charge(likely(expected));
    let cap = match passage.caller.budgeted {
        true => Box::pin(budget::look(passage)).await?,
        false => None,
    };
    let path = own_path(passage.route, uri.query());
    let headers = headers::outbound(headers);
    Ok(Accepted { model, class: own.class, body, path, headers, cap })
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

fn likely(expected: Expected) -> Usage {
    Usage { input: expected.input, cached: 0, output: expected.output }
}

/// What the request is expected to use; its input as `table` counts it, where it can.
async fn expect(passage: &Passage, model: &Model, body: &Bytes, table: Option<Table>) -> Expected {
    let exact = match table {
        None => None,
        Some(table) => {
            let (route, body) = (passage.route, body.clone());
            let counting = tokio::task::spawn_blocking(move || table.count(route, &body));
            Box::pin(counting).await.ok().flatten()
        }
    };
    let ask = passage.ask.as_ref();
    let nothing = Expected { input: 0, input_max: 0, output: 0, output_max: None };
    ask.map_or(nothing, |ask| {
        model.pool.estimator.expect(&passage.caller.tenant, &ask.model, ask, exact)
    })
}

/// An upstream's answer, of which the head has come.
struct Sent {
    answer: Response<LaneBody>,
    deadlines: Deadlines,
    hide_usage: bool,
    brownout: Option<u64>,
}

/// Waits for a slot and sends the request; on another worker where that fails before the first byte.
async fn send(passage: &mut Passage, request: &mut Accepted) -> Result<Sent, Refusal> {
    let app = passage.app.clone();
    let bytes = length(request.body.bytes.len());
    let entered = app.limits.enter(&passage.caller, bytes, passage.estimate, StdInstant::now())?;
    passage.counted_in = true;
    let mut queued = Some(entered);
    let mut tried = Tried::default();
    // What the last worker answered, and would be given if no other one can be had.
    let mut kept: Option<Box<Result<Sent, Refusal>>> = None;
    loop {
        let boarded = match (board(passage, request, &tried.workers).await, kept.take()) {
            (Ok(boarded), _) => boarded,
            (Err(refusal), Some(answer)) if is_for_want_of_workers(&refusal) => return *answer,
            (Err(refusal), _) => return Err(refusal),
        };
        let Boarded { upstream, output } = boarded;
        drop(queued.take());
        tried.workers.push(upstream.name.clone());
        // Decided once: what is not kept now cannot be sent again.
        let may_retry = may_retry(passage, &tried);
        let (outgoing, hide_usage) = outgoing(passage, request, output.cap, may_retry);
        let brownout = output.cap.filter(|_| output.brownout);
        passage.brownout = output.brownout;
        passage.is_sent();
        let timeouts = upstream.config.timeouts;
        let deadlines = Deadlines { idle: timeouts.idle, total: Instant::now() + timeouts.total };
        // Boxed, like all that a waiting request has no use for: it is what there are many thousands of.
        let answered = Box::pin(upstream.send(outgoing, deadlines.total)).await;
        tried.note(&answered);
        let Verdict { answer, retry } = judge(passage, answered);
        let answer = answer.map(|answer| Sent { answer, deadlines, hide_usage, brownout });
        let Some(Retry { code, status }) = retry.filter(|_| may_retry) else { return answer };
        tracing::info!(request = %passage.id, worker = %upstream.name, code, "tried on another worker");
        kept = Some(Box::new(answer));
        passage.end_attempt(code, status).await.map_err(|_| refusal::unrecorded())?;
    }
}

/// A request that has its slot.
struct Boarded {
    /// Where it is to be sent.
    upstream: Arc<Upstream>,
    output: Output,
}

/// The output that a request is sent with: the one answer for its body, its reservation, its row and its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Output {
    /// The cap on the tokens of each answer, where it is not the caller's own.
    cap: Option<u64>,
    /// Whether that is because it waited long, and lower than it would have been.
    brownout: bool,
}

/// Reserves what the request may use, and waits for a slot. In this order: while the store is asked, no slot is held.
async fn board(
    passage: &mut Passage,
    request: &Accepted,
    tried: &[Arc<str>],
) -> Result<Boarded, Refusal> {
    if passage.caller.budgeted {
        Box::pin(budget::reserve(passage, budget::most(passage, request.cap))).await?;
    }
    loop {
        let pool = &request.model.pool;
        let submit = {
            let setup = pool.setup();
            let input = passage.expected.map_or(1, |expected| expected.input.max(1));
            Submit {
                attributes: ask::attributes(passage, &setup, request.class.as_deref()),
                cost: Some(Tokens(passage.estimate.max(1))),
                input: Some(Tokens(input)),
                // Who is tried again goes first, within its own flow only.
                priority: i64::from(!tried.is_empty()),
                allow: setup.allowed(passage.route.dialect(), tried),
                ..Submit::new(&passage.id)
            }
        };
        passage.waits_since = Some(StdInstant::now());
        let permit = pool.gate.admit(submit).await.map_err(|refused| {
            let refusal = Refusal::from(refused);
            match refusal.problem.code {
                "overloaded" => refusal.after(Some(until_one_is_tried(passage, tried))),
                _ => refusal,
            }
        })?;
        let worker = {
            let setup = pool.setup();
            permit.place().and_then(|place| setup.worker(&place.worker).cloned())
        };
        let Some(worker) = worker else {
            // It was dismissed while the grant was on its way: the next grant is for another one.
            permit.give_back();
            continue;
        };
        let upstream = worker.upstream.clone();
        passage.takes_off(permit, worker);
        // It may have waited for long: who may not come in any more is not served either.
        passage.app.identity.still(&passage.caller, unix_now())?;
        let output = output(passage, request.cap);
        return Ok(Boarded { upstream, output });
    }
}

/// The output of a request that has its slot. `own_cap` is what it has for its budget's sake.
fn output(passage: &Passage, own_cap: Option<u64>) -> Output {
    let unchanged = Output { cap: own_cap, brownout: false };
    let (Some(flight), Some(pool), Some(ask)) = (&passage.flight, &passage.pool, &passage.ask)
    else {
        return unchanged;
    };
    let long = flight.permit.brownout() == Some(true) && passage.route.generates();
    match pool.setup().config.brownout {
        Some(brownout) if long => {
            let cap = ask.capped(brownout.max_tokens);
            let lowers = ask.max_tokens.or(own_cap).is_none_or(|otherwise| cap < otherwise);
            if lowers { Output { cap: Some(cap), brownout: true } } else { unchanged }
        }
        _ => unchanged,
    }
}

/// What is sent: the body as it came, but for what a rule must change. And whether usage was asked for on the
/// caller's behalf. `keep`: another worker may have to be sent the same.
fn outgoing(
    passage: &Passage,
    request: &mut Accepted,
    cap: Option<u64>,
    keep: bool,
) -> (Outgoing, bool) {
    let route = passage.route;
    let ask_usage = passage.ask.as_ref().is_some_and(|ask| ask.must_ask_usage(route));
    let model = &request.model.config;
    let upstream = passage.flight.as_ref().map(|flight| &flight.worker.upstream.config);
    let theirs = upstream.map(|upstream| upstream.model_name(model));
    let bytes = request.body.bytes.clone();
    let strip = match (&passage.ask, upstream) {
        (Some(ask), Some(upstream)) => rules::stripped_fields(&upstream.fields, ask, &bytes),
        _ => Vec::new(),
    };
    let changes = Changes {
        model: theirs.filter(|theirs| *theirs != model.name),
        max_tokens: cap,
        ask_usage,
        strip: &strip,
    };
    let body = match &passage.ask {
        Some(ask) => ask.changed(route, bytes, changes),
        None => bytes,
    };
    let mut headers =
        if keep { request.headers.clone() } else { std::mem::take(&mut request.headers) };
    if let Some(upstream) = upstream {
        rules::strip_headers(&upstream.headers, &mut headers);
    }
    let path = request.path.clone();
    let outgoing = Outgoing { dialect: route.dialect(), path, headers, body };
    (outgoing, ask_usage)
}

/// Gives the answer to the client: at once where it is a stream, in one piece where all of it is there.
async fn deliver(passage: Box<Passage>, request: Accepted, sent: Sent) -> Reply {
    // No other worker will be tried: the body is needed no more.
    drop(request);
    let Sent { answer, deadlines, hide_usage, brownout } = sent;
    let (dialect, id) = (passage.route.dialect(), passage.id.clone());
    let framing = framing(answer.headers());
    let patience = passage.app.config.load().limits.body_timeout;
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
