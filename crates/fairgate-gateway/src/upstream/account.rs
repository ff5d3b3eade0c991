//! A provider's account: what is known of its limits, and who draws on them.
//!
//! Every answer says something: that the request was accepted, often how much is left, sometimes that it was one too many. All
//! upstreams of one account share what one of them is told, in whatever pools they work. What follows (rates, what is left, a
//! pause) goes to these pools as worker events, by each pool's own reporter; whom to grant is theirs to decide.
//!
//! What follows from what was said is the dialect's rule ([`Quota`]): whom to believe, what is left, how long to pause. Here
//! is what only a gateway has: several pools that divide a rate, a rate that is learned where nobody states one, and
//! accounts that are spent.

mod division;
mod learned;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use fairgate_config::QuotaConfig;
use fairgate_core::units::{BurstSeconds, PerMinute};
use fairgate_dialect::limits::{Counted, Told};
use fairgate_dialect::quota::{self, Quota, Stated};
use fairgate_runtime::Gate;
use tokio::time::{Instant, MissedTickBehavior, interval};

use self::division::{Draw, divide};
use self::learned::Learned;
use crate::numbers::{precise, whole};
use crate::pools::{Left, QuotaView, Rates, Reporter};

/// How long an account that is spent or blocked is left alone before one request asks again.
const OUT_FOR: Duration = Duration::from_secs(300);
/// How often rates are looked at: what was learned, how they are divided, what is left.
const TENDED_EVERY: Duration = Duration::from_secs(1);
/// For how many seconds of a learned rate requests may be saved up.
const LEARNED_BURST_SECONDS: u64 = 1;

/// A provider's account.
pub(crate) struct Account {
    pub(crate) name: Arc<str>,
    inner: Mutex<Inner>,
}

struct Inner {
    stated: QuotaConfig,
    quota: Quota,
    /// From when the quota counts its time.
    started: Instant,
    learned: Learned,
    out: Option<Out>,
    members: Vec<Member>,
}

/// How it stood with an account when a request was sent.
pub(crate) use fairgate_dialect::quota::Ticket;

/// A worker of a pool that draws on the account.
pub(crate) struct Member {
    pub(crate) pool: Arc<str>,
    pub(crate) worker: Arc<str>,
    pub(crate) reporter: Weak<Reporter>,
    pub(crate) gate: Gate,
    part: f64,
    /// What it sent since it was last looked at, as a part of the account's rates.
    used: f64,
    told: Option<Rates>,
}

impl Member {
    pub(crate) fn new(
        pool: Arc<str>,
        worker: Arc<str>,
        reporter: &Arc<Reporter>,
        gate: Gate,
    ) -> Self {
        let reporter = Arc::downgrade(reporter);
        Self { pool, worker, reporter, gate, part: 1.0, used: 0.0, told: None }
    }
}

/// Why and until when nothing is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pause {
    pub(crate) until: Instant,
    /// What the limit counts, where that was said.
    pub(crate) counted: Option<Counted>,
    /// How long the provider asked for.
    pub(crate) asked: Option<Duration>,
}

/// Why nothing is sent until somebody pays or asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Out {
    /// The provider's own word for it.
    pub(crate) reason: Arc<str>,
    /// When it is tried again.
    pub(crate) until: Instant,
}

/// A rate in force and where it is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rate {
    pub(crate) per_minute: u64,
    pub(crate) from: From,
}

/// Where a rate is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum From {
    File,
    Header,
    Learned,
}

impl From {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Header => "header",
            Self::Learned => "learned",
        }
    }
}

impl Account {
    /// An account of which `remembered` requests per minute were learned before.
    pub(crate) fn new(name: Arc<str>, stated: QuotaConfig, remembered: Option<u64>) -> Self {
        let now = Instant::now();
        let learned = match remembered {
            Some(per_minute) => Learned::resume(per_minute, now),
            None => Learned::new(now),
        };
        let quota = Quota::new(stated_by(&stated));
        let inner = Inner { stated, quota, started: now, learned, out: None, members: Vec::new() };
        Self { name, inner: Mutex::new(inner) }
    }

    /// These workers draw on it from now on, within the rates that the file states.
    pub(crate) fn serve(&self, stated: QuotaConfig, members: Vec<Member>) {
        let mut inner = self.lock();
        inner.quota.restate(stated_by(&stated));
        inner.stated = stated;
        inner.members = members;
        let draws = vec![Draw::default(); inner.members.len()];
        inner.divide(&draws);
        inner.tell_rates();
        if let Some(pause) = inner.pause(Instant::now()) {
            inner.tell_pause(pause);
        }
        inner.tell_out();
    }

    /// A request of a pool's worker is sent, which the provider may count as so many tokens.
    pub(crate) fn sent(&self, pool: &str, worker: &str, tokens: u64) -> Ticket {
        let mut inner = self.lock();
        let now = inner.span(Instant::now());
        let ticket = inner.quota.sent(tokens, now);
        let part = |rate: Option<Rate>, used: u64| {
            rate.map_or(0.0, |rate| precise(used) / precise(rate.per_minute))
        };
        let used = part(inner.requests_rate(), 1).max(part(inner.tokens_rate(), tokens));
        let is_it = |member: &&mut Member| *member.pool == *pool && *member.worker == *worker;
        if let Some(member) = inner.members.iter_mut().find(is_it) {
            member.used += used;
        }
        ticket
    }

    /// The head of an answer has come: the provider has taken the request on.
    pub(crate) fn accepted(&self, ticket: Ticket, told: &Told) {
        let now = Instant::now();
        let mut inner = self.lock();
        inner.learned.accepted(now);
        let before = (inner.requests_rate(), inner.tokens_rate());
        let span = inner.span(now);
        inner.quota.accepted(ticket, told, span);
        if before != (inner.requests_rate(), inner.tokens_rate()) {
            inner.tell_rates();
        }
    }

    /// The provider has refused a request because of a rate. Says what follows.
    pub(crate) fn refused(
        &self,
        ticket: Ticket,
        told: &Told,
        counted: Option<Counted>,
        asked: Option<Duration>,
    ) -> Pause {
        let now = Instant::now();
        let mut inner = self.lock();
        inner.learned.refused(now);
        let pause =
            inner.pause_as(now, |quota, now| quota.refused(ticket, told, counted, asked, now));
        inner.tell_rates();
        pause
    }

    /// The provider has too much to do, whatever the account's limits are. Says what follows.
    pub(crate) fn overloaded(&self, asked: Option<Duration>) -> Pause {
        let mut inner = self.lock();
        inner.pause_as(Instant::now(), |quota, now| quota.overloaded(asked, now))
    }

    /// The provider will take nothing, for a reason that waiting does not change. Says whether that is news.
    pub(crate) fn close(&self, reason: &str) -> bool {
        let mut inner = self.lock();
        let is_news = inner.out.is_none();
        inner.out = Some(Out { reason: reason.into(), until: Instant::now() + OUT_FOR });
        inner.tell_out();
        is_news
    }

    /// Why it takes nothing, where waiting does not change that.
    pub(crate) fn out(&self) -> Option<Out> {
        self.lock().out.clone()
    }

    /// The pause in force.
    #[cfg(test)]
    fn pause(&self) -> Option<Pause> {
        self.lock().pause(Instant::now())
    }

    /// The rates in force: of requests and of tokens.
    #[cfg(test)]
    fn rates(&self) -> (Option<Rate>, Option<Rate>) {
        let inner = self.lock();
        (inner.requests_rate(), inner.tokens_rate())
    }

    /// How it stands, for the live view.
    pub(crate) fn view(&self) -> QuotaView {
        let now = Instant::now();
        let inner = self.lock();
        let told = |rate: Option<Rate>| rate.map(|rate| (rate.per_minute, rate.from.word()));
        let pause = inner.pause(now);
        QuotaView {
            account: self.name.to_string(),
            requests: told(inner.requests_rate()),
            tokens: told(inner.tokens_rate()),
            paused: pause.map(|pause| pause.until - now),
            asked: pause.and_then(|pause| pause.asked),
            out: inner.out.as_ref().map(|out| out.reason.to_string()),
        }
    }

    /// What is worth to be remembered of it: requests per minute that were learned.
    pub(crate) fn learned(&self) -> Option<u64> {
        let inner = self.lock();
        inner.learned.is_known().then(|| inner.learned.per_minute())
    }

    /// Looks at its rates once a second, for ever.
    pub(crate) async fn tend(account: Weak<Self>) {
        let mut ticks = interval(TENDED_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let Some(account) = account.upgrade() else { return };
            let gates: Vec<Gate> = {
                let inner = account.lock();
                inner.members.iter().map(|member| member.gate.clone()).collect()
            };
            // Alone, there is nobody to divide with.
            let mut hungry = vec![false; gates.len()];
            if gates.len() > 1 {
                for (gate, hungry) in gates.iter().zip(&mut hungry) {
                    *hungry = gate.live().await.is_ok_and(|live| live.waiting > 0);
                }
            }
            account.look(&hungry, Instant::now());
        }
    }

    /// Tells the pools what has changed by itself. `hungry`: in which of the members' pools requests wait.
    fn look(&self, hungry: &[bool], now: Instant) {
        let mut inner = self.lock();
        inner.learned.grow(now);
        if inner.out.as_ref().is_some_and(|out| out.until <= now) {
            inner.out = None;
            inner.tell_out();
        }
        // The members may have changed while their pools were asked: then it is divided the next time.
        if inner.members.len() == hungry.len() {
            let per_second = 60.0 / TENDED_EVERY.as_secs_f64();
            let draws: Vec<Draw> = (inner.members.iter().zip(hungry))
                .map(|(member, hungry)| Draw { used: member.used * per_second, hungry: *hungry })
                .collect();
            inner.divide(&draws);
        }
        inner.tell_rates();
        inner.tell_left(now);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // After a panic its numbers are at worst a request behind.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// A moment as the quota counts it.
    fn span(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.started)
    }

    /// The pause in force.
    fn pause(&self, now: Instant) -> Option<Pause> {
        self.quota.pause(self.span(now)).map(|pause| self.dated(pause))
    }

    fn dated(&self, pause: quota::Pause) -> Pause {
        let quota::Pause { until, counted, asked } = pause;
        Pause { until: self.started + until, counted, asked }
    }

    /// Lets the quota hear what leads to a pause, and tells the pools where that is news.
    fn pause_as(
        &mut self,
        now: Instant,
        hear: impl FnOnce(&mut Quota, Duration) -> quota::Pause,
    ) -> Pause {
        let before = self.pause(now);
        let span = self.span(now);
        let pause = hear(&mut self.quota, span);
        let pause = self.dated(pause);
        if before != Some(pause) {
            self.tell_pause(pause);
        }
        pause
    }

    fn requests_rate(&self) -> Option<Rate> {
        let heard = self.quota.heard().requests_per_minute;
        match lower(self.stated.requests_per_minute, heard) {
            Some(rate) => Some(rate),
            // A provider that states tokens alone limits nothing else.
            None if self.tokens_rate().is_some() => None,
            // A pool of leases that states nothing is limited by its capacity and by pauses. When its calls are accepted is
            // not seen, so nothing can be learned from that.
            None if !self.stated.is_hosted() => None,
            None => Some(Rate { per_minute: self.learned.per_minute(), from: From::Learned }),
        }
    }

    fn tokens_rate(&self) -> Option<Rate> {
        lower(self.stated.tokens_per_minute, self.quota.heard().tokens_per_minute)
    }

    fn divide(&mut self, draws: &[Draw]) {
        for (member, part) in self.members.iter_mut().zip(divide(draws)) {
            (member.part, member.used) = (part, 0.0);
        }
    }

    fn tell_rates(&mut self) {
        let (requests, tokens) = (self.requests_rate(), self.tokens_rate());
        // Whether a provider that states nothing lets anything be saved up is not known. A burst that it refuses would look as
        // if the rate were too high.
        let is_learned = requests.is_some_and(|rate| rate.from == From::Learned);
        let seconds = if is_learned { LEARNED_BURST_SECONDS } else { self.stated.burst_seconds };
        let burst = BurstSeconds::new(seconds).unwrap_or(BurstSeconds::DEFAULT);
        for member in &mut self.members {
            let part = |rate: Option<Rate>| {
                let part = whole(precise(rate?.per_minute) * member.part).max(1);
                PerMinute::new(part).ok()
            };
            let rates = Rates { requests: part(requests), tokens: part(tokens), burst };
            if member.told.is_none_or(|told| is_other(told, rates)) {
                member.told = Some(rates);
                if let Some(reporter) = member.reporter.upgrade() {
                    reporter.may(&member.worker, rates);
                }
            }
        }
    }

    fn tell_pause(&self, pause: Pause) {
        let spent = |concerned: bool| concerned.then_some(0);
        let requests = pause.counted.is_none_or(|counted| counted == Counted::Requests);
        let tokens = pause.counted.is_none_or(|counted| counted != Counted::Requests);
        let left = Left { requests: spent(requests), tokens: spent(tokens) };
        for member in &self.members {
            if let Some(reporter) = member.reporter.upgrade() {
                reporter.rests(&member.worker, pause.until, left);
            }
        }
    }

    fn tell_out(&self) {
        for member in &self.members {
            if let Some(reporter) = member.reporter.upgrade() {
                reporter.is_out(&member.worker, self.out.is_some());
            }
        }
    }

    /// Says what is left, where that is less than what may be saved up: elsewhere it is no news.
    fn tell_left(&mut self, now: Instant) {
        let rates = Stated {
            requests_per_minute: self.requests_rate().map(|rate| rate.per_minute),
            tokens_per_minute: self.tokens_rate().map(|rate| rate.per_minute),
        };
        let span = self.span(now);
        let left = self.quota.left_at(rates, span);
        let burst = precise(self.stated.burst_seconds) / 60.0;
        let little = |left: Option<u64>, per_minute: Option<u64>| {
            let (left, most) = (precise(left?), precise(per_minute?) * burst);
            (left < most).then_some(left)
        };
        let requests = little(left.requests, rates.requests_per_minute);
        let tokens = little(left.tokens, rates.tokens_per_minute);
        for member in &self.members {
            let part = |left: Option<f64>| left.map(|left| whole(left * member.part));
            let left = Left { requests: part(requests), tokens: part(tokens) };
            if let Some(reporter) = member.reporter.upgrade().filter(|_| left != Left::default()) {
                reporter.has_left(&member.worker, left);
            }
        }
    }
}

fn stated_by(file: &QuotaConfig) -> Stated {
    Stated {
        requests_per_minute: file.requests_per_minute,
        tokens_per_minute: file.tokens_per_minute,
    }
}

/// The lower of what the file and the provider state, and whose it is.
fn lower(file: Option<u64>, provider: Option<u64>) -> Option<Rate> {
    match (file, provider) {
        (Some(file), Some(provider)) if provider < file => {
            Some(Rate { per_minute: provider, from: From::Header })
        }
        (Some(file), _) => Some(Rate { per_minute: file, from: From::File }),
        (None, Some(provider)) => Some(Rate { per_minute: provider, from: From::Header }),
        (None, None) => None,
    }
}

/// Whether rates differ by so much that a pool should know. A part that wavers a little is no news.
fn is_other(told: Rates, now: Rates) -> bool {
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
