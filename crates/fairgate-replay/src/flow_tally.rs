//! Counts each flow's results in one run of a journal.

use std::collections::HashMap;

use fairgate_core::Pool;
use fairgate_core::attribute::{Attribute, Attributes, DEFAULT_FLOW};
use fairgate_core::decision::{Decision, DecisionSink};
use fairgate_core::event::Event;
use fairgate_core::policy::Policy;
use fairgate_core::units::{Micros, Tokens};

use super::live_requests::{LiveRequests, ReplayRequestIndex};
use super::recording::ReplayRecording;
use super::steps::{ReplayListener, ReplayStep};
use crate::error::ReplayError;

/// The rule that assigns a request to a flow.
#[derive(Clone, Debug)]
enum FlowGrouping {
    /// Requests are assigned to their flow at the root of this policy.
    Root(Policy),
    /// Requests are assigned to the flow with their value of this attribute.
    By(Attribute),
}

impl FlowGrouping {
    fn attribute(&self) -> Attribute {
        match self {
            Self::Root(policy) => policy.root().by(),
            Self::By(attribute) => *attribute,
        }
    }

    fn flow<'a>(&'a self, attributes: &'a Attributes) -> &'a str {
        match self {
            Self::Root(policy) => {
                let root = policy.root();
                root.flow_of(attributes.get(root.by()))
            }
            Self::By(attribute) => attributes.get(*attribute).unwrap_or(DEFAULT_FLOW),
        }
    }
}

/// Results of one flow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FlowTally {
    pub(crate) requests: u64,
    pub(crate) granted: u64,
    /// Sum of the tokens of the granted requests. A request counts with its real usage if known, else with its cost.
    pub(crate) tokens: u128,
    /// Number of requests that were rejected or expired.
    pub(crate) refused: u64,
    /// Waits of the granted requests, in microseconds.
    waits: Vec<u64>,
}

impl FlowTally {
    /// Returns the percentile of the granted requests' waits, by nearest rank; `None` if no request was granted.
    pub(crate) fn wait(&self, percent: usize) -> Option<Micros> {
        let rank = (self.waits.len() * percent).div_ceil(100).max(1);
        self.waits.get(rank - 1).map(|wait| Micros(*wait))
    }

    /// Adds the results of other flows.
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

/// Results of all flows, by name.
#[derive(Debug)]
pub(crate) struct FlowTallies {
    pub(crate) by: Option<Attribute>,
    pub(crate) flows: Vec<(Box<str>, FlowTally)>,
}

/// Counts results while a journal is replayed.
#[derive(Debug, Default)]
pub(crate) struct FlowTallyCollector {
    grouping: Option<FlowGrouping>,
    roster: LiveRequests,
    names: HashMap<Box<str>, usize>,
    flows: Vec<FlowTally>,
    /// By the index of a request: the index of its flow, and its cost, which is `None` until the request is granted.
    requests: Vec<(usize, Option<Tokens>)>,
    now: Micros,
}

impl FlowTallyCollector {
    /// Creates a collector that counts by the values of an attribute. If no attribute is given, it counts by the flows
    /// at the root of the journal's first policy.
    pub(crate) fn new(by: Option<Attribute>) -> Self {
        Self { grouping: by.map(FlowGrouping::By), ..Self::default() }
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

    fn flow(&mut self, number: ReplayRequestIndex) -> &mut FlowTally {
        &mut self.flows[self.requests[number].0]
    }

    /// Returns each flow's results by name, and the attribute that names them.
    pub(crate) fn finish(mut self, recording: &ReplayRecording) -> FlowTallies {
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
        FlowTallies { by: self.grouping.map(|grouping| grouping.attribute()), flows }
    }
}

impl DecisionSink for FlowTallyCollector {
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

impl ReplayListener for FlowTallyCollector {
    fn start(&mut self, pool: &Pool) {
        let snapshot = pool.snapshot();
        self.grouping.get_or_insert(FlowGrouping::Root(snapshot.policy));
        self.roster = LiveRequests::of(pool);
        for request in snapshot.requests {
            self.count(&request.attributes);
        }
    }

    fn before(&mut self, step: ReplayStep<'_>, _pool: &Pool) {
        self.now = step.at;
        if let Event::Submit(submit) = step.event {
            self.count(&submit.attributes);
        }
        self.roster.before(step.event);
    }

    fn after(&mut self, _pool: &Pool) -> Result<(), ReplayError> {
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
