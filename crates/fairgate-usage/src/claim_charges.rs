//! Usage of a batch of requests, summed by claim.

use std::collections::BTreeMap;

use crate::claim::TaskClaim;

/// Usage of a batch of ledger rows, summed by claim, so that the database is updated once for each
/// claim.
#[derive(Debug, Default)]
pub struct ClaimCharges(BTreeMap<TaskClaim, ClaimUsage>);

/// Usage under a claim: tokens as a provider counts them, number of requests, and money. Negative
/// numbers undo a wrong charge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClaimUsage {
    /// Input plus output tokens, as the provider counts them, without the weights of a pool.
    pub tokens: i64,
    /// Number of requests. A request with several attempts counts once.
    pub calls: i64,
    /// Cost of the requests, in micro-units.
    pub money: i64,
    /// Time at which the last completed request ended, in microseconds since 1970; 0 if none was
    /// completed. A provider's limit that was noted for the claim before this time no longer stops
    /// the claim's work.
    pub answered_at: i64,
}

impl ClaimCharges {
    /// Adds the usage of a ledger row. Pass `None` for a row without usage, and for a row of a request without a task.
    pub fn add(&mut self, charge: Option<(&TaskClaim, ClaimUsage)>) {
        if let Some((claim, more)) = charge {
            let sum = self.0.entry(claim.clone()).or_default();
            sum.tokens += more.tokens;
            sum.calls += more.calls;
            sum.money = sum.money.saturating_add(more.money);
            sum.answered_at = sum.answered_at.max(more.answered_at);
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

    /// Forgets the usage of all claims.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}
