//! One worker, with its state, its rates and its pause.

use fairgate_core::event::{Submit, WorkerChange, WorkerState};
use fairgate_core::units::{BurstSeconds, PerMinute};

use super::state::NaivePlace;

/// "Units of which 60 000 000 are one request or one token."
const ONE: i128 = 60_000_000;

#[derive(Clone, Debug)]
pub(super) struct NaivePoolWorker {
    /// Number of the worker, in the order in which workers were added.
    pub(super) number: u64,
    pub(super) name: Box<str>,
    pub(super) state: WorkerState,
    ranks: u32,
    pub(super) slots: Option<u64>,
    taints: Vec<Box<str>>,
    pub(super) batch_tokens: Option<u64>,
    pub(super) tier: u64,
    requests: Option<NaiveRate>,
    tokens: Option<NaiveRate>,
    burst_seconds: u64,
    /// Time before which the worker is busy, in microseconds.
    pause_until: u64,
    /// Number of changes of this worker so far. Each change may set the levels of the rates, either to their greatest
    /// value or to a stated remaining number.
    levels_set: u64,
}

/// A rate of requests or of tokens that is set for a worker.
#[derive(Clone, Debug)]
struct NaiveRate {
    per_minute: u64,
    level: i128,
    /// Value of the worker's `levels_set` at the change that last set the level of the rate.
    setting: u64,
}

/// Units that a grant subtracted from a worker's token rate.
#[derive(Clone, Copy, Debug)]
pub(super) struct NaiveTaken {
    units: i128,
    /// Value of the rate's `setting` at the grant.
    setting: u64,
}

impl NaivePoolWorker {
    /// Creates a worker with the defaults: "state up, one rank, no slot limit, no taints, batch_tokens unknown".
    pub(super) fn new(number: u64, name: &str) -> Self {
        Self {
            number,
            name: name.into(),
            state: WorkerState::Up,
            ranks: 1,
            slots: None,
            taints: Vec::new(),
            batch_tokens: None,
            tier: 0,
            requests: None,
            tokens: None,
            burst_seconds: BurstSeconds::DEFAULT.get(),
            pause_until: 0,
            levels_set: 0,
        }
    }

    /// Applies the fields that the change contains, and leaves the other fields as they are.
    pub(super) fn change(&mut self, change: &WorkerChange) {
        self.state = change.state.unwrap_or(self.state);
        self.ranks = change.ranks.unwrap_or(self.ranks);
        self.slots = change.slots.or(self.slots);
        self.taints = change.taints.clone().unwrap_or_else(|| self.taints.clone());
        self.batch_tokens = change.batch_tokens.map(|tokens| tokens.0).or(self.batch_tokens);
        self.tier = change.tier.unwrap_or(self.tier);
        self.pause_until = change.pause_until.map_or(self.pause_until, |at| at.0);
        self.burst_seconds = change.burst_seconds.map_or(self.burst_seconds, BurstSeconds::get);
        self.levels_set += 1;
        let (burst, setting) = (self.burst_seconds, self.levels_set);
        change_rate(&mut self.requests, change.requests_per_minute, burst, setting);
        change_rate(&mut self.tokens, change.tokens_per_minute, burst, setting);
        set_remaining(&mut self.requests, change.requests_remaining, burst, setting);
        set_remaining(&mut self.tokens, change.tokens_remaining, burst, setting);
    }

    /// Raises the levels of the rates: "With every microsecond of `at` it rises by per_minute."
    pub(super) fn let_time_pass(&mut self, micros: u64) {
        let burst = self.burst_seconds;
        for rate in [&mut self.requests, &mut self.tokens].into_iter().flatten() {
            // Saturating gives the exact result, because the greatest level is far below the widest integer.
            let risen = i128::from(rate.per_minute).saturating_mul(i128::from(micros));
            rate.set_within_bounds(rate.level.saturating_add(risen), burst);
        }
    }

    /// Returns whether a rate or a pause makes the worker busy: a level below 60 000 000 units, or a `pause_until` in
    /// the future.
    pub(super) fn is_emptied_or_paused(&self, now: u64) -> bool {
        let emptied = [&self.requests, &self.tokens].into_iter().flatten().any(|r| r.level < ONE);
        emptied || now < self.pause_until
    }

    /// Subtracts a grant from the levels of the rates: one request from the request rate, and the request's `quota`
    /// from the token rate. Returns the units subtracted from the token rate; `None` if no token rate is set.
    pub(super) fn take(&mut self, quota: u64) -> Option<NaiveTaken> {
        let burst = self.burst_seconds;
        if let Some(rate) = &mut self.requests {
            rate.set_within_bounds(rate.level - ONE, burst);
        }
        let rate = self.tokens.as_mut()?;
        let before = rate.level;
        rate.set_within_bounds(before - i128::from(quota) * ONE, burst);
        Some(NaiveTaken { units: before - rate.level, setting: rate.setting })
    }

    /// Corrects the level of the token rate when a request ends. The `quota` of the release (default: its tokens) minus
    /// the units that the grant took is subtracted, so the level may also rise. Nothing changes if the release states
    /// neither number, if the rate was not set at the grant, or if the rate or its level was set again since then.
    pub(super) fn settle(&mut self, taken: Option<NaiveTaken>, quota: Option<u64>) {
        let burst = self.burst_seconds;
        let (Some(taken), Some(quota), Some(rate)) = (taken, quota, self.tokens.as_mut()) else {
            return;
        };
        if rate.setting == taken.setting {
            let difference = i128::from(quota) * ONE - taken.units;
            rate.set_within_bounds(rate.level - difference, burst);
        }
    }

    /// Iterates over the places of the worker: "a place is a rank of a worker".
    pub(super) fn places(&self) -> impl Iterator<Item = NaivePlace> {
        (0..self.ranks).map(|rank| NaivePlace { worker: self.number, rank })
    }

    pub(super) fn is_up_or_overloaded(&self) -> bool {
        matches!(self.state, WorkerState::Up | WorkerState::Overloaded)
    }

    /// Returns whether a rank of this worker is eligible for a request. The worker must be up or overloaded and have
    /// every taint in `requires`. A pin must name the worker, and the rank if the pin has one. `allow`, if present,
    /// must list the worker.
    pub(super) fn is_eligible(&self, rank: u32, submit: &Submit) -> bool {
        let pinned = submit.pin.as_ref().is_none_or(|pin| {
            pin.worker == self.name && pin.rank.is_none_or(|pinned| pinned == rank)
        });
        let allowed = submit.allow.as_ref().is_none_or(|allow| allow.contains(&self.name));
        let tainted = submit.requires.iter().all(|taint| self.taints.contains(taint));
        self.is_up_or_overloaded() && pinned && allowed && tainted
    }
}

/// Changes a rate. Null removes it, and a rate that is set again starts full. "A change of per_minute or burst_seconds
/// keeps the level, within the new bounds."
fn change_rate(
    rate: &mut Option<NaiveRate>,
    change: Option<Option<PerMinute>>,
    burst_seconds: u64,
    setting: u64,
) {
    *rate = match (rate.take(), change) {
        (rate, None) => rate,
        (_, Some(None)) => None,
        (Some(rate), Some(Some(to))) => Some(NaiveRate { per_minute: to.get(), ..rate }),
        (None, Some(Some(to))) => {
            let level = top(to.get(), burst_seconds);
            Some(NaiveRate { per_minute: to.get(), level, setting })
        }
    };
    if let Some(rate) = rate {
        rate.set_within_bounds(rate.level, burst_seconds);
    }
}

/// Sets the level of a rate to the remaining number that an event states, within the bounds and after the event's other
/// changes. Does nothing if the rate is not set, or if the event states no number.
fn set_remaining(rate: &mut Option<NaiveRate>, remaining: Option<u64>, burst: u64, setting: u64) {
    if let (Some(rate), Some(remaining)) = (rate, remaining) {
        rate.set_within_bounds(i128::from(remaining) * ONE, burst);
        rate.setting = setting;
    }
}

/// Returns the greatest level of a rate, max(60 000 000, per_minute × burst_seconds × 1 000 000).
fn top(per_minute: u64, burst_seconds: u64) -> i128 {
    ONE.max(i128::from(per_minute) * i128::from(burst_seconds) * 1_000_000)
}

impl NaiveRate {
    /// Sets the level of the rate, but never above its top and never below −60 000 000 × per_minute.
    fn set_within_bounds(&mut self, level: i128, burst_seconds: u64) {
        let bottom = -ONE * i128::from(self.per_minute);
        self.level = level.clamp(bottom, top(self.per_minute, burst_seconds));
    }
}
