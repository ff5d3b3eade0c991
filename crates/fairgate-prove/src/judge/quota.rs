//! Bars about a provider's quota: it is used, and hardly anything is sent that it refuses.

use std::collections::HashMap;

use fairgate_sim::AccountCounts;

use super::{Case, percent};
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
    let there = |request: &&Request| {
        let worker = request.grant.as_ref().and_then(|grant| grant.worker.as_deref());
        worker.is_some_and(|worker| quota.concerns(worker))
    };
    let in_time =
        |request: &&Request| request.ended.is_some_and(|(at, _)| (from..=until).contains(&at));
    let ended = case.replay.requests.iter().filter(there).filter(in_time);
    let tokens: u64 = ended.map(Request::used).sum();
    let per_second = tokens as f64 / seconds;
    let allowed = quota.tokens_per_minute as f64 / 60.0;
    let part = percent(per_second, allowed);
    let says = format!(
        "{per_second:.0} of {allowed:.0} tokens/s: {part:.1} %, {least:.0} % needed while both wait"
    );
    Bar::new(name, part >= least, says)
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
