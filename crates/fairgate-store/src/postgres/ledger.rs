//! Writes a batch of rows, ends their reservations and updates the sums, all in one transaction.

use std::collections::HashMap;

use fairgate_time::UnixMicros;
use fairgate_usage::ClaimCharges;
use tokio_postgres::Row;

use super::claims;
use super::column_arrays::{AttemptArrays, SumArrays};
use super::connection::{PostgresSession, execute, query};
use super::error::PostgresError;
use super::sql;
use crate::ledger::{AttemptRow, Reservation};
use crate::rows::{self, GuessedRow, RowColumns};
use crate::sums::SumDeltas;

type Result<T> = std::result::Result<T, PostgresError>;

/// Runs one transaction in two round trips. The first writes the rows and ends their reservations, the second updates
/// the sums. If there are rows of tasks, two more round trips update their projects.
pub(super) async fn transact(
    session: &mut PostgresSession,
    attempts: &[&AttemptRow],
) -> Result<()> {
    let for_tasks = attempts.iter().any(|attempt| attempt.claim.is_some());
    if for_tasks {
        claims::begin(session).await?;
    }
    let [end, see, put, add] = session
        .prepare([sql::END_RESERVATIONS, sql::SEE_RESERVATIONS, sql::PUT_ATTEMPTS, sql::ADD_SUMS])
        .await?;
    let requests = |last: bool| -> Vec<&str> {
        let some = attempts.iter().filter(|attempt| attempt.last == last);
        some.map(|attempt| attempt.request.as_str()).collect()
    };
    let (ending, going_on) = (requests(true), requests(false));
    let arrays: AttemptArrays<'_> = attempts.iter().copied().collect();
    let client = &session.client;
    let (begun, kept, ended, new) = tokio::join!(
        async { if for_tasks { Ok(()) } else { client.batch_execute("BEGIN").await } },
        query(client, &see, [&going_on]),
        query(client, &end, [&ending]),
        query(client, &put, arrays.values()),
    );
    begun?;
    let ended = reservations(&ended?)?;
    let mut settlement = BatchSettlement::default();
    let kept = reservations(&kept?)?;
    settlement.periods.extend(kept.iter().chain(&ended).map(|it| (it.request.as_str(), it.at)));
    for it in &ended {
        settlement.deltas.add(it, it.at, it.held_amounts(true).negative());
    }
    let known = settlement.charge(attempts.iter().copied(), &new?)?;
    if !known.is_empty() {
        replace_lost(session, &mut settlement, &known).await?;
    }
    claims::charge(session, &settlement.charges).await?;
    let sums: SumArrays<'_> = settlement.deltas.iter().collect();
    let client = &session.client;
    let (added, committed) =
        tokio::join!(execute(client, &add, sums.values()), client.batch_execute("COMMIT"));
    added?;
    Ok(committed?)
}

/// Writes the times at which keys were last used. `uses` is sorted by key.
pub(super) async fn put_key_uses(
    session: &mut PostgresSession,
    uses: &[(String, UnixMicros)],
) -> Result<()> {
    let [put] = session.prepare([sql::PUT_KEY_USES]).await?;
    let (keys, times): (Vec<&str>, Vec<i64>) =
        uses.iter().map(|(key, at)| (key.as_str(), at.0)).unzip();
    execute(&session.client, &put, [&keys, &times]).await
}

/// Combined effect of the rows of a batch on the sums, projects and tasks.
#[derive(Default)]
struct BatchSettlement<'a> {
    /// Times of the reservations, by request id. The amounts of a request count in the periods that
    /// contain this time. A request without an entry counts in the periods in which it started.
    periods: HashMap<&'a str, UnixMicros>,
    deltas: SumDeltas<'a>,
    charges: ClaimCharges,
}

impl<'a> BatchSettlement<'a> {
    /// Charges the rows that were inserted. Returns the rows that existed already and were not inserted.
    fn charge(
        &mut self,
        attempts: impl Iterator<Item = &'a AttemptRow>,
        new: &[Row],
    ) -> Result<Vec<&'a AttemptRow>> {
        let mut is_new = HashMap::with_capacity(new.len());
        for row in new {
            let request: &str = row.try_get(0)?;
            is_new.insert((request, row.int(1)?), ());
        }
        let mut known = Vec::new();
        for attempt in attempts {
            let row = (attempt.request.as_str(), i64::from(attempt.attempt));
            // The row is removed from the map, so that a row that is twice in the batch is charged
            // once.
            if is_new.remove(&row).is_none() {
                known.push(attempt);
                continue;
            }
            let at = self.periods.get(row.0).copied().unwrap_or(attempt.started_at);
            self.deltas.add(attempt, at, attempt.usage_sum());
            self.charges.add(attempt.charge());
        }
        Ok(known)
    }
}

/// Replaces guessed rows. A row that could not be inserted may have the same key as a guessed row,
/// whose request was not lost after all. The guessed row is then deleted, and the real row is
/// inserted.
async fn replace_lost<'a>(
    session: &mut PostgresSession,
    settlement: &mut BatchSettlement<'a>,
    known: &[&'a AttemptRow],
) -> Result<()> {
    let [drop_lost, put] = session.prepare([sql::DROP_LOST_ATTEMPTS, sql::PUT_ATTEMPTS]).await?;
    let requests: Vec<_> = known.iter().map(|attempt| attempt.request.as_str()).collect();
    let numbers: Vec<_> = known.iter().map(|attempt| i64::from(attempt.attempt)).collect();
    let lost = session.client.query(&drop_lost, &[&requests, &numbers]).await?;
    if lost.is_empty() {
        return Ok(());
    }
    let mut replaced = Vec::with_capacity(lost.len());
    for row in &lost {
        let guess = rows::guess(row)?;
        settlement.charges.add(guess.refund());
        let GuessedRow { request, payers, at, uses, .. } = guess;
        settlement.deltas.add(payers, at, uses.negative());
        for attempt in known.iter().filter(|attempt| attempt.request == request) {
            settlement.periods.insert(&attempt.request, at);
            replaced.push(*attempt);
        }
    }
    let arrays: AttemptArrays<'_> = replaced.iter().copied().collect();
    let new = query(&session.client, &put, arrays.values()).await?;
    settlement.charge(replaced.into_iter(), &new)?;
    Ok(())
}

/// Converts database rows to reservations.
pub(super) fn reservations(rows: &[Row]) -> Result<Vec<Reservation>> {
    Ok(rows.iter().map(rows::reservation).collect::<std::result::Result<_, _>>()?)
}
