//! One attempt of a request on one worker, from the grant of a slot until the slot is released.
//!
//! The first token is reported to the pool only if the pool's policy has busy thresholds, or if the pool has several
//! workers and a prefix index. Otherwise a worker's prefill count is the input tokens of all its requests in flight,
//! and the core places requests on the worker with the fewest tokens.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fairgate_core::units::Tokens;
use fairgate_dialect::{CacheWrites, RequestFields, TokenUsage, UsageMeter};
use fairgate_money::{MicroUnits, TokenCounts};
use fairgate_price::worker_time::RequestWork;
use fairgate_runtime::Permit;
use fairgate_store::{AttemptOutcome, UsageSource};

use super::attempt_charge::{AttemptCharge, UsageBasis, is_complete};
use super::previous_response;
use super::request_guard::{RequestArrival, RequestEnd};
use super::settlement::AttemptResult;
use super::stage::{AcceptedRequest, RoutedRequest};
use crate::identity::Caller;
use crate::live_count::LiveCountGuard;
use crate::pools::{PoolHandle, PoolWorker, SentPrompt};
use crate::upstream::{CircuitEpoch, FaultParty, QuotaTicket};
use crate::worker_time::{self, AttemptTerms, CostTerms, MeteredAttempt};

/// An attempt that holds its slot.
pub(super) struct WorkerAttempt {
    permit: Permit,
    pub(super) worker: Arc<PoolWorker>,
    _counted: LiveCountGuard,
    epoch: CircuitEpoch,
    sent: AttemptSent,
    /// The state of the provider's quota when the attempt was sent. `None` before that, and for a worker without an
    /// account.
    pub(super) ticket: Option<QuotaTicket>,
    /// Entry of the sent prompt in the prefix index; `None` before the prompt is sent, or if the pool has no prefix
    /// index.
    pub(super) prompt: Option<SentPrompt>,
    /// Meter of the answer's usage; `None` until a successful answer has begun.
    pub(super) meter: Option<UsageMeter>,
    /// Time from the request's arrival to the first token; `None` before the first token.
    first_token: Option<Duration>,
    /// Time at which the attempt got its slot.
    since: Instant,
    /// Terms (unit and prices) by which the attempt is counted, as read at the grant. If they were
    /// a guess, the settlement replaces them by the terms in force at that time.
    pub(super) terms: AttemptTerms,
    /// Number of answers that the request wants.
    pub(super) choices: u64,
    /// The attempt in the meter of its worker's time; `None` before it is sent, and for a worker without a meter.
    metered: Option<MeteredAttempt>,
    fault: AttemptFault,
}

/// Tells if anything of the attempt may have reached the upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AttemptSent {
    No,
    /// The attempt was sent. `brownout` is true if the request waited long and was therefore sent with a lower output
    /// cap than it asked for.
    Yes {
        brownout: bool,
    },
}

/// Reason why the caller pays for only a part of a failed attempt, or for nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AttemptFault {
    /// The caller pays for the whole attempt.
    None,
    /// The worker lost the attempt, or its provider refused it because the account is spent or blocked. The scheduler
    /// counts the attempt's time in the slot, but no budget pays for it.
    Worker,
    /// The worker was not reached or rejected the request, so nothing was used.
    NotTaken,
}

impl WorkerAttempt {
    pub(super) fn new(
        permit: Permit,
        worker: Arc<PoolWorker>,
        terms: AttemptTerms,
        choices: u64,
    ) -> Self {
        let epoch = worker.upstream.condition.epoch();
        let counted = worker.in_flight.count_one();
        Self {
            permit,
            worker,
            _counted: counted,
            epoch,
            sent: AttemptSent::No,
            ticket: None,
            prompt: None,
            meter: None,
            first_token: None,
            since: Instant::now(),
            terms,
            choices,
            metered: None,
            fault: AttemptFault::None,
        }
    }

    /// Returns the data-parallel rank that was granted; `None` if the worker has only one.
    pub(super) fn rank(&self) -> Option<u32> {
        let rank = self.permit.place().map(|place| place.rank);
        rank.filter(|_| self.worker.upstream.config.ranks > 1)
    }

    /// Returns true if the request waited longer than the pool's brownout wait.
    pub(super) fn waited_long(&self) -> bool {
        self.permit.brownout() == Some(true)
    }

    /// Marks the attempt as possibly received by the upstream, whose provider may count it as `quota` tokens.
    pub(super) fn mark_sent(&mut self, pool: &str, brownout: bool, quota: u64) {
        let worker = &self.worker;
        self.ticket =
            worker.account.as_ref().map(|account| account.sent(pool, &worker.name, quota));
        self.sent = AttemptSent::Yes { brownout };
    }

    /// Starts measuring the worker's time for this attempt, which is about to be sent.
    pub(super) fn start_metering(
        &mut self,
        source: (&str, &str),
        expected: RequestWork,
        streams: bool,
    ) {
        let now = Instant::now();
        self.metered = self.worker.meter.as_ref().map(|meter| {
            meter.set_slots(now, self.worker.metered_slots.now());
            meter.granted(now, source, expected, streams)
        });
    }

    /// Reports to the meter of the worker's time that the answer has brought `events` events with
    /// output.
    pub(super) fn note_output(&self, events: u32) {
        if let Some(metered) = self.metered.as_ref().filter(|_| events > 0) {
            metered.note_output(Instant::now(), events);
        }
    }

    pub(super) fn is_sent(&self) -> bool {
        self.sent != AttemptSent::No
    }

    pub(super) fn fault(&self) -> AttemptFault {
        self.fault
    }

    /// Returns the time since the attempt got its slot.
    pub(super) fn slot_time(&self) -> Duration {
        self.since.elapsed()
    }

    /// Returns true if the state of the worker's circuit breaker has changed since the attempt got its slot.
    pub(super) fn has_circuit_changed(&self) -> bool {
        self.worker.upstream.condition.epoch() != self.epoch
    }

    /// Reports to the worker's circuit breaker that the head of an answer has arrived.
    pub(super) fn report_answered(&self) {
        self.worker.upstream.condition.record_answer_head(self.epoch);
    }

    /// Notes the time of the first token. In a stream, this is the first text, tool call or reasoning; an empty event,
    /// which engines send at once, does not count. In any other body, it is the first byte.
    pub(super) fn note_first_token(&mut self, since_arrival: Duration) {
        self.first_token.get_or_insert(since_arrival);
    }

    /// Updates the usage that the permit counts if the client disconnects now. If `first_token` is
    /// true and the policy counts first tokens, also reports to the pool that the first token has
    /// come.
    pub(super) fn note_used(
        &mut self,
        arrival: &RequestArrival,
        RoutedRequest { ask, pool, .. }: &RoutedRequest,
        first_token: bool,
    ) {
        let setup = pool.setup();
        if let Some(meter) = &self.meter {
            let so_far = meter.so_far();
            let counted = match self.terms.cost {
                CostTerms::Tokens => setup.weights.charge(so_far),
                CostTerms::WorkerTime(terms) => {
                    self.permit.note_quota(Tokens(so_far.input.saturating_add(so_far.output)));
                    terms.cost(so_far, self.choices)
                }
                CostTerms::Money => {
                    self.permit.note_quota(Tokens(so_far.input.saturating_add(so_far.output)));
                    let money = self.money(arrival, &ask.model, so_far, CacheWrites::default());
                    money.map_or(0, |(money, _)| money.0)
                }
            };
            self.permit.note_used(Tokens(counted));
        }
        if first_token && setup.reports_first_token {
            self.permit.first_token();
        }
    }

    pub(super) fn blame(&mut self, blame: FaultParty, tenant: &str) {
        let condition = &self.worker.upstream.condition;
        match blame {
            FaultParty::Worker => {
                condition.record_unreachable(self.epoch);
            }
            FaultParty::Unknown => condition.record_failure(self.epoch, tenant),
            FaultParty::Nobody => {}
        }
        if blame != FaultParty::Unknown {
            self.fault = AttemptFault::Worker;
        }
    }

    pub(super) fn report_lost(&mut self, tenant: &str) {
        self.blame(FaultParty::Unknown, tenant);
        self.fault = AttemptFault::Worker;
    }

    /// Marks the attempt as not taken, because the worker was not reached or has refused to take the request now.
    pub(super) fn mark_not_taken(&mut self) {
        self.fault = AttemptFault::NotTaken;
    }

    /// Marks the attempt as refused because the account of the worker's provider is spent or blocked.
    pub(super) fn mark_account_refused(&mut self) {
        self.fault = AttemptFault::Worker;
    }

    pub(super) fn praise_worker(&self, tenant: &str) {
        self.worker.upstream.condition.record_success(self.epoch, tenant);
    }

    /// Ends the attempt: computes its bill, learns from its usage, and releases its slot.
    pub(super) fn finish(
        mut self,
        arrival: &RequestArrival,
        accepted: &AcceptedRequest,
        end: &RequestEnd,
    ) -> AttemptResult {
        let RequestArrival { app, caller, .. } = arrival;
        self.terms = accepted.pool.setup().settlement_terms(&self.worker, self.terms.clone());
        let bill = AttemptCharge::of(arrival, accepted, &self, end);
        previous_response::remember(app, caller, &accepted.ask, self.meter.as_ref(), bill.usage);
        self.learn_cached(accepted);
        self.end_metering(&accepted.pool.name, &caller.tenant, end, &bill);
        self.remember_session(caller, accepted, end, bill.usage);
        let upstream = &self.worker.upstream.config;
        let (money, price) = self.provider_price(arrival, accepted, &bill);
        if bill.source() != UsageSource::None {
            let tokens = bill.provider_tokens;
            accepted.pool.spending.count(&caller.tenant, upstream.tier, tokens, money);
            app.metrics.count_tier_use(&accepted.pool.name, upstream.tier, tokens, money);
            app.metrics.count_tenant_money(&accepted.pool.name, &caller.tenant, money);
            if let Some(claim) = &caller.claim {
                app.metrics.count_project_use(&claim.project, tokens);
            }
        }
        accepted.pool.spending.count_worker_time(&caller.tenant, bill.worker_us);
        app.metrics.count_worker_time(&accepted.pool.name, &caller.tenant, bill.worker_us);
        let flown = AttemptResult {
            bill,
            price_set: self.terms.price_set.clone().filter(|_| bill.worker_us > 0),
            worker: Some(upstream.name.clone()),
            tier: upstream.tier,
            money,
            price,
            first_token: self.first_token,
            brownout: self.sent == AttemptSent::Yes { brownout: true },
        };
        self.give_slot_back(arrival, &accepted.pool, end, &bill);
        learn(&caller.tenant, accepted, end);
        flown
    }

    /// Ends the attempt in the meter of its worker's time. An attempt that did not complete has done an unknown part of
    /// its work, unless the worker has reported it.
    fn end_metering(&mut self, pool: &str, tenant: &str, end: &RequestEnd, bill: &AttemptCharge) {
        let Some(metered) = self.metered.take() else { return };
        let now = Instant::now();
        let is_known = is_complete(end) || bill.source() == UsageSource::Reported;
        let work = is_known.then(|| worker_time::work(bill.usage, self.choices));
        if let (Some(meter), Some(work)) = (&self.worker.meter, work) {
            let reports_cached = self.meter.as_ref().is_some_and(UsageMeter::reports_cached);
            meter.count_completed((pool, tenant), work, reports_cached);
            // Where tokens are counted, nothing depends on the prices.
            if self.terms.price_set.is_some() {
                for note in meter.new_notes(now) {
                    tracing::warn!(pool, worker = &*self.worker.name, "worker time: {note}");
                }
            }
        }
        metered.end(now, work);
    }

    /// Corrects the prefix index and the count of cache hits by the cached tokens in the answer, if the answer reports
    /// them. If no successful answer has begun, marks the prompt in the index as possibly not cached, because the
    /// worker may never have read it.
    fn learn_cached(&self, AcceptedRequest { terms, .. }: &AcceptedRequest) {
        let prompt = self.prompt.as_ref().zip(terms.prefix.as_deref());
        match (&self.meter, prompt) {
            (None, Some((prompt, prefix))) => prompt.refused(prefix),
            (Some(meter), _) if meter.reports_cached() => {
                let TokenUsage { input, cached, .. } = meter.measured().usage;
                self.worker.hits.count(input, cached, terms.cached_on(&self.worker.upstream.name));
                if let Some((prompt, prefix)) = prompt {
                    prompt.answered(prefix, input, cached);
                }
            }
            _ => {}
        }
    }

    /// Remembers that the worker now has the session's request and its answer in its cache, if the attempt completed
    /// there.
    fn remember_session(
        &self,
        caller: &Caller,
        accepted: &AcceptedRequest,
        end: &RequestEnd,
        usage: TokenUsage,
    ) {
        let (Some(session), Some(sessions)) = (&accepted.session, accepted.pool.caches.sessions())
        else {
            return;
        };
        if is_complete(end) {
            let tokens = usage.input.saturating_add(usage.output);
            sessions.record_end(&caller.key, session, &self.worker.upstream.name, tokens);
        }
    }

    /// Returns the money that the provider charges for the attempt, and the id of the price. The
    /// money is 0 if the provider did not take the request, or if there is no price.
    fn provider_price(
        &self,
        arrival: &RequestArrival,
        accepted: &AcceptedRequest,
        bill: &AttemptCharge,
    ) -> (MicroUnits, Option<String>) {
        let is_free = self.sent == AttemptSent::No || self.fault != AttemptFault::None;
        if is_free {
            return (MicroUnits::ZERO, None);
        }
        let money = self.money(arrival, &accepted.ask.model, bill.usage, bill.writes);
        money.map_or((MicroUnits::ZERO, None), |(money, price)| (money, Some(price)))
    }

    /// Returns the money for a usage by the worker's price, and the id of that price; `None` if
    /// there is no price.
    pub(super) fn money(
        &self,
        arrival: &RequestArrival,
        model: &str,
        usage: TokenUsage,
        writes: CacheWrites,
    ) -> Option<(MicroUnits, String)> {
        let config = arrival.app.config.load();
        let upstream = self.worker.upstream.config.name_in_file();
        let price = config.prices.price(model, upstream, arrival.started_at)?;
        let TokenUsage { input, cached, output } = usage;
        let CacheWrites { total: cache_written, one_hour: cache_written_1h } = writes;
        let tokens = TokenCounts { input, cached, cache_written, cache_written_1h, output };
        Some((price.cost(tokens), price.id.to_string()))
    }

    /// Releases the slot, and reports the attempt's result to the pool and the circuit breaker.
    fn give_slot_back(
        self,
        arrival: &RequestArrival,
        pool: &PoolHandle,
        end: &RequestEnd,
        bill: &AttemptCharge,
    ) {
        let Self { mut permit, worker, epoch, sent, fault, terms, .. } = self;
        let tokens = Tokens(bill.counted);
        // Where the scheduler counts tokens, a worker without an account has no rate to be corrected.
        if worker.account.is_some() || terms.cost != CostTerms::Tokens {
            permit.note_quota(Tokens(bill.usage.input.saturating_add(bill.usage.output)));
        }
        let told = match end.outcome {
            AttemptOutcome::Completed => {
                permit.settle(tokens);
                worker.upstream.condition.record_success(epoch, &arrival.caller.tenant);
                "ok"
            }
            _ if sent == AttemptSent::No => {
                permit.give_back();
                return;
            }
            // A lease pays for its time also where its provider refused the call.
            _ if fault == AttemptFault::NotTaken && bill.counted == 0 => {
                permit.give_back();
                "error"
            }
            AttemptOutcome::Refused | AttemptOutcome::ClientLeft | AttemptOutcome::Lost => {
                permit.fail(tokens);
                "left"
            }
            AttemptOutcome::Timeout => {
                permit.fail(tokens);
                "timeout"
            }
            AttemptOutcome::Retried | AttemptOutcome::UpstreamError => {
                permit.fail(tokens);
                "error"
            }
        };
        arrival.app.metrics.count_attempt(&pool.name, &worker.upstream.name, told);
    }
}

/// Teaches the estimator the usage of the tenant's requests, from the usage that the upstream reported.
fn learn(tenant: &str, RoutedRequest { ask, pool, .. }: &RoutedRequest, end: &RequestEnd) {
    let reported = match end.used {
        UsageBasis::Measured(measured) if measured.reported => measured.usage,
        UsageBasis::Stated(stated) if stated.source == UsageSource::Reported => stated.usage,
        _ => return,
    };
    if is_complete(end) {
        // The reported input includes earlier responses and text that was sent elsewhere, which the body does not have.
        let no_body = continues_earlier_response(ask) || ask.input_bytes == 0;
        let input = if no_body { 0 } else { reported.input };
        pool.estimator.learn(tenant, &ask.model, ask, TokenUsage { input, ..reported });
    }
}

fn continues_earlier_response(ask: &RequestFields) -> bool {
    ask.previous_response.is_some() || ask.conversation.is_some()
}
