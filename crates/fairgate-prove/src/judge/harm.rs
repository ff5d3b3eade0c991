//! Bars about an attack: its victim has what it would have had beside an honest tenant in the attacker's place.

use std::collections::HashMap;

use fairgate_core::units::Micros;

use super::{Case, millis, percent, quantile};
use crate::replay::{Index, What};
use crate::report::Bar;
use crate::scenario::Harm;

/// How much less than without the attack the victim may get, in percent. More is no harm.
const LOSS_PERCENT: f64 = 5.0;

/// What one tenant had while all waited.
#[derive(Clone, Copy, Debug, Default)]
struct Had {
    tokens_per_second: f64,
    /// How many slots it held, on average.
    slots: f64,
    wait_p99_ms: f64,
}

/// Tokens, slot time and waits of the victim, with the attack and without.
pub(super) fn no_harm(attacked: &Case<'_>, honest: &Case<'_>, harm: &Harm) -> Vec<Bar> {
    let had = |case: &Case<'_>| case.scenario.tenant(harm.victim).map(|i| had(case, i));
    match (had(attacked), had(honest)) {
        (Some(now), Some(before)) => compare(harm.victim, now, before, service_ms(attacked)).into(),
        _ => vec![Bar::new("no harm: tokens", false, format!("there is no {}", harm.victim))],
    }
}

/// `service_ms`: how long a request of the attacked run is in flight, on average over all tenants.
fn compare(victim: &str, now: Had, before: Had, service_ms: f64) -> [Bar; 3] {
    let least = 100.0 - LOSS_PERCENT;
    let enough = |now: f64, before: f64| before > 0.0 && percent(now, before) >= least;
    let bar = |name, now, before, unit: &str| {
        let part = percent(now, before);
        let says = format!(
            "{victim} has {now:.2} {unit}, {before:.2} beside an honest tenant: {part:.1} %, {least:.0} % needed"
        );
        Bar::new(name, enough(now, before), says)
    };
    let most = before.wait_p99_ms + service_ms;
    let says = format!(
        "99 in 100 of {victim}'s requests wait at most {:.1} ms, {:.1} ms beside an honest tenant; one mean request ({service_ms:.1} ms) more is allowed",
        now.wait_p99_ms, before.wait_p99_ms
    );
    [
        bar("no harm: tokens", now.tokens_per_second, before.tokens_per_second, "tokens/s"),
        bar("no harm: slots", now.slots, before.slots, "slots on average"),
        Bar::new("no harm: waits", service_ms > 0.0 && now.wait_p99_ms <= most, says),
    ]
}

fn had(case: &Case<'_>, tenant: usize) -> Had {
    let Some((from, until)) = case.service.window else { return Had::default() };
    let overlap = until.0.saturating_sub(from.0).max(1) as f64;
    let flow = &case.service.flows[tenant];
    let within = |granted: Micros, ended: Micros| {
        ended.min(until).0.saturating_sub(granted.max(from).0) as f64
    };
    let flights = flights(case).filter(|(whose, ..)| *whose == Some(tenant));
    let held: f64 = flights.map(|(_, granted, ended)| within(granted, ended)).sum();
    Had {
        tokens_per_second: flow.got as f64 * 1e6 / overlap,
        slots: held / overlap,
        wait_p99_ms: quantile(&flow.waits, 99),
    }
}

fn service_ms(case: &Case<'_>) -> f64 {
    let times: Vec<u64> = flights(case).map(|(_, granted, ended)| ended.0 - granted.0).collect();
    millis(Micros(times.iter().sum())) / times.len().max(1) as f64
}

/// Whose each flight was, when it was granted and when it ended.
fn flights<'a>(
    case: &'a Case<'_>,
) -> impl Iterator<Item = (Option<usize>, Micros, Micros)> + use<'a> {
    let granted: HashMap<Index, Micros> = (case.replay.steps.iter())
        .filter(|step| step.what == What::Granted)
        .map(|step| (step.request, step.at))
        .collect();
    let ended = case.replay.steps.iter().filter(|step| step.what == What::Ended);
    ended.filter_map(move |step| {
        let whose = case.replay.requests[step.request].tenant;
        Some((whose, *granted.get(&step.request)?, step.at))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_of_more_than_five_percent_or_a_wait_of_one_request_more_is_harm() {
        let honest = Had { tokens_per_second: 1000.0, slots: 4.0, wait_p99_ms: 300.0 };
        let passed = |now: Had| compare("victim", now, honest, 60.0).map(|bar| bar.passed);
        assert_eq!(passed(honest), [true; 3]);
        assert_eq!(passed(Had { tokens_per_second: 951.0, ..honest }), [true; 3]);
        assert_eq!(passed(Had { tokens_per_second: 949.0, ..honest }), [false, true, true]);
        assert_eq!(passed(Had { slots: 3.7, ..honest }), [true, false, true]);
        assert_eq!(passed(Had { wait_p99_ms: 361.0, ..honest }), [true, true, false]);
        assert_eq!(passed(Had { tokens_per_second: 2000.0, slots: 8.0, ..honest }), [true; 3]);
        assert_eq!(
            compare("victim", honest, Had::default(), 0.0).map(|bar| bar.passed),
            [false; 3]
        );
    }
}
