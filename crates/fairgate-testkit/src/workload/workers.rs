//! Random workers: their places, rates, pauses and tiers.

use fairgate_core::event::{WorkerChange, WorkerState};
use fairgate_core::units::{BurstSeconds, Micros, PerMinute, Tokens};

use super::rng::Rng;

/// How many worker names there are.
pub(super) const WORKERS: usize = 5;
pub(super) const TAINTS: [&str; 2] = ["zone-a", "gpu"];

/// The mean time between two events, before it is scaled.
const MEAN_GAP: u64 = 85;

/// How the workers of one journal are drawn.
#[derive(Clone, Debug)]
pub(super) struct Workers {
    /// Whether they have rates and pauses.
    pub(super) rates: bool,
    /// How many workers there are, where each name has one of its own.
    pub(super) homes: Option<usize>,
    /// How much longer than a microsecond the journal's unit of time is.
    pub(super) time_scale: u64,
    /// What one request takes from a token rate, roughly.
    pub(super) usual_cost: u64,
}

pub(super) fn worker_name(number: usize) -> Box<str> {
    format!("w{number}").into()
}

pub(super) fn any_worker(rng: &mut Rng) -> Box<str> {
    worker_name(rng.index(WORKERS))
}

impl Workers {
    /// The workers of a pool at its start; sometimes none.
    pub(super) fn first(&self, rng: &mut Rng) -> Vec<WorkerChange> {
        if let Some(count) = self.homes {
            return (0..count).map(|number| self.home(rng, worker_name(number), 0)).collect();
        }
        let count = if rng.percent(10) { 0 } else { rng.count(1..=WORKERS) };
        let change = |number| {
            let mut change = WorkerChange { name: worker_name(number), ..details(rng) };
            self.add_rates(rng, &mut change, 70);
            self.add_pause(rng, &mut change, 0, 15);
            change
        };
        (0..count).map(change).collect()
    }

    /// What a worker event says.
    pub(super) fn change(&self, rng: &mut Rng, now: u64) -> WorkerChange {
        if let Some(count) = self.homes {
            let name = worker_name(rng.index(count));
            return self.home(rng, name, now);
        }
        let states = [
            (8, Some(WorkerState::Up)),
            (2, Some(WorkerState::Overloaded)),
            (2, Some(WorkerState::Drain)),
            (2, Some(WorkerState::Gone)),
            (if self.rates { 20 } else { 4 }, None),
        ];
        let state = rng.weighted(&states);
        let details = if rng.percent(40) { details(rng) } else { WorkerChange::default() };
        let mut change = WorkerChange { name: any_worker(rng), state, ..details };
        self.add_rates(rng, &mut change, 70);
        self.add_pause(rng, &mut change, now, 30);
        change
    }

    /// A worker that one name has for itself: it has any number of slots, and mostly it pauses.
    fn home(&self, rng: &mut Rng, name: Box<str>, now: u64) -> WorkerChange {
        let states = [(1, Some(WorkerState::Up)), (1, Some(WorkerState::Overloaded)), (20, None)];
        let state = if now == 0 { None } else { rng.weighted(&states) };
        let mut change = WorkerChange { name, state, ..WorkerChange::default() };
        self.add_rates(rng, &mut change, 15);
        self.add_pause(rng, &mut change, now, 85);
        change
    }

    fn add_rates(&self, rng: &mut Rng, change: &mut WorkerChange, percent: u64) {
        if !self.rates || !rng.percent(percent) {
            return;
        }
        let rate = |rng: &mut Rng, per_minute: u64| {
            let taken_away = rng.percent(10);
            (!taken_away).then(|| PerMinute::new(per_minute).expect("not 0"))
        };
        if rng.percent(45) {
            let per_minute = self.requests_per_minute(rng);
            change.requests_per_minute = Some(rate(rng, per_minute));
        }
        if rng.percent(45) {
            let per_minute = self.tokens_per_minute(rng);
            change.tokens_per_minute = Some(rate(rng, per_minute));
        }
        if rng.percent(45) {
            let seconds = rng.one_of(&[1, 1, 1, 2, 5, 10, 60]);
            change.burst_seconds = Some(BurstSeconds::new(seconds).expect("in range"));
        }
        // Levels are full at first, and at a quick pace that is a lot: often they are set lower.
        if rng.percent(35) {
            change.requests_remaining =
                Some(rng.weighted(&[(4, 0), (4, 1), (4, 2), (2, 5), (1, 20), (1, u64::MAX)]));
        }
        if rng.percent(35) {
            let requests = rng.one_of(&[0, 0, 1, 1, 2, 5]);
            let tokens = self.usual_cost.saturating_mul(requests);
            change.tokens_remaining = Some(if rng.percent(5) {
                u64::MAX
            } else {
                tokens.saturating_add(rng.range(0..=1))
            });
        }
    }

    /// One request in so many mean gaps between events.
    fn requests_per_minute(&self, rng: &mut Rng) -> u64 {
        if rng.percent(4) {
            return rng.one_of(&[1, u64::MAX]);
        }
        let gaps = rng.one_of(&[1, 2, 4, 8, 16, 40]);
        (60_000_000 / (gaps * MEAN_GAP * self.time_scale)).max(1)
    }

    /// The tokens of a usual request in so many mean gaps; sometimes so few that one request takes the level to
    /// its bottom.
    fn tokens_per_minute(&self, rng: &mut Rng) -> u64 {
        if rng.percent(15) {
            return rng.one_of(&[1, 5, self.usual_cost, self.usual_cost / 2 + 1, u64::MAX]);
        }
        self.usual_cost.saturating_mul(self.requests_per_minute(rng))
    }

    fn add_pause(&self, rng: &mut Rng, change: &mut WorkerChange, now: u64, percent: u64) {
        if !self.rates || !rng.percent(percent) {
            return;
        }
        let wait = rng.weighted(&[(2, 0), (4, 100), (4, 700), (2, 3000)]);
        let until = now.saturating_add(rng.range(0..=wait).saturating_mul(self.time_scale));
        change.pause_until = Some(Micros(if rng.percent(2) { u64::MAX } else { until }));
    }
}

/// What a worker is, apart from its rates.
fn details(rng: &mut Rng) -> WorkerChange {
    let taints = |rng: &mut Rng| {
        let all = TAINTS.iter().filter(|_| rng.percent(70));
        all.map(|&taint| taint.into()).collect()
    };
    WorkerChange {
        ranks: rng.percent(40).then(|| rng.one_of(&[1, 1, 2, 3])),
        slots: rng.percent(60).then(|| rng.one_of(&[0, 1, 1, 1, 2, 2, 4, 8])),
        taints: rng.percent(50).then(|| taints(rng)),
        batch_tokens: rng.percent(50).then(|| Tokens(rng.one_of(&[0, 1000, 4000, 8192]))),
        tier: rng.percent(40).then(|| rng.one_of(&[0, 1, 1, 2, u64::MAX])),
        ..WorkerChange::default()
    }
}
