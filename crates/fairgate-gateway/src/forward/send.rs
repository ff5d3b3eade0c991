//! An accepted request on its way to a worker: reserved, queued, granted a slot, sent; and again where a worker fails
//! before the first byte.

use std::sync::Arc;

use bytes::Bytes;
use fairgate_core::event::Submit;
use fairgate_core::units::Tokens;
use fairgate_dialect::Changes;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, Response};
use tokio::time::{Instant, timeout_at};

use super::answer::Deadlines;
use super::body::Taken;
use super::chosen::Chosen;
use super::passage::In;
use super::provider::{self, NotTaken};
use super::stage::{Accepted, Counted, InFlight, Queued};
use super::verdict::{
    Retry, Tried, Verdict, is_for_want_of_workers, judge, may_retry, out_of_service,
    until_one_is_tried,
};
use super::{ask, budget, cost, rules};
use crate::pools::Model;
use crate::refusal::{self, Refusal};
use crate::reply::length;
use crate::upstream::{LaneBody, Outgoing};

/// Above whatever a client may ask for: who is tried again goes first, within its own flow only.
const RETRY_PRIORITY: i64 = 1 << 32;
/// Above that: a request that a provider did not take on is the next of its flow to go.
const NOT_TAKEN_PRIORITY: i64 = 1 << 40;
const _: () = assert!(fairgate_store::PRIORITY_MAX < RETRY_PRIORITY);

/// How vLLM and SGLang are told which of their data-parallel ranks is to work on a request.
const DATA_PARALLEL_RANK: HeaderName = HeaderName::from_static("x-data-parallel-rank");

/// What a request brings that goes to a worker. Kept only until no other worker may have to be sent the same.
pub(super) struct Payload {
    pub(super) wish: Wish,
    /// The body as it came.
    pub(super) body: Taken,
    pub(super) path: PathAndQuery,
    pub(super) headers: HeaderMap,
}

/// What is asked of a pool, whoever makes the call.
pub(super) struct Wish {
    pub(super) model: Arc<Model>,
    /// In a box: there are many waiting requests.
    pub(super) chosen: Box<Chosen>,
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
    let mut again = Again::default();
    // What the last worker answered, and would be given if no other one can be had.
    let mut kept: Option<Box<Result<Sent, Refusal>>> = None;
    loop {
        let boarded = board(counted, &payload.wish, &tried.workers, &again).await;
        let boarded = match (boarded, kept.take()) {
            (Ok(boarded), _) => boarded,
            (Err(refusal), Some(answer)) if is_for_want_of_workers(&refusal) => return *answer,
            (Err(refusal), _) => return Err(refusal),
        };
        let (mut in_flight, output) = boarded;
        drop(listed.take());
        let upstream = in_flight.flight.worker.upstream.clone();
        tried.workers.push(upstream.name.clone());
        // Decided once: what is not kept now cannot be sent again.
        let is_pinned = payload.wish.chosen.pin.is_some();
        let may_retry = !is_pinned && may_retry(&in_flight, &tried);
        let keep = may_retry || upstream.account.is_some();
        let (outgoing, hide_usage) = outgoing(&in_flight, payload, output.cap, keep);
        let brownout = output.cap.filter(|_| output.brownout);
        let quota = cost::quota(&in_flight, output.cap);
        in_flight.prompt_is_sent();
        in_flight.flight.sent(&payload.wish.model.pool.name, output.brownout, quota);
        let timeouts = upstream.config.timeouts;
        let deadlines = Deadlines { idle: timeouts.idle, total: Instant::now() + timeouts.total };
        // Boxed, like all that a waiting request has no use for: it is what there are many thousands of.
        let answered = Box::pin(upstream.send(outgoing, deadlines.total)).await;
        let heard = match (answered, in_flight.flight.ticket) {
            (Ok(answer), Some(ticket)) => {
                Box::pin(provider::hear(&in_flight, ticket, answer)).await.map(Ok)
            }
            (answered, _) => Ok(answered),
        };
        let (code, status) = match heard {
            Ok(answered) => {
                tried.note(&answered);
                let Verdict { answer, retry } = judge(&mut in_flight, answered);
                let answer = answer.map(|answer| Sent { answer, deadlines, hide_usage, brownout });
                let Some(Retry { code, status }) = retry.filter(|_| may_retry) else {
                    return answer;
                };
                let id = &in_flight.arrival().id;
                tracing::info!(request = %id, worker = %upstream.name, code, "tried on another worker");
                kept = Some(Box::new(answer));
                (code, status)
            }
            Err(not_taken) => {
                in_flight.flight.answered();
                // What no provider could take is its sender's to pay for: it has used up a request of the rate.
                if not_taken.is_for_this_worker() {
                    in_flight.flight.not_taken();
                }
                if !again.may_follow(&in_flight, &not_taken, &tried.workers, is_pinned) {
                    return Err(not_taken.refusal());
                }
                if not_taken.is_for_now() {
                    // Later it may go to the same worker.
                    tried.workers.pop();
                }
                let end = (not_taken.code(), not_taken.status);
                again.after = Some(not_taken);
                end
            }
        };
        if again.after.is_some() {
            // Else its slot would go to somebody who meets the same limit.
            Box::pin(payload.wish.model.pool.reporter.is_told()).await;
        }
        let (waits_again, recording) = in_flight.end_attempt(code, status);
        recording.await.map_err(|_| refusal::unrecorded())?;
        counted = waits_again;
    }
}

/// What is known of a request that a provider has not taken on.
#[derive(Default)]
pub(super) struct Again {
    /// Why it has come back.
    pub(super) after: Option<Box<NotTaken>>,
    /// Until when it may wait: for as long as requests may, from when it was first submitted.
    until: Option<Instant>,
}

impl Again {
    /// Whether it may wait once more, for the same worker or for another one.
    pub(super) fn may_follow(
        &mut self,
        in_flight: &In<'_, InFlight>,
        not_taken: &NotTaken,
        tried: &[Arc<str>],
        is_pinned: bool,
    ) -> bool {
        let setup = in_flight.pool.setup();
        let until = *self.until.get_or_insert_with(|| {
            let waited = in_flight.waited.unwrap_or_default();
            Instant::now() + setup.config.queue_timeout.saturating_sub(waited)
        });
        if until <= Instant::now() {
            return false;
        }
        let dialect = in_flight.arrival().route.dialect();
        let another = || setup.allowed(dialect, tried, true).is_none_or(|left| !left.is_empty());
        not_taken.is_for_now() || (not_taken.is_for_this_worker() && !is_pinned && another())
    }
}

/// The output that a request is sent with: the one answer for its body, its reservation, its row and its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Output {
    /// The cap on the tokens of each answer, where it is not the caller's own.
    cap: Option<u64>,
    /// Whether that is because it waited long, and lower than it would have been.
    brownout: bool,
}

/// Reserves what the request may use, and waits for a slot. In this order: while the store is asked, no slot is held.
pub(super) async fn board<'p>(
    counted: In<'p, Counted>,
    wish: &Wish,
    tried: &[Arc<str>],
    again: &Again,
) -> Result<(In<'p, InFlight>, Output), Refusal> {
    let hosted = match budget::is_concerned(&counted) {
        true => Box::pin(budget::reserve(&counted, wish)).await?,
        false => false,
    };
    let mut queued = counted.queue();
    let pool = &wish.model.pool;
    loop {
        let submit = submit(&queued, wish, tried, hosted, again);
        queued.waits_from_now();
        let admitted = match (&again.after, again.until) {
            // It goes first in its flow, but not for ever.
            (Some(not_taken), Some(until)) => {
                let admission = async { timeout_at(until, pool.gate.admit(submit)).await };
                match Box::pin(admission).await {
                    Ok(admitted) => admitted,
                    Err(_) => return Err(not_taken.refusal()),
                }
            }
            _ => pool.gate.admit(submit).await,
        };
        let permit = admitted.map_err(|refused| {
            let refusal = Refusal::by_pool(refused, pool.setup().config.overloaded_status);
            match (refusal.problem.code, &again.after) {
                ("overloaded" | "no_worker", Some(not_taken)) => not_taken.refusal(),
                ("overloaded", None) => {
                    let dialect = queued.arrival().route.dialect();
                    let pin = wish.chosen.pin.as_ref();
                    match out_of_service(pool, dialect, tried, pin) {
                        Some((worker, reason)) => refusal::provider_out(&worker, &reason),
                        None => refusal.after(Some(until_one_is_tried(pool, dialect, tried, pin))),
                    }
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
        let waited = in_flight.waited.unwrap_or_default();
        arrival.app.still(&arrival.caller, waited).await?;
        let output = output(&in_flight, wish.cap);
        return Ok((in_flight, output));
    }
}

/// What the pool is told of a request.
fn submit(
    queued: &In<'_, Queued>,
    wish: &Wish,
    tried: &[Arc<str>],
    hosted: bool,
    again: &Again,
) -> Submit {
    let arrival = queued.arrival();
    let (setup, terms) = (queued.pool.setup(), &queued.terms);
    let priority = match (&again.after, tried) {
        (Some(_), _) => NOT_TAKEN_PRIORITY,
        (None, []) => wish.chosen.priority,
        (None, _) => RETRY_PRIORITY,
    };
    Submit {
        attributes: ask::attributes(arrival, queued, &setup),
        cost: Some(Tokens(terms.estimate.max(1))),
        input: Some(Tokens(terms.expected.input.max(1))),
        cached: terms.cached(),
        priority,
        pin: wish.chosen.pin.clone(),
        requires: wish.chosen.requires.clone(),
        allow: setup.allowed(arrival.route.dialect(), tried, hosted),
        quota: setup.is_hosted.then(|| Tokens(cost::quota(queued, wish.cap))),
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
    let model = &payload.wish.model.config;
    let upstream = &in_flight.flight.worker.upstream.config;
    let theirs = upstream.model_name(model);
    let bytes = payload.body.bytes.clone();
    let mut strip = rules::stripped_fields(&upstream.fields, ask, &bytes);
    let cache_salt = cache_salt(in_flight, &bytes, &mut strip);
    let changes = Changes {
        model: (theirs != model.name).then_some(theirs),
        max_tokens: cap,
        ask_usage,
        cache_salt: cache_salt.as_deref(),
        strip: &strip,
    };
    let body = ask.changed(route, bytes, changes);
    let mut headers =
        if keep { payload.headers.clone() } else { std::mem::take(&mut payload.headers) };
    rules::strip_headers(&upstream.headers, &mut headers);
    if let Some(rank) = in_flight.flight.rank() {
        headers.insert(DATA_PARALLEL_RANK, rank.into());
    }
    let path = payload.path.clone();
    let outgoing = Outgoing { dialect: route.dialect(), path, headers, body };
    (outgoing, ask_usage)
}

/// The salt that keeps a tenant's prompts apart in the cache of an own worker, where the pool's index does. It takes the place
/// of the client's own, which is part of it. Providers know no such field, and have their own ways.
fn cache_salt(
    in_flight: &In<'_, InFlight>,
    body: &Bytes,
    strip: &mut Vec<usize>,
) -> Option<String> {
    let index = in_flight.pool.caches.index()?;
    let worker = &in_flight.flight.worker;
    if worker.upstream.account.is_some() || worker.is_hosted_tier() {
        return None;
    }
    let ask = &in_flight.ask;
    let own = ask.other_members(body).filter(|(_, name)| name == "cache_salt");
    let own: Vec<usize> = own.map(|(number, _)| number).collect();
    let value = own.last().and_then(|&number| ask.other_value(body, number)).unwrap_or_default();
    let salt = index.salt(&in_flight.arrival().caller.tenant, value)?;
    strip.extend(own);
    strip.sort_unstable();
    strip.dedup();
    Some(salt)
}
