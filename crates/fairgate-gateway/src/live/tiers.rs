//! What was used on which kind of workers, as it is shown.

use serde::Serialize;
use utoipa::ToSchema;

use crate::pools::{Spent, TierUse};

/// What was used on own workers and on hosted ones since the gateway started. `usage` has it over restarts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Tiers)]
pub struct TiersView {
    /// On own workers: those of tier 0.
    pub own: TierUseView,
    /// On hosted workers: those of tier 1 and above.
    pub hosted: TierUseView,
}

/// What was used on one kind of workers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = TierUse)]
pub struct TierUseView {
    /// Attempts that used anything.
    pub requests: u64,
    /// Input and output tokens as a provider counts them, not weighted.
    pub provider_tokens: u64,
    /// What it cost, as a decimal text in `currency`.
    pub money: String,
}

impl From<TierUse> for TierUseView {
    fn from(used: TierUse) -> Self {
        let TierUse { requests, provider_tokens, money } = used;
        Self { requests, provider_tokens, money: money.to_string() }
    }
}

impl From<Spent> for TiersView {
    fn from(spent: Spent) -> Self {
        Self { own: spent.own.into(), hosted: spent.hosted.into() }
    }
}
