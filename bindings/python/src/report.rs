//! The scheduler's counters. They are copied under the lock, and converted to Python objects after the lock is
//! released.

use std::collections::HashMap;
use std::sync::Arc;

use fairgate_core::Pool;
use fairgate_core::attribute::Attribute;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::agents::{LocalAgent, WAIT_BUCKETS_US};
use crate::local_scheduler::{LocalScheduler, ProviderReport};

/// All counters of a scheduler at one moment.
pub(crate) struct SchedulerReport {
    capacity: u64,
    in_flight: u64,
    waiting: u64,
    parked: u64,
    max_waiting: u64,
    ticks: u64,
    now_us: u64,
    alpha_millionths: Option<u32>,
    closed: bool,
    provider: Option<ProviderReport>,
    agents: Vec<AgentReport>,
}

struct AgentReport {
    name: String,
    counts: [(&'static str, u64); 7],
    oldest_age_ticks: Option<u64>,
    waits: Vec<u64>,
    refusals: Vec<(&'static str, u64)>,
    budget: Option<[(&'static str, u64); 3]>,
    service: Option<AgentService>,
}

/// The service that an agent got and the service that it was due, in tokens, summed over all policy nodes that share by
/// agent.
#[derive(Clone, Copy, Default)]
struct AgentService {
    got: i128,
    due: i128,
    bound: u128,
}

impl AgentService {
    /// Returns the service of each agent by name; empty if no node of the policy shares by agent.
    fn by_agent(pool: &Pool) -> HashMap<Arc<str>, Self> {
        let mut by_agent: HashMap<Arc<str>, Self> = HashMap::new();
        let nodes = pool.fairness().into_iter().filter(|node| node.by == Attribute::Agent);
        for flow in nodes.flat_map(|node| node.flows) {
            let Some(due) = flow.due else { continue };
            let its = by_agent.entry(flow.name).or_default();
            its.got = its.got.saturating_add(flow.got);
            its.due = its.due.saturating_add(due.tokens);
            its.bound = its.bound.saturating_add(due.bound);
        }
        by_agent
    }

    fn into_dict(self, py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
        let dict = PyDict::new(py);
        dict.set_item("got", self.got)?;
        dict.set_item("due", self.due)?;
        dict.set_item("bound", self.bound)?;
        Ok(dict)
    }
}

impl SchedulerReport {
    pub(crate) fn of<W>(scheduler: &LocalScheduler<W>) -> Self {
        let pool = &scheduler.pool;
        let mut ages = scheduler.oldest_ages();
        let services = AgentService::by_agent(pool);
        let agents = scheduler.agents.iter().enumerate();
        let mut agents: Vec<_> = agents
            .map(|(i, its)| AgentReport::of(its, ages.remove(&i), services.get(&its.name).copied()))
            .collect();
        agents.sort_by(|a, b| a.name.cmp(&b.name));
        Self {
            capacity: pool.capacity(),
            in_flight: pool.in_flight(),
            waiting: pool.waiting(),
            parked: scheduler.parked(),
            max_waiting: scheduler.config.max_queue.unwrap_or(u64::MAX),
            ticks: pool.ticks().0,
            now_us: pool.now().0,
            alpha_millionths: pool.alpha().map(|alpha| alpha.millionths()),
            closed: scheduler.is_closed(),
            provider: scheduler.provider_report(),
            agents,
        }
    }

    pub(crate) fn into_dict(self, py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
        let dict = PyDict::new(py);
        dict.set_item("capacity", self.capacity)?;
        dict.set_item("in_flight", self.in_flight)?;
        dict.set_item("waiting", self.waiting)?;
        dict.set_item("waiting_for_budget", self.parked)?;
        dict.set_item("max_waiting", self.max_waiting)?;
        dict.set_item("ticks", self.ticks)?;
        dict.set_item("now_us", self.now_us)?;
        dict.set_item("alpha_millionths", self.alpha_millionths)?;
        dict.set_item("closed", self.closed)?;
        let provider = self.provider.map(|its| {
            let provider = PyDict::new(py);
            provider.set_item("requests_per_minute", its.requests_per_minute)?;
            provider.set_item("tokens_per_minute", its.tokens_per_minute)?;
            provider.set_item("paused_us", its.paused_us)?;
            provider.set_item("limits_met", its.limits_met)?;
            PyResult::Ok(provider)
        });
        dict.set_item("provider", provider.transpose()?)?;
        dict.set_item("wait_buckets_us", WAIT_BUCKETS_US)?;
        let agents = self.agents.into_iter().map(|agent| agent.into_dict(py));
        dict.set_item("agents", PyList::new(py, agents.collect::<PyResult<Vec<_>>>()?)?)?;
        Ok(dict)
    }
}

impl AgentReport {
    fn of(
        agent: &LocalAgent,
        oldest_age_ticks: Option<u64>,
        service: Option<AgentService>,
    ) -> Self {
        let mut refusals: Vec<_> = agent.refusals.iter().map(|(code, n)| (*code, *n)).collect();
        refusals.sort_unstable();
        Self {
            name: agent.name.to_string(),
            counts: [
                ("waiting", agent.waiting),
                ("waiting_for_budget", agent.parked),
                ("in_flight", agent.in_flight),
                ("depth_thousandths", agent.depth_thousandths),
                ("grants", agent.grants),
                ("withdrawals", agent.withdrawals),
                ("waited_us", agent.waited_us),
            ],
            oldest_age_ticks,
            waits: agent.waits.to_vec(),
            refusals,
            budget: agent.budget.as_ref().map(|its| {
                [("limit", its.terms.limit), ("spent", its.spent), ("reserved", its.reserved)]
            }),
            service,
        }
    }

    fn into_dict(self, py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
        let dict = PyDict::new(py);
        dict.set_item("name", self.name)?;
        for (key, count) in self.counts {
            dict.set_item(key, count)?;
        }
        dict.set_item("oldest_age_ticks", self.oldest_age_ticks)?;
        dict.set_item("waits", self.waits)?;
        let refusals = PyDict::new(py);
        for (code, count) in self.refusals {
            refusals.set_item(code, count)?;
        }
        dict.set_item("refusals", refusals)?;
        let budget = self.budget.map(|its| {
            let budget = PyDict::new(py);
            its.iter().try_for_each(|(key, tokens)| budget.set_item(key, tokens))?;
            PyResult::Ok(budget)
        });
        dict.set_item("budget", budget.transpose()?)?;
        let service = self.service.map(|its| its.into_dict(py));
        dict.set_item("service", service.transpose()?)?;
        Ok(dict)
    }
}
