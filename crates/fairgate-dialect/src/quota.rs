//! Tracks the quota of a provider's account. Turns the provider's answers into rates, remaining amounts and pauses.
//!
//! The gateway's accounts and the Python schedulers use this module. It does no I/O, and times are durations since any
//! fixed moment. Report every request that is [sent](AccountQuota::record_sent) and every answer
//! ([accepted](AccountQuota::record_accepted), [refused](AccountQuota::record_refused),
//! [overloaded](AccountQuota::record_overloaded)). Then read the current rates, and from time to time the amounts that
//! are [left](AccountQuota::take_left).
//!
//! # Remaining amount
//! An answer's headers describe the moment at which the provider accepted the request. Requests sent since then are
//! subtracted, and the refill since then is added.
//!
//! # Conflicting limits
//! The lower of the operator's and the provider's limit applies, unless [`AccountQuota::prefer_stated`] was called. If
//! a provider states different limits from answer to answer, the lowest limit of the last 30 seconds applies. So if the
//! numbers of one answer show a limit per second, and those of another answer show a limit per minute, the limit is
//! taken as per minute. An answer whose numbers fit any window does not change the window. No pause is longer than a
//! minute, even if the provider states a longer one.

use std::time::Duration;

use crate::rate_limit_headers::{LimitUnit, LimitWindow, RateLimit, RateLimitHeaders};

/// Longest pause, even if the provider states a longer one.
pub const PAUSE_MAX: Duration = Duration::from_secs(60);
/// First pause if the provider states no time. The pause doubles with each further refusal in a row.
pub const PAUSE_FIRST: Duration = Duration::from_secs(1);
/// Time for which a limit that the provider stated continues to apply, even if the provider then states a higher limit.
pub const LOWER_HOLDS: Duration = Duration::from_secs(30);
/// Greatest age at which a remaining amount that the provider stated is still used.
const REMAINING_AGE_MAX: Duration = Duration::from_secs(3);

/// Limits per minute, as the operator or the provider states them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PerMinuteLimits {
    /// Requests per minute; `None` if no limit is stated.
    pub requests_per_minute: Option<u64>,
    /// Tokens per minute; `None` if no limit is stated.
    pub tokens_per_minute: Option<u64>,
}

/// Number of requests and of tokens sent to the provider so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct SentTotals {
    requests: u64,
    tokens: u64,
}

/// The totals sent on an account up to one request, and the time of that request. Pass the ticket back with the answer
/// to the request.
#[derive(Clone, Copy, Debug)]
pub struct QuotaTicket {
    sent: SentTotals,
    at: Duration,
}

/// Amounts that the provider would still accept at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccountRemaining {
    /// Number of requests left; `None` if it is unknown.
    pub requests: Option<u64>,
    /// Number of tokens left; `None` if it is unknown.
    pub tokens: Option<u64>,
}

/// A time in which nothing is sent to the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaPause {
    /// The time at which the pause ends, counted from the same fixed moment as all times of this module.
    pub until: Duration,
    /// The unit of the limit that caused the pause; `None` if it is unknown.
    pub counted: Option<LimitUnit>,
    /// Time to wait that the provider stated; `None` if it stated none.
    pub asked: Option<Duration>,
}

/// The lowest limit per minute that the provider stated recently, and the time at which it was stated; `None` if the
/// provider has stated no limit yet. A higher limit replaces a lower one only after [`LOWER_HOLDS`].
#[derive(Clone, Copy, Debug, Default)]
struct LowestLimit(Option<(u64, Duration)>);

impl LowestLimit {
    fn update(&mut self, per_minute: u64, now: Duration) {
        let holds = |(lowest, at): (u64, Duration)| {
            per_minute > lowest && now.saturating_sub(at) <= LOWER_HOLDS
        };
        if !self.0.is_some_and(holds) {
            self.0 = Some((per_minute, now));
        }
    }

    fn per_minute(self) -> Option<u64> {
        self.0.map(|(per_minute, _)| per_minute)
    }
}

/// One limit of the provider, of requests or of tokens.
#[derive(Clone, Copy, Debug, Default)]
struct ProviderLimit {
    lowest: LowestLimit,
    /// The limit per second, from the last answer whose numbers show the window; `None` if that answer stated no limit
    /// per second.
    per_second: Option<u64>,
}

impl ProviderLimit {
    fn read(&mut self, told: &RateLimit, now: Duration) {
        let fits_any_window = told.fits_any_window();
        let is_per_second = match told.window {
            Some(window) => window == LimitWindow::Second,
            None => fits_any_window && told.limit.is_some() && told.limit == self.per_second,
        };
        if !fits_any_window || is_per_second {
            self.per_second = told.limit.filter(|_| is_per_second);
        }
        let per_minute = match is_per_second {
            true => told.limit.map(|limit| limit.saturating_mul(60)),
            false => told.per_minute(),
        };
        if let Some(per_minute) = per_minute {
            self.lowest.update(per_minute, now);
        }
    }

    /// Returns true if the limit that applies is per second.
    fn is_per_second(self) -> bool {
        let per_minute = self.per_second.map(|limit| limit.saturating_mul(60));
        per_minute.is_some() && per_minute == self.lowest.per_minute()
    }
}

#[derive(Clone, Copy, Debug)]
struct StatedRemaining {
    ticket: QuotaTicket,
    at: Duration,
    left: AccountRemaining,
}

/// The state of one account's limits, as far as the operator and the provider have stated them.
#[derive(Clone, Debug, Default)]
pub struct AccountQuota {
    stated: PerMinuteLimits,
    /// True if a limit that the operator states applies even where the provider states a lower one.
    prefers_stated: bool,
    requests: ProviderLimit,
    tokens: ProviderLimit,
    pause: Option<QuotaPause>,
    refused_in_a_row: u32,
    sent: SentTotals,
    last_remaining: Option<StatedRemaining>,
}

impl AccountQuota {
    /// Creates the state of an account with the limits that the operator states.
    pub fn new(stated: PerMinuteLimits) -> Self {
        Self { stated, ..Self::default() }
    }

    /// Replaces the limits that the operator states.
    pub fn set_stated(&mut self, stated: PerMinuteLimits) {
        self.stated = stated;
    }

    /// Forgets all limits, remaining amounts and pauses that the provider stated. The operator's limits and the totals
    /// sent stay.
    pub fn forget_statements(&mut self) {
        let Self { stated, sent, prefers_stated, .. } = *self;
        *self = Self { stated, sent, prefers_stated, ..Self::default() };
    }

    /// Makes the limits that the operator states apply even where the provider's headers state lower ones. A limit that
    /// the operator does not state is still taken from the provider, and so are remaining amounts and pauses.
    pub fn prefer_stated(&mut self) {
        self.prefers_stated = true;
    }

    /// Returns the longest burst in seconds that the provider's limits allow: 1 if a limit that applies is per second,
    /// else 60.
    pub fn burst_seconds_max(&self) -> u64 {
        if self.requests.is_per_second() || self.tokens.is_per_second() { 1 } else { 60 }
    }

    /// Returns the limits that the provider stated, without those of the operator.
    pub fn stated_by_provider(&self) -> PerMinuteLimits {
        PerMinuteLimits {
            requests_per_minute: self.requests.lowest.per_minute(),
            tokens_per_minute: self.tokens.lowest.per_minute(),
        }
    }

    /// Returns the number of requests that may be sent per minute; `None` if neither the operator nor the provider has
    /// stated a limit.
    pub fn requests_per_minute(&self) -> Option<u64> {
        self.in_force(self.stated.requests_per_minute, self.requests)
    }

    /// Returns the number of tokens that may be sent per minute; `None` if neither the operator nor the provider has
    /// stated a limit.
    pub fn tokens_per_minute(&self) -> Option<u64> {
        self.in_force(self.stated.tokens_per_minute, self.tokens)
    }

    fn in_force(&self, stated: Option<u64>, by_provider: ProviderLimit) -> Option<u64> {
        let by_provider = by_provider.lowest.per_minute();
        match stated {
            Some(stated) if self.prefers_stated => Some(stated),
            _ => stated.into_iter().chain(by_provider).min(),
        }
    }

    /// Returns the number of requests sent so far.
    pub fn requests_sent(&self) -> u64 {
        self.sent.requests
    }

    /// Returns the pause that lasts at the time `now`; `None` if there is none.
    pub fn pause(&self, now: Duration) -> Option<QuotaPause> {
        self.pause.filter(|pause| pause.until > now)
    }

    /// Records that a request is sent. `tokens` is the number of tokens that the provider may count for the request.
    /// Pass the returned ticket back with the answer.
    pub fn record_sent(&mut self, tokens: u64, now: Duration) -> QuotaTicket {
        self.sent.requests += 1;
        self.sent.tokens = self.sent.tokens.saturating_add(tokens);
        QuotaTicket { sent: self.sent, at: now }
    }

    /// Records that the provider has accepted a request, with the headers of its answer.
    pub fn record_accepted(&mut self, ticket: QuotaTicket, told: &RateLimitHeaders, now: Duration) {
        self.refused_in_a_row = 0;
        self.read_headers(ticket, told, now);
    }

    /// Records that the provider refused a request because of a rate limit. Returns the pause.
    pub fn record_refused(
        &mut self,
        ticket: QuotaTicket,
        told: &RateLimitHeaders,
        counted: Option<LimitUnit>,
        asked: Option<Duration>,
        now: Duration,
    ) -> QuotaPause {
        self.read_headers(ticket, told, now);
        // The refusal shows that nothing is left now, whatever was stated before.
        self.last_remaining = None;
        self.pause_for(counted, asked, now)
    }

    /// Records an answer that the provider is overloaded. Returns the pause. The account's limits are not the cause of
    /// such an answer.
    pub fn record_overloaded(&mut self, asked: Option<Duration>, now: Duration) -> QuotaPause {
        self.pause_for(None, asked, now)
    }

    /// Returns the amounts that are left according to the last answer. Each answer is used once. So both amounts are
    /// `None` if this is called again before another answer, or more than 3 seconds after the answer.
    pub fn take_left(&mut self, now: Duration) -> AccountRemaining {
        let rates = PerMinuteLimits {
            requests_per_minute: self.requests_per_minute(),
            tokens_per_minute: self.tokens_per_minute(),
        };
        self.take_left_at(rates, now)
    }

    /// Returns the same as [`AccountQuota::take_left`], but computes the refill with the given rates, which may come
    /// from another source.
    pub fn take_left_at(&mut self, rates: PerMinuteLimits, now: Duration) -> AccountRemaining {
        let Some(heard) = self.last_remaining.take() else { return AccountRemaining::default() };
        if now.saturating_sub(heard.at) > REMAINING_AGE_MAX {
            return AccountRemaining::default();
        }
        let age_us = now.saturating_sub(heard.ticket.at).as_micros();
        let estimate = |left: Option<u64>, per_minute: Option<u64>, since: u64| {
            let came_back = u128::from(per_minute?) * age_us / 60_000_000;
            let now = (u128::from(left?) + came_back).saturating_sub(u128::from(since));
            Some(u64::try_from(now).unwrap_or(u64::MAX))
        };
        let (sent, then) = (self.sent, heard.ticket.sent);
        AccountRemaining {
            requests: estimate(
                heard.left.requests,
                rates.requests_per_minute,
                sent.requests - then.requests,
            ),
            tokens: estimate(
                heard.left.tokens,
                rates.tokens_per_minute,
                sent.tokens.saturating_sub(then.tokens),
            ),
        }
    }

    fn pause_for(
        &mut self,
        counted: Option<LimitUnit>,
        asked: Option<Duration>,
        now: Duration,
    ) -> QuotaPause {
        // Requests that were in flight when the pause began give no new information.
        if let Some(pause) = self.pause(now).filter(|_| asked.is_none()) {
            return pause;
        }
        let unasked = PAUSE_FIRST * 2_u32.saturating_pow(self.refused_in_a_row.min(16));
        self.refused_in_a_row = self.refused_in_a_row.saturating_add(1);
        let until = now + asked.unwrap_or(unasked).min(PAUSE_MAX);
        // Of several refusals at once, the longest pause counts.
        let pause = match self.pause {
            Some(earlier) if earlier.until >= until => earlier,
            _ => QuotaPause { until, counted, asked },
        };
        self.pause = Some(pause);
        pause
    }

    fn read_headers(&mut self, ticket: QuotaTicket, told: &RateLimitHeaders, now: Duration) {
        let (requests, tokens) = (told.requests(), told.tokens());
        if let Some(requests) = requests {
            self.requests.read(requests, now);
        }
        if let Some(tokens) = tokens {
            self.tokens.read(tokens, now);
        }
        // The remainder of a day or longer says nothing about the amount that may be sent at once, unless it is 0.
        let left = |limit: Option<&RateLimit>| {
            let limit = limit?;
            let is_rate = limit.per_minute().is_some() || limit.limit.is_none();
            limit.remaining.filter(|left| is_rate || *left == 0)
        };
        let left = AccountRemaining { requests: left(requests), tokens: left(tokens) };
        let is_newer = self.last_remaining.is_none_or(|heard| heard.ticket.at <= ticket.at);
        if is_newer && left != AccountRemaining::default() {
            self.last_remaining = Some(StatedRemaining { ticket, at: now, left });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rate_limit_headers::{EpochMicros, read_rate_limits};

    fn headers(pairs: &[(&str, &str)]) -> RateLimitHeaders {
        read_rate_limits(
            pairs.iter().map(|(name, value)| (*name, value.as_bytes())),
            EpochMicros(0),
        )
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn the_lower_of_what_is_stated_counts_and_the_lowest_holds_for_half_a_minute() {
        let stated = PerMinuteLimits { requests_per_minute: Some(200), tokens_per_minute: None };
        let mut quota = AccountQuota::new(stated);
        let mut say = |limit: &str, now| {
            let ticket = quota.record_sent(1, now);
            quota.record_accepted(ticket, &headers(&[("x-ratelimit-limit-requests", limit)]), now);
            quota.requests_per_minute()
        };
        assert_eq!(say("1000", seconds(0)), Some(200));
        assert_eq!(say("10", seconds(1)), Some(10));
        assert_eq!(say("1000", seconds(2)), Some(10));
        assert_eq!(say("150", seconds(40)), Some(150));
        assert_eq!(quota.tokens_per_minute(), None);
    }

    /// Records an answer with these numbers about requests, and returns the limit per minute and the longest burst.
    fn say(
        quota: &mut AccountQuota,
        [limit, remaining, reset]: [&str; 3],
        now: Duration,
    ) -> (Option<u64>, u64) {
        let ticket = quota.record_sent(1, now);
        let told = headers(&[
            ("x-ratelimit-limit-requests", limit),
            ("x-ratelimit-remaining-requests", remaining),
            ("x-ratelimit-reset-requests", reset),
        ]);
        quota.record_accepted(ticket, &told, now);
        (quota.requests_per_minute(), quota.burst_seconds_max())
    }

    #[test]
    fn a_limit_per_second_stays_one_while_no_answer_says_otherwise() {
        let mut quota = AccountQuota::default();
        assert_eq!(say(&mut quota, ["20", "19", "50ms"], seconds(0)), (Some(1200), 1));
        // These numbers fit a second as well as a minute.
        for said in [
            ["20", "20", "0s"],
            ["20", "0", "1s"],
            ["20", "19", "0s"],
            ["20", "10", "487ms"],
            ["20", "0", "950ms"],
            ["20", "0", "50ms"],
        ] {
            assert_eq!(say(&mut quota, said, seconds(1)), (Some(1200), 1), "{said:?}");
        }
        // Another limit, of which nothing shows that it is per second.
        assert_eq!(say(&mut quota, ["40", "39", "0s"], seconds(2)), (Some(40), 60));
        assert_eq!(say(&mut quota, ["20", "19", "3s"], seconds(3)), (Some(20), 60));
        assert_eq!(say(&mut quota, ["20", "19", "0s"], seconds(4)), (Some(20), 60));
    }

    #[test]
    fn the_last_moment_of_a_fixed_minute_is_not_believed_to_be_a_second() {
        let mut quota = AccountQuota::default();
        assert_eq!(say(&mut quota, ["20", "15", "31.5s"], seconds(0)).0, Some(20));
        assert_eq!(say(&mut quota, ["20", "0", "400ms"], seconds(29)), (Some(20), 60));
        // Also if it is the first answer.
        let mut quota = AccountQuota::default();
        assert_eq!(say(&mut quota, ["20", "0", "400ms"], seconds(0)), (Some(20), 60));
        // The first request of a fixed minute, answered as that minute ends, is believed until the next answer.
        let mut quota = AccountQuota::default();
        assert_eq!(say(&mut quota, ["20", "19", "40ms"], seconds(0)).0, Some(1200));
        assert_eq!(say(&mut quota, ["20", "19", "59.7s"], seconds(1)), (Some(20), 60));
    }

    #[test]
    fn stated_limits_win_where_they_are_preferred() {
        let stated = PerMinuteLimits { requests_per_minute: Some(1200), tokens_per_minute: None };
        let mut quota = AccountQuota::new(stated);
        assert_eq!(say(&mut quota, ["20", "19", "3s"], seconds(0)).0, Some(20));
        quota.prefer_stated();
        assert_eq!(quota.requests_per_minute(), Some(1200));
        let tokens = [("x-ratelimit-limit-tokens", "5000")];
        let ticket = quota.record_sent(1, seconds(1));
        quota.record_accepted(ticket, &headers(&tokens), seconds(1));
        assert_eq!(quota.tokens_per_minute(), Some(5000), "nobody stated another one");
    }

    #[test]
    fn a_pause_is_as_long_as_was_asked_for_and_never_longer_than_a_minute() {
        let mut quota = AccountQuota::default();
        let mut refuse = |asked, now| {
            let ticket = quota.record_sent(1, now);
            quota.record_refused(ticket, &RateLimitHeaders::default(), None, asked, now).until - now
        };
        assert_eq!(
            refuse(Some(Duration::from_millis(300)), seconds(0)),
            Duration::from_millis(300)
        );
        assert_eq!(refuse(Some(seconds(365 * 86_400)), seconds(1)), PAUSE_MAX);
        // Not said how long: doubled each time, until one is accepted.
        assert_eq!(refuse(None, seconds(61)), 4 * PAUSE_FIRST);
        assert_eq!(refuse(None, seconds(62)), 3 * PAUSE_FIRST, "the pause that is there");
        let ticket = quota.record_sent(1, seconds(90));
        quota.record_accepted(ticket, &RateLimitHeaders::default(), seconds(90));
        assert_eq!(quota.record_overloaded(None, seconds(90)).until, seconds(91));
        assert_eq!(quota.pause(seconds(91)), None);
    }

    #[test]
    fn what_is_left_is_what_was_said_less_what_was_sent_since_plus_what_came_back() {
        let mut quota = AccountQuota::default();
        let ticket = quota.record_sent(50, seconds(0));
        for _ in 0..5 {
            quota.record_sent(100, seconds(0));
        }
        let said = [
            ("x-ratelimit-limit-requests", "60"),
            ("x-ratelimit-remaining-requests", "20"),
            ("x-ratelimit-limit-tokens", "6000"),
            ("x-ratelimit-remaining-tokens", "100"),
        ];
        quota.record_accepted(ticket, &headers(&said), seconds(2));
        assert_eq!(
            quota.take_left(seconds(2)),
            AccountRemaining { requests: Some(20 + 2 - 5), tokens: Some(0) }
        );
        assert_eq!(
            quota.take_left(seconds(2)),
            AccountRemaining::default(),
            "each word is used once"
        );
        quota.record_accepted(ticket, &headers(&said), seconds(2));
        assert_eq!(quota.take_left(seconds(9)), AccountRemaining::default(), "too long ago");
    }
}
