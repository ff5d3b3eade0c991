//! Bars about whether everything went as it should.

use std::collections::HashMap;

use super::Case;
use crate::evidence::{Seen, Sighting};
use crate::replay::Granted;
use crate::report::Bar;

/// The journal, replayed, gives production's decisions: the state at each cut and in the end, and for each request the
/// grant that its row tells of.
pub(super) fn replayed(case: &Case<'_>) -> Bar {
    let name = "decisions replay";
    let differences = case.replay.differences.iter().cloned().chain(rows_differ(case));
    let differences: Vec<String> = differences.collect();
    if let Some(first) = differences.first() {
        return Bar::new(
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
    Bar::new(name, grants > 0, says)
}

/// Where the grant of a request and its row say different things.
fn rows_differ(case: &Case<'_>) -> Vec<String> {
    // A request that was tried again was granted again: its final row tells of the last grant, and of all its waits.
    let mut granted: HashMap<&str, (&Granted, u64, u64)> = HashMap::new();
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
        if there != here {
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

/// No client saw an error that it did not ask for; where a worker dies, only answers that had begun may break off.
pub(super) fn no_errors(case: &Case<'_>) -> Bar {
    let name = "no errors";
    let may_break = case.scenario.outage.is_some();
    let asked_for = |sighting: &Sighting| {
        let tenant = case.scenario.tenants.get(sighting.tenant);
        tenant.is_some_and(|tenant| tenant.ask.expects(&sighting.end))
    };
    let bad = |sighting: &&Sighting| match sighting.end {
        Seen::Completed { .. } | Seen::Left => false,
        Seen::Broken { .. } => !may_break,
        Seen::Failed { .. } => !asked_for(sighting),
    };
    let sightings = &case.evidence.sightings;
    let broken = sightings.iter().filter(|s| matches!(s.end, Seen::Broken { .. })).count();
    let failed: Vec<&Sighting> = sightings.iter().filter(bad).collect();
    if let Some(first) = failed.first() {
        let tenant = case.scenario.tenants.get(first.tenant).map_or("?", |tenant| tenant.name);
        let what = match &first.end {
            Seen::Failed { status: Some(status), how } => format!("{status}: {how}"),
            Seen::Failed { status: None, how } | Seen::Broken { how } => how.clone(),
            Seen::Completed { .. } | Seen::Left => String::new(),
        };
        return Bar::new(
            name,
            false,
            format!("{} errors, the first: {tenant}: {what}", failed.len()),
        );
    }
    if let Some(first) = case.replay.turned_away.first() {
        let n = case.replay.turned_away.len();
        return Bar::new(name, false, format!("{n} were turned away, the first: {first}"));
    }
    let asked_for = sightings.iter().filter(|sighting| asked_for(sighting)).count();
    let mut says = format!("0 of {}", sightings.len());
    if may_break {
        says += &format!(", but for {broken} answers that had begun when the worker died");
    }
    if asked_for > 0 {
        says += &format!(", but for {asked_for} that asked for it");
    }
    Bar::new(name, !sightings.is_empty(), says)
}

/// Nothing is in flight, waits or is reserved when all is over.
pub(super) fn nothing_left(case: &Case<'_>) -> Bar {
    let aftermath = case.evidence.aftermath;
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
    Bar::new("nothing is left", left.is_empty(), says)
}
