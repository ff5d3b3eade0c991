//! Random submits of a journal.

use fairgate_core::attribute::{Attribute, Attributes, DEFAULT_FLOW};
use fairgate_core::event::{Pin, Submit};
use fairgate_core::units::{Micros, TaskWeight, Tokens};

use super::shape::CostDistribution;
use super::trees::flow_name;
use super::workers::{TAINTS, WORKERS, any_worker, worker_name};
use fairgate_random::SeededRng;

/// Parameters from which the submits of one journal are drawn.
#[derive(Clone, Debug)]
pub(super) struct SubmitGenerator {
    /// Number of flow names for each attribute.
    pub(super) names: usize,
    /// True if names with a low number are drawn more often.
    pub(super) skewed: bool,
    pub(super) costs: CostDistribution,
    /// Cost of every request if the distribution of costs is `Equal`.
    pub(super) equal_cost: u64,
    /// True if requests have placement fields, such as pins and cached tokens.
    pub(super) placed: bool,
    /// Assignment of names to workers; `None` if requests may run on any worker.
    pub(super) homes: Option<NameHomes>,
    /// True if requests are drawn so that places often differ in only one criterion.
    pub(super) ties: bool,
    /// True if some requests state a quota.
    pub(super) quotas: bool,
    /// Percentage of requests that have a timeout.
    pub(super) timeouts: u64,
    /// Microseconds per unit of the journal's time.
    pub(super) time_scale: u64,
}

/// The assignment of names to workers. The name with number n is assigned to the worker with number
/// n modulo the number of workers.
#[derive(Clone, Copy, Debug)]
pub(super) enum NameHomes {
    /// There are as many workers as names. The names of all attributes of a request have the same number.
    Own,
    /// There are only a few workers. The name of one attribute decides to which of them a request
    /// is assigned.
    Few {
        workers: usize,
        by: Attribute,
        /// True if every request is pinned to its assigned worker. If false, some requests accept
        /// other workers.
        strict: bool,
    },
}

impl SubmitGenerator {
    /// Draws the name of a flow, which may not exist in the pool.
    pub(super) fn flow(&self, rng: &mut SeededRng, by: Attribute) -> Box<str> {
        if rng.percent(3) {
            return DEFAULT_FLOW.into();
        }
        flow_name(by, self.number(rng)).into()
    }

    /// Draws the number of a flow's name.
    fn number(&self, rng: &mut SeededRng) -> usize {
        let reach = if self.skewed { rng.index(self.names) + 1 } else { self.names };
        rng.index(reach)
    }

    /// Draws a number, gives all attributes of the submit the name with that number, and pins the
    /// submit to the worker with that number.
    fn pin_to_own_worker(&self, rng: &mut SeededRng, submit: &mut Submit) {
        let number = self.number(rng);
        for by in Attribute::ALL {
            submit.attributes.set(by, &flow_name(by, number));
        }
        submit.pin = Some(Pin { worker: worker_name(number), rank: None });
    }

    pub(super) fn submit(&self, rng: &mut SeededRng, id: &str) -> Submit {
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
        match self.homes {
            None => {}
            Some(NameHomes::Own) => self.pin_to_own_worker(rng, &mut submit),
            Some(NameHomes::Few { workers, by, strict }) => {
                let number = self.number(rng);
                submit.attributes.set(by, &flow_name(by, number));
                pin_to_one_of_few(rng, &mut submit, number % workers, workers, strict);
            }
        }
        submit.quota = self.quota(rng, submit.cost.map_or(1, |cost| cost.0));
        submit.timeout = self.timeout(rng);
        submit
    }

    /// Draws a timeout: none, 0, a short or a long time, or a time longer than any journal.
    fn timeout(&self, rng: &mut SeededRng) -> Option<Micros> {
        if !rng.percent(self.timeouts) {
            return None;
        }
        let most = rng.weighted(&[(2, 0), (3, 50), (4, 300), (4, 1500), (4, 5000), (2, 20_000)]);
        if rng.percent(6) {
            return Some(Micros(u64::MAX - rng.range(0..=2)));
        }
        // Requests that are submitted at one time with equal timeouts have equal deadlines.
        let span = if rng.percent(50) { most } else { rng.range(0..=most) };
        Some(Micros(span.saturating_mul(self.time_scale)))
    }

    fn attributes(&self, rng: &mut SeededRng) -> Attributes {
        let mut attributes = Attributes::none();
        for by in Attribute::ALL {
            if !rng.percent(4) {
                attributes.set(by, &self.flow(rng, by));
            }
        }
        attributes
    }

    fn cost(&self, rng: &mut SeededRng) -> Option<Tokens> {
        let absent = if self.placed { 40 } else { 8 };
        if rng.percent(absent) {
            return None;
        }
        Some(Tokens(self.tokens(rng, self.costs)))
    }

    fn tokens(&self, rng: &mut SeededRng, costs: CostDistribution) -> u64 {
        match costs {
            CostDistribution::Tiny => rng.range(0..=4),
            CostDistribution::Ordinary => rng.range(1..=4096),
            CostDistribution::Equal => self.equal_cost,
            CostDistribution::Huge => {
                let top = rng.one_of(&[u64::MAX, u64::MAX, 1 << 63, 1 << 40, 1 << 32, 10]);
                top - rng.range(0..=2)
            }
            CostDistribution::Mixed => {
                let any = [
                    CostDistribution::Tiny,
                    CostDistribution::Ordinary,
                    CostDistribution::Ordinary,
                    CostDistribution::Equal,
                ];
                let costs = if rng.percent(2) { CostDistribution::Huge } else { rng.one_of(&any) };
                self.tokens(rng, costs)
            }
        }
    }

    /// Draws the reported usage of a request with this cost: `None`, the cost, 0, less than the
    /// cost, or more.
    pub(super) fn used(&self, rng: &mut SeededRng, cost: u64) -> Option<Tokens> {
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

    /// Draws the quota of a request with this cost, which is mostly `None`.
    pub(super) fn quota(&self, rng: &mut SeededRng, cost: u64) -> Option<Tokens> {
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

    /// Returns the approximate cost of a request, in tokens.
    pub(super) fn usual_cost(&self) -> u64 {
        match self.costs {
            CostDistribution::Tiny => 2,
            CostDistribution::Equal => self.equal_cost,
            CostDistribution::Ordinary | CostDistribution::Mixed => 2000,
            CostDistribution::Huge => 1 << 40,
        }
    }

    fn add_placement(&self, rng: &mut SeededRng, submit: &mut Submit) {
        if self.ties {
            add_equal_placement(rng, submit);
            return;
        }
        if rng.percent(60) {
            let costs = if self.costs == CostDistribution::Huge {
                CostDistribution::Huge
            } else {
                CostDistribution::Ordinary
            };
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

/// Draws one of a few prompt sizes for a submit. All, half or none of the prompt is cached on some
/// workers.
fn add_equal_placement(rng: &mut SeededRng, submit: &mut Submit) {
    submit.input = Some(Tokens(rng.one_of(&[0, 100, 100, 100, 200])));
    // Either one worker has a part of the prompt cached, or several workers do.
    if rng.percent(40) {
        submit.cached.push((any_worker(rng).into(), Tokens(rng.one_of(&[50, 100, 100]))));
    } else if rng.percent(60) {
        for number in 0..WORKERS {
            if rng.percent(60) {
                let tokens = Tokens(rng.one_of(&[0, 50, 50, 100]));
                submit.cached.push((worker_name(number).into(), tokens));
            }
        }
    }
    if rng.percent(4) {
        submit.pin = Some(Pin { worker: any_worker(rng), rank: None });
    }
    if rng.percent(8) {
        submit.allow = Some((0..rng.range(1..=3)).map(|_| any_worker(rng)).collect());
    }
}

/// Restricts a submit to the worker with the number `home`, mostly to that worker alone. If
/// `strict` is false, some submits also accept other workers.
fn pin_to_one_of_few(
    rng: &mut SeededRng,
    submit: &mut Submit,
    home: usize,
    few: usize,
    strict: bool,
) {
    (submit.pin, submit.allow, submit.requires) = (None, None, Vec::new());
    let pin = |rank| Some(Pin { worker: worker_name(home), rank });
    match if strict { 1 } else { rng.range(1..=20) } {
        1..=9 => submit.pin = pin(None),
        10 => submit.pin = pin(Some(rank(rng))),
        11..=14 => submit.allow = Some(vec![worker_name(home)]),
        15 | 16 => submit.allow = Some(vec![worker_name(home), worker_name(rng.index(few))]),
        17 => submit.requires = vec![rng.one_of(&TAINTS).into()],
        _ => {}
    }
}

fn task_weight(rng: &mut SeededRng) -> TaskWeight {
    let thousandths = match rng.range(1..=20) {
        1..=12 => return TaskWeight::ONE,
        13 => rng.one_of(&[1, 1_000_000_000]),
        14..=16 => rng.range(1..=5000),
        _ => rng.one_of(&[500, 1500, 2000, 5000]),
    };
    TaskWeight::from_thousandths(thousandths).expect("in range")
}

fn rank(rng: &mut SeededRng) -> u32 {
    rng.one_of(&[0, 0, 1, 2])
}
