//! The loop around the rounds: who waits, when a round is made, and what becomes of what it decided.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fairgate_journal::schedule::Round;
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
    is_stopped: AtomicBool,
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
            is_stopped: AtomicBool::new(false),
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

    /// Ends the loop after the round that is being made.
    pub(crate) fn stop(&self) {
        self.is_stopped.store(true, Ordering::Release);
        self.news.notify_one();
    }

    /// Waits for a task.
    pub(crate) async fn claim(&self, agent: &AgentId, wait: Duration) -> Claimed {
        let until = Instant::now() + wait;
        let (number, mut answer) = self.waiters.join(agent, until)?;
        let place = self.waiters.place(number);
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

    /// Runs the loop until it is stopped or the store is closed.
    pub(crate) async fn run(self: Arc<Self>, store: Store, clock: Arc<dyn Clock>) {
        let mut pace = Pace::new(clock.now());
        while !self.is_stopped.load(Ordering::Acquire) {
            match self.step(&store, &clock, &mut pace).await {
                Ok(Stepped::Made(calls)) => {
                    if let Some(journal) = &self.journal {
                        calls.into_iter().for_each(|call| journal.put(call));
                    }
                }
                Ok(Stepped::Looked) => {}
                Ok(Stepped::Idle(length)) => {
                    tokio::select! {
                        () = self.news.notified() => pace.hear(),
                        () = tokio::time::sleep(length) => {}
                    }
                }
                Err(StoreError::Closed) => break,
                Err(problem) => {
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

    /// Does what is to be done now.
    pub(crate) async fn step(
        &self,
        store: &Store,
        clock: &Arc<dyn Clock>,
        pace: &mut Pace,
    ) -> Result<Stepped, StoreError> {
        let stepped = match pace.next(clock.now(), self.waiters.are_there()) {
            Step::Round => self.round(store, clock, pace).await.map(Stepped::Made),
            Step::Look => look(store, &**clock, pace).await.map(|()| Stepped::Looked),
            Step::Sleep(length) => Ok(Stepped::Idle(length)),
        };
        if stepped.is_err() {
            pace.failed(clock.now());
        }
        stepped
    }

    async fn round(
        &self,
        store: &Store,
        clock: &Arc<dyn Clock>,
        pace: &mut Pace,
    ) -> Result<Vec<Round>, StoreError> {
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
                Ok(self.hand_out(&numbers, outcome))
            }
            Err(problem) => Err(problem),
        };
        self.waiters.leave_round(Instant::now(), made.as_ref().err());
        made
    }

    /// Tells the agents; gives what goes to the journal.
    fn hand_out(&self, numbers: &[u64], outcome: Outcome) -> Vec<Round> {
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
        outcome.calls
    }
}

/// What a step of the loop came to.
#[derive(Debug)]
pub(crate) enum Stepped {
    /// A round, with these calls of the scheduler.
    Made(Vec<Round>),
    /// A look at the version.
    Looked,
    /// There is nothing to do for so long.
    Idle(Duration),
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
