//! What one agent may spend, in tokens: reserved when it asks, settled when its request ends.
//!
//! spent + reserved ≤ limit holds whenever a request is let through, so that any number of concurrent requests
//! together stay within the limit as far as their estimates are true. A request that used more than its estimate
//! is charged what it used, and the next ones find less left.
//!
//! A budget may be for a window of time: a calendar's (UTC), at whose end nothing is spent any more, or one that rolls, out of
//! which what was spent falls piece by piece.

use std::collections::VecDeque;

use fairgate_money::{Day, UnixMicros};

use crate::desk::Number;

/// How many pieces a rolling window is counted in.
const PIECES: u64 = 64;
const MINUTE_US: i64 = 60_000_000;

/// A moment, by the pool's clock and by the calendar's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    /// Microseconds since the desk began.
    pub(crate) pool_us: u64,
    pub(crate) unix: UnixMicros,
}

/// For which time a budget is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Period {
    Forever,
    Minute,
    Hour,
    Day,
    /// From Monday on.
    Week,
    Month,
    /// The last so many microseconds.
    Rolling(u64),
}

impl Period {
    /// The calendar's, by name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "minute" => Self::Minute,
            "hour" => Self::Hour,
            "day" => Self::Day,
            "week" => Self::Week,
            "month" => Self::Month,
            _ => return None,
        })
    }

    /// When the calendar's period around that moment ends; never where it has no such end.
    fn end(self, UnixMicros(at): UnixMicros) -> i64 {
        let next = |length: i64| (at.div_euclid(length) + 1).saturating_mul(length);
        match self {
            Self::Forever | Self::Rolling(_) => i64::MAX,
            Self::Minute => next(MINUTE_US),
            Self::Hour => next(60 * MINUTE_US),
            Self::Day => next(1440 * MINUTE_US),
            Self::Week => {
                // 1970-01-01 was a Thursday.
                let Day(day) = Day::of(UnixMicros(at));
                Day((day + 3).div_euclid(7) * 7 + 7 - 3).midnight().0
            }
            Self::Month => Day::of(UnixMicros(at)).next_month().midnight().0,
        }
    }
}

/// What an operator says of a budget.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    /// How much may be spent, in the period.
    pub(crate) limit: u64,
    /// Whether a request that does not fit waits, or is refused.
    pub(crate) waits: bool,
    pub(crate) period: Period,
    /// Parts of the limit, in thousandths, that somebody wants to be told of when they are spent; ascending.
    pub(crate) alerts: Vec<u32>,
}

/// A budget of tokens.
#[derive(Debug)]
pub(crate) struct Budget {
    pub(crate) terms: Terms,
    /// What ended requests used, in the period.
    pub(crate) spent: u64,
    /// The estimates of requests that wait for a slot or hold one.
    pub(crate) reserved: u64,
    /// The requests that wait until they fit, first come first.
    pub(crate) parked: VecDeque<Number>,
    /// When the calendar's period ends.
    ends: i64,
    /// What was spent in a rolling window: since when, and how much.
    pieces: VecDeque<(u64, u64)>,
    /// How many of the alerts were given in this period.
    alerted: usize,
}

impl Budget {
    pub(crate) fn new(terms: Terms, now: Moment) -> Self {
        let ends = terms.period.end(now.unix);
        Self {
            terms,
            spent: 0,
            reserved: 0,
            parked: VecDeque::new(),
            ends,
            pieces: VecDeque::new(),
            alerted: 0,
        }
    }

    /// Other terms from now on. What was spent stays spent.
    pub(crate) fn change(&mut self, terms: Terms, now: Moment) {
        if terms.period != self.terms.period {
            self.pieces.clear();
            self.pieces.push_back((now.pool_us, self.spent));
            self.ends = terms.period.end(now.unix);
        }
        self.alerted = 0;
        self.terms = terms;
    }

    /// Time goes on: what was spent in an earlier period does not count.
    pub(crate) fn roll(&mut self, now: Moment) {
        if now.unix.0 >= self.ends {
            self.ends = self.terms.period.end(now.unix);
            (self.spent, self.alerted) = (0, 0);
        }
        if let Period::Rolling(length) = self.terms.period {
            while let Some((since, tokens)) = self.pieces.front().copied()
                && since.saturating_add(length) <= now.pool_us
            {
                self.pieces.pop_front();
                self.spent = self.spent.saturating_sub(tokens);
                self.alerted = 0;
            }
        }
    }

    /// After how many microseconds time alone leaves more of it.
    pub(crate) fn next_relief_us(&self, now: Moment) -> Option<u64> {
        match self.terms.period {
            Period::Forever => None,
            Period::Rolling(length) => {
                let (since, _) = self.pieces.front()?;
                Some(since.saturating_add(length).saturating_sub(now.pool_us))
            }
            _ => Some(u64::try_from(self.ends - now.unix.0).unwrap_or(0)),
        }
    }

    /// What is neither spent nor reserved.
    pub(crate) fn left(&self) -> u64 {
        self.terms.limit.saturating_sub(self.spent).saturating_sub(self.reserved)
    }

    /// Reserves an estimate where it fits and nobody waits before it.
    pub(crate) fn reserve(&mut self, cost: u64) -> bool {
        let fits = self.parked.is_empty() && cost <= self.left();
        if fits {
            self.reserved += cost;
        }
        fits
    }

    /// The first who waits, if it fits now; its estimate is then reserved.
    pub(crate) fn admit(&mut self, cost_of: impl Fn(Number) -> u64) -> Option<Number> {
        let first = *self.parked.front()?;
        let cost = cost_of(first);
        if cost > self.left() {
            return None;
        }
        self.parked.pop_front();
        self.reserved += cost;
        Some(first)
    }

    /// A request left without having run.
    pub(crate) fn unreserve(&mut self, cost: u64) {
        self.reserved = self.reserved.saturating_sub(cost);
    }

    /// A request ended and used this much. Says which part of the limit, in thousandths, is spent by that, where somebody
    /// wants to be told.
    pub(crate) fn settle(&mut self, cost: u64, used: u64, now: Moment) -> Option<u32> {
        self.roll(now);
        self.unreserve(cost);
        self.spent = self.spent.saturating_add(used);
        if let Period::Rolling(length) = self.terms.period {
            match self.pieces.back_mut() {
                Some((since, tokens)) if now.pool_us - *since < length / PIECES => {
                    *tokens = tokens.saturating_add(used);
                }
                _ => self.pieces.push_back((now.pool_us, used)),
            }
        }
        let spent = u128::from(self.spent) * 1000;
        let is_spent = |part: &u32| spent >= u128::from(self.terms.limit) * u128::from(*part);
        let reached = self.terms.alerts.iter().take_while(|part| is_spent(part)).count();
        let news = (reached > self.alerted).then(|| self.terms.alerts[reached - 1]);
        self.alerted = self.alerted.max(reached);
        news
    }

    /// Forgets what is reserved and who waits, as after a fork.
    pub(crate) fn forget_requests(&mut self) {
        self.reserved = 0;
        self.parked.clear();
    }
}
