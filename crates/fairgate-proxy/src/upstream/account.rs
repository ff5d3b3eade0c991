//! The limits of one model of a provider's account, and the workers that share these limits. If all
//! models share the account's limits, they have one such value together
//! (`pools/account_models.rs`).
//!
//! Every answer of the provider shows whether a request was accepted or refused for a limit, and often states the
//! remaining quota. All upstreams of one account share this knowledge about a model, whatever pools they are in. The
//! resulting rates, remaining quota and pauses are sent to these pools as worker events, through each pool's own
//! reporter. The pools decide about grants.
//!
//! The rules of the dialect ([`AccountQuota`]) interpret the provider's answers. They decide between different
//! statements of a limit, and compute the remaining quota and the length of a pause. This module divides a rate among
//! several pools, learns a rate if none is stated, keeps below a stated rate after refusals (`pause_recovery.rs`), and
//! closes spent accounts (`account_closing.rs`).
//!
//! The gateway keeps no token bucket of its own. At most once a second, it sets the level of the
//! core's bucket to the remaining quota that the provider stated, minus the requests sent since
//! then.

mod account_closing;
mod learned_rate;
mod lease_account;
mod lease_reports;
mod pause_recovery;
pub(super) mod rate_division;
mod refusal_margin;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use fairgate_config::QuotaConfig;
use fairgate_core::units::{BurstSeconds, PerMinute};
use fairgate_dialect::quota::{self, AccountQuota, PerMinuteLimits};
use fairgate_dialect::rate_limit_headers::{LimitUnit, RateLimitHeaders};
use tokio::time::{Instant, MissedTickBehavior, interval};

pub(crate) use self::account_closing::{PROBE_EVERY, ProbeOutcome, ProbeTarget};

use self::account_closing::AccountClosing;
use self::learned_rate::LearnedRate;
pub(crate) use self::lease_account::{LeaseRefusalReport, ReportedRefusal};
use self::lease_reports::LeaseReports;
use self::pause_recovery::{LEAST_BURST_SECONDS, PauseRecovery};
use self::rate_division::{RateUse, divide};
use crate::live_count::LiveCount;
use crate::rounding::{floor_to_u64, to_f64};
use crate::upstream::QuotaView;
use crate::worker_reporter::{RemainingQuota, WorkerRates, WorkerReporter};

/// Interval at which the learned rate, the division of the rates among workers, and the remaining quota are updated.
const TENDED_EVERY: Duration = Duration::from_secs(1);
/// Burst that a learned rate allows, in seconds of that rate.
const LEARNED_BURST_SECONDS: u64 = 1;

/// One model of a provider's account, shared by all workers that send this model to the account.
pub(crate) struct ProviderAccount {
    pub(crate) name: Arc<str>,
    /// The model, as the provider names it; `None` if all models share the account's limits.
    pub(crate) model: Option<Arc<str>>,
    inner: Mutex<ProviderAccountState>,
}

struct ProviderAccountState {
    stated: QuotaConfig,
    quota: AccountQuota,
    /// Time 0 of the quota's clock.
    started: Instant,
    learned: LearnedRate,
    recovery: PauseRecovery,
    closing: AccountClosing,
    /// Reports of leases; used only if the account belongs to a pool of leases.
    lease_reports: LeaseReports,
    members: Vec<AccountMember>,
}

/// State of an account when a request was sent.
pub(crate) use fairgate_dialect::quota::QuotaTicket;

/// A worker of a pool that uses the account.
pub(crate) struct AccountMember {
    pub(crate) pool: Arc<str>,
    pub(crate) worker: Arc<str>,
    pub(crate) reporter: Weak<WorkerReporter>,
    /// Numbers of queued requests of the worker's models, one for each model.
    waiting: Vec<LiveCount>,
    part: f64,
    /// Use of the account's rates by the worker since the last update. Each request adds 1 ÷ the requests per minute,
    /// or its tokens ÷ the tokens per minute, whichever is more.
    used: f64,
    last_sent: Option<WorkerRates>,
}

impl AccountMember {
    pub(crate) fn new(
        pool: Arc<str>,
        worker: Arc<str>,
        reporter: &Arc<WorkerReporter>,
        waiting: Vec<LiveCount>,
    ) -> Self {
        let reporter = Arc::downgrade(reporter);
        Self { pool, worker, reporter, waiting, part: 1.0, used: 0.0, last_sent: None }
    }
}

/// Pause of an account, with its end and its reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProviderPause {
    pub(crate) until: Instant,
    /// Unit of the limit that was reached; `None` if the provider did not state it.
    pub(crate) counted: Option<LimitUnit>,
    /// Length of the pause that the provider asked for; `None` if it asked for none.
    pub(crate) asked: Option<Duration>,
}

/// A rate in force and its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SourcedRate {
    pub(crate) per_minute: u64,
    pub(crate) from: RateSource,
}

/// Source of a rate: the configuration file, a header of the provider, or learning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RateSource {
    File,
    Header,
    Learned,
}

impl RateSource {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Header => "header",
            Self::Learned => "learned",
        }
    }
}

impl ProviderAccount {
    /// Creates the state of a model of an account. `remembered` is the rate in requests per minute that was learned
    /// before a restart, if any.
    pub(crate) fn new(
        name: Arc<str>,
        model: Option<Arc<str>>,
        stated: QuotaConfig,
        remembered: Option<u64>,
    ) -> Self {
        let now = Instant::now();
        let learned = match remembered {
            Some(per_minute) => LearnedRate::resume(per_minute, now),
            None => LearnedRate::new(now),
        };
        let quota = AccountQuota::new(stated_by(&stated));
        let inner = ProviderAccountState {
            stated,
            quota,
            started: now,
            learned,
            recovery: PauseRecovery::default(),
            closing: AccountClosing::default(),
            lease_reports: LeaseReports::default(),
            members: Vec::new(),
        };
        Self { name, model, inner: Mutex::new(inner) }
    }

    /// Sets the workers that use the account, and the rates that the file states.
    pub(crate) fn set_members(&self, stated: QuotaConfig, members: Vec<AccountMember>) {
        let mut inner = self.lock();
        inner.quota.set_stated(stated_by(&stated));
        inner.stated = stated;
        inner.members = members;
        let uses = vec![RateUse::default(); inner.members.len()];
        inner.divide(&uses);
        inner.report_rates();
        if let Some(pause) = inner.pause(Instant::now()) {
            inner.report_pause(pause);
        }
        inner.report_block();
    }

    /// Records that a pool's worker sends a request, which the provider may count as `tokens`.
    pub(crate) fn sent(&self, pool: &str, worker: &str, tokens: u64) -> QuotaTicket {
        let mut inner = self.lock();
        let now = inner.span(Instant::now());
        let ticket = inner.quota.record_sent(tokens, now);
        let part = |rate: Option<SourcedRate>, used: u64| {
            rate.map_or(0.0, |rate| to_f64(used) / to_f64(rate.per_minute))
        };
        let used = part(inner.requests_rate(), 1).max(part(inner.tokens_rate(), tokens));
        let is_it =
            |member: &&mut AccountMember| *member.pool == *pool && *member.worker == *worker;
        if let Some(member) = inner.members.iter_mut().find(is_it) {
            member.used += used;
        }
        ticket
    }

    /// Records the head of an answer, which shows that the provider has accepted the request.
    pub(crate) fn accepted(&self, ticket: QuotaTicket, told: &RateLimitHeaders) {
        let now = Instant::now();
        let mut inner = self.lock();
        inner.learned.accepted(now);
        let before = (inner.requests_rate(), inner.tokens_rate());
        let span = inner.span(now);
        inner.quota.record_accepted(ticket, told, span);
        let is_changed = before != (inner.requests_rate(), inner.tokens_rate());
        if is_changed || inner.recovery.is_recovering(span) {
            inner.report_rates();
        }
    }

    /// Records that the provider refused a request because of a rate limit. Returns the resulting pause.
    pub(crate) fn refused(
        &self,
        ticket: QuotaTicket,
        told: &RateLimitHeaders,
        counted: Option<LimitUnit>,
        asked: Option<Duration>,
    ) -> ProviderPause {
        let now = Instant::now();
        let mut inner = self.lock();
        inner.learned.refused(now);
        let span = inner.span(now);
        inner.recovery.record_refusal(span);
        let pause = inner
            .pause_as(now, |quota, now| quota.record_refused(ticket, told, counted, asked, now));
        inner.report_rates();
        pause
    }

    /// Records that the provider is overloaded, independently of the account's limits. Returns the resulting pause.
    pub(crate) fn overloaded(&self, asked: Option<Duration>) -> ProviderPause {
        let mut inner = self.lock();
        inner.pause_as(Instant::now(), |quota, now| quota.record_overloaded(asked, now))
    }

    /// Records that the provider refused a tenant's request because the account is spent or
    /// blocked. Returns true if this closes the account. It can close the account only if the
    /// operator forbids probes; otherwise it makes a probe due.
    pub(crate) fn record_account_refusal(
        &self,
        tenant: &Arc<str>,
        reason: &str,
        target: ProbeTarget,
    ) -> bool {
        let mut inner = self.lock();
        let (probes, now) = (inner.stated.probe, inner.span(Instant::now()));
        let closes = inner.closing.record_refusal(tenant, reason, target, probes, now);
        if closes {
            inner.report_block();
        }
        closes
    }

    /// Returns the target of a probe if one is due, and counts the probe as sent.
    pub(crate) fn take_probe(&self) -> Option<ProbeTarget> {
        let mut inner = self.lock();
        let (probes, now) = (inner.stated.probe, inner.span(Instant::now()));
        inner.closing.take_probe(probes, now)
    }

    /// Returns true if a probe is due.
    pub(crate) fn needs_probe(&self) -> bool {
        let inner = self.lock();
        inner.closing.needs_probe(inner.stated.probe, inner.span(Instant::now()))
    }

    /// Returns the time at which the last probe was sent; `None` before the first.
    pub(crate) fn probed_at(&self) -> Option<Instant> {
        let inner = self.lock();
        inner.closing.probed_at().map(|span| inner.started + span)
    }

    /// Opens this model if it was closed for `reason`. Called when a probe of another model, closed for the same
    /// reason, was not refused.
    pub(crate) fn open_if_closed_for(&self, reason: &str) {
        if self.block_reason().as_deref() == Some(reason) {
            self.record_probe(ProbeOutcome::Usable);
        }
    }

    /// Records the result of a probe. Returns true if it closed or opened the account.
    pub(crate) fn record_probe(&self, outcome: ProbeOutcome) -> bool {
        let mut inner = self.lock();
        let now = inner.span(Instant::now());
        let is_changed = inner.closing.record_probe(outcome, now);
        if is_changed {
            inner.report_block();
        }
        is_changed
    }

    /// Returns the provider's code for the reason why the account is closed; `None` if it is open.
    pub(crate) fn block_reason(&self) -> Option<Arc<str>> {
        self.lock().closing.reason().cloned()
    }

    /// Returns the pause in force.
    #[cfg(test)]
    fn pause(&self) -> Option<ProviderPause> {
        self.lock().pause(Instant::now())
    }

    /// Returns the rates in force, first of requests and then of tokens.
    #[cfg(test)]
    fn rates(&self) -> (Option<SourcedRate>, Option<SourcedRate>) {
        let inner = self.lock();
        (inner.requests_rate(), inner.tokens_rate())
    }

    /// Returns the limits for the live view.
    pub(crate) fn view(&self) -> QuotaView {
        let now = Instant::now();
        let inner = self.lock();
        let told = |rate: Option<SourcedRate>| rate.map(|rate| (rate.per_minute, rate.from.word()));
        let pause = inner.pause(now);
        QuotaView {
            account: self.name.to_string(),
            requests: told(inner.requests_rate()),
            tokens: told(inner.tokens_rate()),
            paused: pause.map(|pause| pause.until - now),
            asked: pause.and_then(|pause| pause.asked),
            out: inner.closing.reason().map(|reason| reason.to_string()),
        }
    }

    /// Returns the learned rate in requests per minute; `None` until the rate has met the
    /// provider's limit.
    pub(crate) fn learned(&self) -> Option<u64> {
        let inner = self.lock();
        inner.learned.is_known().then(|| inner.learned.per_minute())
    }

    /// Updates the account's rates once a second, until the account is dropped.
    pub(crate) async fn run_updates(account: Weak<Self>) {
        let mut ticks = interval(TENDED_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let Some(account) = account.upgrade() else { return };
            let with_queue: Vec<bool> = {
                let inner = account.lock();
                let has_queue =
                    |member: &AccountMember| member.waiting.iter().any(|it| it.now() > 0);
                inner.members.iter().map(has_queue).collect()
            };
            account.update(&with_queue, Instant::now());
        }
    }

    /// Updates the learned rate, the division of the rates and the remaining quota. Opens an
    /// account that was closed for a fixed time, when the time has passed. Reports the results to
    /// the pools. `with_queue` has one value for each member: true if requests for the member's models
    /// are queued.
    fn update(&self, with_queue: &[bool], now: Instant) {
        let mut inner = self.lock();
        inner.learned.grow(now);
        let (probes, span) = (inner.stated.probe, inner.span(now));
        if inner.closing.open_after_time(probes, span) {
            inner.report_block();
        }
        // If the members have changed meanwhile, the rates are divided at the next update.
        if inner.members.len() == with_queue.len() {
            let per_second = 60.0 / TENDED_EVERY.as_secs_f64();
            let uses: Vec<RateUse> = (inner.members.iter().zip(with_queue))
                .map(|(member, with_queue)| RateUse {
                    used: member.used * per_second,
                    has_queue: *with_queue,
                })
                .collect();
            inner.divide(&uses);
        }
        inner.report_rates();
        inner.report_remaining(now);
    }

    fn lock(&self) -> MutexGuard<'_, ProviderAccountState> {
        // After a panic the numbers may lack one request, which does no harm.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ProviderAccountState {
    /// Converts an instant to a time on the quota's clock.
    fn span(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.started)
    }

    /// Returns the pause in force.
    fn pause(&self, now: Instant) -> Option<ProviderPause> {
        self.quota.pause(self.span(now)).map(|pause| self.dated(pause))
    }

    fn dated(&self, pause: quota::QuotaPause) -> ProviderPause {
        let quota::QuotaPause { until, counted, asked } = pause;
        ProviderPause { until: self.started + until, counted, asked }
    }

    /// Calls `hear`, which records an answer that causes a pause. Reports the pause to the pools if
    /// it is new.
    fn pause_as(
        &mut self,
        now: Instant,
        hear: impl FnOnce(&mut AccountQuota, Duration) -> quota::QuotaPause,
    ) -> ProviderPause {
        let before = self.pause(now);
        let span = self.span(now);
        let pause = hear(&mut self.quota, span);
        self.recovery.record_pause(pause.until);
        let pause = self.dated(pause);
        if before != Some(pause) {
            self.report_pause(pause);
        }
        pause
    }

    fn requests_rate(&self) -> Option<SourcedRate> {
        let heard = self.quota.stated_by_provider().requests_per_minute;
        match lower(self.stated.requests_per_minute, heard) {
            Some(rate) => Some(rate),
            // A provider that states only tokens has no other limit.
            None if self.tokens_rate().is_some() => None,
            // A pool of leases for which no rate is stated is limited by its capacity and by
            // pauses. The gateway does not see when the calls of leases are accepted, so it cannot
            // learn a rate.
            None if !self.stated.is_hosted() => None,
            None => Some(SourcedRate {
                per_minute: self.learned.per_minute(),
                from: RateSource::Learned,
            }),
        }
    }

    fn tokens_rate(&self) -> Option<SourcedRate> {
        lower(self.stated.tokens_per_minute, self.quota.stated_by_provider().tokens_per_minute)
    }

    fn divide(&mut self, uses: &[RateUse]) {
        for (member, part) in self.members.iter_mut().zip(divide(uses)) {
            (member.part, member.used) = (part, 0.0);
        }
    }

    fn report_rates(&mut self) {
        let (requests, tokens) = (self.requests_rate(), self.tokens_rate());
        // A provider that states no rate may not allow bursts. A refused burst would make the rate
        // seem too high.
        let is_learned = requests.is_some_and(|rate| rate.from == RateSource::Learned);
        let now = self.span(Instant::now());
        let seconds = match is_learned {
            true => LEARNED_BURST_SECONDS,
            false => self.recovery.burst_seconds(self.stated.burst_seconds, now),
        };
        let seconds = seconds.min(self.quota.burst_seconds_max());
        let recovery = self.recovery;
        let in_force = |rate: SourcedRate| match rate.from {
            RateSource::Learned => recovery.of_learned(rate.per_minute, now),
            RateSource::File | RateSource::Header => recovery.of_stated(rate.per_minute, now),
        };
        let burst = BurstSeconds::new(seconds).unwrap_or(BurstSeconds::DEFAULT);
        for member in &mut self.members {
            let part = |rate: Option<SourcedRate>| {
                let part = floor_to_u64(to_f64(in_force(rate?)) * member.part).max(1);
                PerMinute::new(part).ok()
            };
            let rates = WorkerRates { requests: part(requests), tokens: part(tokens), burst };
            if member.last_sent.is_none_or(|told| differ(told, rates)) {
                member.last_sent = Some(rates);
                if let Some(reporter) = member.reporter.upgrade() {
                    reporter.set_rates(&member.worker, rates);
                }
            }
        }
    }

    /// Reports a pause, and the rates that apply during it. Sets the levels of the core's buckets
    /// to 1; they stay there until the end of the pause.
    fn report_pause(&mut self, pause: ProviderPause) {
        self.report_rates();
        let left = RemainingQuota { requests: Some(1), tokens: Some(1) };
        for member in &self.members {
            if let Some(reporter) = member.reporter.upgrade() {
                reporter.pause_until(&member.worker, pause.until, left);
            }
        }
    }

    fn report_block(&self) {
        for member in &self.members {
            if let Some(reporter) = member.reporter.upgrade() {
                reporter.set_out_of_service(&member.worker, self.closing.reason().is_some());
            }
        }
    }

    /// Reports the remaining quota to the pools if it is less than the burst, because a larger
    /// quota would not change their levels. After refusals, only a quota of less than one second of
    /// the rate is reported, and as 1 at most. The report must not raise a level that is lower than
    /// the remaining quota.
    fn report_remaining(&mut self, now: Instant) {
        let rates = PerMinuteLimits {
            requests_per_minute: self.requests_rate().map(|rate| rate.per_minute),
            tokens_per_minute: self.tokens_rate().map(|rate| rate.per_minute),
        };
        let span = self.span(now);
        let left = self.quota.take_left_at(rates, span);
        let is_careful = self.recovery.distrusts_remaining(span);
        let seconds = if is_careful { LEAST_BURST_SECONDS } else { self.stated.burst_seconds };
        let burst = to_f64(seconds) / 60.0;
        let little = |left: Option<u64>, per_minute: Option<u64>| {
            let (left, most) = (to_f64(left?), to_f64(per_minute?) * burst);
            (left < most).then_some(if is_careful { left.min(1.0) } else { left })
        };
        let requests = little(left.requests, rates.requests_per_minute);
        let tokens = little(left.tokens, rates.tokens_per_minute);
        for member in &self.members {
            let part = |left: Option<f64>| {
                left.map(|left| floor_to_u64(if is_careful { left } else { left * member.part }))
            };
            let left = RemainingQuota { requests: part(requests), tokens: part(tokens) };
            if let Some(reporter) =
                member.reporter.upgrade().filter(|_| left != RemainingQuota::default())
            {
                reporter.set_remaining(&member.worker, left);
            }
        }
    }
}

fn stated_by(file: &QuotaConfig) -> PerMinuteLimits {
    PerMinuteLimits {
        requests_per_minute: file.requests_per_minute,
        tokens_per_minute: file.tokens_per_minute,
    }
}

/// Returns the lower of the rates that the file and the provider state, with its source; `None` if
/// neither states one.
fn lower(file: Option<u64>, provider: Option<u64>) -> Option<SourcedRate> {
    match (file, provider) {
        (Some(file), Some(provider)) if provider < file => {
            Some(SourcedRate { per_minute: provider, from: RateSource::Header })
        }
        (Some(file), _) => Some(SourcedRate { per_minute: file, from: RateSource::File }),
        (None, Some(provider)) => {
            Some(SourcedRate { per_minute: provider, from: RateSource::Header })
        }
        (None, None) => None,
    }
}

/// Returns true if the new rates differ by more than 1/64 from those that were last sent to the pool, or if the burst
/// differs. Smaller changes are not reported.
fn differ(told: WorkerRates, now: WorkerRates) -> bool {
    let differ = |told: Option<PerMinute>, now: Option<PerMinute>| match (told, now) {
        (Some(told), Some(now)) => told.get().abs_diff(now.get()) > told.get() / 64,
        (told, now) => told != now,
    };
    differ(told.requests, now.requests)
        || differ(told.tokens, now.tokens)
        || told.burst != now.burst
}

#[cfg(test)]
mod tests;
