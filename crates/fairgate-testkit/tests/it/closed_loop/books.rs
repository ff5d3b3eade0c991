//! What an outsider writes down about each flow: grants, costs in flight, and tokens really used.

use crate::closed_loop::world::{Step, World};

/// One flow, that is one source.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Books {
    pub(crate) weight: i128,
    pub(crate) grants: u64,
    /// Tokens really used by what ended.
    pub(crate) used: i128,
    /// Costs of what is in flight.
    pub(crate) in_flight_cost: i128,
    pub(crate) in_flight: u64,
    /// What was charged right before the last grant, and the most that ever was.
    before_grant: i128,
    peak: i128,
    /// One cost and the errors since that grant; and the most that this has been.
    current: i128,
    pub(crate) worst: i128,
}

impl Books {
    /// Tokens of what ended and costs of what is in flight.
    pub(crate) fn charged(&self) -> i128 {
        self.used + self.in_flight_cost
    }

    /// How far it has risen since right before its last grant.
    pub(crate) fn rise(&self) -> i128 {
        self.charged() - self.before_grant
    }

    /// How far it is below the most that it was charged at any time: what refunds took back.
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

/// The books of all sources.
#[derive(Clone, Debug)]
pub(crate) struct Ledger {
    pub(crate) flows: Vec<Books>,
}

impl Ledger {
    pub(crate) fn new(weights: &[u64]) -> Self {
        let flow = |weight: &u64| Books { weight: i128::from(*weight), ..Books::default() };
        Self { flows: weights.iter().map(flow).collect() }
    }

    /// Writes one step down; `each` looks at the books after the end and after each grant.
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

    /// The tokens charged to all.
    pub(crate) fn total(&self) -> i128 {
        self.flows.iter().map(Books::charged).sum()
    }
}
