//! View of the tokens and money used on own and on hosted workers.

use fairgate_api::admin::{TierUseView, TiersView};

use fairgate_proxy::pools::{SpentByTier, TierUse};

/// Returns the use of own or of hosted workers as the API shows it.
fn tier_use(used: TierUse) -> TierUseView {
    let TierUse { requests, provider_tokens, money } = used;
    TierUseView { requests, provider_tokens, money: money.to_string() }
}

/// Returns the use of own and of hosted workers as the API shows it.
pub(super) fn tiers_view(spent: SpentByTier) -> TiersView {
    TiersView {
        own: tier_use(spent.own),
        hosted: tier_use(spent.hosted),
        worker_us: spent.worker_us,
    }
}
