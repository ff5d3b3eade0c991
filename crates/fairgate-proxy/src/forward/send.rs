//! Sends an accepted request to a worker: reserves its tokens, queues it, waits for a slot, and sends it. If a worker
//! fails before the first byte, another one is tried.

use std::sync::Arc;

use fairgate_config::CostUnit;
use fairgate_core::event::{Pin, Submit};
use fairgate_core::units::{TaskWeight, Tokens};
use fairgate_dialect::BodyChanges;
use fairgate_runtime::AdmitError;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, Response};
use tokio::time::{Instant, timeout_at};

use super::answer::AnswerDeadlines;
use super::body::BufferedBody;
use super::client_choices::ClientChoices;
use super::deadline::{RequestDeadline, SubmitTimeout};
use super::provider::{self, ProviderAnswer, RefusedByProvider};
use super::request_guard::RequestIn;
use super::retry_policy::{
    ClassifiedAnswer, RetryRecord, TriedWorkers, WorkersLeft, classify, has_untried_worker,
    may_retry, out_of_service, time_to_next_probe,
};
use super::stage::{AcceptedRequest, CountedRequest, InFlightRequest, QueuedRequest};
use super::worker_filter::WorkerFilter;
use super::{budget, cache_salt, cost, request_checks, rules};
use crate::pools::{PoolSetup, ServedModel};
use crate::refusal::{self, Refusal, RefusalCode};
use crate::reply::content_length;
use crate::upstream::{OutgoingRequest, UpstreamBody};

/// Priority of a retry within its own flow, above any priority that a client may choose.
const RETRY_PRIORITY: i64 = 1 << 32;
/// Priority of a request that a provider did not take. It is above the priority of retries, so that the request is the
/// next of its flow.
const NOT_TAKEN_PRIORITY: i64 = 1 << 40;
const _: () = assert!(fairgate_store::PRIORITY_MAX < RETRY_PRIORITY);

/// The header in which vLLM and SGLang expect the data-parallel rank for a request.
const DATA_PARALLEL_RANK: HeaderName = HeaderName::from_static("x-data-parallel-rank");

/// The data of a request that is sent to a worker. Kept only while the request may still have to be sent to another
/// worker.
pub(super) struct RequestPayload {
    pub(super) pool_request: PoolRequest,
    /// The body as the client sent it.
    pub(super) body: BufferedBody,
    pub(super) path: PathAndQuery,
    pub(super) headers: HeaderMap,
}

/// The data with which a request is submitted to its pool, for forwarded requests and for leases.
pub(super) struct PoolRequest {
    pub(super) model: Arc<ServedModel>,
    /// Choices of the client; boxed to keep waiting requests small.
    pub(super) chosen: Box<ClientChoices>,
    /// Output cap in tokens that the gateway sets, because a budget counts the request and the
    /// client stated no cap. `None` if the gateway sets no cap.
    pub(super) cap: Option<u64>,
    /// The request's own deadline, if it has one.
    pub(super) deadline: Option<RequestDeadline>,
}

/// An upstream's answer whose status and headers have arrived.
pub(super) struct AnsweredRequest {
    pub(super) answer: Response<UpstreamBody>,
    pub(super) deadlines: AnswerDeadlines,
    pub(super) hide_usage: bool,
    pub(super) brownout: Option<u64>,
}

/// Waits for a slot and sends the request. If a worker fails before the first byte, another one is tried.
pub(super) async fn send(
    accepted: RequestIn<'_, AcceptedRequest>,
    payload: &mut RequestPayload,
) -> Result<AnsweredRequest, Refusal> {
    let (mut counted, listed) = accepted.count_in(content_length(payload.body.bytes.len()))?;
    let mut listed = Some(listed);
    let mut tried = TriedWorkers::default();
    let mut again = ProviderRetry::default();
    // The last worker's answer. It goes to the client if no other worker is available.
    let mut kept: Option<Box<KeptAnswer>> = None;
    loop {
        let admitted =
            reserve_and_queue(counted, &payload.pool_request, &tried.workers, &again).await;
        let admitted = match (admitted, kept.take()) {
            (Ok(admitted), _) => admitted,
            (Err(refusal), Some(kept)) if kept.replaces(&refusal) => return kept.answer,
            (Err(refusal), _) => return Err(refusal),
        };
        let (mut in_flight, output) = admitted;
        drop(listed.take());
        let upstream = in_flight.flight.worker.upstream.clone();
        tried.workers.push(upstream.name.clone());
        // Decided once: a body that is not kept now cannot be sent again.
        let may_retry = may_retry(&in_flight, &tried, &payload.pool_request.chosen.worker);
        let keep = may_retry || in_flight.flight.worker.account.is_some();
        let (outgoing, hide_usage) = outgoing(&in_flight, payload, output.cap, keep);
        let brownout = output.cap.filter(|_| output.brownout);
        let quota = cost::quota(&in_flight, output.cap);
        in_flight.note_prompt_sent();
        in_flight.mark_sent(output.brownout, quota);
        let timeouts = upstream.config.timeouts;
        let deadlines =
            AnswerDeadlines { idle: timeouts.idle, total: Instant::now() + timeouts.total };
        // Boxed to keep waiting requests small: there are many thousands of them.
        let answered = Box::pin(upstream.send(outgoing, deadlines.total)).await;
        let heard = match (answered, in_flight.flight.ticket) {
            (Ok(answer), Some(ticket)) => {
                Box::pin(provider::evaluate_answer(&in_flight, ticket, answer)).await
            }
            (answered, _) => Ok(ProviderAnswer::Usual(answered)),
        };
        let for_client = |answer| AnsweredRequest { answer, deadlines, hide_usage, brownout };
        let (code, status) = match heard {
            Ok(ProviderAnswer::AccountRefused(answer)) => {
                in_flight.flight.report_answered();
                in_flight.flight.mark_account_refused();
                let status = answer.status().as_u16();
                let answer = Ok(for_client(answer));
                if !has_untried_worker(
                    &in_flight,
                    &tried.workers,
                    &payload.pool_request.chosen.worker,
                ) {
                    return answer;
                }
                kept = Some(Box::new(KeptAnswer { answer, is_of_account: true }));
                (RefusalCode::ProviderOut.into(), status)
            }
            Ok(ProviderAnswer::Usual(answered)) => {
                tried.note(&answered);
                let ClassifiedAnswer { answer, retry } = classify(&mut in_flight, answered);
                let answer = answer.map(for_client);
                let Some(RetryRecord { code, status }) = retry.filter(|_| may_retry) else {
                    return answer;
                };
                let id = &in_flight.arrival().id;
                tracing::info!(request = %id, worker = %upstream.name, code = code.as_str(), "tried on another worker");
                kept = Some(Box::new(KeptAnswer { answer, is_of_account: false }));
                (code, status)
            }
            Err(not_taken) => {
                in_flight.flight.report_answered();
                // A request that is larger than a provider's whole limit is charged to its sender,
                // because it has used up a request of the rate limit.
                if not_taken.is_for_this_worker_only() {
                    in_flight.flight.mark_not_taken();
                }
                if !again.may_wait_again(&in_flight, &not_taken, || {
                    has_untried_worker(
                        &in_flight,
                        &tried.workers,
                        &payload.pool_request.chosen.worker,
                    )
                }) {
                    return Err(not_taken.refusal());
                }
                if not_taken.is_temporary() {
                    // The request may go to the same worker later.
                    tried.workers.pop();
                }
                let end = (not_taken.code().into(), not_taken.status);
                again.after = Some(not_taken);
                end
            }
        };
        if again.after.is_some() {
            // Otherwise the slot would go to a request that meets the same limit.
            Box::pin(payload.pool_request.model.pool.reporter.wait_flushed()).await;
        }
        let (waits_again, recording) = in_flight.end_attempt(code, status);
        recording.await.map_err(|_| refusal::rows_not_writable())?;
        counted = waits_again;
    }
}

/// The answer of a worker, kept while another worker is tried.
struct KeptAnswer {
    answer: Result<AnsweredRequest, Refusal>,
    /// True if the worker's provider refused because the account is spent or blocked.
    is_of_account: bool,
}

impl KeptAnswer {
    /// Returns true if the client gets this answer instead of `refusal`, which says why no other
    /// worker was tried.
    fn replaces(&self, refusal: &Refusal) -> bool {
        self.is_of_account || refusal.code.is_no_worker()
    }
}

/// State of a request that a provider has refused to take.
#[derive(Default)]
pub(super) struct ProviderRetry {
    /// The provider's refusal that sent the request back to the queue.
    pub(super) after: Option<Box<RefusedByProvider>>,
    /// Time until which the request may wait again. It is set at the provider's first refusal, to
    /// that moment plus the part of `queue_timeout` that the request had not waited yet.
    until: Option<Instant>,
}

impl ProviderRetry {
    /// Returns true if the request may wait until `time`, provided that it [may wait again](Self::may_wait_again) at
    /// all.
    pub(super) fn may_wait_until(&self, time: Instant) -> bool {
        self.until.is_none_or(|until| time < until)
    }

    /// Returns true if the request may wait once more, for the same worker or for another one.
    /// `has_another` returns true if another worker could take the request.
    pub(super) fn may_wait_again(
        &mut self,
        in_flight: &RequestIn<'_, InFlightRequest>,
        not_taken: &RefusedByProvider,
        has_another: impl FnOnce() -> bool,
    ) -> bool {
        let setup = in_flight.pool.setup();
        let until = *self.until.get_or_insert_with(|| {
            let waited = in_flight.waited.unwrap_or_default();
            Instant::now() + setup.config.queue_timeout.saturating_sub(waited)
        });
        if until <= Instant::now() {
            return false;
        }
        not_taken.is_temporary() || (not_taken.is_for_this_worker_only() && has_another())
    }
}

/// The output cap of a request. The body, reservation, row and header of the request all use this one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OutputCap {
    /// Cap that the gateway sets on the output tokens of each answer. `None` leaves the cap that the caller states, if
    /// any.
    cap: Option<u64>,
    /// True if the cap was lowered because the request waited long.
    brownout: bool,
}

/// Reserves the most that the request may use, then waits for a slot. Because of this order, no slot is held during the
/// store's work.
pub(super) async fn reserve_and_queue<'p>(
    counted: RequestIn<'p, CountedRequest>,
    pool_request: &PoolRequest,
    tried: &[Arc<str>],
    again: &ProviderRetry,
) -> Result<(RequestIn<'p, InFlightRequest>, OutputCap), Refusal> {
    let hosted = match budget::needs_reservation(&counted) {
        true => Box::pin(budget::reserve(&counted, pool_request)).await?,
        false => false,
    };
    let mut queued = counted.queue();
    let pool = &pool_request.model.pool;
    loop {
        let may_wait =
            SubmitTimeout::from_now(pool.setup().config.queue_timeout, pool_request.deadline)?;
        let submit = submit(&queued, pool_request, tried, hosted, again, may_wait);
        queued.restart_wait();
        let waiting = pool_request.model.waiting.count_one();
        let admitted = match (&again.after, again.until) {
            // The request goes first in its flow, but may not wait beyond `until`.
            (Some(not_taken), Some(until)) => {
                let admission = async { timeout_at(until, pool.gate.admit(submit)).await };
                match Box::pin(admission).await {
                    Ok(admitted) => admitted,
                    Err(_) => return Err(not_taken.refusal()),
                }
            }
            _ => pool.gate.admit(submit).await,
        };
        drop(waiting);
        let mut permit = admitted.map_err(|refused| {
            let expired = matches!(refused, AdmitError::Expired { .. });
            if let Some(refusal) = may_wait.own_refusal().filter(|_| expired) {
                return refusal.with_expected_wait(refused.expected_wait());
            }
            let refusal = Refusal::by_pool(refused, pool.setup().config.overloaded_status);
            match (refusal.code, &again.after) {
                (code, Some(not_taken)) if code.is_no_worker() => not_taken.refusal(),
                (RefusalCode::Overloaded, None) => {
                    let dialect = queued.arrival().route.dialect();
                    let choice = &pool_request.chosen.worker;
                    let left = WorkersLeft { model: &queued.ask.model, dialect, tried, choice };
                    match out_of_service(pool, left) {
                        Some((worker, reason)) => refusal::provider_out(&worker, &reason),
                        None => refusal
                            .with_worker_choice(choice.description())
                            .with_retry_after(Some(time_to_next_probe(pool, left))),
                    }
                }
                (RefusalCode::NoWorker, None) => no_worker(refusal, &pool_request.chosen.worker),
                _ => refusal,
            }
        })?;
        let worker = {
            let setup = pool.setup();
            permit.place().and_then(|place| setup.worker_in_core(&place.worker).cloned())
        };
        let Some(worker) = worker else {
            // The worker was removed after the grant; the next grant is for another worker.
            permit.note_quota(Tokens(0));
            permit.give_back();
            continue;
        };
        let in_flight = queued.start_attempt(permit, worker);
        // After a long wait the caller may have lost its rights, so it is checked again.
        let arrival = in_flight.arrival();
        let waited = in_flight.waited.unwrap_or_default();
        arrival.app.recheck_caller(&arrival.caller, waited).await?;
        let output = output(&in_flight, pool_request.cap);
        return Ok((in_flight, output));
    }
}

/// Returns the refusal of a request that no worker may take. If the request itself restricts its
/// workers, the refusal names that restriction, because a retry would be refused as well. Otherwise
/// the refusal names the worker list of the key, if it has one.
fn no_worker(refusal: Refusal, choice: &WorkerFilter) -> Refusal {
    match choice.description() {
        Some(description) if choice.is_of_request() => refusal::no_worker_as_chosen(&description),
        description => refusal.with_worker_choice(description),
    }
}

/// Builds the submit of the request for its pool.
fn submit(
    queued: &RequestIn<'_, QueuedRequest>,
    pool_request: &PoolRequest,
    tried: &[Arc<str>],
    hosted: bool,
    again: &ProviderRetry,
    may_wait: SubmitTimeout,
) -> Submit {
    let arrival = queued.arrival();
    let (setup, terms) = (queued.pool.setup(), &queued.terms);
    let (model, choice) = (&queued.ask.model, &pool_request.chosen.worker);
    let priority = match (&again.after, tried) {
        (Some(_), _) => NOT_TAKEN_PRIORITY,
        (None, []) => pool_request.chosen.priority,
        (None, _) => RETRY_PRIORITY,
    };
    Submit {
        attributes: request_checks::attributes(arrival, queued, &setup),
        cost: Some(Tokens(terms.scheduled.max(1))),
        input: Some(Tokens(terms.expected.input.max(1))),
        cached: names_in_core(&setup, model, terms.cached()),
        priority,
        weight: pool_request.chosen.weight.unwrap_or(TaskWeight::ONE),
        pin: choice.pin.as_ref().map(|pin| Pin {
            worker: setup.name_in_core(&pin.worker, model).into(),
            rank: pin.rank,
        }),
        requires: choice.requires.clone(),
        allow: setup.allowed(
            model,
            arrival.route.dialect(),
            tried,
            hosted,
            choice.listed.as_deref(),
        ),
        timeout: Some(may_wait.timeout),
        // The default would be the cost, which is in tokens only if the pool counts tokens.
        quota: (setup.is_hosted || setup.unit() != CostUnit::Tokens)
            .then(|| Tokens(cost::quota(queued, pool_request.cap))),
        ..Submit::new(&arrival.id)
    }
}

/// Replaces the name of each upstream by the name that the core uses for the upstream's worker of
/// this model.
fn names_in_core(
    setup: &PoolSetup,
    model: &str,
    mut cached: Vec<(Arc<str>, Tokens)>,
) -> Vec<(Arc<str>, Tokens)> {
    for (name, _) in &mut cached {
        let in_core = setup.name_in_core(name, model);
        if *in_core != **name {
            *name = in_core.into();
        }
    }
    // Journals have these names in sorted order.
    cached.sort_unstable();
    cached
}

/// Returns the output cap of a request that has its slot. `own_cap` is the cap that a budget
/// requires.
fn output(in_flight: &RequestIn<'_, InFlightRequest>, own_cap: Option<u64>) -> OutputCap {
    let unchanged = OutputCap { cap: own_cap, brownout: false };
    let long = in_flight.flight.waited_long() && in_flight.arrival().route.generates();
    match in_flight.pool.setup().config.brownout {
        Some(brownout) if long => {
            let ask = &in_flight.ask;
            let cap = ask.capped(brownout.max_tokens);
            let lowers = ask.max_tokens.or(own_cap).is_none_or(|otherwise| cap < otherwise);
            if lowers { OutputCap { cap: Some(cap), brownout: true } } else { unchanged }
        }
        _ => unchanged,
    }
}

/// Builds the request for the upstream from the client's body, changed only as the rules require. Also returns true if
/// usage was requested on the caller's behalf. `keep` is true if the request may have to be sent to another worker too.
fn outgoing(
    in_flight: &RequestIn<'_, InFlightRequest>,
    payload: &mut RequestPayload,
    cap: Option<u64>,
    keep: bool,
) -> (OutgoingRequest, bool) {
    let route = in_flight.arrival().route;
    let ask = &in_flight.ask;
    let ask_usage = ask.must_ask_usage(route);
    let model = &payload.pool_request.model.config;
    let upstream = &in_flight.flight.worker.upstream.config;
    let theirs = upstream.model_name(model);
    let bytes = payload.body.bytes.clone();
    let mut strip = rules::stripped_fields(&upstream.fields, ask, &bytes);
    let cache_salt = cache_salt::of_request(in_flight, &bytes, &mut strip);
    let changes = BodyChanges {
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
    let outgoing = OutgoingRequest { dialect: route.dialect(), path, headers, body };
    (outgoing, ask_usage)
}
