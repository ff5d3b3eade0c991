//! Random requests and workers.

use fairgate_core::attribute::{Attribute, Attributes, DEFAULT_FLOW};
use fairgate_core::event::{Pin, Submit, WorkerChange, WorkerState};
use fairgate_core::units::{TaskWeight, Tokens};

use super::rng::Rng;
use super::shape::Costs;
use super::trees::flow_name;

/// How many worker names there are.
const WORKERS: usize = 5;
const TAINTS: [&str; 2] = ["zone-a", "gpu"];

/// How the requests of one journal are drawn.
#[derive(Clone, Debug)]
pub(super) struct Submits {
    /// How many names each attribute has.
    pub(super) names: usize,
    /// Whether low-numbered names are the busier ones.
    pub(super) skewed: bool,
    pub(super) costs: Costs,
    /// The cost of all requests where costs are equal.
    pub(super) equal_cost: u64,
    /// Whether requests say something about workers.
    pub(super) placed: bool,
}

impl Submits {
    /// The name of a flow, existing or not.
    pub(super) fn flow(&self, rng: &mut Rng, by: Attribute) -> Box<str> {
        if rng.percent(3) {
            return DEFAULT_FLOW.into();
        }
        let reach = if self.skewed { rng.index(self.names) + 1 } else { self.names };
        flow_name(by, rng.index(reach)).into()
    }

    pub(super) fn submit(&self, rng: &mut Rng, id: &str) -> Submit {
        let mut submit = Submit::new(id);
        submit.attributes = self.attributes(rng);
        submit.cost = self.cost(rng);
        submit.priority = match rng.range(1..=20) {
            1..=13 => 0,
            14 => rng.one_of(&[i64::MIN, i64::MAX]),
            _ => rng.one_of(&[-2, -1, 1, 2]),
        };
        submit.weight = task_weight(rng);
        if self.placed || rng.percent(5) {
            self.add_placement(rng, &mut submit);
        }
        submit
    }

    fn attributes(&self, rng: &mut Rng) -> Attributes {
        let mut attributes = Attributes::none();
        for by in Attribute::ALL {
            if !rng.percent(4) {
                attributes.set(by, self.flow(rng, by));
            }
        }
        attributes
    }

    fn cost(&self, rng: &mut Rng) -> Option<Tokens> {
        let absent = if self.placed { 40 } else { 8 };
        if rng.percent(absent) {
            return None;
        }
        Some(Tokens(self.tokens(rng, self.costs)))
    }

    fn tokens(&self, rng: &mut Rng, costs: Costs) -> u64 {
        match costs {
            Costs::Tiny => rng.range(0..=4),
            Costs::Ordinary => rng.range(1..=4096),
            Costs::Equal => self.equal_cost,
            Costs::Huge => {
                let top = rng.one_of(&[u64::MAX, u64::MAX, 1 << 63, 1 << 40, 1 << 32, 10]);
                top - rng.range(0..=2)
            }
            Costs::Mixed => {
                let any = [Costs::Tiny, Costs::Ordinary, Costs::Ordinary, Costs::Equal];
                let costs = if rng.percent(2) { Costs::Huge } else { rng.one_of(&any) };
                self.tokens(rng, costs)
            }
        }
    }

    /// What a request of this cost really used: nothing said, as expected, none, less or more.
    pub(super) fn used(&self, rng: &mut Rng, cost: u64) -> Option<Tokens> {
        let used = match rng.range(1..=10) {
            1..=4 => return None,
            5 => cost,
            6 => 0,
            7 | 8 => rng.range(0..=cost),
            9 => cost.saturating_add(rng.range(0..=cost.max(3))),
            _ => self.tokens(rng, self.costs).saturating_mul(rng.range(1..=4)),
        };
        Some(Tokens(used))
    }

    fn add_placement(&self, rng: &mut Rng, submit: &mut Submit) {
        if rng.percent(60) {
            let costs = if self.costs == Costs::Huge { Costs::Huge } else { Costs::Ordinary };
            submit.input = Some(Tokens(self.tokens(rng, costs)));
        }
        if rng.percent(50) {
            for number in 0..WORKERS {
                if rng.percent(60) {
                    let tokens = Tokens(rng.range(0..=5000));
                    submit.cached.push((worker_name(number), tokens));
                }
            }
        }
        if rng.percent(8) {
            let rank = rng.percent(50).then(|| rank(rng));
            submit.pin = Some(Pin { worker: any_worker(rng), rank });
        }
        if rng.percent(12) {
            submit.allow = Some((0..rng.range(0..=3)).map(|_| any_worker(rng)).collect());
        }
        if rng.percent(12) {
            submit.requires = vec![rng.one_of(&TAINTS).into()];
        }
    }
}

fn task_weight(rng: &mut Rng) -> TaskWeight {
    let thousandths = match rng.range(1..=20) {
        1..=12 => return TaskWeight::ONE,
        13 => rng.one_of(&[1, 1_000_000_000]),
        14..=16 => rng.range(1..=5000),
        _ => rng.one_of(&[500, 1500, 2000, 5000]),
    };
    TaskWeight::from_thousandths(thousandths).expect("in range")
}

fn worker_name(number: usize) -> Box<str> {
    format!("w{number}").into()
}

fn any_worker(rng: &mut Rng) -> Box<str> {
    worker_name(rng.index(WORKERS))
}

fn rank(rng: &mut Rng) -> u32 {
    rng.one_of(&[0, 0, 1, 2])
}

/// The workers of a pool at its start; sometimes none.
pub(super) fn first_workers(rng: &mut Rng) -> Vec<WorkerChange> {
    let count = if rng.percent(10) { 0 } else { rng.count(1..=WORKERS) };
    let change = |number| WorkerChange { name: worker_name(number), ..worker_details(rng) };
    (0..count).map(change).collect()
}

/// What a worker event says.
pub(super) fn worker_change(rng: &mut Rng) -> WorkerChange {
    let states = [
        (8, Some(WorkerState::Up)),
        (2, Some(WorkerState::Overloaded)),
        (2, Some(WorkerState::Drain)),
        (2, Some(WorkerState::Gone)),
        (4, None),
    ];
    let state = rng.weighted(&states);
    let details = if rng.percent(40) { worker_details(rng) } else { WorkerChange::default() };
    WorkerChange { name: any_worker(rng), state, ..details }
}

fn worker_details(rng: &mut Rng) -> WorkerChange {
    let taints = |rng: &mut Rng| {
        let all = TAINTS.iter().filter(|_| rng.percent(70));
        all.map(|&taint| taint.into()).collect()
    };
    WorkerChange {
        name: Box::default(),
        state: None,
        ranks: rng.percent(40).then(|| rng.one_of(&[1, 1, 2, 3])),
        slots: rng.percent(50).then(|| rng.one_of(&[0, 1, 1, 2, 2, 4, 8])),
        taints: rng.percent(50).then(|| taints(rng)),
        batch_tokens: rng.percent(50).then(|| Tokens(rng.one_of(&[0, 1000, 4000, 8192]))),
    }
}
