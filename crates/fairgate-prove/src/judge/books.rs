//! Bars about the ledger: every request has one final row, and it says what the client saw.

use std::collections::{BTreeMap, BTreeSet};

use fairgate_store::{Attempt, Outcome, UsageSource};

use super::Case;
use crate::evidence::Seen;
use crate::report::Bar;
use crate::scenario::Manner;

/// A request's end in words that client and ledger share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    Completed,
    Left,
    Failed,
}

impl End {
    fn seen(seen: &Seen) -> Self {
        match seen {
            Seen::Completed { .. } => Self::Completed,
            Seen::Left => Self::Left,
            Seen::Broken { .. } | Seen::Failed { .. } => Self::Failed,
        }
    }

    fn told(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Completed => Self::Completed,
            Outcome::ClientLeft => Self::Left,
            _ => Self::Failed,
        }
    }

    /// The same, as a tenant sees it whose clients leave when all is done.
    fn of(self, leaves_late: bool) -> Self {
        if self == Self::Completed && leaves_late { Self::Left } else { self }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Left => "left",
            Self::Failed => "failed",
        }
    }
}

/// Whether a tenant's clients leave when the model has done all its work: then the row may say that it was completed, or
/// that the client left.
fn leaves_late(case: &Case<'_>, tenant: usize) -> bool {
    let late =
        |manner| matches!(manner, Manner::LeavesAtFinish { .. } | Manner::ReadsNothing { .. });
    case.scenario.tenants.get(tenant).is_some_and(|tenant| late(tenant.ask.manner))
}

/// Final rows equal the clients' own count, by tenant and by how they ended, and request by request.
pub(super) fn rows_match(case: &Case<'_>) -> Bar {
    let name = "ledger = clients";
    let mut problems = Vec::new();
    let mut all = 0;
    for (i, tenant) in case.names() {
        let mut counts: BTreeMap<End, (u64, u64, u64)> = BTreeMap::new();
        for sighting in case.sightings(i) {
            counts.entry(End::seen(&sighting.end)).or_default().0 += 1;
            all += 1;
        }
        let late = leaves_late(case, i);
        for row in case.final_rows(i) {
            counts.entry(End::told(row.outcome).of(late)).or_default().1 += 1;
        }
        for (end, sum) in summed(case, tenant) {
            counts.entry(end.of(late)).or_default().2 += sum;
        }
        for (end, (seen, rows, sum)) in counts {
            if seen != rows || seen != sum {
                let end = end.name();
                problems.push(format!(
                    "{tenant}: {seen} {end} by its clients' count, {rows} rows, {sum} by the ledger's sums"
                ));
            }
        }
    }
    problems.extend(requests_differ(case));
    let strangers =
        case.evidence.ledger.rows.iter().filter(|row| case.scenario.tenant(&row.tenant).is_none());
    problems.extend(strangers.map(|row| format!("a row of an unknown tenant: {}", row.tenant)));
    match problems.first() {
        None => Bar::new(
            name,
            all > 0,
            format!("{all} requests, {all} final rows, each ended as its client saw"),
        ),
        Some(first) => {
            Bar::new(name, false, format!("{} differences, the first: {first}", problems.len()))
        }
    }
}

/// The ledger's own sums of a tenant, by how requests ended.
fn summed(case: &Case<'_>, tenant: &str) -> Vec<(End, u64)> {
    let sums = case.evidence.ledger.sums.iter().filter(|(name, _)| name == tenant);
    let end = |name: &str| match name {
        "completed" => End::Completed,
        "client_left" => End::Left,
        _ => End::Failed,
    };
    sums.flat_map(|(_, rows)| rows).map(|row| (end(&row.name), row.requests)).collect()
}

/// Where a request's row says otherwise than its client.
fn requests_differ(case: &Case<'_>) -> Vec<String> {
    let mut problems = Vec::new();
    let mut rows: BTreeMap<&str, &Attempt> = BTreeMap::new();
    for row in case.evidence.ledger.rows.iter().filter(|row| row.last) {
        if rows.insert(&row.request, row).is_some() {
            problems.push(format!("{} has two final rows", row.request));
        }
    }
    let mut met = BTreeSet::new();
    for sighting in &case.evidence.sightings {
        let Some(id) = sighting.request.as_deref() else { continue };
        if !met.insert(id) {
            problems.push(format!("{id} was the id of two answers"));
        }
        let Some(row) = rows.get(id) else {
            problems.push(format!("{id} has no final row"));
            continue;
        };
        let late = leaves_late(case, sighting.tenant);
        let (seen, told) = (End::seen(&sighting.end), End::told(row.outcome).of(late));
        if seen != told {
            problems.push(format!(
                "{id} {} for its client, {} in its row",
                seen.name(),
                told.name()
            ));
        }
        if case.scenario.tenant(&row.tenant) != Some(sighting.tenant) {
            problems.push(format!("{id} has a row of {}", row.tenant));
        }
    }
    problems
}

/// Tokens: completed answers as the clients read them in `usage`; everything charged, as the journal released it.
pub(super) fn tokens_match(case: &Case<'_>) -> Bar {
    let name = "tokens = clients";
    let mut problems = Vec::new();
    let mut all = 0;
    for (i, tenant) in case.names() {
        let seen = case.sightings(i).fold((0, 0), |(input, output), sighting| match sighting.end {
            Seen::Completed { input: i, output: o } => (input + i, output + o),
            _ => (input, output),
        });
        let completed = || case.final_rows(i).filter(|row| row.outcome == Outcome::Completed);
        let told = completed().fold((0, 0), |(input, output), row| {
            (input + row.input_tokens, output + row.output_tokens)
        });
        if seen != told && !leaves_late(case, i) {
            problems.push(format!(
                "{tenant}: {} + {} tokens of completed answers by its clients, {} + {} in the ledger",
                seen.0, seen.1, told.0, told.1
            ));
        }
        let guessed = completed().filter(|row| row.usage != UsageSource::Reported).count();
        if guessed > 0 {
            problems
                .push(format!("{tenant}: {guessed} completed answers whose usage was not read"));
        }
        let rows = case.evidence.ledger.rows.iter().filter(|row| row.tenant == tenant);
        let (mut charged, mut counted, mut provider) = (0, 0, 0);
        for row in rows {
            charged += row.charged;
            provider += row.provider_tokens;
            // Where a worker lost an attempt, the scheduler counts what no budget pays.
            counted += row.charged.max(row.occupied);
        }
        let requests = case.replay.requests.iter().filter(|request| request.tenant == Some(i));
        let released: u64 = requests.map(|request| request.used()).sum();
        if counted != released {
            problems.push(format!(
                "{tenant}: {counted} tokens counted in the ledger, {released} in the journal"
            ));
        }
        for budget in case
            .evidence
            .ledger
            .budgets
            .iter()
            .filter(|(name, _)| name == tenant)
            .flat_map(|(_, all)| all)
        {
            if budget.used != provider {
                problems.push(format!(
                    "{tenant}: {provider} provider tokens in the ledger, {} off its budget",
                    budget.used
                ));
            }
        }
        all += charged;
    }
    match problems.first() {
        None => Bar::new(
            name,
            all > 0,
            format!("{all} tokens in the ledger and the journal; usage as clients read it"),
        ),
        Some(first) => {
            Bar::new(name, false, format!("{} differences, the first: {first}", problems.len()))
        }
    }
}
