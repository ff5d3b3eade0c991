//! Random workers, with their slots, ranks, rates, pauses and tiers.

use fairgate_core::event::{WorkerChange, WorkerState};
use fairgate_core::units::{BurstSeconds, Micros, PerMinute, Tokens};

use fairgate_random::SeededRng;

/// Number of different worker names.
pub(super) const WORKERS: usize = 5;
pub(super) const TAINTS: [&str; 2] = ["zone-a", "gpu"];

/// Mean time between two events, in units of `time_scale`.
const MEAN_GAP: u64 = 85;

/// Parameters from which the workers of one journal are drawn.
#[derive(Clone, Debug)]
pub(super) struct WorkerGenerator {
    /// True if the workers have rates and pauses.
    pub(super) rates: bool,
    /// Number of workers if each flow name has its own worker; otherwise `None`.
    pub(super) homes: Option<usize>,
    /// Number of workers if many flow names share a few small workers; otherwise `None`.
    pub(super) few: Option<usize>,
    /// True if all workers are nearly equal.
    pub(super) ties: bool,
    /// Microseconds per unit of the journal's time.
    pub(super) time_scale: u64,
    /// Approximate number of tokens that one request takes from a token rate.
    pub(super) usual_cost: u64,
}

pub(super) fn worker_name(number: usize) -> Box<str> {
    format!("w{number}").into()
}

pub(super) fn any_worker(rng: &mut SeededRng) -> Box<str> {
    worker_name(rng.index(WORKERS))
}

impl WorkerGenerator {
    /// Draws the workers that a pool has at its start; sometimes there are none.
    pub(super) fn first(&self, rng: &mut SeededRng) -> Vec<WorkerChange> {
        if let Some(count) = self.homes {
            return (0..count).map(|number| self.home(rng, worker_name(number), 0)).collect();
        }
        if let Some(count) = self.few {
            return (0..count).map(|number| small(rng, worker_name(number))).collect();
        }
        let count = if rng.percent(10) { 0 } else { rng.count(1..=WORKERS) };
        let change = |number| {
            let mut change = WorkerChange { name: worker_name(number), ..self.details(rng) };
            self.add_rates(rng, &mut change, 70);
            self.add_pause(rng, &mut change, 0, 15);
            change
        };
        (0..count).map(change).collect()
    }

    /// Draws the change of a worker event at the time `now`.
    pub(super) fn change(&self, rng: &mut SeededRng, now: u64) -> WorkerChange {
        if let Some(count) = self.homes {
            let name = worker_name(rng.index(count));
            return self.home(rng, name, now);
        }
        if rng.percent(3) {
            return remove_unknown_worker();
        }
        if let Some(count) = self.few {
            let name = worker_name(rng.index(count));
            return small_change(rng, name);
        }
        let states = [
            (8, Some(WorkerState::Up)),
            (2, Some(WorkerState::Overloaded)),
            (2, Some(WorkerState::Drain)),
            (2, Some(WorkerState::Gone)),
            (if self.rates { 20 } else { 4 }, None),
        ];
        let state = rng.weighted(&states);
        let details = if rng.percent(40) { self.details(rng) } else { WorkerChange::default() };
        let mut change = WorkerChange { name: any_worker(rng), state, ..details };
        self.add_rates(rng, &mut change, 70);
        self.add_pause(rng, &mut change, now, 30);
        change
    }

    /// Draws the properties of a worker, except its rates and its pause.
    fn details(&self, rng: &mut SeededRng) -> WorkerChange {
        match self.ties {
            true => equal_details(rng),
            false => details(rng),
        }
    }

    /// Draws a worker for a single flow name. The worker has no limit of slots, and most often a
    /// pause.
    fn home(&self, rng: &mut SeededRng, name: Box<str>, now: u64) -> WorkerChange {
        let states = [(1, Some(WorkerState::Up)), (1, Some(WorkerState::Overloaded)), (20, None)];
        let state = if now == 0 { None } else { rng.weighted(&states) };
        let mut change = WorkerChange { name, state, ..WorkerChange::default() };
        self.add_rates(rng, &mut change, 15);
        self.add_pause(rng, &mut change, now, 85);
        change
    }

    fn add_rates(&self, rng: &mut SeededRng, change: &mut WorkerChange, percent: u64) {
        if !self.rates || !rng.percent(percent) {
            return;
        }
        let rate = |rng: &mut SeededRng, per_minute: u64| {
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
        // Levels are full at first. At a high rate a full level is large, so levels are often set
        // lower.
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

    /// Draws a rate of requests. Most of the rates allow one request in 1 to 40 times [`MEAN_GAP`].
    fn requests_per_minute(&self, rng: &mut SeededRng) -> u64 {
        if rng.percent(4) {
            return rng.one_of(&[1, u64::MAX]);
        }
        let gaps = rng.one_of(&[1, 2, 4, 8, 16, 40]);
        (60_000_000 / (gaps * MEAN_GAP * self.time_scale)).max(1)
    }

    /// Draws a rate of tokens. Most of the rates allow the tokens of one usual request in 1 to 40
    /// times [`MEAN_GAP`]. In some cases the rate is so low that a single request takes its level
    /// to the lowest value.
    fn tokens_per_minute(&self, rng: &mut SeededRng) -> u64 {
        if rng.percent(15) {
            return rng.one_of(&[1, 5, self.usual_cost, self.usual_cost / 2 + 1, u64::MAX]);
        }
        self.usual_cost.saturating_mul(self.requests_per_minute(rng))
    }

    fn add_pause(&self, rng: &mut SeededRng, change: &mut WorkerChange, now: u64, percent: u64) {
        if !self.rates || !rng.percent(percent) {
            return;
        }
        let wait = rng.weighted(&[(2, 0), (4, 100), (4, 700), (2, 3000)]);
        let until = now.saturating_add(rng.range(0..=wait).saturating_mul(self.time_scale));
        change.pause_until = Some(Micros(if rng.percent(2) { u64::MAX } else { until }));
    }
}

/// Returns a change that removes a worker with a name that no worker has.
pub(super) fn remove_unknown_worker() -> WorkerChange {
    WorkerChange {
        name: "nobody".into(),
        state: Some(WorkerState::Gone),
        slots: Some(1),
        ..WorkerChange::default()
    }
}

/// Draws a worker with the name `name` and few slots.
fn small(rng: &mut SeededRng, name: Box<str>) -> WorkerChange {
    let taints = TAINTS.iter().filter(|_| rng.percent(60)).map(|&taint| taint.into()).collect();
    WorkerChange {
        name,
        slots: Some(rng.one_of(&[1, 1, 2, 2, 3])),
        ranks: rng.percent(30).then(|| rng.one_of(&[1, 2, 2])),
        taints: rng.percent(50).then_some(taints),
        tier: rng.percent(10).then(|| rng.one_of(&[0, 1])),
        ..WorkerChange::default()
    }
}

/// Draws a change of a worker with few slots. Most changes make the worker unavailable or available
/// again, by its state or by its slots. Rarely the change removes the worker, which rejects all
/// requests that can only run on it.
fn small_change(rng: &mut SeededRng, name: Box<str>) -> WorkerChange {
    let states = [
        (8, Some(WorkerState::Up)),
        (4, Some(WorkerState::Overloaded)),
        (1, Some(WorkerState::Drain)),
        (1, Some(WorkerState::Gone)),
        (6, None),
    ];
    let state = rng.weighted(&states);
    let small = small(rng, name);
    match state {
        // A worker that becomes available again has slots again.
        Some(WorkerState::Up) => WorkerChange { state, ..small },
        None => {
            let slots = Some(rng.one_of(&[0, 1, 2, 3, 4]));
            WorkerChange { slots, ranks: small.ranks, name: small.name, ..WorkerChange::default() }
        }
        _ => WorkerChange { name: small.name, state, ..WorkerChange::default() },
    }
}

/// Draws the properties of a worker that is most often equal to the others except in its ranks.
fn equal_details(rng: &mut SeededRng) -> WorkerChange {
    WorkerChange {
        ranks: rng.percent(70).then(|| rng.one_of(&[1, 2, 2, 3])),
        slots: rng.percent(20).then(|| rng.one_of(&[1, 2, 4, 8])),
        tier: rng.percent(8).then(|| rng.one_of(&[0, 0, 1])),
        ..WorkerChange::default()
    }
}

/// Draws varied properties of a worker, except its rates and its pause.
fn details(rng: &mut SeededRng) -> WorkerChange {
    let taints = |rng: &mut SeededRng| {
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
