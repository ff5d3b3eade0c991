//! Random requests.

use fairgate_core::attribute::{Attribute, Attributes, DEFAULT_FLOW};
use fairgate_core::event::{Pin, Submit};
use fairgate_core::units::{TaskWeight, Tokens};

use super::rng::Rng;
use super::shape::Costs;
use super::trees::flow_name;
use super::workers::{TAINTS, WORKERS, any_worker, worker_name};

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
    /// Whether each name has a worker of its own.
    pub(super) homes: bool,
    /// Whether requests state a quota.
    pub(super) quotas: bool,
}

impl Submits {
    /// The name of a flow, existing or not.
    pub(super) fn flow(&self, rng: &mut Rng, by: Attribute) -> Box<str> {
        if rng.percent(3) {
            return DEFAULT_FLOW.into();
        }
        flow_name(by, self.number(rng)).into()
    }

    /// The number of a name.
    fn number(&self, rng: &mut Rng) -> usize {
        let reach = if self.skewed { rng.index(self.names) + 1 } else { self.names };
        rng.index(reach)
    }

    /// All attributes have the same number, and so has the worker.
    fn send_home(&self, rng: &mut Rng, submit: &mut Submit) {
        let number = self.number(rng);
        for by in Attribute::ALL {
            submit.attributes.set(by, &flow_name(by, number));
        }
        submit.pin = Some(Pin { worker: worker_name(number), rank: None });
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
        if self.homes {
            self.send_home(rng, &mut submit);
        }
        submit.quota = self.quota(rng, submit.cost.map_or(1, |cost| cost.0));
        submit
    }

    fn attributes(&self, rng: &mut Rng) -> Attributes {
        let mut attributes = Attributes::none();
        for by in Attribute::ALL {
            if !rng.percent(4) {
                attributes.set(by, &self.flow(rng, by));
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

    /// What a request of this cost takes from a token rate: mostly nothing said.
    pub(super) fn quota(&self, rng: &mut Rng, cost: u64) -> Option<Tokens> {
        if !self.quotas || rng.percent(70) {
            return None;
        }
        let quota = match rng.range(1..=6) {
            1 => 0,
            2 => cost,
            3 | 4 => rng.range(0..=cost),
            5 => cost.saturating_mul(rng.range(1..=100)),
            _ => self.tokens(rng, self.costs),
        };
        Some(Tokens(quota))
    }

    /// What a request costs, roughly.
    pub(super) fn usual_cost(&self) -> u64 {
        match self.costs {
            Costs::Tiny => 2,
            Costs::Equal => self.equal_cost,
            Costs::Ordinary | Costs::Mixed => 2000,
            Costs::Huge => 1 << 40,
        }
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
                    submit.cached.push((worker_name(number).into(), tokens));
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

fn rank(rng: &mut Rng) -> u32 {
    rng.one_of(&[0, 0, 1, 2])
}
