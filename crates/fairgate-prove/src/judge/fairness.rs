//! Bars about how tokens and slots were distributed, and about starvation.

use super::{JudgedCase, SHARE_PERCENT, millis, percent};
use crate::report::ProveBar;
use crate::scenario::GainAttempt;
use crate::service::{ClosestToBound, FlowService};
use crate::slots::SlotMeasurement;

/// Greatest percentage of the measured window in which a tenant may have nothing queued. It is
/// above 0, because the machine sometimes pauses.
const LAPSES_PERCENT: u64 = 2;

/// Checks that all tenants had requests queued within the measured window, except for short lapses,
/// and that each got enough grants in it.
pub(super) fn backlogged(case: &JudgedCase<'_>) -> ProveBar {
    let name = "everybody waits";
    let needed = case.scenario.length.grants_min;
    let Some((from, until)) = case.service.window else {
        return ProveBar::new(name, false, "there was no moment at which all tenants waited");
    };
    let grants = |i: usize| case.service.flows[i].grants;
    let fewest = case.names().map(|(i, tenant)| (grants(i), tenant)).min();
    let Some((fewest, tenant)) = fewest else {
        return ProveBar::new(name, false, "there are no tenants");
    };
    let overlap = until.0 - from.0;
    let (times, lost) = case.service.lapses;
    let says = format!(
        "for {:.2} s, but for {times} moments of {:.1} ms in all; fewest grants then: {tenant} with {fewest}, {needed} needed",
        overlap as f64 / 1e6,
        millis(lost),
    );
    let enough = lost.0 * 100 <= overlap * LAPSES_PERCENT;
    ProveBar::new(name, fewest >= needed && enough, says)
}

/// Checks, after every event of the measured window, that the difference between a tenant's tokens
/// since the join and its ideal is within the proven bound.
pub(super) fn within_bound(case: &JudgedCase<'_>) -> ProveBar {
    closest(
        case,
        "within the bound",
        |flow| flow.off,
        |tenant, worst| {
            format!(
                "closest: {tenant}, {:.1} tokens from its ideal where {:.1} are allowed",
                worst.measured_tokens(),
                worst.bound_tokens()
            )
        },
    )
}

/// Checks that the tokens that other tenants get between two grants of a waiting tenant are within
/// the proven bound.
pub(super) fn no_long_gap(case: &JudgedCase<'_>) -> ProveBar {
    closest(
        case,
        "nobody starves",
        |flow| flow.gap,
        |tenant, worst| {
            format!(
                "closest: {tenant} saw others get {:.1} tokens between two of its grants where {:.1} are allowed",
                worst.measured_tokens(),
                worst.bound_tokens()
            )
        },
    )
}

/// Builds a bar from the tenant that came closest to its bound, or exceeded it the most.
fn closest(
    case: &JudgedCase<'_>,
    name: &'static str,
    worst: impl Fn(&FlowService) -> ClosestToBound,
    says: impl Fn(&str, &ClosestToBound) -> String,
) -> ProveBar {
    if case.service.window.is_none() {
        return ProveBar::new(name, false, "there was no moment at which all tenants waited");
    }
    let ratio = |worst: &ClosestToBound| percent(worst.measured as f64, worst.bound as f64);
    let all = case.names().map(|(i, tenant)| (tenant, worst(&case.service.flows[i])));
    let all: Vec<(&str, ClosestToBound)> = all.collect();
    let passed = all.iter().all(|(_, worst)| worst.holds());
    let closest = all.iter().max_by(|(_, a), (_, b)| ratio(a).total_cmp(&ratio(b)));
    let says = closest.map_or_else(String::new, |(tenant, worst)| {
        let at = millis(worst.at) / 1000.0;
        let by = ratio(worst);
        format!("{} ({by:.0} % of it, at {at:.2} s)", says(tenant, worst))
    });
    ProveBar::new(name, passed, says)
}

/// Checks that the tokens of each tenant are within [`SHARE_PERCENT`] percent of its ideal at the
/// end of the window.
pub(super) fn within_share(case: &JudgedCase<'_>) -> ProveBar {
    let (passed, says) = near_ideal(case, SHARE_PERCENT);
    ProveBar::new("within 3 % in the end", passed, says)
}

/// Returns whether the tokens of all tenants are within `limit` percent of their ideals at the end
/// of the window, and a text that names the tenant with the greatest difference.
pub(super) fn near_ideal(case: &JudgedCase<'_>, limit: u32) -> (bool, String) {
    let weights = i128::from(case.scenario.weights());
    let off = |flow: &FlowService| {
        let difference = flow.got * weights - flow.ideal_times_weights;
        (difference, flow.ideal_times_weights)
    };
    let limit = i128::from(limit);
    let holds = |flow: &FlowService| {
        let (difference, ideal) = off(flow);
        ideal > 0 && difference.abs() * 100 <= limit * ideal
    };
    let passed = case.service.flows.iter().all(holds);
    let deviation = |flow: &FlowService| {
        let (difference, ideal) = off(flow);
        percent(difference as f64, ideal as f64)
    };
    let all = case.names().map(|(i, tenant)| (tenant, deviation(&case.service.flows[i])));
    let worst = all.max_by(|(_, a), (_, b)| a.abs().total_cmp(&b.abs()));
    let (tenant, worst) = worst.unwrap_or(("nobody", 0.0));
    (passed, format!("furthest: {tenant} at {worst:+.2} % of its ideal, ±{limit} % allowed"))
}

/// Checks that the tenant that tries to gain got as many tokens as the honest tenant, within
/// [`SHARE_PERCENT`] percent.
pub(super) fn no_gain(case: &JudgedCase<'_>, gain: GainAttempt) -> ProveBar {
    let got = |name| case.scenario.tenant(name).map_or(0, |i| case.service.flows[i].got);
    let (cheat, honest) = (got(gain.cheat), got(gain.honest));
    let limit = i128::from(SHARE_PERCENT);
    let passed = honest > 0 && (cheat - honest).abs() * 100 <= limit * honest;
    let more = percent((cheat - honest) as f64, honest as f64);
    let says = format!(
        "{} got {cheat} tokens, {} got {honest}: {more:+.2} %, ±{limit} % allowed",
        gain.cheat, gain.honest
    );
    ProveBar::new("no gain", passed, says)
}

/// Checks that each tenant holds exactly the slots that it is due, from the first moment at which
/// all tenants do.
pub(super) fn slots_held(case: &JudgedCase<'_>, slots: &SlotMeasurement) -> ProveBar {
    let name = "slots are held";
    let due: Vec<String> =
        case.names().map(|(i, tenant)| format!("{tenant} {}", slots.due[i])).collect();
    let due = due.join(", ");
    let Some(handed_over) = slots.hand_over_time else {
        return ProveBar::new(name, false, format!("never all at once: {due}"));
    };
    if let Some(breach) = slots.breaches.first() {
        let more = slots.breaches.len();
        return ProveBar::new(name, false, format!("{more} times not: {breach}"));
    }
    let says = format!(
        "{due}: handed over {:.1} ms after the join, then held at all {} moments",
        millis(handed_over),
        slots.moments
    );
    ProveBar::new(name, slots.moments > 0, says)
}
