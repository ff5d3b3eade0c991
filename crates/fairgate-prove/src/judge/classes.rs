//! Bars about the classes of a policy file.

use super::{JudgedCase, fairness};
use crate::replay::FlowChange;
use crate::report::ProveBar;

/// Greatest difference between the tokens that a class got and the share that its quantum gives it,
/// in percent of that share.
const QUANTA_PERCENT: u32 = 2;

/// Checks that the classes' tokens are in the ratio of their quanta, whatever single requests cost.
pub(super) fn by_quanta(case: &JudgedCase<'_>) -> ProveBar {
    let (passed, furthest) = fairness::near_ideal(case, QUANTA_PERCENT);
    let got = case.service.flows.iter().map(|flow| flow.got);
    let least = got.clone().min().unwrap_or(0).max(1) as f64;
    let ratios: Vec<String> = got.map(|got| format!("{:.3}", got as f64 / least)).collect();
    let says = format!("tokens are {}; {furthest}", ratios.join(" : "));
    ProveBar::new("by the quanta", passed, says)
}

/// Checks that each request that was granted within the measured window had the class that the scenario expects for its
/// tenant. The expected class follows from the policy family and the uncached tokens of the tenant's requests.
pub(super) fn own_class(case: &JudgedCase<'_>) -> ProveBar {
    let name = "in their classes";
    let Some((from, until)) = case.service.window else {
        return ProveBar::new(name, false, "there was no moment at which all tenants waited");
    };
    let steps = case.replay.steps.iter();
    let granted = steps
        .filter(|step| step.what == FlowChange::Granted && (from.0..=until.0).contains(&step.at.0));
    let (mut all, mut strays) = (0_u64, Vec::new());
    for request in granted.map(|step| &case.replay.requests[step.request]) {
        let Some(tenant) = request.tenant.map(|i| &case.scenario.tenants[i]) else { continue };
        all += 1;
        if request.class.as_deref() != tenant.class {
            let class = request.class.as_deref().unwrap_or("none");
            strays.push(format!("{} of {} was in {class}", request.id, tenant.name));
        }
    }
    match strays.first() {
        None => ProveBar::new(name, all > 0, format!("all {all} that were granted")),
        Some(first) => ProveBar::new(
            name,
            false,
            format!("{} of {all} were not, the first: {first}", strays.len()),
        ),
    }
}
