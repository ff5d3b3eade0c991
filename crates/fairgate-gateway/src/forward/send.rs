//! An accepted request on its way to a worker: reserved, queued, granted a slot, sent; and again where a worker fails
//! before the first byte.

use std::sync::Arc;

use fairgate_core::event::Submit;
use fairgate_core::units::Tokens;
use fairgate_dialect::Changes;
use http::uri::PathAndQuery;
use http::{HeaderMap, Response};
use tokio::time::Instant;

use super::answer::Deadlines;
use super::body::Taken;
use super::passage::{In, unix_now};
use super::stage::{Accepted, Counted, InFlight, Queued};
use super::verdict::{
    Retry, Tried, Verdict, is_for_want_of_workers, judge, may_retry, until_one_is_tried,
};
use super::{ask, budget, rules};
use crate::pools::Model;
use crate::refusal::{self, Refusal};
use crate::reply::length;
use crate::upstream::{LaneBody, Outgoing};

/// What a request brings that goes to a worker. Kept only until no other worker may have to be sent the same.
pub(super) struct Payload {
    pub(super) model: Arc<Model>,
    pub(super) class: Option<Box<str>>,
    /// The body as it came.
    pub(super) body: Taken,
    pub(super) path: PathAndQuery,
    pub(super) headers: HeaderMap,
    /// The output cap of a budgeted request that states none.
    pub(super) cap: Option<u64>,
}

/// An upstream's answer, of which the head has come.
pub(super) struct Sent {
    pub(super) answer: Response<LaneBody>,
    pub(super) deadlines: Deadlines,
    pub(super) hide_usage: bool,
    pub(super) brownout: Option<u64>,
}

/// Waits for a slot and sends the request; on another worker where that fails before the first byte.
pub(super) async fn send(
    accepted: In<'_, Accepted>,
    payload: &mut Payload,
) -> Result<Sent, Refusal> {
    let (mut counted, listed) = accepted.count_in(length(payload.body.bytes.len()))?;
    let mut listed = Some(listed);
    let mut tried = Tried::default();
    // What the last worker answered, and would be given if no other one can be had.
    let mut kept: Option<Box<Result<Sent, Refusal>>> = None;
    loop {
        let boarded = match (board(counted, payload, &tried.workers).await, kept.take()) {
            (Ok(boarded), _) => boarded,
            (Err(refusal), Some(answer)) if is_for_want_of_workers(&refusal) => return *answer,
            (Err(refusal), _) => return Err(refusal),
        };
        let (mut in_flight, output) = boarded;
        drop(listed.take());
        let upstream = in_flight.flight.worker.upstream.clone();
        tried.workers.push(upstream.name.clone());
        // Decided once: what is not kept now cannot be sent again.
        let may_retry = may_retry(&in_flight, &tried);
        let (outgoing, hide_usage) = outgoing(&in_flight, payload, output.cap, may_retry);
        let brownout = output.cap.filter(|_| output.brownout);
        in_flight.flight.sent(output.brownout);
        let timeouts = upstream.config.timeouts;
        let deadlines = Deadlines { idle: timeouts.idle, total: Instant::now() + timeouts.total };
        // Boxed, like all that a waiting request has no use for: it is what there are many thousands of.
        let answered = Box::pin(upstream.send(outgoing, deadlines.total)).await;
        tried.note(&answered);
        let Verdict { answer, retry } = judge(&mut in_flight, answered);
        let answer = answer.map(|answer| Sent { answer, deadlines, hide_usage, brownout });
        let Some(Retry { code, status }) = retry.filter(|_| may_retry) else { return answer };
        let id = &in_flight.arrival().id;
        tracing::info!(request = %id, worker = %upstream.name, code, "tried on another worker");
        kept = Some(Box::new(answer));
        let (waits_again, recording) = in_flight.end_attempt(code, status);
        recording.await.map_err(|_| refusal::unrecorded())?;
        counted = waits_again;
    }
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
async fn board<'p>(
    counted: In<'p, Counted>,
    payload: &Payload,
    tried: &[Arc<str>],
) -> Result<(In<'p, InFlight>, Output), Refusal> {
    if counted.arrival().caller.budgeted {
        Box::pin(budget::reserve(&counted, budget::most(&counted, payload.cap))).await?;
    }
    let mut queued = counted.queue();
    let pool = &payload.model.pool;
    loop {
        let submit = submit(&queued, payload.class.as_deref(), tried);
        queued.waits_from_now();
        let permit = pool.gate.admit(submit).await.map_err(|refused| {
            let refusal = Refusal::from(refused);
            match refusal.problem.code {
                "overloaded" => {
                    let dialect = queued.arrival().route.dialect();
                    refusal.after(Some(until_one_is_tried(pool, dialect, tried)))
                }
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
        let in_flight = queued.take_off(permit, worker);
        // It may have waited for long: who may not come in any more is not served either.
        let arrival = in_flight.arrival();
        arrival.app.identity.still(&arrival.caller, unix_now())?;
        let output = output(&in_flight, payload.cap);
        return Ok((in_flight, output));
    }
}

/// What the pool is told of a request.
fn submit(queued: &In<'_, Queued>, class: Option<&str>, tried: &[Arc<str>]) -> Submit {
    let arrival = queued.arrival();
    let setup = queued.pool.setup();
    Submit {
        attributes: ask::attributes(arrival, queued, &setup, class),
        cost: Some(Tokens(queued.estimate.max(1))),
        input: Some(Tokens(queued.expected.input.max(1))),
        // Who is tried again goes first, within its own flow only.
        priority: i64::from(!tried.is_empty()),
        allow: setup.allowed(arrival.route.dialect(), tried),
        ..Submit::new(&arrival.id)
    }
}

/// The output of a request that has its slot. `own_cap` is what it has for its budget's sake.
fn output(in_flight: &In<'_, InFlight>, own_cap: Option<u64>) -> Output {
    let unchanged = Output { cap: own_cap, brownout: false };
    let long = in_flight.flight.waited_long() && in_flight.arrival().route.generates();
    match in_flight.pool.setup().config.brownout {
        Some(brownout) if long => {
            let ask = &in_flight.ask;
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
    in_flight: &In<'_, InFlight>,
    payload: &mut Payload,
    cap: Option<u64>,
    keep: bool,
) -> (Outgoing, bool) {
    let route = in_flight.arrival().route;
    let ask = &in_flight.ask;
    let ask_usage = ask.must_ask_usage(route);
    let model = &payload.model.config;
    let upstream = &in_flight.flight.worker.upstream.config;
    let theirs = upstream.model_name(model);
    let bytes = payload.body.bytes.clone();
    let strip = rules::stripped_fields(&upstream.fields, ask, &bytes);
    let changes = Changes {
        model: (theirs != model.name).then_some(theirs),
        max_tokens: cap,
        ask_usage,
        strip: &strip,
    };
    let body = ask.changed(route, bytes, changes);
    let mut headers =
        if keep { payload.headers.clone() } else { std::mem::take(&mut payload.headers) };
    rules::strip_headers(&upstream.headers, &mut headers);
    let path = payload.path.clone();
    let outgoing = Outgoing { dialect: route.dialect(), path, headers, body };
    (outgoing, ask_usage)
}
