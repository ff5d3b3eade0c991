//! The limits of the provider behind the pool: one worker, whose rates, levels and pauses follow what its answers say.
//!
//! The worker comes into being with the first thing that is known: rates that the program states, or an answer's headers.
//! What follows from what was said is the dialect's rule ([`Quota`]); whom to grant is the core's.

use std::mem;
use std::time::Duration;

use fairgate_core::event::{Event, WorkerChange};
use fairgate_core::units::{BurstSeconds, Micros, PerMinute};
use fairgate_dialect::limits::{Counted, Refusal as Complaint, Told};
use fairgate_dialect::quota::{Left, Pause, Quota, Stated, Ticket};

use super::{Answer, Desk, Entry, Number, Phase};

/// The one worker's name.
const PROVIDER: &str = "provider";
/// How often levels are corrected by what headers say.
const CORRECTED_EVERY: Duration = Duration::from_secs(1);
/// For how long requests are saved up where only the provider states its limits: its minute.
const PROVIDERS_BURST_SECONDS: u64 = 60;

/// An eighth of what may be saved up is little.
const MARGIN: u64 = 8;

/// What the program states of its provider.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rates {
    pub(crate) stated: Stated,
    pub(crate) burst_seconds: u64,
}

impl Rates {
    fn is_stated(self) -> bool {
        self.stated != Stated::default()
    }
}

/// The provider, as far as it is known.
#[derive(Debug, Default)]
pub(crate) struct Provider {
    rates: Rates,
    quota: Quota,
    /// What the worker was last told.
    told: Option<(Option<u64>, Option<u64>)>,
    corrected: Duration,
    /// Whether any answer has come.
    has_answered: bool,
}

/// How it stands with the provider, for a report.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ProviderReport {
    pub(crate) requests_per_minute: Option<u64>,
    pub(crate) tokens_per_minute: Option<u64>,
    pub(crate) paused_us: u64,
    pub(crate) limits_met: u64,
}

impl Provider {
    /// A request was granted a slot: it will be sent.
    pub(super) fn sends(&mut self, tokens: u64, at: Micros) -> Ticket {
        self.quota.sent(tokens, span(at))
    }

    fn change(&mut self) -> WorkerChange {
        let now = (self.quota.requests_per_minute(), self.quota.tokens_per_minute());
        self.told = Some(now);
        let rate = |per_minute: Option<u64>| Some(per_minute.and_then(|n| PerMinute::new(n).ok()));
        WorkerChange {
            requests_per_minute: rate(now.0),
            tokens_per_minute: rate(now.1),
            burst_seconds: BurstSeconds::new(self.burst_seconds()).ok(),
            name: PROVIDER.into(),
            ..WorkerChange::default()
        }
    }

    fn burst_seconds(&self) -> u64 {
        match self.rates.is_stated() {
            true => self.rates.burst_seconds,
            false => PROVIDERS_BURST_SECONDS,
        }
    }

    /// How much of a rate may be saved up.
    fn burst(&self, per_minute: Option<u64>) -> u64 {
        per_minute.unwrap_or(0).saturating_mul(self.burst_seconds()) / 60
    }

    /// Of the first burst a part is held back: the provider's own bucket does not fill while the first calls are on their way.
    fn first_levels(&self) -> Left {
        let level = |per_minute: Option<u64>| {
            let burst = self.burst(per_minute);
            per_minute.map(|_| burst - burst / MARGIN)
        };
        Left {
            requests: level(self.quota.requests_per_minute()),
            tokens: level(self.quota.tokens_per_minute()),
        }
    }

    fn is_news(&self) -> bool {
        let nothing = (None, None);
        self.told.unwrap_or(nothing)
            != (self.quota.requests_per_minute(), self.quota.tokens_per_minute())
    }
}

fn span(at: Micros) -> Duration {
    Duration::from_micros(at.0)
}

impl<W> Desk<W> {
    /// States the provider's limits, or others from now on.
    pub(crate) fn set_rates(&mut self, rates: Rates) {
        self.provider.rates = rates;
        self.provider.quota.restate(rates.stated);
        if rates.is_stated() || self.provider.told.is_some() {
            let is_first = self.provider.told.is_none();
            let mut change = self.provider.change();
            if is_first {
                let Left { requests, tokens } = self.provider.first_levels();
                (change.requests_remaining, change.tokens_remaining) = (requests, tokens);
            }
            self.operate(Event::Worker(change));
        }
    }

    /// Whether anything may change in the pool by time alone.
    pub(crate) fn has_provider(&self) -> bool {
        self.provider.told.is_some()
    }

    /// An answer of the provider to a request in flight.
    pub(crate) fn answered(&mut self, number: Number, told: &Told) {
        let Some(ticket) = self.ticket(number) else { return };
        let now = span(self.now());
        self.provider.quota.accepted(ticket, told, now);
        let is_first = !mem::replace(&mut self.provider.has_answered, true);
        if is_first && self.has_provider() {
            self.take_back_first_refill();
        }
        if self.provider.is_news() {
            let Left { requests, tokens } = self.provider.quota.left(now);
            let change = WorkerChange {
                requests_remaining: requests,
                tokens_remaining: tokens,
                ..self.provider.change()
            };
            self.provider.corrected = now;
            self.operate(Event::Worker(change));
        } else if now.saturating_sub(self.provider.corrected) >= CORRECTED_EVERY {
            self.provider.corrected = now;
            self.correct(now);
        }
    }

    /// The first answer has come. While the first calls were on their way, connections were being made and the provider's own
    /// bucket was full and did not fill: what the core's has gained in that time is not there.
    fn take_back_first_refill(&mut self) {
        let quota = &self.provider.quota;
        let burst = self.provider.first_levels().requests;
        self.operate(Event::Worker(WorkerChange {
            name: PROVIDER.into(),
            requests_remaining: burst.map(|burst| burst.saturating_sub(quota.requests_sent())),
            ..WorkerChange::default()
        }));
    }

    /// Sets the levels to what the provider said is left, where that is little. Where it is much, the core's own count is as
    /// good: requests that are under way are in it, and not in what the provider said.
    fn correct(&mut self, now: Duration) {
        let Left { requests, tokens } = self.provider.quota.left(now);
        let provider = &self.provider;
        let little = |left: Option<u64>, per_minute: Option<u64>| {
            left.filter(|left| *left <= provider.burst(per_minute) / MARGIN)
        };
        let requests = little(requests, provider.quota.requests_per_minute());
        let tokens = little(tokens, provider.quota.tokens_per_minute());
        if requests.is_some() || tokens.is_some() {
            self.operate(Event::Worker(WorkerChange {
                requests_remaining: requests,
                tokens_remaining: tokens,
                name: PROVIDER.into(),
                ..WorkerChange::default()
            }));
        }
    }

    /// The provider refused a request in flight: for how long nothing is sent, where it may be sent again after that.
    pub(crate) fn met_limit(
        &mut self,
        number: Number,
        told: &Told,
        complaint: &Complaint,
    ) -> Option<Duration> {
        let ticket = self.ticket(number)?;
        let at = self.now();
        let now = span(at);
        let quota = &mut self.provider.quota;
        let pause = match complaint {
            Complaint::Rate { counted, retry_after, .. } => {
                quota.refused(ticket, told, *counted, *retry_after, now)
            }
            Complaint::Overloaded { retry_after } => quota.overloaded(*retry_after, now),
            _ => return None,
        };
        self.limits_met += 1;
        let Pause { until, counted, .. } = pause;
        let spent = |concerned: bool| concerned.then_some(0);
        let of_requests = counted.is_none_or(|counted| counted == Counted::Requests);
        let of_tokens = counted.is_none_or(|counted| counted != Counted::Requests);
        let until_us = u64::try_from(until.as_micros()).unwrap_or(u64::MAX);
        let change = WorkerChange {
            requests_remaining: spent(of_requests),
            tokens_remaining: spent(of_tokens),
            pause_until: Some(Micros(until_us)),
            ..self.provider.change()
        };
        self.operate(Event::Worker(change));
        Some(until.saturating_sub(now))
    }

    /// Submits a request in flight again: its slot goes to the next, charged nothing, and it waits before all others of its
    /// agent. Where it holds no slot any more, it is as if it were closed.
    pub(crate) fn again(&mut self, number: Number) -> Answer {
        let in_flight = self.find(number).filter(|handle| {
            self.entry(*handle).is_some_and(Entry::is_in_flight) && !self.is_closed()
        });
        let Some(Entry { mut request, .. }) = in_flight.and_then(|handle| self.take_entry(handle))
        else {
            return Answer::Refused(super::Refusal::Closed);
        };
        self.owners.gives_back(request.owner);
        self.agents.get(request.agent).in_flight -= 1;
        request.owner = request.asker;
        let submit = request.submit(i64::MAX);
        let nothing = Some(fairgate_core::units::Tokens(0));
        self.apply(Event::Release { id: request.id.clone(), tokens: nothing, quota: nothing });
        let answer = self.enter(request, submit);
        self.relieve();
        answer
    }

    /// Time has passed, as was asked for.
    pub(crate) fn tick(&mut self) {
        self.alarm = None;
        self.operate(Event::Tick);
        self.roll_budgets();
    }

    /// Starts anew with what the program states.
    pub(super) fn restart_provider(&mut self) {
        let rates = self.provider.rates;
        self.provider = Provider { rates, ..Provider::default() };
        self.provider.quota.restate(rates.stated);
        if rates.is_stated() {
            let change = self.provider.change();
            self.apply(Event::Worker(change));
        }
    }

    fn ticket(&self, number: Number) -> Option<Ticket> {
        match self.entry(self.find(number)?)?.phase {
            Phase::InFlight { ticket, .. } => Some(ticket),
            Phase::Waiting { .. } => None,
        }
    }

    /// How it stands with the provider; nothing where nothing is known.
    pub(crate) fn provider_report(&self) -> Option<ProviderReport> {
        let now = span(self.now());
        let quota = &self.provider.quota;
        let paused = quota.pause(now).map_or(Duration::ZERO, |pause| pause.until - now);
        self.has_provider().then(|| ProviderReport {
            requests_per_minute: quota.requests_per_minute(),
            tokens_per_minute: quota.tokens_per_minute(),
            paused_us: u64::try_from(paused.as_micros()).unwrap_or(u64::MAX),
            limits_met: self.limits_met,
        })
    }
}
