//! View of the tokens and money used on own and on hosted workers.

use serde::Serialize;
use utoipa::ToSchema;

use crate::pools::{SpentByTier, TierUse};

/// Use of own and of hosted workers since the gateway started. For sums that include earlier runs of the gateway, see
/// `/api/v1/usage`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Tiers)]
pub struct TiersView {
    /// Use of own workers, which have tier 0.
    pub own: TierUseView,
    /// Use of hosted workers, which have tier 1 or more.
    pub hosted: TierUseView,
}

/// Use of own workers, or of hosted workers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = TierUse)]
pub struct TierUseView {
    /// Number of attempts that used any tokens.
    pub requests: u64,
    /// Input and output tokens as a provider counts them, not weighted.
    pub provider_tokens: u64,
    /// Cost in money, as a decimal text in the `currency` of the view.
    pub money: String,
}

impl From<TierUse> for TierUseView {
    fn from(used: TierUse) -> Self {
        let TierUse { requests, provider_tokens, money } = used;
        Self { requests, provider_tokens, money: money.to_string() }
    }
}

impl From<SpentByTier> for TiersView {
    fn from(spent: SpentByTier) -> Self {
        Self { own: spent.own.into(), hosted: spent.hosted.into() }
    }
}
