//! Counts grants, costs in flight and really used tokens of each flow, independently of the pool.

use crate::closed_loop::world::{Step, World};

/// The counts of one flow, which is one source.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Books {
    pub(crate) weight: i128,
    pub(crate) grants: u64,
    /// Tokens that the ended requests really used.
    pub(crate) used: i128,
    /// Summed costs of the requests in flight.
    pub(crate) in_flight_cost: i128,
    pub(crate) in_flight: u64,
    /// Tokens that were charged right before the last grant.
    before_grant: i128,
    /// The highest number of tokens that was ever charged.
    peak: i128,
    /// The cost of the last grant plus the errors of the requests that ended since then.
    current: i128,
    /// The highest value of `current` so far.
    pub(crate) worst: i128,
}

impl Books {
    /// Returns the tokens of the ended requests plus the costs of the requests in flight.
    pub(crate) fn charged(&self) -> i128 {
        self.used + self.in_flight_cost
    }

    /// Returns the growth of the charged tokens since right before the last grant.
    pub(crate) fn rise(&self) -> i128 {
        self.charged() - self.before_grant
    }

    /// Returns the difference between the highest number of charged tokens so far and the present
    /// number, which refunds caused.
    pub(crate) fn fall(&self) -> i128 {
        self.peak - self.charged()
    }

    fn grant(&mut self, cost: i128) {
        self.before_grant = self.charged();
        self.grants += 1;
        self.in_flight += 1;
        self.in_flight_cost += cost;
        self.current = cost;
        self.note();
    }

    fn end(&mut self, cost: i128, used: i128) {
        self.in_flight -= 1;
        self.in_flight_cost -= cost;
        self.used += used;
        self.current += (used - cost).abs();
        self.note();
    }

    fn note(&mut self) {
        self.peak = self.peak.max(self.charged());
        self.worst = self.worst.max(self.current);
    }
}

/// The counts of all sources.
#[derive(Clone, Debug)]
pub(crate) struct Ledger {
    pub(crate) flows: Vec<Books>,
}

impl Ledger {
    pub(crate) fn new(weights: &[u64]) -> Self {
        let flow = |weight: &u64| Books { weight: i128::from(*weight), ..Books::default() };
        Self { flows: weights.iter().map(flow).collect() }
    }

    /// Counts one step. Calls `each` with all counts after the end and after each grant.
    pub(crate) fn follow(&mut self, step: &Step, world: &World, mut each: impl FnMut(&[Books])) {
        if let Some(number) = step.ended {
            let request = &world.requests[number];
            self.flows[request.source].end(request.cost.into(), request.used.into());
            each(&self.flows);
        }
        for number in &step.granted {
            let request = &world.requests[*number];
            self.flows[request.source].grant(request.cost.into());
            each(&self.flows);
        }
    }

    /// Returns the number of tokens charged to all sources.
    pub(crate) fn total(&self) -> i128 {
        self.flows.iter().map(Books::charged).sum()
    }
}
