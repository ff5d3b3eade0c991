//! The loop that runs the rounds. It collects waiting agents, decides when to run a round, and
//! sends the results to the agents.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fairgate_journal::schedule::ScheduleRound;
use fairgate_store::{LogThrottle, Store, StoreError, TransactionDurability};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::agent_id::AgentId;
use crate::claim_waiters::{ClaimResult, ClaimWaiters};
use crate::counting_transaction::CountingTransaction;
use crate::error::FleetError;
use crate::fleet_clock::FleetClock;
use crate::lease_outage::ClockReading;
use crate::options::FleetOptions;
use crate::round::{self, ClaimReply, RoundOptions, RoundOutcome};
use crate::round_journal::RoundJournal;
use crate::round_timer::{LoopStep, RoundTimer};

/// Time for which an open claim is kept after its wait is over, if no round has looked for a task
/// for its agent yet.
const GRACE: Duration = Duration::from_secs(10);

/// Maximum delay of a sleep of the loop. After a longer delay, the whole process counts as
/// suspended, for example because its machine was.
const STALL: Duration = Duration::from_secs(10);

/// Statistics of all past rounds in which at least one agent waited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoundStats {
    /// Number of rounds in which at least one agent waited.
    pub with_agents: u64,
    /// Total duration of the counted rounds, including the time for SQL statements, without their commits.
    pub time: Duration,
    /// Maximum number of SQL statements in one of the counted rounds.
    pub statements_most: u64,
}

/// State that the loop shares with the callers of [`RoundLoop::claim`].
#[derive(Debug)]
pub(crate) struct RoundLoop {
    pub(crate) waiters: ClaimWaiters,
    pub(crate) rules: RoundOptions,
    /// Wakes the loop after a change that a round must consider.
    changed: Arc<Notify>,
    is_stopped: AtomicBool,
    /// True if an agent's operation could not be written since the loop's last step.
    has_write_failed: AtomicBool,
    journal: Option<RoundJournal>,
    log_throttle: LogThrottle<&'static str>,
    rounds: Mutex<RoundStats>,
}

impl RoundLoop {
    pub(crate) fn new(options: &FleetOptions, changed: Arc<Notify>) -> Self {
        Self {
            waiters: ClaimWaiters::default(),
            rules: RoundOptions::new(options),
            changed,
            is_stopped: AtomicBool::new(false),
            has_write_failed: AtomicBool::new(false),
            journal: options.journal.clone().map(RoundJournal::new),
            log_throttle: LogThrottle::default(),
            rounds: Mutex::default(),
        }
    }

    /// Returns the number of scheduler calls that are missing in the journal of rounds.
    pub(crate) fn not_journaled(&self) -> u64 {
        self.journal.as_ref().map_or(0, RoundJournal::lost)
    }

    /// Returns the statistics of all past rounds in which at least one agent waited.
    pub(crate) fn rounds(&self) -> RoundStats {
        *self.rounds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count_round(&self, time: Duration, statements: u64) {
        let mut rounds = self.rounds.lock().unwrap_or_else(PoisonError::into_inner);
        rounds.with_agents += 1;
        rounds.time += time;
        rounds.statements_most = rounds.statements_most.max(statements);
    }

    /// Records that an agent's operation could not be written. Leases are extended by the duration
    /// of such an outage.
    pub(crate) fn set_write_failed(&self) {
        self.has_write_failed.store(true, Ordering::Relaxed);
    }

    /// Ends the loop after the current round.
    pub(crate) fn stop(&self) {
        self.is_stopped.store(true, Ordering::Release);
        self.changed.notify_one();
    }

    /// Waits until a round gives the agent a task. Returns `None` if the agent gets no task within
    /// `wait`.
    pub(crate) async fn claim(&self, agent: &AgentId, wait: Duration) -> ClaimResult {
        let until = Instant::now() + wait;
        let (number, mut answer) = self.waiters.join(agent, until)?;
        let place = self.waiters.place(number);
        self.changed.notify_one();
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
    pub(crate) async fn run(self: Arc<Self>, store: Store, clock: Arc<dyn FleetClock>) {
        let mut pace = RoundTimer::new(clock.now());
        while !self.is_stopped.load(Ordering::Acquire) {
            match self.step(&store, &clock, &mut pace).await {
                Ok(LoopStepResult::Made(calls)) => {
                    if let Some(journal) = &self.journal {
                        calls.into_iter().for_each(|call| journal.put(call));
                    }
                }
                Ok(LoopStepResult::Looked) => {}
                Ok(LoopStepResult::Idle(length)) => {
                    let began = Instant::now();
                    tokio::select! {
                        () = self.changed.notified() => pace.request_round(),
                        () = tokio::time::sleep(length) => {}
                    }
                    if began.elapsed() > length + STALL {
                        pace.watch.failed();
                    }
                }
                Err(StoreError::Closed) => break,
                Err(problem) => {
                    if let Some(left_out) = self.log_throttle.admit("round", Instant::now()) {
                        tracing::warn!(%problem, left_out, "the fleet cannot give tasks to agents; it tries again");
                    }
                }
            }
        }
        self.waiters.close();
        // This waits for the writer thread, which needs microseconds for the last lines.
        if let Some(journal) = &self.journal {
            journal.close();
        }
    }

    /// Runs one step of the loop: a round, a read of the fleet's version, or nothing.
    pub(crate) async fn step(
        &self,
        store: &Store,
        clock: &Arc<dyn FleetClock>,
        pace: &mut RoundTimer,
    ) -> Result<LoopStepResult, StoreError> {
        if self.has_write_failed.swap(false, Ordering::Relaxed) {
            pace.watch.failed();
        }
        let stepped = match pace.next(clock.now(), self.waiters.has_waiters()) {
            LoopStep::Round => self.round(store, clock, pace).await.map(LoopStepResult::Made),
            LoopStep::Look => look(store, &**clock, pace).await.map(|()| LoopStepResult::Looked),
            LoopStep::Sleep(length) => Ok(LoopStepResult::Idle(length)),
        };
        if stepped.is_err() {
            pace.failed(clock.now());
        }
        stepped
    }

    async fn round(
        &self,
        store: &Store,
        clock: &Arc<dyn FleetClock>,
        pace: &mut RoundTimer,
    ) -> Result<Vec<ScheduleRound>, StoreError> {
        let (numbers, askers) = self.waiters.enter_round();
        let (rules, its_clock, watch) = (self.rules.clone(), Arc::clone(clock), pace.watch);
        // The clock is read inside the transaction, which may have waited for other transactions.
        let serves = !askers.is_empty();
        let work = move |tx: &mut dyn fairgate_store::Transaction| {
            let began = Instant::now();
            let mut counted = CountingTransaction::new(tx);
            let at = ClockReading::of(&*its_clock);
            let outcome = round::round(&mut counted, &rules, &askers, watch.outage(at), at.now)?;
            Ok((outcome, began.elapsed(), counted.statements))
        };
        let outcome = store.transact(TransactionDurability::ThroughKill, work).await;
        let made = match outcome {
            Ok((outcome, took, statements)) => {
                if serves {
                    self.count_round(took, statements);
                }
                let at = ClockReading::of(&**clock);
                pace.made(at, outcome.version, outcome.due, outcome.again);
                Ok(self.send_replies(&numbers, outcome))
            }
            Err(problem) => Err(problem),
        };
        self.waiters.leave_round(Instant::now(), made.as_ref().err());
        made
    }

    /// Sends the replies to the waiting agents, and returns the scheduler calls for the journal.
    fn send_replies(&self, numbers: &[u64], outcome: RoundOutcome) -> Vec<ScheduleRound> {
        for (number, reply) in numbers.iter().zip(outcome.replies) {
            match reply {
                Some(ClaimReply::Task(claim)) => {
                    self.waiters.send_result(*number, Ok(Some(*claim)))
                }
                Some(ClaimReply::Refused { agent, state, why }) => {
                    let refused = FleetError::Agent { agent, state, why };
                    self.waiters.send_result(*number, Err(refused));
                }
                None => {}
            }
        }
        outcome.calls
    }
}

/// Result of one step of the loop.
#[derive(Debug)]
pub(crate) enum LoopStepResult {
    /// A round ran. The value is the list of its scheduler calls.
    Made(Vec<ScheduleRound>),
    /// The fleet's version was read.
    Looked,
    /// There was nothing to do. The loop may sleep for this time.
    Idle(Duration),
}

/// Reads the fleet's version, to detect changes by other processes.
async fn look(
    store: &Store,
    clock: &dyn FleetClock,
    pace: &mut RoundTimer,
) -> Result<(), StoreError> {
    let read =
        |tx: &mut dyn fairgate_store::Transaction| tx.first(round::VERSION, &[], |row| row.int(0));
    let version = store.inspect(read).await?;
    pace.record_version(ClockReading::of(clock), version.unwrap_or_default());
    Ok(())
}

#[cfg(test)]
mod tests;
