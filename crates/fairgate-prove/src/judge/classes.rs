//! Bars about the classes of a policy file.

use super::{Case, fairness};
use crate::replay::What;
use crate::report::Bar;

/// How far from what its quantum says a class may be in the end, in percent.
const QUANTA_PERCENT: u32 = 2;

/// Tokens are in the ratio of the quanta, whatever requests cost.
pub(super) fn by_quanta(case: &Case<'_>) -> Bar {
    let (passed, furthest) = fairness::near_ideal(case, QUANTA_PERCENT);
    let got = case.service.flows.iter().map(|flow| flow.got);
    let least = got.clone().min().unwrap_or(0).max(1) as f64;
    let ratios: Vec<String> = got.map(|got| format!("{:.3}", got as f64 / least)).collect();
    let says = format!("tokens are {}; {furthest}", ratios.join(" : "));
    Bar::new("by the quanta", passed, says)
}

/// While all waited, each tenant's requests were in the class that their family and their uncached tokens give.
pub(super) fn own_class(case: &Case<'_>) -> Bar {
    let name = "in their classes";
    let Some((from, until)) = case.service.window else {
        return Bar::new(name, false, "there was no moment at which all tenants waited");
    };
    let steps = case.replay.steps.iter();
    let granted =
        steps.filter(|step| step.what == What::Granted && (from.0..=until.0).contains(&step.at.0));
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
        None => Bar::new(name, all > 0, format!("all {all} that were granted")),
        Some(first) => {
            Bar::new(name, false, format!("{} of {all} were not, the first: {first}", strays.len()))
        }
    }
}
