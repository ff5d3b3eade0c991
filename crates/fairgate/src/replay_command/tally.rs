//! What each flow got in one run of a journal.

use std::collections::HashMap;

use fairgate_core::Pool;
use fairgate_core::attribute::{Attribute, Attributes, DEFAULT_FLOW};
use fairgate_core::decision::{Decision, Sink};
use fairgate_core::event::Event;
use fairgate_core::policy::{Node, Policy};
use fairgate_core::units::Micros;

use super::recording::Recording;
use super::roster::{Number, Roster};
use super::steps::{Listener, Step};

/// Which flow a request counts in: the one of the recording's root node, or of any attribute.
#[derive(Clone, Debug)]
pub(crate) struct Grouping {
    by: Attribute,
    classes: Option<Classes>,
}

/// A drr root has no flows but its classes.
#[derive(Clone, Debug)]
struct Classes {
    names: Vec<Box<str>>,
    default: Box<str>,
}

impl Grouping {
    /// By the flows of a policy's root.
    pub(crate) fn of_root(policy: &Policy) -> Self {
        let Node::Drr(drr) = &**policy.root() else { return Self::by(policy.root().by()) };
        let names: Vec<Box<str>> = drr.classes.iter().map(|class| class.name.clone()).collect();
        let first = names.first().cloned().unwrap_or_else(|| DEFAULT_FLOW.into());
        let default = drr.default.clone().unwrap_or(first);
        Self { by: drr.by, classes: Some(Classes { names, default }) }
    }

    /// By the values of an attribute.
    pub(crate) fn by(by: Attribute) -> Self {
        Self { by, classes: None }
    }

    /// The attribute that names the flows.
    pub(crate) fn attribute(&self) -> Attribute {
        self.by
    }

    fn flow<'a>(&'a self, attributes: &'a Attributes) -> &'a str {
        let named = attributes.get(self.by);
        match &self.classes {
            None => named.unwrap_or(DEFAULT_FLOW),
            Some(Classes { names, default }) => {
                named.filter(|name| names.iter().any(|known| **known == **name)).unwrap_or(default)
            }
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

/// Counts, while a journal is replayed.
#[derive(Debug)]
pub(crate) struct Tally {
    grouping: Grouping,
    roster: Roster,
    names: HashMap<Box<str>, usize>,
    flows: Vec<FlowTally>,
    /// By number: the flow, and whether it was granted.
    requests: Vec<(usize, bool)>,
    now: Micros,
}

impl Tally {
    /// For a pool that is about to be replayed.
    pub(crate) fn new(grouping: Grouping, pool: &Pool) -> Self {
        let mut tally = Self {
            grouping,
            roster: Roster::of(pool),
            names: HashMap::new(),
            flows: Vec::new(),
            requests: Vec::new(),
            now: pool.now(),
        };
        for request in pool.snapshot().requests {
            tally.count(&request.attributes);
        }
        tally
    }

    fn count(&mut self, attributes: &Attributes) {
        let name = self.grouping.flow(attributes);
        let flow = match self.names.get(name) {
            Some(flow) => *flow,
            None => {
                self.names.insert(name.into(), self.flows.len());
                self.flows.push(FlowTally::default());
                self.flows.len() - 1
            }
        };
        self.flows[flow].requests += 1;
        self.requests.push((flow, false));
    }

    fn flow(&mut self, number: Number) -> &mut FlowTally {
        &mut self.flows[self.requests[number].0]
    }

    /// What each flow got, by name.
    pub(crate) fn finish(mut self, recording: &Recording) -> Vec<(Box<str>, FlowTally)> {
        for (number, (flow, granted)) in self.requests.iter().enumerate() {
            if *granted {
                self.flows[*flow].tokens += u128::from(recording.fact(number).used().0);
            }
        }
        let mut named: Vec<_> = self.names.into_iter().collect();
        named.sort_unstable();
        let tallies = named.into_iter().map(|(name, flow)| {
            let mut tally = std::mem::take(&mut self.flows[flow]);
            tally.waits.sort_unstable();
            (name, tally)
        });
        tallies.collect()
    }
}

impl Sink for Tally {
    fn decided(&mut self, decision: Decision) {
        let Some(number) = self.roster.decided(self.now, &decision) else { return };
        match decision {
            Decision::Grant(grant) => {
                self.requests[number].1 = true;
                let flow = self.flow(number);
                flow.granted += 1;
                flow.waits.push(grant.waited.0);
            }
            Decision::Reject(_) | Decision::Expire { .. } => self.flow(number).refused += 1,
        }
    }
}

impl Listener for Tally {
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

    #[test]
    fn the_flows_of_a_drr_root_are_its_classes() {
        let policy = fairgate_journal::parse_policy(
            r#"{"drr":{"by":"class","classes":[{"name":"a","quantum":1},{"name":"b","quantum":1}],"default":"b"}}"#,
        );
        let grouping = Grouping::of_root(&policy.unwrap());
        let class = |name| Attributes::none().with(Attribute::Class, name);
        assert_eq!(grouping.flow(&class("a")), "a");
        assert_eq!(grouping.flow(&class("x")), "b");
        assert_eq!(grouping.flow(&Attributes::none()), "b");
        assert_eq!(Grouping::by(Attribute::Class).flow(&class("x")), "x");
    }
}
