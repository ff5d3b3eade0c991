//! Bars about an attack. The victim must get as much service as in a run in which an honest tenant
//! replaces the attacker.

use std::collections::HashMap;

use fairgate_core::units::Micros;

use super::{JudgedCase, millis, percent, quantile};
use crate::replay::{FlowChange, RequestIndex};
use crate::report::ProveBar;
use crate::scenario::AttackComparison;

/// Greatest loss of the victim's tokens or slots compared with the run without the attack, in
/// percent. A gain passes.
const LOSS_PERCENT: f64 = 5.0;

/// Service that one tenant got within the measured window.
#[derive(Clone, Copy, Debug, Default)]
struct VictimService {
    tokens_per_second: f64,
    /// Average number of slots that the tenant held.
    slots: f64,
    wait_p99_ms: f64,
}

/// Compares the victim's tokens, slot time and waits in the attacked run with those in the run
/// without the attack.
pub(super) fn no_harm(
    attacked: &JudgedCase<'_>,
    honest: &JudgedCase<'_>,
    harm: &AttackComparison,
) -> Vec<ProveBar> {
    let had = |case: &JudgedCase<'_>| case.scenario.tenant(harm.victim).map(|i| had(case, i));
    match (had(attacked), had(honest)) {
        (Some(now), Some(before)) => compare(harm.victim, now, before, service_ms(attacked)).into(),
        _ => vec![ProveBar::new("no harm: tokens", false, format!("there is no {}", harm.victim))],
    }
}

/// Compares the victim's service in the attacked run, `now`, with that in the run without the
/// attack, `before`. `service_ms` is the mean time that a request was in flight in the attacked run,
/// of the tenant whose requests took longest.
fn compare(
    victim: &str,
    now: VictimService,
    before: VictimService,
    service_ms: f64,
) -> [ProveBar; 3] {
    let least = 100.0 - LOSS_PERCENT;
    let enough = |now: f64, before: f64| before > 0.0 && percent(now, before) >= least;
    let bar = |name, now, before, unit: &str| {
        let part = percent(now, before);
        let says = format!(
            "{victim} has {now:.2} {unit}, {before:.2} beside an honest tenant: {part:.1} %, {least:.0} % needed"
        );
        ProveBar::new(name, enough(now, before), says)
    };
    let most = before.wait_p99_ms + service_ms;
    let says = format!(
        "99 in 100 of {victim}'s requests wait at most {:.1} ms, {:.1} ms beside an honest tenant; one request ({service_ms:.1} ms) of who holds slots longest is allowed on top",
        now.wait_p99_ms, before.wait_p99_ms
    );
    [
        bar("no harm: tokens", now.tokens_per_second, before.tokens_per_second, "tokens/s"),
        bar("no harm: slots", now.slots, before.slots, "slots on average"),
        ProveBar::new("no harm: waits", service_ms > 0.0 && now.wait_p99_ms <= most, says),
    ]
}

fn had(case: &JudgedCase<'_>, tenant: usize) -> VictimService {
    let Some((from, until)) = case.service.window else { return VictimService::default() };
    let overlap = until.0.saturating_sub(from.0).max(1) as f64;
    let flow = &case.service.flows[tenant];
    let within = |granted: Micros, ended: Micros| {
        ended.min(until).0.saturating_sub(granted.max(from).0) as f64
    };
    let flights = ended_requests(case).filter(|(whose, ..)| *whose == Some(tenant));
    let held: f64 = flights.map(|(_, granted, ended)| within(granted, ended)).sum();
    VictimService {
        tokens_per_second: flow.got as f64 * 1e6 / overlap,
        slots: held / overlap,
        wait_p99_ms: quantile(&flow.waits, 99),
    }
}

/// Returns the mean time in flight of the tenant whose requests took longest. A running request is
/// never cut off, so beside an attacker a queued request may have to wait for one such request more
/// than beside honest tenants.
fn service_ms(case: &JudgedCase<'_>) -> f64 {
    let mut times: HashMap<Option<usize>, (u64, u64)> = HashMap::new();
    for (tenant, granted, ended) in ended_requests(case) {
        let (sum, count) = times.entry(tenant).or_default();
        *sum += ended.0 - granted.0;
        *count += 1;
    }
    let means = times.values().map(|(sum, count)| millis(Micros(*sum)) / *count as f64);
    means.fold(0.0, f64::max)
}

/// Iterates over the requests that ended: the tenant, the time of the grant, and the time of the
/// end.
fn ended_requests<'a>(
    case: &'a JudgedCase<'_>,
) -> impl Iterator<Item = (Option<usize>, Micros, Micros)> + use<'a> {
    let granted: HashMap<RequestIndex, Micros> = (case.replay.steps.iter())
        .filter(|step| step.what == FlowChange::Granted)
        .map(|step| (step.request, step.at))
        .collect();
    let ended = case.replay.steps.iter().filter(|step| step.what == FlowChange::Ended);
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
        let honest = VictimService { tokens_per_second: 1000.0, slots: 4.0, wait_p99_ms: 300.0 };
        let passed =
            |now: VictimService| compare("victim", now, honest, 60.0).map(|bar| bar.passed);
        assert_eq!(passed(honest), [true; 3]);
        assert_eq!(passed(VictimService { tokens_per_second: 951.0, ..honest }), [true; 3]);
        assert_eq!(
            passed(VictimService { tokens_per_second: 949.0, ..honest }),
            [false, true, true]
        );
        assert_eq!(passed(VictimService { slots: 3.7, ..honest }), [true, false, true]);
        assert_eq!(passed(VictimService { wait_p99_ms: 361.0, ..honest }), [true, true, false]);
        assert_eq!(
            passed(VictimService { tokens_per_second: 2000.0, slots: 8.0, ..honest }),
            [true; 3]
        );
        assert_eq!(
            compare("victim", honest, VictimService::default(), 0.0).map(|bar| bar.passed),
            [false; 3]
        );
    }
}
