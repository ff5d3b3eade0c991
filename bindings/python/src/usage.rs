//! What was used, by agent and model.

use std::collections::BTreeMap;

use crate::agents::{AgentIndex, Agents};

/// What one request really used. What is not known is `None`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Used {
    pub(crate) tokens: Option<u64>,
    pub(crate) input_tokens: u64,
    pub(crate) output_tokens: u64,
    pub(crate) model: Option<String>,
}

/// Sums over the requests of one agent to one model.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sum {
    pub(crate) requests: u64,
    pub(crate) tokens: u64,
    pub(crate) input_tokens: u64,
    pub(crate) output_tokens: u64,
}

/// All sums; the model is the empty text where it was not said.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// By the agent's index, then by model.
    sums: Vec<BTreeMap<Box<str>, Sum>>,
}

impl Ledger {
    /// Adds one request. `tokens` is what it is charged: what it used, else its estimate.
    pub(crate) fn add(&mut self, agent: AgentIndex, tokens: u64, used: &Used) {
        let model = used.model.as_deref().unwrap_or_default();
        if self.sums.len() <= agent {
            self.sums.resize_with(agent + 1, BTreeMap::new);
        }
        let models = &mut self.sums[agent];
        if !models.contains_key(model) {
            models.insert(model.into(), Sum::default());
        }
        let Some(sum) = models.get_mut(model) else { return };
        sum.requests += 1;
        sum.tokens = sum.tokens.saturating_add(tokens);
        sum.input_tokens = sum.input_tokens.saturating_add(used.input_tokens);
        sum.output_tokens = sum.output_tokens.saturating_add(used.output_tokens);
    }

    /// All sums, by agent and model.
    pub(crate) fn rows(&self, agents: &Agents) -> Vec<(String, String, Sum)> {
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
