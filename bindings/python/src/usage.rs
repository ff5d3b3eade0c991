//! What was used, by agent and model.

use std::collections::BTreeMap;
use std::sync::Arc;

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
    sums: BTreeMap<(Arc<str>, Box<str>), Sum>,
}

impl Ledger {
    /// Adds one request. `tokens` is what it is charged: what it used, else its estimate.
    pub(crate) fn add(&mut self, agent: Arc<str>, tokens: u64, used: &Used) {
        let model = used.model.as_deref().unwrap_or_default();
        let sum = self.sums.entry((agent, model.into())).or_default();
        sum.requests += 1;
        sum.tokens = sum.tokens.saturating_add(tokens);
        sum.input_tokens = sum.input_tokens.saturating_add(used.input_tokens);
        sum.output_tokens = sum.output_tokens.saturating_add(used.output_tokens);
    }

    /// All sums, by agent and model.
    pub(crate) fn rows(&self) -> Vec<(String, String, Sum)> {
        let row = |((agent, model), sum): (&(Arc<str>, Box<str>), &Sum)| {
            (agent.to_string(), model.to_string(), *sum)
        };
        self.sums.iter().map(row).collect()
    }
}
