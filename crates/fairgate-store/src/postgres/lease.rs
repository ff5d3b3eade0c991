//! Sends heartbeats, and resolves the reservations of processes that no longer send any.
//!
//! Every process is an instance with a lease, which it renews three times within the length of the
//! lease. The database's clock decides whether a lease has run out. Any process that finds
//! reservations of an instance without a lease turns them into guessed rows, with the outcome
//! `lost`. If the process of that instance was only paused, it settles its requests normally when
//! it continues, and its real rows replace the guessed rows.

use std::collections::HashMap;
use std::time::Duration;

use fairgate_usage::ClaimCharges;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::claims;
use super::column_arrays::{AttemptArrays, SumArrays};
use super::connection::{PostgresConnection, PostgresSession, execute, query, with_answer_timeout};
use super::error::PostgresError;
use super::ledger::reservations;
use super::sql;
use super::writer::Reply;
use crate::error::StoreError;
use crate::ledger::{AttemptRow, ResolvedReservations};
use crate::log_throttle::LogThrottle;
use crate::rows::{self, GuessedRow, RowColumns};
use crate::sums::SumDeltas;

type Result<T> = std::result::Result<T, PostgresError>;

/// Maximum number of reservations that one transaction resolves.
const BATCH_MAX: i64 = 500;

/// The async task that sends the heartbeats of one instance.
pub(super) struct InstanceLease {
    pub(super) link: PostgresConnection,
    pub(super) instance: i64,
    pub(super) length: Duration,
    pub(super) log_throttle: LogThrottle<()>,
}

impl InstanceLease {
    /// Renews the lease until a command to end the lease arrives, or until all senders of `end` are gone.
    pub(super) async fn run(mut self, mut end: mpsc::Receiver<Reply<()>>) {
        let every = (self.length / 3).max(Duration::from_millis(10));
        let mut ticks = interval_at(Instant::now() + every, every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                reply = end.recv() => {
                    let ended = self.end().await;
                    if let Some(reply) = reply {
                        end.close();
                        let _ = reply.send(ended.map_err(StoreError::from));
                    }
                    return;
                }
                _ = ticks.tick() => self.renew_and_log().await,
            }
        }
    }

    async fn renew_and_log(&mut self) {
        match self.renew_and_resolve().await {
            Ok(ResolvedReservations { reservations: 0, .. }) => {}
            Ok(ResolvedReservations { reservations, tokens }) => {
                tracing::warn!(
                    reservations,
                    tokens,
                    "resolved what a process that is gone had reserved"
                );
            }
            Err(trouble) => {
                if let Some(left_out) = self.log_throttle.admit((), Instant::now()) {
                    let error = StoreError::from(trouble);
                    tracing::warn!(%error, left_out, "the store's lease could not be renewed");
                }
            }
        }
    }

    /// Sends a heartbeat, and resolves the reservations of instances whose lease ran out.
    pub(super) async fn renew_and_resolve(&mut self) -> Result<ResolvedReservations> {
        let mut session = self.link.take_session().await?;
        let mut resolved = ResolvedReservations::default();
        let outcome = loop {
            let length = i64::try_from(self.length.as_micros()).unwrap_or(i64::MAX);
            let some = with_answer_timeout(async {
                let [renew, forget] =
                    session.prepare([sql::HEARTBEAT, sql::FORGET_INSTANCES]).await?;
                session.client.execute(&renew, &[&self.instance, &length]).await?;
                session.client.execute(&forget, &[]).await?;
                resolve_some(&mut session).await
            });
            match some.await {
                Ok((taken, some)) => {
                    resolved.reservations += some.reservations;
                    resolved.tokens += some.tokens;
                    if taken < BATCH_MAX.unsigned_abs() {
                        break Ok(resolved);
                    }
                }
                Err(trouble) => break Err(trouble),
            }
        };
        self.link.return_session(session, &outcome).await;
        outcome
    }

    /// Ends the lease of this instance. Other processes then resolve its remaining reservations.
    async fn end(&mut self) -> Result<()> {
        let mut session = self.link.take_session().await?;
        let outcome = with_answer_timeout(async {
            let [end] = session.prepare([sql::END_INSTANCE]).await?;
            session.client.execute(&end, &[&self.instance]).await?;
            Ok(())
        });
        let outcome = outcome.await;
        self.link.return_session(session, &outcome).await;
        outcome
    }
}

/// Resolves at most [`BATCH_MAX`] reservations. Returns the number of reservations found, and the
/// charges for them. A reservation whose request already has its last row is released without a
/// charge. This happens if the client left before the reservation was made, and the process died
/// before it released the reservation.
async fn resolve_some(session: &mut PostgresSession) -> Result<(u64, ResolvedReservations)> {
    let [take, drop_lost, made, put, add] = session
        .prepare([
            sql::TAKE_ABANDONED,
            sql::DROP_LOST,
            sql::ATTEMPTS_MADE,
            sql::PUT_ATTEMPTS,
            sql::ADD_SUMS,
        ])
        .await?;
    // Some of the reservations may be for tasks.
    claims::begin(session).await?;
    let client = &session.client;
    let taken = reservations(&query(client, &take, [&BATCH_MAX]).await?)?;
    if taken.is_empty() {
        session.run("ROLLBACK").await?;
        return Ok((0, ResolvedReservations::default()));
    }
    let requests: Vec<_> = taken.iter().map(|it| it.request.as_str()).collect();
    // Each request has at most one guessed row.
    let (guesses, made_rows) =
        tokio::join!(query(client, &drop_lost, [&requests]), query(client, &made, [&requests]));
    let (mut deltas, mut charges) = (SumDeltas::default(), ClaimCharges::default());
    for row in &guesses? {
        let guess = rows::guess(row)?;
        charges.add(guess.refund());
        let GuessedRow { payers, at, uses, .. } = guess;
        deltas.add(payers, at, uses.negative());
    }
    let mut made = HashMap::with_capacity(requests.len());
    for row in &made_rows? {
        let number = u32::try_from(row.int(1)?).unwrap_or(u32::MAX);
        made.insert(row.text(0)?, (number, row.flag(2)?));
    }
    let mut lost: Vec<AttemptRow> = Vec::with_capacity(taken.len());
    let mut resolved = ResolvedReservations::default();
    for it in &taken {
        let (made, has_ended) = made.get(&it.request).copied().unwrap_or_default();
        deltas.add(it, it.at, it.held_amounts(true).negative());
        if !has_ended {
            let row = it.to_lost_row(made);
            // The reserved amounts become used.
            deltas.add(it, it.at, row.usage_sum());
            charges.add(row.charge());
            lost.push(row);
            resolved.reservations += 1;
            resolved.tokens += it.tokens;
        }
    }
    claims::charge(session, &charges).await?;
    let client = &session.client;
    let (rows, sums): (AttemptArrays<'_>, SumArrays<'_>) =
        (lost.iter().collect(), deltas.iter().collect());
    let (put, added, committed) = tokio::join!(
        query(client, &put, rows.values()),
        execute(client, &add, sums.values()),
        client.batch_execute("COMMIT"),
    );
    put?;
    added?;
    committed?;
    Ok((taken.len() as u64, resolved))
}
