//! Bars about the replay, about errors, and about requests left over at the end.

use std::collections::HashMap;

use super::JudgedCase;
use crate::evidence::{AnswerEnd, ClientResult};
use crate::replay::{ReplayedGrant, ReplayedRequest};
use crate::report::ProveBar;
use crate::scenario::ClientBehaviour;

/// Checks that the replayed journal gives the gateway's own decisions. The replayed state must
/// equal the gateway's snapshots at the end of each journal file, and each replayed grant must
/// equal the one in the request's row.
pub(super) fn replayed(case: &JudgedCase<'_>) -> ProveBar {
    let name = "decisions replay";
    let differences = case.replay.differences.iter().cloned().chain(rows_differ(case));
    let differences: Vec<String> = differences.collect();
    if let Some(first) = differences.first() {
        return ProveBar::new(
            name,
            false,
            format!("{} differences, the first: {first}", differences.len()),
        );
    }
    let grants = case.replay.requests.iter().filter(|request| request.grant.is_some()).count();
    let says = format!(
        "{} events in {} files give the same {grants} grants, and every counter",
        case.replay.events,
        case.evidence.journal.len()
    );
    ProveBar::new(name, grants > 0, says)
}

/// Lists the requests whose replayed grant disagrees with their final row.
fn rows_differ(case: &JudgedCase<'_>) -> Vec<String> {
    // A retried request was granted again: its final row has the worker of the last grant and the
    // sum of all waits.
    let mut granted: HashMap<&str, (&ReplayedGrant, u64, u64)> = HashMap::new();
    for request in &case.replay.requests {
        let Some(grant) = &request.grant else { continue };
        let (_, waited, used) = granted.get(&*request.id).copied().unwrap_or((grant, 0, 0));
        let sums = (waited + grant.waited.0, used + request.used());
        granted.insert(&request.id, (grant, sums.0, sums.1));
    }
    let mut differences = Vec::new();
    let rows = case.evidence.ledger.rows.iter().filter(|row| row.last);
    for row in rows.filter(|row| row.worker.is_some()) {
        let Some((grant, waited, _)) = granted.remove(row.request.as_str()) else {
            differences.push(format!("{} has a row and no grant", row.request));
            continue;
        };
        let (there, here) = (row.worker.as_deref(), grant.worker.as_deref());
        // A row names the upstream; the scheduler may have a worker `UPSTREAM/MODEL` for each model.
        let upstream = here.filter(|_| case.scenario.hosted).and_then(|it| it.split_once('/'));
        if there != upstream.map_or(here, |(upstream, _)| Some(upstream)) {
            let [there, here] = [there, here].map(|worker| worker.unwrap_or("-"));
            differences.push(format!("{} ran on {there}, granted on {here}", row.request));
        }
        if row.waited_us != waited {
            let there = row.waited_us;
            differences
                .push(format!("{} waited {there} µs, granted after {waited} µs", row.request));
        }
    }
    let without = granted.into_iter().filter(|(_, (_, _, used))| *used > 0);
    differences.extend(without.map(|(id, _)| format!("{id} was granted and has no row")));
    differences
}

/// Checks that no client saw an error that it did not provoke. In scenarios in which a worker dies,
/// answers that had begun may break off.
pub(super) fn no_errors(case: &JudgedCase<'_>) -> ProveBar {
    let name = "no errors";
    let may_break = case.scenario.outage.is_some();
    let asked_for = |sighting: &ClientResult| {
        let tenant = case.scenario.tenants.get(sighting.tenant);
        tenant.is_some_and(|tenant| tenant.pattern.expects(&sighting.end))
    };
    let bad = |sighting: &&ClientResult| match sighting.end {
        AnswerEnd::Completed { .. } | AnswerEnd::Left => false,
        AnswerEnd::Broken { .. } => !may_break,
        AnswerEnd::Failed { .. } => !asked_for(sighting),
    };
    let sightings = &case.evidence.results;
    let broken = sightings.iter().filter(|s| matches!(s.end, AnswerEnd::Broken { .. })).count();
    let failed: Vec<&ClientResult> = sightings.iter().filter(bad).collect();
    if let Some(first) = failed.first() {
        let tenant = case.scenario.tenants.get(first.tenant).map_or("?", |tenant| tenant.name);
        let what = match &first.end {
            AnswerEnd::Failed { status: Some(status), how } => format!("{status}: {how}"),
            AnswerEnd::Failed { status: None, how } | AnswerEnd::Broken { how } => how.clone(),
            AnswerEnd::Completed { .. } | AnswerEnd::Left => String::new(),
        };
        return ProveBar::new(
            name,
            false,
            format!("{} errors, the first: {tenant}: {what}", failed.len()),
        );
    }
    let may_expire = |request: &&ReplayedRequest| {
        let tenant = request.tenant.and_then(|tenant| case.scenario.tenants.get(tenant));
        tenant.is_some_and(|tenant| {
            tenant.pattern.deadline_ms(0).is_some()
                || matches!(tenant.pattern.manner, ClientBehaviour::MeetsModelLimit { .. })
        })
    };
    let expired = case.replay.requests.iter().filter(|request| request.expired);
    let expired = expired.filter(|request| !may_expire(request));
    let expired = expired.map(|request| format!("{} waited too long", request.id));
    let turned_away: Vec<String> = case.replay.rejected.iter().cloned().chain(expired).collect();
    if let Some(first) = turned_away.first() {
        let n = turned_away.len();
        return ProveBar::new(name, false, format!("{n} were turned away, the first: {first}"));
    }
    let asked_for = sightings.iter().filter(|sighting| asked_for(sighting)).count();
    let mut says = format!("0 of {}", sightings.len());
    if may_break {
        says += &format!(", but for {broken} answers that had begun when the worker died");
    }
    if asked_for > 0 {
        says += &format!(", but for {asked_for} that asked for it");
    }
    ProveBar::new(name, !sightings.is_empty(), says)
}

/// Checks that nothing is in flight, queued or reserved at the end, and that no event was lost.
pub(super) fn nothing_left(case: &JudgedCase<'_>) -> ProveBar {
    let aftermath = case.evidence.final_counters;
    let in_replay = case.replay.requests.iter().filter(|r| r.grant.is_some() && r.ended.is_none());
    let reserved: u64 = (case.evidence.ledger.budgets.iter())
        .flat_map(|(_, budgets)| budgets)
        .map(|budget| budget.reserved)
        .sum();
    let counts = [
        ("in flight", aftermath.in_flight),
        ("waiting", aftermath.waiting),
        ("permits out", aftermath.still_in_flight),
        ("grants without an end in the journal", in_replay.count() as u64),
        ("reservations", case.evidence.ledger.reservations_left),
        ("tokens reserved", reserved),
        ("events lost", aftermath.events_lost),
    ];
    let left: Vec<String> =
        (counts.iter().filter(|(_, n)| *n > 0)).map(|(what, n)| format!("{n} {what}")).collect();
    let says = match left.is_empty() {
        true => "0 in flight, 0 waiting, 0 reserved, 0 events lost".into(),
        false => left.join(", "),
    };
    ProveBar::new("nothing is left", left.is_empty(), says)
}
