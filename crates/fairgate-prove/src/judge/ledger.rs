//! Bars about the ledger. Every request must have one final row, which agrees with the result that
//! the client saw.

use std::collections::{BTreeMap, BTreeSet};

use fairgate_store::{AttemptOutcome, AttemptRow, UsageSource};

use super::JudgedCase;
use crate::evidence::AnswerEnd;
use crate::report::ProveBar;
use crate::scenario::ClientBehaviour;

/// End of a request, in categories that both the clients' results and the ledger's outcomes map to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ComparedEnd {
    Completed,
    Left,
    Failed,
}

impl ComparedEnd {
    fn from_client(seen: &AnswerEnd) -> Self {
        match seen {
            AnswerEnd::Completed { .. } => Self::Completed,
            AnswerEnd::Left => Self::Left,
            AnswerEnd::Broken { .. } | AnswerEnd::Failed { .. } => Self::Failed,
        }
    }

    fn from_outcome(outcome: AttemptOutcome) -> Self {
        match outcome {
            AttemptOutcome::Completed => Self::Completed,
            AttemptOutcome::ClientLeft => Self::Left,
            _ => Self::Failed,
        }
    }

    /// Returns `Left` in place of `Completed` if the tenant's clients leave after the model has
    /// finished (`leaves_late`), because such a request may have either outcome in the ledger.
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

/// Returns whether a tenant's clients leave after the model has finished its answer. The row of
/// such a request may say that it completed or that the client left.
fn leaves_late(case: &JudgedCase<'_>, tenant: usize) -> bool {
    let late = |manner| {
        matches!(
            manner,
            ClientBehaviour::LeavesAtFinish { .. } | ClientBehaviour::ReadsNothing { .. }
        )
    };
    case.scenario.tenants.get(tenant).is_some_and(|tenant| late(tenant.pattern.manner))
}

/// Checks that the final rows agree with the clients' results, first as counts for each tenant and kind of end, then
/// request by request.
pub(super) fn rows_match(case: &JudgedCase<'_>) -> ProveBar {
    let name = "ledger = clients";
    let mut problems = Vec::new();
    let mut all = 0;
    for (i, tenant) in case.names() {
        let mut counts: BTreeMap<ComparedEnd, (u64, u64, u64)> = BTreeMap::new();
        for sighting in case.client_results(i) {
            counts.entry(ComparedEnd::from_client(&sighting.end)).or_default().0 += 1;
            all += 1;
        }
        let late = leaves_late(case, i);
        for row in case.final_rows(i) {
            counts.entry(ComparedEnd::from_outcome(row.outcome).of(late)).or_default().1 += 1;
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
        None => ProveBar::new(
            name,
            all > 0,
            format!("{all} requests, {all} final rows, each ended as its client saw"),
        ),
        Some(first) => ProveBar::new(
            name,
            false,
            format!("{} differences, the first: {first}", problems.len()),
        ),
    }
}

/// Returns the number of a tenant's requests for each kind of end, from the store's own sums.
fn summed(case: &JudgedCase<'_>, tenant: &str) -> Vec<(ComparedEnd, u64)> {
    let sums = case.evidence.ledger.sums.iter().filter(|(name, _)| name == tenant);
    let end = |name: &str| match name {
        "completed" => ComparedEnd::Completed,
        "client_left" => ComparedEnd::Left,
        _ => ComparedEnd::Failed,
    };
    sums.flat_map(|(_, rows)| rows).map(|row| (end(&row.name), row.requests)).collect()
}

/// Lists the requests whose final row disagrees with the result that the client saw.
fn requests_differ(case: &JudgedCase<'_>) -> Vec<String> {
    let mut problems = Vec::new();
    let mut rows: BTreeMap<&str, &AttemptRow> = BTreeMap::new();
    for row in case.evidence.ledger.rows.iter().filter(|row| row.last) {
        if rows.insert(&row.request, row).is_some() {
            problems.push(format!("{} has two final rows", row.request));
        }
    }
    let mut met = BTreeSet::new();
    for sighting in &case.evidence.results {
        let Some(id) = sighting.request.as_deref() else { continue };
        if !met.insert(id) {
            problems.push(format!("{id} was the id of two answers"));
        }
        let Some(row) = rows.get(id) else {
            problems.push(format!("{id} has no final row"));
            continue;
        };
        let late = leaves_late(case, sighting.tenant);
        let (seen, recorded) = (
            ComparedEnd::from_client(&sighting.end),
            ComparedEnd::from_outcome(row.outcome).of(late),
        );
        if seen != recorded {
            problems.push(format!(
                "{id} {} for its client, {} in its row",
                seen.name(),
                recorded.name()
            ));
        }
        if case.scenario.tenant(&row.tenant) != Some(sighting.tenant) {
            problems.push(format!("{id} has a row of {}", row.tenant));
        }
    }
    problems
}

/// Checks tokens: the usage in rows of completed answers against the clients' counts, and the
/// charges in rows against the journal and the budgets.
pub(super) fn tokens_match(case: &JudgedCase<'_>) -> ProveBar {
    let name = "tokens = clients";
    let mut problems = Vec::new();
    let mut all = 0;
    for (i, tenant) in case.names() {
        let seen =
            case.client_results(i).fold((0, 0), |(input, output), sighting| match sighting.end {
                AnswerEnd::Completed { input: i, output: o } => (input + i, output + o),
                _ => (input, output),
            });
        let completed =
            || case.final_rows(i).filter(|row| row.outcome == AttemptOutcome::Completed);
        let recorded = completed().fold((0, 0), |(input, output), row| {
            (input + row.input_tokens, output + row.output_tokens)
        });
        if seen != recorded && !leaves_late(case, i) {
            problems.push(format!(
                "{tenant}: {} + {} tokens of completed answers by its clients, {} + {} in the ledger",
                seen.0, seen.1, recorded.0, recorded.1
            ));
        }
        // A lease that reports little is charged for its time instead.
        let is_read = |row: &&AttemptRow| {
            row.usage == UsageSource::Reported
                || (case.scenario.leases && row.usage == UsageSource::Occupied)
        };
        let guessed = completed().filter(|row| !is_read(row)).count();
        if guessed > 0 {
            problems
                .push(format!("{tenant}: {guessed} completed answers whose usage was not read"));
        }
        let rows = case.evidence.ledger.rows.iter().filter(|row| row.tenant == tenant);
        let (mut charged, mut counted, mut provider) = (0, 0, 0);
        for row in rows {
            charged += row.charged;
            provider += row.provider_tokens;
            // For an attempt that a worker lost, the scheduler counts its slot time, which no
            // budget pays.
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
        None => ProveBar::new(
            name,
            all > 0,
            format!("{all} tokens in the ledger and the journal; usage as clients read it"),
        ),
        Some(first) => ProveBar::new(
            name,
            false,
            format!("{} differences, the first: {first}", problems.len()),
        ),
    }
}
