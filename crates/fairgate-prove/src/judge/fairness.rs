//! Bars about who got how much, and how long the others had to watch.

use super::{Case, SHARE_PERCENT, millis, percent};
use crate::report::Bar;
use crate::scenario::Gain;
use crate::service::{FlowService, Worst};
use crate::slots::Slots;

/// For how much of the time somebody may have had nothing waiting, in percent. The machine stands still at times.
const LAPSES_PERCENT: u64 = 2;

/// Everybody waited from the join on, for long enough to tell anything.
pub(super) fn backlogged(case: &Case<'_>) -> Bar {
    let name = "everybody waits";
    let needed = case.scenario.length.grants_min;
    let Some((from, until)) = case.service.window else {
        return Bar::new(name, false, "there was no moment at which all tenants waited");
    };
    let grants = |i: usize| case.service.flows[i].grants;
    let fewest = case.names().map(|(i, tenant)| (grants(i), tenant)).min();
    let Some((fewest, tenant)) = fewest else {
        return Bar::new(name, false, "there are no tenants");
    };
    let overlap = until.0 - from.0;
    let (times, lost) = case.service.lapses;
    let says = format!(
        "for {:.2} s, but for {times} moments of {:.1} ms in all; fewest grants then: {tenant} with {fewest}, {needed} needed",
        overlap as f64 / 1e6,
        millis(lost),
    );
    let enough = lost.0 * 100 <= overlap * LAPSES_PERCENT;
    Bar::new(name, fewest >= needed && enough, says)
}

/// Tokens since the join are within the proven bound of the ideal, after every event.
pub(super) fn within_bound(case: &Case<'_>) -> Bar {
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

/// Between two grants of one who waits, others get no more than the proven bound.
pub(super) fn no_long_gap(case: &Case<'_>) -> Bar {
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

/// A bar over the tenant that came closest to its bound, or went furthest over it.
fn closest(
    case: &Case<'_>,
    name: &'static str,
    worst: impl Fn(&FlowService) -> Worst,
    says: impl Fn(&str, &Worst) -> String,
) -> Bar {
    if case.service.window.is_none() {
        return Bar::new(name, false, "there was no moment at which all tenants waited");
    }
    let ratio = |worst: &Worst| percent(worst.measured as f64, worst.bound as f64);
    let all = case.names().map(|(i, tenant)| (tenant, worst(&case.service.flows[i])));
    let all: Vec<(&str, Worst)> = all.collect();
    let passed = all.iter().all(|(_, worst)| worst.holds());
    let closest = all.iter().max_by(|(_, a), (_, b)| ratio(a).total_cmp(&ratio(b)));
    let says = closest.map_or_else(String::new, |(tenant, worst)| {
        let at = millis(worst.at) / 1000.0;
        let by = ratio(worst);
        format!("{} ({by:.0} % of it, at {at:.2} s)", says(tenant, worst))
    });
    Bar::new(name, passed, says)
}

/// In the end everybody is near its ideal.
pub(super) fn within_share(case: &Case<'_>) -> Bar {
    let (passed, says) = near_ideal(case, SHARE_PERCENT);
    Bar::new("within 3 % in the end", passed, says)
}

/// Whether everybody is within so many percent of its ideal in the end, and who is furthest.
pub(super) fn near_ideal(case: &Case<'_>, limit: u32) -> (bool, String) {
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

/// Who tries to gain has what the honest one has.
pub(super) fn no_gain(case: &Case<'_>, gain: Gain) -> Bar {
    let got = |name| case.scenario.tenant(name).map_or(0, |i| case.service.flows[i].got);
    let (cheat, honest) = (got(gain.cheat), got(gain.honest));
    let limit = i128::from(SHARE_PERCENT);
    let passed = honest > 0 && (cheat - honest).abs() * 100 <= limit * honest;
    let more = percent((cheat - honest) as f64, honest as f64);
    let says = format!(
        "{} got {cheat} tokens, {} got {honest}: {more:+.2} %, ±{limit} % allowed",
        gain.cheat, gain.honest
    );
    Bar::new("no gain", passed, says)
}

/// Everybody has its slots, from the hand-over on.
pub(super) fn slots_held(case: &Case<'_>, slots: &Slots) -> Bar {
    let name = "slots are held";
    let due: Vec<String> =
        case.names().map(|(i, tenant)| format!("{tenant} {}", slots.due[i])).collect();
    let due = due.join(", ");
    let Some(handed_over) = slots.handed_over else {
        return Bar::new(name, false, format!("never all at once: {due}"));
    };
    if let Some(breach) = slots.breaches.first() {
        let more = slots.breaches.len();
        return Bar::new(name, false, format!("{more} times not: {breach}"));
    }
    let says = format!(
        "{due}: handed over {:.1} ms after the join, then held at all {} moments",
        millis(handed_over),
        slots.moments
    );
    Bar::new(name, slots.moments > 0, says)
}
