//! The limits of the provider behind the pool. The pool has one worker for the provider. The worker's rates, levels and
//! pauses follow the provider's answers.
//!
//! The worker is created when the first limit is known, either from rates that the program states or from an answer's
//! headers. [`AccountQuota`] turns answers into limits, and the core decides which requests to grant.

use std::mem;
use std::time::Duration;

use fairgate_core::event::{Event, WorkerChange};
use fairgate_core::units::{BurstSeconds, Micros, PerMinute};
use fairgate_dialect::quota::{
    AccountQuota, AccountRemaining, PerMinuteLimits, QuotaPause, QuotaTicket,
};
use fairgate_dialect::rate_limit_headers::{
    LimitUnit, ProviderRefusal as Complaint, RateLimitHeaders,
};

use super::{LocalScheduler, PoolEntry, PoolEntryPhase, SlotAnswer};
use crate::request_number::RequestNumber;

/// Name of the one worker that represents the provider.
const PROVIDER: &str = "provider";
/// Shortest time between two corrections of the worker's levels by an answer's headers.
const CORRECTED_EVERY: Duration = Duration::from_secs(1);
/// Burst in seconds if the program states no rates. The limits then come from the provider, which counts per minute.
const PROVIDERS_BURST_SECONDS: u64 = 60;

/// Divisor of the burst. A remaining amount of at most burst ÷ 8 counts as low.
const MARGIN: u64 = 8;

/// Limits that the program states for its provider.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ProviderRates {
    pub(crate) stated: PerMinuteLimits,
    pub(crate) burst_seconds: u64,
}

impl ProviderRates {
    fn is_stated(self) -> bool {
        self.stated != PerMinuteLimits::default()
    }
}

/// The known state of the provider's limits.
#[derive(Debug, Default)]
pub(crate) struct ProviderState {
    rates: ProviderRates,
    quota: AccountQuota,
    /// The requests and tokens per minute to which the worker was last set; `None` if there is no worker yet.
    sent_rates: Option<(Option<u64>, Option<u64>)>,
    corrected: Duration,
    /// True once the provider has answered a request.
    has_answered: bool,
}

/// State of the provider, for a report.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ProviderReport {
    pub(crate) requests_per_minute: Option<u64>,
    pub(crate) tokens_per_minute: Option<u64>,
    pub(crate) paused_us: u64,
    pub(crate) limits_met: u64,
}

impl ProviderState {
    /// Records that a request was granted a slot and will be sent, with its estimate in tokens.
    pub(super) fn record_sent(&mut self, tokens: u64, at: Micros) -> QuotaTicket {
        self.quota.record_sent(tokens, span(at))
    }

    /// Passes the limits that the program states to the quota. These take precedence over the limits in the provider's
    /// headers, because the program knows its contract.
    fn set_stated(&mut self) {
        self.quota.set_stated(self.rates.stated);
        self.quota.prefer_stated();
    }

    fn change(&mut self) -> WorkerChange {
        let now = (self.quota.requests_per_minute(), self.quota.tokens_per_minute());
        self.sent_rates = Some(now);
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
            // A limit per second allows the amount of one second at once.
            false => self.quota.burst_seconds_max().min(PROVIDERS_BURST_SECONDS),
        }
    }

    /// Returns the burst of a rate, which is the number of requests or tokens that may be saved up.
    fn burst(&self, per_minute: Option<u64>) -> u64 {
        per_minute.unwrap_or(0).saturating_mul(self.burst_seconds()) / 60
    }

    /// Returns the worker's initial levels, which are the burst minus an eighth. The eighth is a margin, because the
    /// provider's own bucket does not fill while the first requests are in flight.
    fn first_levels(&self) -> AccountRemaining {
        let level = |per_minute: Option<u64>| {
            let burst = self.burst(per_minute);
            per_minute.map(|_| burst - burst / MARGIN)
        };
        AccountRemaining {
            requests: level(self.quota.requests_per_minute()),
            tokens: level(self.quota.tokens_per_minute()),
        }
    }

    fn has_changed_rates(&self) -> bool {
        let nothing = (None, None);
        self.sent_rates.unwrap_or(nothing)
            != (self.quota.requests_per_minute(), self.quota.tokens_per_minute())
    }
}

fn span(at: Micros) -> Duration {
    Duration::from_micros(at.0)
}

impl<W> LocalScheduler<W> {
    /// Sets the limits that the program states for its provider.
    pub(crate) fn set_rates(&mut self, rates: ProviderRates) {
        self.provider.rates = rates;
        self.provider.set_stated();
        if rates.is_stated() || self.provider.sent_rates.is_some() {
            let is_first = self.provider.sent_rates.is_none();
            let mut change = self.provider.change();
            if is_first {
                let AccountRemaining { requests, tokens } = self.provider.first_levels();
                (change.requests_remaining, change.tokens_remaining) = (requests, tokens);
            }
            self.operate(Event::Worker(change));
        }
    }

    /// Returns true if a provider's limits are known, so that the pool may change only because time passes.
    pub(crate) fn has_provider(&self) -> bool {
        self.provider.sent_rates.is_some()
    }

    /// Records the provider's answer to a request in flight.
    pub(crate) fn record_answer(&mut self, number: RequestNumber, told: &RateLimitHeaders) {
        let Some(ticket) = self.ticket(number) else { return };
        let now = span(self.now());
        self.provider.quota.record_accepted(ticket, told, now);
        let is_first = !mem::replace(&mut self.provider.has_answered, true);
        if is_first && self.has_provider() {
            self.take_back_first_refill();
        }
        if self.provider.has_changed_rates() {
            let AccountRemaining { requests, tokens } = self.provider.quota.take_left(now);
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

    /// Sets the worker's level of requests to the initial level minus the requests sent. While the first requests were
    /// on their way, the provider's own bucket was full and did not fill. So the core must not count a refill for that
    /// time.
    fn take_back_first_refill(&mut self) {
        let quota = &self.provider.quota;
        let burst = self.provider.first_levels().requests;
        self.operate(Event::Worker(WorkerChange {
            name: PROVIDER.into(),
            requests_remaining: burst.map(|burst| burst.saturating_sub(quota.requests_sent())),
            ..WorkerChange::default()
        }));
    }

    /// Sets the worker's levels to the remaining amounts that the provider stated, if these are low. Amounts that are
    /// not low are ignored, because the core's own count is as good and includes requests in flight.
    fn correct(&mut self, now: Duration) {
        let AccountRemaining { requests, tokens } = self.provider.quota.take_left(now);
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

    /// Records that the provider refused a request in flight. Returns the length of the pause after which the request
    /// may be sent again; `None` if the refusal is not about a limit or overload.
    pub(crate) fn record_refusal(
        &mut self,
        number: RequestNumber,
        told: &RateLimitHeaders,
        complaint: &Complaint,
    ) -> Option<Duration> {
        let ticket = self.ticket(number)?;
        let at = self.now();
        let now = span(at);
        let quota = &mut self.provider.quota;
        let pause = match complaint {
            Complaint::Rate { counted, retry_after, .. } => {
                quota.record_refused(ticket, told, *counted, *retry_after, now)
            }
            Complaint::Overloaded { retry_after } => quota.record_overloaded(*retry_after, now),
            _ => return None,
        };
        self.limits_met += 1;
        let QuotaPause { until, counted, .. } = pause;
        let spent = |concerned: bool| concerned.then_some(0);
        let of_requests = counted.is_none_or(|counted| counted == LimitUnit::Requests);
        let of_tokens = counted.is_none_or(|counted| counted != LimitUnit::Requests);
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

    /// Gives back the slot of a request in flight without a charge, and submits the request again, ahead of all other
    /// requests of its agent. The request waits for at most `timeout`. Returns `Closed` if the request no longer holds
    /// a slot or the scheduler is closed.
    pub(crate) fn resubmit(
        &mut self,
        number: RequestNumber,
        timeout: Option<Micros>,
    ) -> SlotAnswer {
        let in_flight = self.find(number).filter(|handle| {
            self.entry(*handle).is_some_and(PoolEntry::is_in_flight) && !self.is_closed()
        });
        let Some(PoolEntry { mut request, .. }) =
            in_flight.and_then(|handle| self.take_entry(handle))
        else {
            return SlotAnswer::Refused(super::SlotRefusal::Closed);
        };
        self.owners.remove_held(request.owner);
        self.agents.get(request.agent).in_flight -= 1;
        request.owner = request.caller;
        request.deadline = timeout.map(|timeout| self.after(timeout));
        self.has_deadlines |= timeout.is_some();
        let submit = request.submit(i64::MAX, timeout);
        let nothing = Some(fairgate_core::units::Tokens(0));
        self.apply(Event::Release { id: request.id.clone(), tokens: nothing, quota: nothing });
        let answer = self.enter(request, submit);
        self.admit_parked_requests();
        answer
    }

    /// Clears the alarm and does the work that is due now, if there is any.
    pub(crate) fn tick(&mut self) {
        self.alarm = None;
        self.let_time_pass();
    }

    /// Does all work that is due now. Waits may have expired, a pause of the provider may be over, and budget periods
    /// may have ended.
    pub(crate) fn let_time_pass(&mut self) {
        self.expire_parked();
        let now = self.now();
        if self.pool.next_change().is_some_and(|change| change <= now) {
            self.apply(Event::Tick);
        }
        self.roll_budgets();
    }

    /// Forgets all that was learned from the provider's answers, and keeps only the limits that the program states.
    pub(super) fn restart_provider(&mut self) {
        let rates = self.provider.rates;
        self.provider = ProviderState { rates, ..ProviderState::default() };
        self.provider.set_stated();
        if rates.is_stated() {
            let change = self.provider.change();
            self.apply(Event::Worker(change));
        }
    }

    fn ticket(&self, number: RequestNumber) -> Option<QuotaTicket> {
        match self.entry(self.find(number)?)?.phase {
            PoolEntryPhase::InFlight { ticket, .. } => Some(ticket),
            PoolEntryPhase::Waiting { .. } => None,
        }
    }

    /// Returns the state of the provider; `None` if no limits are known.
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
