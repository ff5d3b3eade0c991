//! The token budget of one agent. A request reserves its estimate when it is made, and is charged its usage when it
//! ends.
//!
//! A request is let through only if spent + reserved + the request's estimate ≤ limit. Any number of concurrent
//! requests together therefore stay within the limit if their estimates are right. A request that used more than its
//! estimate is charged its real usage, and less is left for later requests.
//!
//! The period of a budget may be a calendar period (UTC), at whose end the spent amount becomes 0, or a rolling window,
//! which drops old usage in steps of 1/64 of the window's length.

use std::collections::VecDeque;

use fairgate_time::{UnixMicros, UtcDay};

use crate::request_number::RequestNumber;

/// Number of steps in which a rolling window drops old usage.
const PIECES: u64 = 64;
const MINUTE_US: i64 = 60_000_000;

/// A point in time, both on the pool's clock and on the calendar.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BudgetTime {
    /// Microseconds since the scheduler was created.
    pub(crate) pool_us: u64,
    pub(crate) unix: UnixMicros,
}

/// The span of time over which usage counts against a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LocalBudgetPeriod {
    Forever,
    Minute,
    Hour,
    UtcDay,
    /// Calendar week (UTC), which begins on Monday.
    Week,
    Month,
    /// Rolling window of this many microseconds.
    Rolling(u64),
}

impl LocalBudgetPeriod {
    /// Returns the calendar period with this name; `None` if no period has it.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "minute" => Self::Minute,
            "hour" => Self::Hour,
            "day" => Self::UtcDay,
            "week" => Self::Week,
            "month" => Self::Month,
            _ => return None,
        })
    }

    /// Returns the end of the calendar period that contains this time, in microseconds since 1970; `i64::MAX` for a
    /// rolling window or no period.
    fn end(self, UnixMicros(at): UnixMicros) -> i64 {
        let next = |length: i64| (at.div_euclid(length) + 1).saturating_mul(length);
        match self {
            Self::Forever | Self::Rolling(_) => i64::MAX,
            Self::Minute => next(MINUTE_US),
            Self::Hour => next(60 * MINUTE_US),
            Self::UtcDay => next(1440 * MINUTE_US),
            Self::Week => {
                // 1970-01-01 was a Thursday.
                let UtcDay(day) = UtcDay::of(UnixMicros(at));
                UtcDay((day + 3).div_euclid(7) * 7 + 7 - 3).midnight().0
            }
            Self::Month => UtcDay::of(UnixMicros(at)).next_month().midnight().0,
        }
    }
}

/// Settings of a budget.
#[derive(Clone, Debug)]
pub(crate) struct LocalBudgetTerms {
    /// Number of tokens that may be used per period.
    pub(crate) limit: u64,
    /// True if a request waits when too little budget is left for it; false if such a request is refused.
    pub(crate) waits: bool,
    pub(crate) period: LocalBudgetPeriod,
    /// Levels of usage at which an alert is raised, in thousandths of the limit, in ascending order.
    pub(crate) alerts: Vec<u32>,
}

/// State of one token budget.
#[derive(Debug)]
pub(crate) struct LocalBudget {
    pub(crate) terms: LocalBudgetTerms,
    /// Number of tokens that ended requests used in this period.
    pub(crate) spent: u64,
    /// Sum of the estimates, in tokens, of requests that are queued for a slot or hold one.
    pub(crate) reserved: u64,
    /// Requests that wait for budget, oldest first.
    pub(crate) parked: VecDeque<RequestNumber>,
    /// Time at which the calendar period ends, in microseconds since 1970.
    ends: i64,
    /// Usage within a rolling window, as pairs of a step's start (microseconds on the pool's clock) and the tokens used
    /// in this step.
    pieces: VecDeque<(u64, u64)>,
    /// Number of alert levels that were already reached in this period.
    alerted: usize,
}

impl LocalBudget {
    pub(crate) fn new(terms: LocalBudgetTerms, now: BudgetTime) -> Self {
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

    /// Changes the settings. The amount spent is kept.
    pub(crate) fn change(&mut self, terms: LocalBudgetTerms, now: BudgetTime) {
        if terms.period != self.terms.period {
            self.pieces.clear();
            self.pieces.push_back((now.pool_us, self.spent));
            self.ends = terms.period.end(now.unix);
        }
        self.alerted = 0;
        self.terms = terms;
    }

    /// Advances the budget to `now`, so that usage of an earlier period no longer counts.
    pub(crate) fn roll(&mut self, now: BudgetTime) {
        if now.unix.0 >= self.ends {
            self.ends = self.terms.period.end(now.unix);
            (self.spent, self.alerted) = (0, 0);
        }
        if let LocalBudgetPeriod::Rolling(length) = self.terms.period {
            while let Some((since, tokens)) = self.pieces.front().copied()
                && since.saturating_add(length) <= now.pool_us
            {
                self.pieces.pop_front();
                self.spent = self.spent.saturating_sub(tokens);
                self.alerted = 0;
            }
        }
    }

    /// Returns the microseconds until old usage no longer counts, which frees budget; `None` if this never happens.
    pub(crate) fn next_release_us(&self, now: BudgetTime) -> Option<u64> {
        match self.terms.period {
            LocalBudgetPeriod::Forever => None,
            LocalBudgetPeriod::Rolling(length) => {
                let (since, _) = self.pieces.front()?;
                Some(since.saturating_add(length).saturating_sub(now.pool_us))
            }
            _ => Some(u64::try_from(self.ends - now.unix.0).unwrap_or(0)),
        }
    }

    /// Returns the number of tokens of the limit that are neither spent nor reserved.
    pub(crate) fn left(&self) -> u64 {
        self.terms.limit.saturating_sub(self.spent).saturating_sub(self.reserved)
    }

    /// Reserves `cost` tokens and returns true if that many are left and no other request waits for budget. Otherwise
    /// returns false.
    pub(crate) fn reserve(&mut self, cost: u64) -> bool {
        let fits = self.parked.is_empty() && cost <= self.left();
        if fits {
            self.reserved += cost;
        }
        fits
    }

    /// Removes the request that has waited longest for budget from the waiting requests, and reserves its estimate.
    /// Returns `None` if no request waits, or if too little budget is left for that request.
    pub(crate) fn admit(
        &mut self,
        cost_of: impl Fn(RequestNumber) -> u64,
    ) -> Option<RequestNumber> {
        let first = *self.parked.front()?;
        let cost = cost_of(first);
        if cost > self.left() {
            return None;
        }
        self.parked.pop_front();
        self.reserved += cost;
        Some(first)
    }

    /// Releases the reservation of a request that did not run.
    pub(crate) fn unreserve(&mut self, cost: u64) {
        self.reserved = self.reserved.saturating_sub(cost);
    }

    /// Replaces the reservation `cost` of an ended request with its usage `used`. Returns the highest alert level, in
    /// thousandths of the limit, that this usage reached; `None` if it reached no new level.
    pub(crate) fn settle(&mut self, cost: u64, used: u64, now: BudgetTime) -> Option<u32> {
        self.roll(now);
        self.unreserve(cost);
        self.spent = self.spent.saturating_add(used);
        if let LocalBudgetPeriod::Rolling(length) = self.terms.period {
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
        let result = (reached > self.alerted).then(|| self.terms.alerts[reached - 1]);
        self.alerted = self.alerted.max(reached);
        result
    }

    /// Drops all reservations and waiting requests, for a child process after a fork.
    pub(crate) fn forget_requests(&mut self) {
        self.reserved = 0;
        self.parked.clear();
    }
}
