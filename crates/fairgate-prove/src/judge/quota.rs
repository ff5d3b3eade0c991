//! Bars about a provider's quota: enough of it is used, and the provider refuses few requests.

use std::collections::HashMap;

use fairgate_sim::AccountCounts;

use super::{JudgedCase, percent};
use crate::evidence::ProviderCounts;
use crate::replay::{FlowChange, ReplayedRequest};
use crate::report::ProveBar;
use crate::scenario::{ScenarioQuota, StatedLimits};

/// Greatest percentage of attempts that the provider may refuse. The first number is for a provider
/// that states its limits, the second for one whose limits must be learned.
const REFUSED_PERCENT: (f64, f64) = (1.0, 3.0);
/// Least percentage of the quota that must be used. The first number is for a provider that states
/// its limits, the second for one whose limits must be learned.
const USED_PERCENT: (f64, f64) = (95.0, 85.0);

fn of(quota: ScenarioQuota, (stated, learned): (f64, f64)) -> f64 {
    if quota.states == StatedLimits::Nothing { learned } else { stated }
}

/// Returns the number of attempts that the provider refused, and the number of all attempts.
fn refused(counts: AccountCounts) -> (u64, u64) {
    let refused = counts.refused_by_requests + counts.refused_by_tokens + counts.too_large;
    (refused, refused + counts.accepted)
}

/// Checks that the provider refused few attempts: all attempts, or those after the join if the scenario says so.
pub(super) fn few_refused(quota: ScenarioQuota, provider: ProviderCounts) -> ProveBar {
    let most = of(quota, REFUSED_PERCENT);
    let (refused_before, attempts_before) = refused(provider.at_join);
    let (mut refused, mut attempts) = refused(provider.in_all);
    let mut since = String::new();
    if quota.judged_after_join {
        refused -= refused_before;
        attempts -= attempts_before;
        since = format!(
            "; {refused_before} of {attempts_before} while it was learned, before the join"
        );
    }
    let part = percent(refused as f64, attempts as f64);
    let says = format!(
        "the provider refused {refused} of {attempts} attempts: {part:.2} %, {most:.0} % allowed{since}"
    );
    ProveBar::new("few are refused", attempts > 0 && part <= most, says)
}

/// Checks that the pools together use enough of the provider's quota.
pub(super) fn used_share(cases: &[&JudgedCase<'_>], quota: ScenarioQuota) -> ProveBar {
    let name = "the quota is used";
    let least = of(quota, USED_PERCENT);
    let rates: Option<Vec<UsedQuota>> = cases.iter().map(|case| per_second(case, quota)).collect();
    let Some(rates) = rates else {
        return ProveBar::new(name, false, "there was no moment at which all tenants waited");
    };
    let used = |unit: fn(&UsedQuota) -> f64, per_minute: u64| {
        let (used, allowed) = (rates.iter().map(unit).sum::<f64>(), per_minute as f64 / 60.0);
        (percent(used, allowed), used, allowed)
    };
    let tokens = used(|rate| rate.tokens_per_second, quota.tokens_per_minute);
    let requests = used(|rate| rate.requests_per_second, quota.requests_per_minute);
    // The limit that is closer is the one that holds requests back.
    let ((part, used, allowed), unit) =
        if tokens.0 >= requests.0 { (tokens, "tokens") } else { (requests, "requests") };
    let says = format!(
        "{used:.1} of {allowed:.1} {unit}/s: {part:.1} %, {least:.0} % needed while both wait"
    );
    ProveBar::new(name, part >= least, says)
}

/// Quota that a pool used per second, on average over the measured window.
struct UsedQuota {
    requests_per_second: f64,
    tokens_per_second: f64,
}

/// Returns the provider's quota that a pool used per second within the measured window; `None` if there was no such
/// window.
fn per_second(case: &JudgedCase<'_>, quota: ScenarioQuota) -> Option<UsedQuota> {
    let (from, until) = case.service.window?;
    let seconds = (until.0 - from.0) as f64 / 1e6;
    let there = |request: &&ReplayedRequest| {
        let worker = request.grant.as_ref().and_then(|grant| grant.worker.as_deref());
        worker.is_some_and(|worker| quota.concerns(worker))
    };
    let in_time = |request: &&ReplayedRequest| {
        request.ended.is_some_and(|(at, _)| (from..=until).contains(&at))
    };
    let ended = case.replay.requests.iter().filter(there).filter(in_time);
    let (requests, tokens) = ended
        .map(ReplayedRequest::used)
        .fold((0_u64, 0_u64), |(requests, tokens), used| (requests + 1, tokens + used));
    Some(UsedQuota {
        requests_per_second: requests as f64 / seconds,
        tokens_per_second: tokens as f64 / seconds,
    })
}

/// Checks that the hosted worker was granted requests only while all other workers were full.
pub(super) fn own_first(case: &JudgedCase<'_>, hosted: &str) -> ProveBar {
    let name = "own workers first";
    let own = case.scenario.backend.workers.iter().filter(|(worker, _)| *worker != hosted);
    let own: Vec<(&str, u64)> = own.copied().collect();
    let mut in_flight: HashMap<&str, u64> = HashMap::new();
    let (mut there, mut everywhere, mut early) = (0_u64, 0_u64, None);
    for step in &case.replay.steps {
        let grant = case.replay.requests[step.request].grant.as_ref();
        let Some(worker) = grant.and_then(|grant| grant.worker.as_deref()) else { continue };
        match step.what {
            FlowChange::Granted => {
                everywhere += 1;
                let has_room = |(own, slots): &&(&str, u64)| {
                    in_flight.get(*own).copied().unwrap_or(0) < *slots
                };
                if worker == hosted {
                    there += 1;
                    let room = own.iter().find(has_room);
                    early = early.or(room.map(|(own, _)| (step.event, (*own).to_owned())));
                }
                *in_flight.entry(worker).or_default() += 1;
            }
            FlowChange::Ended => {
                let left = in_flight.entry(worker).or_default();
                *left = left.saturating_sub(1);
            }
            FlowChange::Waits | FlowChange::Gone => {}
        }
    }
    match early {
        Some((event, own)) => {
            let says = format!("event {event} gave a request to {hosted} while {own} had room");
            ProveBar::new(name, false, says)
        }
        None => ProveBar::new(
            name,
            there > 0 && there < everywhere,
            format!(
                "{there} of {everywhere} requests went to {hosted}, each while all others were full"
            ),
        ),
    }
}
