//! The loop around the rounds: who waits, when a round is made, and what becomes of what it decided.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fairgate_store::{Keep, Store, StoreError, Throttle};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::counted::Counted;
use crate::error::FleetError;
use crate::fleet::{AgentId, Clock, FleetOptions, Rounds};
use crate::journal::Journal;
use crate::pace::{Pace, Step};
use crate::round::{self, Outcome, Reply, Rules};
use crate::waiters::{Claimed, Waiters};

/// How much longer than it asked to wait an agent is kept waiting for a round that has not looked yet.
const GRACE: Duration = Duration::from_secs(10);

/// What the loop and those who wait for it share.
#[derive(Debug)]
pub(crate) struct Dispatch {
    pub(crate) waiters: Waiters,
    pub(crate) rules: Rules,
    /// Told when something changed that a round should see.
    news: Arc<Notify>,
    journal: Option<Journal>,
    complaints: Throttle<&'static str>,
    rounds: Mutex<Rounds>,
}

impl Dispatch {
    pub(crate) fn new(options: &FleetOptions, news: Arc<Notify>) -> Self {
        Self {
            waiters: Waiters::default(),
            rules: Rules::new(options),
            news,
            journal: options.journal.clone().map(Journal::new),
            complaints: Throttle::default(),
            rounds: Mutex::default(),
        }
    }

    /// How many calls of the scheduler are missing in the journal of rounds.
    pub(crate) fn not_journaled(&self) -> u64 {
        self.journal.as_ref().map_or(0, Journal::lost)
    }

    /// The rounds so far that had agents to serve.
    pub(crate) fn rounds(&self) -> Rounds {
        *self.rounds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count_round(&self, time: Duration, statements: u64) {
        let mut rounds = self.rounds.lock().unwrap_or_else(PoisonError::into_inner);
        rounds.with_agents += 1;
        rounds.time += time;
        rounds.statements_most = rounds.statements_most.max(statements);
    }

    /// Waits for a task.
    pub(crate) async fn claim(&self, agent: &AgentId, wait: Duration) -> Claimed {
        let until = Instant::now() + wait;
        let (place, mut answer) = self.waiters.join(agent, until)?;
        self.news.notify_one();
        for patience in [wait, GRACE] {
            match tokio::time::timeout(patience, &mut answer).await {
                Ok(Ok(claimed)) => return claimed,
                Ok(Err(_)) => return Err(StoreError::Closed.into()),
                Err(_) if place.try_leave() => return Ok(None),
                Err(_) => {}
            }
        }
        Ok(None)
    }

    /// Runs the loop until the store is closed.
    pub(crate) async fn run(self: Arc<Self>, store: Store, clock: Arc<dyn Clock>) {
        let mut pace = Pace::new(clock.now());
        loop {
            let step = pace.next(clock.now(), self.waiters.are_there());
            let done = match step {
                Step::Round => self.round(&store, &clock, &mut pace).await,
                Step::Look => look(&store, &*clock, &mut pace).await,
                Step::Sleep(length) => {
                    tokio::select! {
                        () = self.news.notified() => pace.hear(),
                        () = tokio::time::sleep(length) => {}
                    }
                    Ok(())
                }
            };
            match done {
                Ok(()) => {}
                Err(StoreError::Closed) => break,
                Err(problem) => {
                    pace.failed(clock.now());
                    if let Some(left_out) = self.complaints.admit("round", Instant::now()) {
                        tracing::warn!(%problem, left_out, "the fleet cannot give tasks to agents; it tries again");
                    }
                }
            }
        }
        self.waiters.close();
        // The last lines are written by a thread that needs microseconds for them.
        if let Some(journal) = &self.journal {
            journal.close();
        }
    }

    async fn round(
        &self,
        store: &Store,
        clock: &Arc<dyn Clock>,
        pace: &mut Pace,
    ) -> Result<(), StoreError> {
        let (numbers, askers) = self.waiters.enter_round();
        let (rules, its_clock) = (self.rules, Arc::clone(clock));
        // The time is taken when the transaction's turn has come.
        let serves = !askers.is_empty();
        let work = move |tx: &mut dyn fairgate_store::Transaction| {
            let began = Instant::now();
            let mut counted = Counted::new(tx);
            let outcome = round::round(&mut counted, &rules, &askers, its_clock.now())?;
            Ok((outcome, began, counted.statements))
        };
        let outcome = store.transact(Keep::ThroughKill, work).await;
        let made = match outcome {
            Ok((outcome, began, statements)) => {
                if serves {
                    self.count_round(began.elapsed(), statements);
                }
                pace.made(clock.now(), outcome.version, outcome.due, outcome.again);
                self.hand_out(&numbers, outcome);
                Ok(())
            }
            Err(problem) => Err(problem),
        };
        self.waiters.leave_round(Instant::now(), made.as_ref().err());
        made
    }

    fn hand_out(&self, numbers: &[u64], outcome: Outcome) {
        for (number, reply) in numbers.iter().zip(outcome.replies) {
            match reply {
                Some(Reply::Task(claim)) => self.waiters.tell(*number, Ok(Some(*claim))),
                Some(Reply::Refused { agent, state, why }) => {
                    let refused = FleetError::Agent { agent, state, why };
                    self.waiters.tell(*number, Err(refused));
                }
                None => {}
            }
        }
        if let Some(journal) = &self.journal {
            outcome.calls.into_iter().for_each(|call| journal.put(call));
        }
    }
}

/// Looks whether another process changed the fleet.
async fn look(store: &Store, clock: &dyn Clock, pace: &mut Pace) -> Result<(), StoreError> {
    let read =
        |tx: &mut dyn fairgate_store::Transaction| tx.first(round::VERSION, &[], |row| row.int(0));
    let version = store.inspect(read).await?;
    pace.saw(clock.now(), version.unwrap_or_default());
    Ok(())
}

#[cfg(test)]
mod tests;
