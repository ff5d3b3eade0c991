//! What a batch of rows does to the database: rows, the ends of their reservations, sums, all in one transaction.

use std::collections::HashMap;

use fairgate_money::UnixMicros;
use tokio_postgres::Row;

use super::arrays::{Attempts, Sums};
use super::fleet;
use super::link::{Session, execute, query};
use super::sql;
use super::trouble::Trouble;
use crate::claims::Charges;
use crate::ledger::{Attempt, Reservation};
use crate::rows::{self, Columns, Guess};
use crate::sums::Deltas;

type Result<T> = std::result::Result<T, Trouble>;

/// One transaction in two round trips: the rows and the ends of their reservations, then the sums. Two for the fleet come with
/// rows of tasks.
pub(super) async fn transact(session: &mut Session, attempts: &[&Attempt]) -> Result<()> {
    let for_tasks = attempts.iter().any(|attempt| attempt.claim.is_some());
    if for_tasks {
        fleet::begin(session).await?;
    }
    let [end, see, put, add] = session
        .prepare([sql::END_RESERVATIONS, sql::SEE_RESERVATIONS, sql::PUT_ATTEMPTS, sql::ADD_SUMS])
        .await?;
    let requests = |last: bool| -> Vec<&str> {
        let some = attempts.iter().filter(|attempt| attempt.last == last);
        some.map(|attempt| attempt.request.as_str()).collect()
    };
    let (ending, going_on) = (requests(true), requests(false));
    let arrays: Attempts<'_> = attempts.iter().copied().collect();
    let client = &session.client;
    let (begun, kept, ended, new) = tokio::join!(
        async { if for_tasks { Ok(()) } else { client.batch_execute("BEGIN").await } },
        query(client, &see, [&going_on]),
        query(client, &end, [&ending]),
        query(client, &put, arrays.values()),
    );
    begun?;
    let ended = reservations(&ended?)?;
    let mut settlement = Settlement::default();
    let kept = reservations(&kept?)?;
    settlement.periods.extend(kept.iter().chain(&ended).map(|it| (it.request.as_str(), it.at)));
    for it in &ended {
        settlement.deltas.add(it, it.at, it.holds(true).negative());
    }
    let known = settlement.charge(attempts.iter().copied(), &new?)?;
    if !known.is_empty() {
        replace_lost(session, &mut settlement, &known).await?;
    }
    fleet::charge(session, &settlement.charges).await?;
    let sums: Sums<'_> = settlement.deltas.iter().collect();
    let client = &session.client;
    let (added, committed) =
        tokio::join!(execute(client, &add, sums.values()), client.batch_execute("COMMIT"));
    added?;
    Ok(committed?)
}

/// What the rows of a batch come to.
#[derive(Default)]
struct Settlement<'a> {
    /// To which moment a request's amounts belong, where that is not when it started.
    periods: HashMap<&'a str, UnixMicros>,
    deltas: Deltas<'a>,
    charges: Charges,
}

impl<'a> Settlement<'a> {
    /// Charges the rows that were new; gives those that were there already.
    fn charge(
        &mut self,
        attempts: impl Iterator<Item = &'a Attempt>,
        new: &[Row],
    ) -> Result<Vec<&'a Attempt>> {
        let mut is_new = HashMap::with_capacity(new.len());
        for row in new {
            let request: &str = row.try_get(0)?;
            is_new.insert((request, row.int(1)?), ());
        }
        let mut known = Vec::new();
        for attempt in attempts {
            let row = (attempt.request.as_str(), i64::from(attempt.attempt));
            // Taken out, so that a row that is in the batch twice is charged once.
            if is_new.remove(&row).is_none() {
                known.push(attempt);
                continue;
            }
            let at = self.periods.get(row.0).copied().unwrap_or(attempt.started_at);
            self.deltas.add(attempt, at, attempt.uses());
            self.charges.add(attempt.charge());
        }
        Ok(known)
    }
}

/// Rows that were there already may be guesses about requests that were taken for lost: then the real ones replace them.
async fn replace_lost<'a>(
    session: &mut Session,
    settlement: &mut Settlement<'a>,
    known: &[&'a Attempt],
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
        settlement.charges.take_back(&guess);
        let Guess { request, payers, at, uses, .. } = guess;
        settlement.deltas.add(payers, at, uses.negative());
        for attempt in known.iter().filter(|attempt| attempt.request == request) {
            settlement.periods.insert(&attempt.request, at);
            replaced.push(*attempt);
        }
    }
    let arrays: Attempts<'_> = replaced.iter().copied().collect();
    let new = query(&session.client, &put, arrays.values()).await?;
    settlement.charge(replaced.into_iter(), &new)?;
    Ok(())
}

/// Reservations as they were read.
pub(super) fn reservations(rows: &[Row]) -> Result<Vec<Reservation>> {
    Ok(rows.iter().map(rows::reservation).collect::<std::result::Result<_, _>>()?)
}
