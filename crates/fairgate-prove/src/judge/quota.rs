//! Bars about a provider's quota: it is used, and hardly anything is sent that it refuses.

use std::collections::HashMap;

use fairgate_sim::AccountCounts;

use super::{Case, percent};
use crate::evidence::Provider;
use crate::replay::{Request, What};
use crate::report::Bar;
use crate::scenario::{Quota, States};

/// Of a hundred attempts so many may meet a refusal: where limits are stated, and where they must be learned.
const REFUSED_PERCENT: (f64, f64) = (1.0, 3.0);
/// So much of the quota must be used, in percent.
const USED_PERCENT: (f64, f64) = (95.0, 85.0);

fn of(quota: Quota, (stated, learned): (f64, f64)) -> f64 {
    if quota.states == States::Nothing { learned } else { stated }
}

/// What was refused, and all attempts.
fn refused(counts: AccountCounts) -> (u64, u64) {
    let refused = counts.refused_by_requests + counts.refused_by_tokens + counts.too_large;
    (refused, refused + counts.accepted)
}

/// Limits that are stated are kept to from the first request on; those that must be learned, from the join on.
pub(super) fn few_refused(quota: Quota, provider: Provider) -> Bar {
    let most = of(quota, REFUSED_PERCENT);
    let (refused_before, attempts_before) = refused(provider.at_join);
    let (mut refused, mut attempts) = refused(provider.in_all);
    let mut since = String::new();
    if quota.states == States::Nothing {
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
    Bar::new("few are refused", attempts > 0 && part <= most, says)
}

/// The pools' parts of what a provider allows add up.
pub(super) fn is_used(cases: &[&Case<'_>], quota: Quota) -> Bar {
    let name = "the quota is used";
    let least = of(quota, USED_PERCENT);
    let rates: Option<Vec<f64>> = cases.iter().map(|case| per_second(case, quota)).collect();
    let Some(rates) = rates else {
        return Bar::new(name, false, "there was no moment at which all tenants waited");
    };
    let per_second: f64 = rates.iter().sum();
    let allowed = quota.tokens_per_minute as f64 / 60.0;
    let part = percent(per_second, allowed);
    let says = format!(
        "{per_second:.0} of {allowed:.0} tokens/s: {part:.1} %, {least:.0} % needed while both wait"
    );
    Bar::new(name, part >= least, says)
}

/// What a pool used of it while both tenants waited, in tokens a second.
fn per_second(case: &Case<'_>, quota: Quota) -> Option<f64> {
    let (from, until) = case.service.window?;
    let seconds = (until.0 - from.0) as f64 / 1e6;
    let there = |request: &&Request| {
        let worker = request.grant.as_ref().and_then(|grant| grant.worker.as_deref());
        worker.is_some_and(|worker| quota.concerns(worker))
    };
    let in_time =
        |request: &&Request| request.ended.is_some_and(|(at, _)| (from..=until).contains(&at));
    let ended = case.replay.requests.iter().filter(there).filter(in_time);
    let tokens: u64 = ended.map(Request::used).sum();
    Some(tokens as f64 / seconds)
}

/// Whenever the hosted worker was given a request, all others were full.
pub(super) fn own_first(case: &Case<'_>, hosted: &str) -> Bar {
    let name = "own workers first";
    let own = case.scenario.backend.workers.iter().filter(|(worker, _)| *worker != hosted);
    let own: Vec<(&str, u64)> = own.copied().collect();
    let mut in_flight: HashMap<&str, u64> = HashMap::new();
    let (mut there, mut everywhere, mut early) = (0_u64, 0_u64, None);
    for step in &case.replay.steps {
        let grant = case.replay.requests[step.request].grant.as_ref();
        let Some(worker) = grant.and_then(|grant| grant.worker.as_deref()) else { continue };
        match step.what {
            What::Granted => {
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
            What::Ended => {
                let left = in_flight.entry(worker).or_default();
                *left = left.saturating_sub(1);
            }
            What::Waits | What::Gone => {}
        }
    }
    match early {
        Some((event, own)) => {
            let says = format!("event {event} gave a request to {hosted} while {own} had room");
            Bar::new(name, false, says)
        }
        None => Bar::new(
            name,
            there > 0 && there < everywhere,
            format!(
                "{there} of {everywhere} requests went to {hosted}, each while all others were full"
            ),
        ),
    }
}
