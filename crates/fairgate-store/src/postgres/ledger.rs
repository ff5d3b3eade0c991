//! The task that writes rows: whatever is pending goes into one transaction, and everybody is answered after the commit.
//!
//! A row is written once however often it is tried, so a batch whose fate is unknown is simply tried again, until
//! [`PATIENCE`] is over: a server that restarts costs time, not rows.

use std::collections::HashMap;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until};
use tokio_postgres::Row;

use super::arrays::{Attempts, Sums};
use super::link::{Link, Session, execute, in_time, query};
use super::sql;
use super::trouble::Trouble;
use crate::directory::UnixMicros;
use crate::error::StoreError;
use crate::ledger::{Attempt, Reservation};
use crate::rows::{self, Columns};
use crate::sums::{Deltas, Tokens, signed};

type Result<T> = std::result::Result<T, Trouble>;

/// Where an answer goes. That nobody waits for it any more does not undo what was asked.
pub(super) type Reply<T> = oneshot::Sender<std::result::Result<T, StoreError>>;

/// How many rows one transaction takes.
const BATCH_MAX: usize = 1_024;
/// How long rows are held while the server is away.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often a batch is tried again that others were in the way of.
const CONFLICTS_MAX: u32 = 5;

/// What the task is asked.
pub(super) enum Command {
    Record(Box<Attempt>, Reply<()>),
    Close(Reply<()>),
}

/// Writes until it is told to close, or until nobody is left who could ask.
pub(super) async fn run(mut link: Link, mut inbox: mpsc::Receiver<Command>) {
    let mut commands = Vec::with_capacity(BATCH_MAX);
    let mut closers = Vec::new();
    while inbox.recv_many(&mut commands, BATCH_MAX).await > 0 {
        let mut rows = Vec::with_capacity(commands.len());
        for command in commands.drain(..) {
            match command {
                Command::Record(attempt, reply) => rows.push((attempt, reply)),
                Command::Close(reply) => {
                    // Those who have sent are still served, nobody else is.
                    inbox.close();
                    closers.push(reply);
                }
            }
        }
        write(&mut link, rows).await;
    }
    drop(link);
    for reply in closers {
        let _ = reply.send(Ok(()));
    }
}

/// Writes rows, and tells those who wait.
async fn write(link: &mut Link, rows: Vec<(Box<Attempt>, Reply<()>)>) {
    let (attempts, replies): (Vec<_>, Vec<_>) = rows.into_iter().unzip();
    let mut written = patiently(link, &attempts).await;
    if attempts.len() > 1 && matches!(written, Err(Trouble::Refused(_))) {
        // One of them is to blame; the others must not suffer for it.
        for (attempt, reply) in attempts.iter().zip(replies) {
            let alone = patiently(link, std::slice::from_ref(attempt)).await;
            answer(reply, alone.map_err(StoreError::from).map_err(|problem| problem.to_string()));
        }
        return;
    }
    if let Err(trouble) = &mut written {
        tracing::error!(?trouble, rows = attempts.len(), "the store could not write");
    }
    let written = written.map_err(StoreError::from).map_err(|problem| problem.to_string());
    replies.into_iter().for_each(|reply| answer(reply, written.clone()));
}

fn answer(reply: Reply<()>, written: std::result::Result<(), String>) {
    let _ = reply.send(written.map_err(StoreError::Database));
}

async fn patiently(link: &mut Link, attempts: &[Box<Attempt>]) -> Result<()> {
    if attempts.is_empty() {
        return Ok(());
    }
    let deadline = Instant::now() + PATIENCE;
    let mut conflicts = 0;
    loop {
        match once(link, attempts).await {
            Err(Trouble::Link(_)) if link.next_attempt() < deadline => {
                sleep_until(link.next_attempt()).await;
            }
            Err(Trouble::Conflict(_)) if conflicts < CONFLICTS_MAX => conflicts += 1,
            outcome => return outcome,
        }
    }
}

async fn once(link: &mut Link, attempts: &[Box<Attempt>]) -> Result<()> {
    let mut session = link.take().await?;
    let outcome = in_time(transact(&mut session, attempts)).await;
    link.give_back(session, &outcome).await;
    outcome
}

/// One transaction in two round trips: the rows and the ends of their reservations, then the sums.
async fn transact(session: &mut Session, attempts: &[Box<Attempt>]) -> Result<()> {
    let [end, see, put, add] = session
        .prepare([sql::END_RESERVATIONS, sql::SEE_RESERVATIONS, sql::PUT_ATTEMPTS, sql::ADD_SUMS])
        .await?;
    let requests = |last: bool| -> Vec<&str> {
        let some = attempts.iter().filter(|attempt| attempt.last == last);
        some.map(|attempt| attempt.request.as_str()).collect()
    };
    let (ending, going_on) = (requests(true), requests(false));
    let arrays: Attempts<'_> = attempts.iter().map(|attempt| &**attempt).collect();
    let client = &session.client;
    let (begun, kept, ended, new) = tokio::join!(
        client.batch_execute("BEGIN"),
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
        let tokens = Tokens { used: 0, reserved: -signed(it.tokens) };
        settlement.deltas.add(it.tenant.as_str(), it.key.as_str(), it.at, tokens);
    }
    let known = settlement.charge(attempts.iter().map(|attempt| &**attempt), &new?)?;
    if !known.is_empty() {
        replace_lost(session, &mut settlement, &known).await?;
    }
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
    /// To which moment a request's tokens belong, where that is not when it started.
    periods: HashMap<&'a str, UnixMicros>,
    deltas: Deltas<'a>,
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
            let tokens = Tokens { used: signed(attempt.charged), reserved: 0 };
            self.deltas.add(attempt.tenant.as_str(), attempt.key.as_str(), at, tokens);
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
        let (request, at) = (row.text(0)?, row.moment(3)?);
        let tokens = Tokens { used: -row.int(4)?, reserved: 0 };
        settlement.deltas.add(row.text(1)?, row.text(2)?, at, tokens);
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
