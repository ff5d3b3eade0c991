//! Bars about a provider's quota: it is used, and hardly anything is sent that it refuses.

use fairgate_sim::AccountCounts;

use super::{Case, percent};
use crate::report::Bar;
use crate::scenario::{Quota, States};

/// Of a hundred attempts so many may meet a refusal: where limits are stated, and where they must be learned.
const REFUSED_PERCENT: (f64, f64) = (1.0, 3.0);
/// So much of the quota must be used, in percent.
const USED_PERCENT: (f64, f64) = (95.0, 85.0);

fn of(quota: Quota, (stated, learned): (f64, f64)) -> f64 {
    if quota.states == States::Nothing { learned } else { stated }
}

pub(super) fn few_refused(quota: Quota, provider: AccountCounts) -> Bar {
    let most = of(quota, REFUSED_PERCENT);
    let refused = provider.refused_by_requests + provider.refused_by_tokens + provider.too_large;
    let attempts = provider.accepted + refused;
    let part = percent(refused as f64, attempts as f64);
    let says = format!(
        "the provider refused {refused} of {attempts} attempts: {part:.2} %, {most:.0} % allowed"
    );
    Bar::new("few are refused", attempts > 0 && part <= most, says)
}

pub(super) fn is_used(case: &Case<'_>, quota: Quota) -> Bar {
    let name = "the quota is used";
    let least = of(quota, USED_PERCENT);
    let Some((from, until)) = case.service.window else {
        return Bar::new(name, false, "there was no moment at which all tenants waited");
    };
    let seconds = (until.0 - from.0) as f64 / 1e6;
    let tokens: i128 = case.service.flows.iter().map(|flow| flow.got).sum();
    let per_second = tokens as f64 / seconds;
    let allowed = quota.tokens_per_minute as f64 / 60.0;
    let part = percent(per_second, allowed);
    let says = format!(
        "{per_second:.0} of {allowed:.0} tokens/s: {part:.1} %, {least:.0} % needed while both wait"
    );
    Bar::new(name, part >= least, says)
}
