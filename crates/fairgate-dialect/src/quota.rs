//! What a provider's account allows: the rule by which its answers become rates, levels and pauses.
//!
//! The gateway's accounts and the schedulers of Python go by it. Pure: times are spans since any fixed moment, and nothing
//! is sent anywhere. Tell it of every request that is
//! [sent](Quota::sent) and of every answer ([accepted](Quota::accepted), [refused](Quota::refused),
//! [overloaded](Quota::overloaded)); ask it for the rates in force, and now and then for what is [left](Quota::left).
//!
//! # What is left now
//! An answer's headers tell how it was when the provider took the request on. What was sent since then is taken off, and
//! what has come back since then is added.
//!
//! # Whom to believe
//! The lower of what the operator states and what the provider states. A provider that states different limits from answer
//! to answer is believed the lowest of the last half minute. No pause is longer than a minute: after it one request asks again.

use std::time::Duration;

use crate::limits::{Counted, Limit, Told};

/// The longest pause.
pub const PAUSE_MAX: Duration = Duration::from_secs(60);
/// The first pause where the provider does not say how long; it doubles with each refusal in a row.
pub const PAUSE_FIRST: Duration = Duration::from_secs(1);
/// How long a limit that the provider stated holds against a higher one.
pub const LOWER_HOLDS: Duration = Duration::from_secs(30);
/// How old what a provider said of what is left may be.
const HEARD_MAX: Duration = Duration::from_secs(3);

/// The limits that the operator states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stated {
    /// Requests per minute; `None` where only the provider knows.
    pub requests_per_minute: Option<u64>,
    /// Tokens per minute; `None` where only the provider knows.
    pub tokens_per_minute: Option<u64>,
}

/// All that was sent so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sent {
    requests: u64,
    tokens: u64,
}

/// How it stood with an account when a request was sent.
#[derive(Clone, Copy, Debug)]
pub struct Ticket {
    sent: Sent,
    at: Duration,
}

/// What may still be sent at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// Requests; `None` where nothing is known.
    pub requests: Option<u64>,
    /// Tokens; `None` where nothing is known.
    pub tokens: Option<u64>,
}

/// Until when nothing is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pause {
    /// When it ends.
    pub until: Duration,
    /// What the limit counts, where that was said.
    pub counted: Option<Counted>,
    /// How long the provider asked for, where it did.
    pub asked: Option<Duration>,
}

/// A limit as the provider states it, per minute, and when it was last as low.
#[derive(Clone, Copy, Debug, Default)]
struct Lowest(Option<(u64, Duration)>);

impl Lowest {
    fn hear(&mut self, per_minute: u64, now: Duration) {
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

#[derive(Clone, Copy, Debug)]
struct Heard {
    ticket: Ticket,
    at: Duration,
    left: Left,
}

/// What is known of an account's limits.
#[derive(Clone, Debug, Default)]
pub struct Quota {
    stated: Stated,
    requests: Lowest,
    tokens: Lowest,
    pause: Option<Pause>,
    refused_in_a_row: u32,
    sent: Sent,
    heard: Option<Heard>,
}

impl Quota {
    /// An account of which only this is known.
    pub fn new(stated: Stated) -> Self {
        Self { stated, ..Self::default() }
    }

    /// The operator states other limits.
    pub fn restate(&mut self, stated: Stated) {
        self.stated = stated;
    }

    /// The limits that the provider states.
    pub fn heard(&self) -> Stated {
        Stated {
            requests_per_minute: self.requests.per_minute(),
            tokens_per_minute: self.tokens.per_minute(),
        }
    }

    /// Requests per minute that may be sent, where anything is known.
    pub fn requests_per_minute(&self) -> Option<u64> {
        lower(self.stated.requests_per_minute, self.requests.per_minute())
    }

    /// Tokens per minute that may be sent, where anything is known.
    pub fn tokens_per_minute(&self) -> Option<u64> {
        lower(self.stated.tokens_per_minute, self.tokens.per_minute())
    }

    /// How many requests were sent so far.
    pub fn requests_sent(&self) -> u64 {
        self.sent.requests
    }

    /// The pause in force at that time.
    pub fn pause(&self, now: Duration) -> Option<Pause> {
        self.pause.filter(|pause| pause.until > now)
    }

    /// A request is sent, which the provider may count as so many tokens.
    pub fn sent(&mut self, tokens: u64, now: Duration) -> Ticket {
        self.sent.requests += 1;
        self.sent.tokens = self.sent.tokens.saturating_add(tokens);
        Ticket { sent: self.sent, at: now }
    }

    /// The head of an answer has come: the provider has taken the request on.
    pub fn accepted(&mut self, ticket: Ticket, told: &Told, now: Duration) {
        self.refused_in_a_row = 0;
        self.hear(ticket, told, now);
    }

    /// The provider has refused a request because of a rate.
    pub fn refused(
        &mut self,
        ticket: Ticket,
        told: &Told,
        counted: Option<Counted>,
        asked: Option<Duration>,
        now: Duration,
    ) -> Pause {
        self.hear(ticket, told, now);
        // What is left is nothing, whatever was said before.
        self.heard = None;
        self.pause_for(counted, asked, now)
    }

    /// The provider has too much to do, whatever the account's limits are.
    pub fn overloaded(&mut self, asked: Option<Duration>, now: Duration) -> Pause {
        self.pause_for(None, asked, now)
    }

    /// What is left, by what was last heard and not asked about since. `None` where that was too long ago.
    pub fn left(&mut self, now: Duration) -> Left {
        let rates = Stated {
            requests_per_minute: self.requests_per_minute(),
            tokens_per_minute: self.tokens_per_minute(),
        };
        self.left_at(rates, now)
    }

    /// As [`Quota::left`], where these rates are in force: they may be known from elsewhere.
    pub fn left_at(&mut self, rates: Stated, now: Duration) -> Left {
        let Some(heard) = self.heard.take() else { return Left::default() };
        if now.saturating_sub(heard.at) > HEARD_MAX {
            return Left::default();
        }
        let age_us = now.saturating_sub(heard.ticket.at).as_micros();
        let estimate = |left: Option<u64>, per_minute: Option<u64>, since: u64| {
            let came_back = u128::from(per_minute?) * age_us / 60_000_000;
            let now = (u128::from(left?) + came_back).saturating_sub(u128::from(since));
            Some(u64::try_from(now).unwrap_or(u64::MAX))
        };
        let (sent, then) = (self.sent, heard.ticket.sent);
        Left {
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
        counted: Option<Counted>,
        asked: Option<Duration>,
        now: Duration,
    ) -> Pause {
        // What was on its way when the pause began says nothing new.
        if let Some(pause) = self.pause(now).filter(|_| asked.is_none()) {
            return pause;
        }
        let unasked = PAUSE_FIRST * 2_u32.saturating_pow(self.refused_in_a_row.min(16));
        self.refused_in_a_row = self.refused_in_a_row.saturating_add(1);
        let until = now + asked.unwrap_or(unasked).min(PAUSE_MAX);
        // Of several that were refused at once, the longest pause holds.
        let pause = match self.pause {
            Some(earlier) if earlier.until >= until => earlier,
            _ => Pause { until, counted, asked },
        };
        self.pause = Some(pause);
        pause
    }

    fn hear(&mut self, ticket: Ticket, told: &Told, now: Duration) {
        let (requests, tokens) = (told.requests(), told.tokens());
        if let Some(per_minute) = requests.and_then(Limit::per_minute) {
            self.requests.hear(per_minute, now);
        }
        if let Some(per_minute) = tokens.and_then(Limit::per_minute) {
            self.tokens.hear(per_minute, now);
        }
        // What is left of a day says nothing about what may be sent at once, unless it is nothing.
        let left = |limit: Option<&Limit>| {
            let limit = limit?;
            let is_rate = limit.per_minute().is_some() || limit.limit.is_none();
            limit.remaining.filter(|left| is_rate || *left == 0)
        };
        let left = Left { requests: left(requests), tokens: left(tokens) };
        let is_newer = self.heard.is_none_or(|heard| heard.ticket.at <= ticket.at);
        if is_newer && left != Left::default() {
            self.heard = Some(Heard { ticket, at: now, left });
        }
    }
}

fn lower(stated: Option<u64>, heard: Option<u64>) -> Option<u64> {
    stated.into_iter().chain(heard).min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{UnixMicros, told};

    fn headers(pairs: &[(&str, &str)]) -> Told {
        told(pairs.iter().map(|(name, value)| (*name, value.as_bytes())), UnixMicros(0))
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn the_lower_of_what_is_stated_counts_and_the_lowest_holds_for_half_a_minute() {
        let stated = Stated { requests_per_minute: Some(200), tokens_per_minute: None };
        let mut quota = Quota::new(stated);
        let mut say = |limit: &str, now| {
            let ticket = quota.sent(1, now);
            quota.accepted(ticket, &headers(&[("x-ratelimit-limit-requests", limit)]), now);
            quota.requests_per_minute()
        };
        assert_eq!(say("1000", seconds(0)), Some(200));
        assert_eq!(say("10", seconds(1)), Some(10));
        assert_eq!(say("1000", seconds(2)), Some(10));
        assert_eq!(say("150", seconds(40)), Some(150));
        assert_eq!(quota.tokens_per_minute(), None);
    }

    #[test]
    fn a_pause_is_as_long_as_was_asked_for_and_never_longer_than_a_minute() {
        let mut quota = Quota::default();
        let mut refuse = |asked, now| {
            let ticket = quota.sent(1, now);
            quota.refused(ticket, &Told::default(), None, asked, now).until - now
        };
        assert_eq!(
            refuse(Some(Duration::from_millis(300)), seconds(0)),
            Duration::from_millis(300)
        );
        assert_eq!(refuse(Some(seconds(365 * 86_400)), seconds(1)), PAUSE_MAX);
        // Not said how long: doubled each time, until one is accepted.
        assert_eq!(refuse(None, seconds(61)), 4 * PAUSE_FIRST);
        assert_eq!(refuse(None, seconds(62)), 3 * PAUSE_FIRST, "the pause that is there");
        let ticket = quota.sent(1, seconds(90));
        quota.accepted(ticket, &Told::default(), seconds(90));
        assert_eq!(quota.overloaded(None, seconds(90)).until, seconds(91));
        assert_eq!(quota.pause(seconds(91)), None);
    }

    #[test]
    fn what_is_left_is_what_was_said_less_what_was_sent_since_plus_what_came_back() {
        let mut quota = Quota::default();
        let ticket = quota.sent(50, seconds(0));
        for _ in 0..5 {
            quota.sent(100, seconds(0));
        }
        let said = [
            ("x-ratelimit-limit-requests", "60"),
            ("x-ratelimit-remaining-requests", "20"),
            ("x-ratelimit-limit-tokens", "6000"),
            ("x-ratelimit-remaining-tokens", "100"),
        ];
        quota.accepted(ticket, &headers(&said), seconds(2));
        assert_eq!(quota.left(seconds(2)), Left { requests: Some(20 + 2 - 5), tokens: Some(0) });
        assert_eq!(quota.left(seconds(2)), Left::default(), "each word is used once");
        quota.accepted(ticket, &headers(&said), seconds(2));
        assert_eq!(quota.left(seconds(9)), Left::default(), "too long ago");
    }
}
