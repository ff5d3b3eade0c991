//! The agents that have ever sent a request, with their counters. Agents are never removed.

use std::collections::HashMap;
use std::sync::Arc;

use fairgate_core::attribute::{Attribute, Attributes};
use foldhash::fast::FixedState;

use crate::budget::LocalBudget;

/// Index of an agent in [`LocalAgents`].
pub(crate) type AgentIndex = usize;

/// Upper bounds of the wait histogram's buckets in microseconds, from 1 ms to 5 min. One further bucket counts longer
/// waits.
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

/// Counters and budget of one agent.
#[derive(Debug, Default)]
pub(crate) struct LocalAgent {
    pub(crate) name: Arc<str>,
    /// Attributes of a request that sets no attribute but the agent. Such requests share this value, so that they share
    /// one allocation.
    pub(crate) attributes: Attributes,
    /// Number of requests queued for a slot.
    pub(crate) waiting: u64,
    /// Number of requests that wait for budget before they are queued for a slot.
    pub(crate) parked: u64,
    /// Number of requests that hold a slot.
    pub(crate) in_flight: u64,
    /// Sum of the weights of the requests queued for a slot, in thousandths.
    pub(crate) depth_thousandths: u64,
    /// Number of grants so far.
    pub(crate) grants: u64,
    /// Number of refusals so far, by code.
    pub(crate) refusals: HashMap<&'static str, u64>,
    /// Number of requests that were cancelled, or passed their deadline, before they ran.
    pub(crate) withdrawals: u64,
    /// Histogram of the waits of granted requests: the number of requests in each bucket of [`WAIT_BUCKETS_US`], and in
    /// the last entry the number of longer waits.
    pub(crate) waits: [u64; WAIT_BUCKETS_US.len() + 1],
    /// Sum of the waits of granted requests, in microseconds.
    pub(crate) waited_us: u64,
    /// The token budget of the agent; `None` for no budget.
    pub(crate) budget: Option<LocalBudget>,
    /// True if a budget, or the setting "no budget", was set for this agent, so that the default budget does not apply.
    pub(crate) has_own_budget_setting: bool,
}

impl LocalAgent {
    /// Counts a grant, and adds the request's wait to the histogram.
    pub(crate) fn granted(&mut self, waited_us: u64) {
        self.grants += 1;
        self.waited_us = self.waited_us.saturating_add(waited_us);
        self.waits[WAIT_BUCKETS_US.partition_point(|end| *end < waited_us)] += 1;
    }

    /// Counts a refusal under its code.
    pub(crate) fn refused(&mut self, code: &'static str) {
        *self.refusals.entry(code).or_default() += 1;
    }
}

/// All agents, by name and by index.
#[derive(Debug, Default)]
pub(crate) struct LocalAgents {
    /// Index of each agent by name. A fixed hasher is safe, because the program itself chooses the names, so no
    /// attacker can choose names that collide.
    by_name: HashMap<Arc<str>, AgentIndex, FixedState>,
    list: Vec<LocalAgent>,
}

impl LocalAgents {
    /// Returns the index of the agent with this name. Adds an agent if there is none.
    pub(crate) fn find_or_add(&mut self, name: &str) -> AgentIndex {
        if let Some(index) = self.by_name.get(name) {
            return *index;
        }
        let index = self.list.len();
        let attributes = Attributes::none().with(Attribute::Agent, name);
        let name: Arc<str> = name.into();
        self.by_name.insert(name.clone(), index);
        self.list.push(LocalAgent { name, attributes, ..LocalAgent::default() });
        index
    }

    pub(crate) fn get(&mut self, index: AgentIndex) -> &mut LocalAgent {
        &mut self.list[index]
    }

    /// Iterates over all agents in the order in which they were added.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &LocalAgent> {
        self.list.iter()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut LocalAgent> {
        self.list.iter_mut()
    }

    /// Sets the counts of waiting and in-flight requests to 0, for a child process after a fork. The totals are kept.
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
