//! Usage of a batch of requests, summed up by claim.

use std::collections::BTreeMap;

use crate::claim::TaskClaim;

/// Usage of a batch of ledger rows, summed up by claim, so that the database is updated once for each claim.
#[derive(Debug, Default)]
pub struct ClaimCharges(BTreeMap<TaskClaim, ClaimUsage>);

/// Tokens as a provider counts them, and number of requests, that were used under a claim. Negative numbers take a wrong
/// charge back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClaimUsage {
    /// Tokens as a provider counts them.
    pub tokens: i64,
    /// Number of requests. A request with several attempts counts once.
    pub calls: i64,
}

impl ClaimCharges {
    /// Adds the usage of a row. `None` stands for a row that uses nothing or was not made for a task.
    pub fn add(&mut self, charge: Option<(&TaskClaim, ClaimUsage)>) {
        if let Some((claim, more)) = charge {
            let sum = self.0.entry(claim.clone()).or_default();
            sum.tokens += more.tokens;
            sum.calls += more.calls;
        }
    }

    /// Iterates over the claims whose usage is not zero, in the order of the claims.
    pub fn iter(&self) -> impl Iterator<Item = (&TaskClaim, ClaimUsage)> {
        self.0
            .iter()
            .map(|(claim, sum)| (claim, *sum))
            .filter(|(_, sum)| *sum != ClaimUsage::default())
    }

    /// Returns whether no claim has usage that is not zero.
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// Forgets all usage.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}
