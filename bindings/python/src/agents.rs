//! The agents that have ever asked, each with its counts. They are never forgotten.

use std::collections::HashMap;
use std::sync::Arc;

use fairgate_core::attribute::{Attribute, Attributes};
use foldhash::fast::FixedState;

use crate::budget::Budget;

/// A place in [`Agents`].
pub(crate) type AgentIndex = usize;

/// The upper ends of the buckets in which waits are counted, in microseconds: 1 ms to 5 min. What waited longer
/// is in one more.
pub(crate) const WAIT_BUCKETS_US: [u64; 12] = [
    1_000,
    5_000,
    20_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    15_000_000,
    60_000_000,
    300_000_000,
];

/// One agent.
#[derive(Debug, Default)]
pub(crate) struct Agent {
    pub(crate) name: Arc<str>,
    /// What its requests say of themselves that say no more than whose they are: all share these.
    pub(crate) attributes: Attributes,
    /// Requests that wait for a slot.
    pub(crate) waiting: u64,
    /// Requests that wait for budget before they may wait for a slot.
    pub(crate) parked: u64,
    /// Requests that hold a slot.
    pub(crate) in_flight: u64,
    /// The weights of what waits for a slot, in thousandths.
    pub(crate) depth_thousandths: u64,
    /// How often it was granted a slot.
    pub(crate) grants: u64,
    /// How often it was refused, by code.
    pub(crate) refusals: HashMap<&'static str, u64>,
    /// How often a request of its left before it was granted, or as it was.
    pub(crate) withdrawals: u64,
    /// How long granted requests waited: how many in each bucket.
    pub(crate) waits: [u64; WAIT_BUCKETS_US.len() + 1],
    /// How long they waited together, in microseconds.
    pub(crate) waited_us: u64,
    /// What it may spend, where it has a budget.
    pub(crate) budget: Option<Budget>,
    /// Whether it was said of this agent which budget it has, or that it has none.
    pub(crate) has_own_terms: bool,
}

impl Agent {
    /// Counts a grant after a wait.
    pub(crate) fn granted(&mut self, waited_us: u64) {
        self.grants += 1;
        self.waited_us = self.waited_us.saturating_add(waited_us);
        self.waits[WAIT_BUCKETS_US.partition_point(|end| *end < waited_us)] += 1;
    }

    /// Counts a refusal.
    pub(crate) fn refused(&mut self, code: &'static str) {
        *self.refusals.entry(code).or_default() += 1;
    }
}

/// All agents, by name and by index.
#[derive(Debug, Default)]
pub(crate) struct Agents {
    /// The names are the program's own: nobody from outside could choose them so that they collide.
    by_name: HashMap<Arc<str>, AgentIndex, FixedState>,
    list: Vec<Agent>,
}

impl Agents {
    /// The agent of that name, which comes into being where it is new.
    pub(crate) fn named(&mut self, name: &str) -> AgentIndex {
        if let Some(index) = self.by_name.get(name) {
            return *index;
        }
        let index = self.list.len();
        let attributes = Attributes::none().with(Attribute::Agent, name);
        let name: Arc<str> = name.into();
        self.by_name.insert(name.clone(), index);
        self.list.push(Agent { name, attributes, ..Agent::default() });
        index
    }

    pub(crate) fn get(&mut self, index: AgentIndex) -> &mut Agent {
        &mut self.list[index]
    }

    /// All of them, in the order in which they came.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Agent> {
        self.list.iter()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Agent> {
        self.list.iter_mut()
    }

    /// Forgets what waits and what is in flight, as after a fork; what was counted stays.
    pub(crate) fn forget_requests(&mut self) {
        for agent in &mut self.list {
            agent.waiting = 0;
            agent.parked = 0;
            agent.in_flight = 0;
            agent.depth_thousandths = 0;
            if let Some(budget) = &mut agent.budget {
                budget.forget_requests();
            }
        }
    }
}
