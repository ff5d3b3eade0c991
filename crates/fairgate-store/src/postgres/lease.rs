//! Signs of life, and what becomes of those who give none.
//!
//! Every process renews its lease three times before it runs out, by the database's clock. Whoever finds reservations of an
//! instance without a lease turns them into rows of outcome `lost`. A process that had only been paused and comes back
//! settles as if nothing had happened: its real row replaces the guessed one.

use std::collections::HashMap;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::arrays::{Attempts, Sums};
use super::fleet;
use super::ledger::reservations;
use super::link::{Link, Session, execute, in_time, query};
use super::sql;
use super::trouble::Trouble;
use super::writer::Reply;
use crate::claims::Charges;
use crate::error::StoreError;
use crate::ledger::{Attempt, Resolved};
use crate::rows::{self, Columns, Guess};
use crate::sums::Deltas;
use crate::throttle::Throttle;

type Result<T> = std::result::Result<T, Trouble>;

/// How many reservations one transaction resolves.
const BATCH_MAX: i64 = 500;

/// The task, and the instance that it speaks for.
pub(super) struct Lease {
    pub(super) link: Link,
    pub(super) instance: i64,
    pub(super) length: Duration,
    pub(super) complaints: Throttle<()>,
}

impl Lease {
    /// Renews the lease until it is told to end it, or until nobody is left who could tell.
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
                _ = ticks.tick() => self.renew_and_look().await,
            }
        }
    }

    async fn renew_and_look(&mut self) {
        match self.begin().await {
            Ok(Resolved { reservations: 0, .. }) => {}
            Ok(Resolved { reservations, tokens }) => {
                tracing::warn!(
                    reservations,
                    tokens,
                    "resolved what a process that is gone had reserved"
                );
            }
            Err(trouble) => {
                if let Some(left_out) = self.complaints.admit((), Instant::now()) {
                    let error = StoreError::from(trouble);
                    tracing::warn!(%error, left_out, "the store's lease could not be renewed");
                }
            }
        }
    }

    /// A sign of life, and a look for those who gave none.
    pub(super) async fn begin(&mut self) -> Result<Resolved> {
        let mut session = self.link.take().await?;
        let mut resolved = Resolved::default();
        let outcome = loop {
            let length = i64::try_from(self.length.as_micros()).unwrap_or(i64::MAX);
            let some = in_time(async {
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
        self.link.give_back(session, &outcome).await;
        outcome
    }

    /// Ends the lease: what is still reserved belongs to nobody.
    async fn end(&mut self) -> Result<()> {
        let mut session = self.link.take().await?;
        let outcome = in_time(async {
            let [end] = session.prepare([sql::END_INSTANCE]).await?;
            session.client.execute(&end, &[&self.instance]).await?;
            Ok(())
        });
        let outcome = outcome.await;
        self.link.give_back(session, &outcome).await;
        outcome
    }
}

/// Resolves some reservations; how many it found, and what it charged for. Where a request has its last row, its client had
/// left before the reservation was made, and the process died before it released it: nothing was lost.
async fn resolve_some(session: &mut Session) -> Result<(u64, Resolved)> {
    let [take, drop_lost, made, put, add] = session
        .prepare([
            sql::TAKE_ABANDONED,
            sql::DROP_LOST,
            sql::ATTEMPTS_MADE,
            sql::PUT_ATTEMPTS,
            sql::ADD_SUMS,
        ])
        .await?;
    // Some of them may be for tasks.
    fleet::begin(session).await?;
    let client = &session.client;
    let taken = reservations(&query(client, &take, [&BATCH_MAX]).await?)?;
    if taken.is_empty() {
        session.run("ROLLBACK").await?;
        return Ok((0, Resolved::default()));
    }
    let requests: Vec<_> = taken.iter().map(|it| it.request.as_str()).collect();
    // A request has one guess at most.
    let (guesses, made_rows) =
        tokio::join!(query(client, &drop_lost, [&requests]), query(client, &made, [&requests]));
    let (mut deltas, mut charges) = (Deltas::default(), Charges::default());
    for row in &guesses? {
        let guess = rows::guess(row)?;
        charges.take_back(&guess);
        let Guess { payers, at, uses, .. } = guess;
        deltas.add(payers, at, uses.negative());
    }
    let mut made = HashMap::with_capacity(requests.len());
    for row in &made_rows? {
        let number = u32::try_from(row.int(1)?).unwrap_or(u32::MAX);
        made.insert(row.text(0)?, (number, row.flag(2)?));
    }
    let mut lost: Vec<Attempt> = Vec::with_capacity(taken.len());
    let mut resolved = Resolved::default();
    for it in &taken {
        let (made, has_ended) = made.get(&it.request).copied().unwrap_or_default();
        deltas.add(it, it.at, it.holds(true).negative());
        if !has_ended {
            let row = it.lost(made);
            // What was reserved is used.
            deltas.add(it, it.at, row.uses());
            charges.add(row.charge());
            lost.push(row);
            resolved.reservations += 1;
            resolved.tokens += it.tokens;
        }
    }
    fleet::charge(session, &charges).await?;
    let client = &session.client;
    let (rows, sums): (Attempts<'_>, Sums<'_>) = (lost.iter().collect(), deltas.iter().collect());
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
