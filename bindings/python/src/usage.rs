//! Sums of usage by agent and model.

use std::collections::BTreeMap;

use crate::agents::{AgentIndex, LocalAgents};

/// The usage of one request.
#[derive(Clone, Debug, Default)]
pub(crate) struct SlotUsage {
    /// Number of tokens in total; `None` if the usage is unknown.
    pub(crate) tokens: Option<u64>,
    pub(crate) input_tokens: u64,
    pub(crate) output_tokens: u64,
    /// Name of the model; `None` if it is unknown.
    pub(crate) model: Option<String>,
}

/// Sums over the requests of one agent to one model.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AgentModelUsage {
    pub(crate) requests: u64,
    pub(crate) tokens: u64,
    pub(crate) input_tokens: u64,
    pub(crate) output_tokens: u64,
}

/// Sums for all agents and models. Requests that name no model are summed under the empty string.
#[derive(Debug, Default)]
pub(crate) struct LocalUsage {
    /// Sums by the agent's index, then by model.
    sums: Vec<BTreeMap<Box<str>, AgentModelUsage>>,
}

impl LocalUsage {
    /// Adds one request to the sums. `tokens` is the amount charged: the usage if it is known, otherwise the estimate.
    pub(crate) fn add(&mut self, agent: AgentIndex, tokens: u64, used: &SlotUsage) {
        let model = used.model.as_deref().unwrap_or_default();
        if self.sums.len() <= agent {
            self.sums.resize_with(agent + 1, BTreeMap::new);
        }
        let models = &mut self.sums[agent];
        if !models.contains_key(model) {
            models.insert(model.into(), AgentModelUsage::default());
        }
        let Some(sum) = models.get_mut(model) else { return };
        sum.requests += 1;
        sum.tokens = sum.tokens.saturating_add(tokens);
        sum.input_tokens = sum.input_tokens.saturating_add(used.input_tokens);
        sum.output_tokens = sum.output_tokens.saturating_add(used.output_tokens);
    }

    /// Returns all sums, sorted by agent and model.
    pub(crate) fn rows(&self, agents: &LocalAgents) -> Vec<(String, String, AgentModelUsage)> {
        let mut rows: Vec<_> = agents
            .iter()
            .zip(&self.sums)
            .flat_map(|(agent, models)| {
                models.iter().map(|(model, sum)| (agent.name.to_string(), model.to_string(), *sum))
            })
            .collect();
        rows.sort_unstable_by(|(a, m, _), (b, n, _)| (a, m).cmp(&(b, n)));
        rows
    }
}
