//! Usage of a batch of requests, summed up by claim.

use std::collections::BTreeMap;

use crate::claim::TaskClaim;

/// Usage of a batch of ledger rows, summed up by claim, so that the database is updated once for each claim.
#[derive(Debug, Default)]
pub struct ClaimCharges(BTreeMap<TaskClaim, ClaimUsage>);

/// Usage under a claim, in tokens and requests. Negative numbers take back usage that was charged by mistake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClaimUsage {
    /// Input plus output tokens, as the provider counts them, without the weights of a pool.
    pub tokens: i64,
    /// Number of requests. A request with several attempts counts once.
    pub calls: i64,
}

impl ClaimCharges {
    /// Adds the usage of a ledger row. Pass `None` for a row without usage, and for a row of a request without a task.
    pub fn add(&mut self, charge: Option<(&TaskClaim, ClaimUsage)>) {
        if let Some((claim, more)) = charge {
            let sum = self.0.entry(claim.clone()).or_default();
            sum.tokens += more.tokens;
            sum.calls += more.calls;
        }
    }

    /// Iterates over the claims whose usage is not zero, sorted by claim.
    pub fn iter(&self) -> impl Iterator<Item = (&TaskClaim, ClaimUsage)> {
        self.0
            .iter()
            .map(|(claim, sum)| (claim, *sum))
            .filter(|(_, sum)| *sum != ClaimUsage::default())
    }

    /// Returns whether the usage of every claim is zero.
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// Forgets all usage.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}
