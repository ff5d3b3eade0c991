//! One attempt on one worker: from the grant of its slot until the slot is given back.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fairgate_core::units::Tokens;
use fairgate_dialect::{Ask, Meter, Usage};
use fairgate_money::{MicroUnits, TokenCounts};
use fairgate_runtime::Permit;
use fairgate_store::{Outcome, UsageSource};

use super::bill::{Bill, Used, is_whole};
use super::continued;
use super::passage::{Arrival, End};
use super::settlement::Flown;
use super::stage::{Accepted, Routed};
use crate::identity::Caller;
use crate::in_flight::OneInFlight;
use crate::pools::{PoolHandle, SentPrompt, Worker};
use crate::upstream::{Blame, Epoch, Ticket};

/// An attempt that has its slot.
pub(super) struct Flight {
    permit: Permit,
    pub(super) worker: Arc<Worker>,
    _counted: OneInFlight,
    epoch: Epoch,
    sent: Sent,
    /// How it stood with the provider's account when it was sent.
    pub(super) ticket: Option<Ticket>,
    /// That its prompt was sent, where the pool has an index of prefixes.
    pub(super) prompt: Option<SentPrompt>,
    /// What measures the answer, once a good one has begun.
    pub(super) meter: Option<Meter>,
    /// When the first token came, counted from the request's arrival.
    first_token: Option<Duration>,
    /// Since when it has had its slot.
    since: Instant,
    fault: Fault,
}

/// Whether anything may have reached the upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    No,
    /// With a lower output cap than it asked for, where it waited long.
    Yes {
        brownout: bool,
    },
}

/// Why an attempt that failed is not, or not all, its caller's to pay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// There is no such reason.
    None,
    /// The worker lost it: the scheduler counts its time in the slot, and no budget pays for it.
    Worker,
    /// The worker was not reached, or took nothing on: nothing was used.
    NotTaken,
}

impl Flight {
    pub(super) fn new(permit: Permit, worker: Arc<Worker>) -> Self {
        let epoch = worker.upstream.condition.epoch();
        let counted = worker.in_flight.one();
        Self {
            permit,
            worker,
            _counted: counted,
            epoch,
            sent: Sent::No,
            ticket: None,
            prompt: None,
            meter: None,
            first_token: None,
            since: Instant::now(),
            fault: Fault::None,
        }
    }

    /// The data-parallel rank of its worker that it was granted; none where the worker has one only.
    pub(super) fn rank(&self) -> Option<u32> {
        let rank = self.permit.place().map(|place| place.rank);
        rank.filter(|_| self.worker.upstream.config.ranks > 1)
    }

    /// Whether it waited longer than the pool's brownout wait.
    pub(super) fn waited_long(&self) -> bool {
        self.permit.brownout() == Some(true)
    }

    /// From now on something may have reached the upstream, which may count it as so many tokens.
    pub(super) fn sent(&mut self, pool: &str, brownout: bool, quota: u64) {
        let upstream = &self.worker.upstream;
        self.ticket =
            upstream.account.as_ref().map(|account| account.sent(pool, &upstream.name, quota));
        self.sent = Sent::Yes { brownout };
    }

    pub(super) fn is_sent(&self) -> bool {
        self.sent != Sent::No
    }

    pub(super) fn fault(&self) -> Fault {
        self.fault
    }

    /// How long it has had its slot.
    pub(super) fn held(&self) -> Duration {
        self.since.elapsed()
    }

    /// Whether its worker's circuit has changed since it was sent.
    pub(super) fn has_broken(&self) -> bool {
        self.worker.upstream.condition.epoch() != self.epoch
    }

    /// The head of an answer has come.
    pub(super) fn answered(&self) {
        self.worker.upstream.condition.answers(self.epoch);
    }

    /// The first token of an answer has come: the first text, tool call or reasoning of a stream, the first byte of any
    /// other body. Engines send an empty event at once, which says nothing of how long the client waits for words.
    pub(super) fn first_token(&mut self, since_arrival: Duration) {
        self.first_token.get_or_insert(since_arrival);
    }

    /// Notes what would be charged if the caller left now.
    pub(super) fn note_used(&mut self, pool: &PoolHandle, first_token: bool) {
        let setup = pool.setup();
        if let Some(meter) = &self.meter {
            self.permit.note_used(Tokens(setup.weights.charge(meter.so_far())));
        }
        if first_token && setup.tells_first_token {
            self.permit.first_token();
        }
    }

    pub(super) fn blame(&mut self, blame: Blame, tenant: &str) {
        let condition = &self.worker.upstream.condition;
        match blame {
            Blame::Worker => {
                condition.unreachable(self.epoch);
            }
            Blame::Unknown => condition.failed(self.epoch, tenant),
            Blame::Nobody => {}
        }
        if blame != Blame::Unknown {
            self.fault = Fault::Worker;
        }
    }

    pub(super) fn lost(&mut self, tenant: &str) {
        self.blame(Blame::Unknown, tenant);
        self.fault = Fault::Worker;
    }

    /// Says that the worker was not reached, or has refused to take it on now.
    pub(super) fn not_taken(&mut self) {
        self.fault = Fault::NotTaken;
    }

    pub(super) fn praise_worker(&self, tenant: &str) {
        self.worker.upstream.condition.succeeded(self.epoch, tenant);
    }

    /// Ends the attempt: it is billed, learned from, and its slot is given back.
    pub(super) fn land(self, arrival: &Arrival, accepted: &Accepted, end: &End) -> Flown {
        let Arrival { app, caller, .. } = arrival;
        let bill = Bill::of(&caller.tenant, accepted, &self, end);
        continued::remember(app, caller, &accepted.ask, self.meter.as_ref(), bill.usage);
        self.learn_cached(accepted);
        self.remember_session(caller, accepted, end, bill.usage);
        let upstream = &self.worker.upstream.config;
        let (money, price) = self.asked_for(arrival, accepted, bill.usage);
        if bill.source() != UsageSource::None {
            let tokens = bill.provider_tokens;
            accepted.pool.spending.count(&caller.tenant, upstream.tier, tokens, money);
            app.metrics.used(&accepted.pool.name, upstream.tier, tokens, money);
            if let Some(claim) = &caller.claim {
                app.metrics.used_by_project(&claim.project, tokens);
            }
        }
        let flown = Flown {
            bill,
            worker: Some(upstream.name.clone()),
            tier: upstream.tier,
            money,
            price,
            first_token: self.first_token,
            brownout: self.sent == Sent::Yes { brownout: true },
        };
        self.give_slot_back(arrival, &accepted.pool, end, &bill);
        learn(&caller.tenant, accepted, end);
        flown
    }

    /// Learns from what the answer says was cached of its prompt, where it does. Where no good answer has begun, the prompt
    /// may never have been read.
    fn learn_cached(&self, Accepted { terms, .. }: &Accepted) {
        let prompt = self.prompt.as_ref().zip(terms.prefix.as_deref());
        match (&self.meter, prompt) {
            (None, Some((prompt, prefix))) => prompt.refused(prefix),
            (Some(meter), _) if meter.says_cached() => {
                let Usage { input, cached, .. } = meter.measured().usage;
                self.worker.hits.count(input, cached, terms.cached_on(&self.worker.upstream.name));
                if let Some((prompt, prefix)) = prompt {
                    prompt.answered(prefix, input, cached);
                }
            }
            _ => {}
        }
    }

    /// The worker now has the session's request and its answer in its cache, where it came to an end on it.
    fn remember_session(&self, caller: &Caller, accepted: &Accepted, end: &End, usage: Usage) {
        let (Some(session), Some(sessions)) = (&accepted.session, accepted.pool.caches.sessions())
        else {
            return;
        };
        if is_whole(end) {
            let tokens = usage.input.saturating_add(usage.output);
            sessions.ended(&caller.key, session, &self.worker.upstream.name, tokens);
        }
    }

    /// What the provider asks for it, and the id of the price. Nothing, where it was not taken on or has no price.
    fn asked_for(
        &self,
        arrival: &Arrival,
        accepted: &Accepted,
        usage: Usage,
    ) -> (MicroUnits, Option<String>) {
        let is_free = self.sent == Sent::No || self.fault != Fault::None;
        let config = arrival.app.config.load();
        let upstream = self.worker.upstream.config.name_in_file();
        let at = arrival.started_at;
        match config.prices.price(&accepted.ask.model, upstream, at).filter(|_| !is_free) {
            Some(price) => {
                let Usage { input, cached, output } = usage;
                (price.cost(TokenCounts { input, cached, output }), Some(price.id.to_string()))
            }
            None => (MicroUnits::ZERO, None),
        }
    }

    /// Gives the slot back, and says how the worker did.
    fn give_slot_back(self, arrival: &Arrival, pool: &PoolHandle, end: &End, bill: &Bill) {
        let Self { mut permit, worker, epoch, sent, fault, .. } = self;
        let tokens = Tokens(bill.counted);
        if worker.upstream.account.is_some() {
            permit.note_quota(Tokens(bill.usage.input.saturating_add(bill.usage.output)));
        }
        let told = match end.outcome {
            Outcome::Completed => {
                permit.settle(tokens);
                worker.upstream.condition.succeeded(epoch, &arrival.caller.tenant);
                "ok"
            }
            _ if sent == Sent::No => {
                permit.give_back();
                return;
            }
            _ if fault == Fault::NotTaken => {
                permit.give_back();
                "error"
            }
            Outcome::Refused | Outcome::ClientLeft | Outcome::Lost => {
                permit.fail(tokens);
                "left"
            }
            Outcome::Timeout => {
                permit.fail(tokens);
                "timeout"
            }
            Outcome::Retried | Outcome::UpstreamError => {
                permit.fail(tokens);
                "error"
            }
        };
        arrival.app.metrics.attempt(&pool.name, &worker.upstream.name, told);
    }
}

/// Learns from what an upstream reported how large such requests are.
fn learn(tenant: &str, Routed { ask, pool, .. }: &Routed, end: &End) {
    let reported = match end.used {
        Used::Measured(measured) if measured.reported => measured.usage,
        Used::Stated(stated) if stated.source == UsageSource::Reported => stated.usage,
        _ => return,
    };
    if is_whole(end) {
        // What is behind an earlier response, or sent elsewhere, is in the count and not in a body.
        let no_body = goes_on(ask) || ask.input_bytes == 0;
        let input = if no_body { 0 } else { reported.input };
        pool.estimator.learn(tenant, &ask.model, ask, Usage { input, ..reported });
    }
}

fn goes_on(ask: &Ask) -> bool {
    ask.previous_response.is_some() || ask.conversation.is_some()
}
