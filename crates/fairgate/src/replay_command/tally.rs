//! What each flow got in one run of a journal.

use std::collections::HashMap;

use fairgate_core::Pool;
use fairgate_core::attribute::{Attribute, Attributes, DEFAULT_FLOW};
use fairgate_core::decision::{Decision, Sink};
use fairgate_core::event::Event;
use fairgate_core::policy::Policy;
use fairgate_core::units::{Micros, Tokens};

use super::path;
use super::recording::Recording;
use super::roster::{Number, Roster};
use super::steps::{Listener, Step};

/// Which flow a request counts in.
#[derive(Clone, Debug)]
enum Grouping {
    /// The one it goes into at the root of a policy.
    Root(Policy),
    /// The one that an attribute names.
    By(Attribute),
}

impl Grouping {
    fn attribute(&self) -> Attribute {
        match self {
            Self::Root(policy) => policy.root().by(),
            Self::By(attribute) => *attribute,
        }
    }

    fn flow<'a>(&'a self, attributes: &'a Attributes) -> &'a str {
        match self {
            Self::Root(policy) => path::flow(policy.root(), attributes),
            Self::By(attribute) => attributes.get(*attribute).unwrap_or(DEFAULT_FLOW),
        }
    }
}

/// What one flow got.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FlowTally {
    pub(crate) requests: u64,
    pub(crate) granted: u64,
    /// What the granted ones used, or were charged where that is not known.
    pub(crate) tokens: u128,
    /// Rejected or expired.
    pub(crate) refused: u64,
    /// How long the granted ones waited, in microseconds.
    waits: Vec<u64>,
}

impl FlowTally {
    /// The wait that this many percent of the granted requests did not exceed: the nearest rank, exactly.
    pub(crate) fn wait(&self, percent: usize) -> Option<Micros> {
        let rank = (self.waits.len() * percent).div_ceil(100).max(1);
        self.waits.get(rank - 1).map(|wait| Micros(*wait))
    }

    /// Adds what other flows got.
    pub(crate) fn extend<'a>(&mut self, others: impl IntoIterator<Item = &'a Self>) {
        for other in others {
            self.requests += other.requests;
            self.granted += other.granted;
            self.tokens += other.tokens;
            self.refused += other.refused;
            self.waits.extend(&other.waits);
        }
        self.waits.sort_unstable();
    }
}

/// What all flows got, by name.
#[derive(Debug)]
pub(crate) struct Tallies {
    pub(crate) by: Option<Attribute>,
    pub(crate) flows: Vec<(Box<str>, FlowTally)>,
}

/// Counts, while a journal is replayed.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    grouping: Option<Grouping>,
    roster: Roster,
    names: HashMap<Box<str>, usize>,
    flows: Vec<FlowTally>,
    /// By number: the flow, and the cost once it was granted.
    requests: Vec<(usize, Option<Tokens>)>,
    now: Micros,
}

impl Tally {
    /// Counts by the values of an attribute, or else by the flows of the first policy's root.
    pub(crate) fn new(by: Option<Attribute>) -> Self {
        Self { grouping: by.map(Grouping::By), ..Self::default() }
    }

    fn count(&mut self, attributes: &Attributes) {
        let name = self.grouping.as_ref().map_or(DEFAULT_FLOW, |by| by.flow(attributes));
        let flow = match self.names.get(name) {
            Some(flow) => *flow,
            None => {
                self.names.insert(name.into(), self.flows.len());
                self.flows.push(FlowTally::default());
                self.flows.len() - 1
            }
        };
        self.flows[flow].requests += 1;
        self.requests.push((flow, None));
    }

    fn flow(&mut self, number: Number) -> &mut FlowTally {
        &mut self.flows[self.requests[number].0]
    }

    /// What each flow got, by name, and the attribute that names them.
    pub(crate) fn finish(mut self, recording: &Recording) -> Tallies {
        for (number, (flow, cost)) in self.requests.iter().enumerate() {
            if let Some(cost) = cost {
                let used = recording.fact(number).used().unwrap_or(*cost);
                self.flows[*flow].tokens += u128::from(used.0);
            }
        }
        let mut named: Vec<_> = self.names.into_iter().collect();
        named.sort_unstable();
        let tallies = named.into_iter().map(|(name, flow)| {
            let mut tally = std::mem::take(&mut self.flows[flow]);
            tally.waits.sort_unstable();
            (name, tally)
        });
        let flows = tallies.collect();
        Tallies { by: self.grouping.map(|grouping| grouping.attribute()), flows }
    }
}

impl Sink for Tally {
    fn decided(&mut self, decision: Decision) {
        let Some(number) = self.roster.decided(self.now, &decision) else { return };
        match decision {
            Decision::Grant(grant) => {
                self.requests[number].1 = Some(grant.cost);
                let flow = self.flow(number);
                flow.granted += 1;
                flow.waits.push(grant.waited.0);
            }
            Decision::Reject(_) | Decision::Expire { .. } => self.flow(number).refused += 1,
        }
    }
}

impl Listener for Tally {
    fn start(&mut self, pool: &Pool) {
        let snapshot = pool.snapshot();
        self.grouping.get_or_insert(Grouping::Root(snapshot.policy));
        self.roster = Roster::of(pool);
        for request in snapshot.requests {
            self.count(&request.attributes);
        }
    }

    fn before(&mut self, step: Step<'_>, _pool: &Pool) {
        self.now = step.at;
        if let Event::Submit(submit) = step.event {
            self.count(&submit.attributes);
        }
        self.roster.before(step.event);
    }

    fn after(&mut self, _pool: &Pool) -> anyhow::Result<()> {
        self.roster.after();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_of_the_nearest_rank() {
        let of = |waits: &[u64]| FlowTally { waits: waits.to_vec(), ..FlowTally::default() };
        assert_eq!(of(&[]).wait(50), None);
        assert_eq!(of(&[7]).wait(50), Some(Micros(7)));
        assert_eq!(of(&[1, 2]).wait(50), Some(Micros(1)));
        assert_eq!(of(&[1, 2, 3]).wait(50), Some(Micros(2)));
        assert_eq!(of(&[1, 2, 3]).wait(95), Some(Micros(3)));
        let many = of(&(1..=200).collect::<Vec<_>>());
        assert_eq!((many.wait(95), many.wait(100)), (Some(Micros(190)), Some(Micros(200))));
    }
}
