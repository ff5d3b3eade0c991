//! The task that owns a pool. It reads messages, keeps the time, and delivers the pool's decisions.

use std::collections::VecDeque;
use std::sync::Arc;

use fairgate_core::units::Micros;
use tokio::time::Instant;

use crate::clock::PoolClock;
use crate::gate::GateShared;
use crate::gate_status::{DrainResult, GateStatus};
use crate::journal::GateJournal;
use crate::mailbox::TaskEnd;
use crate::message::PoolMessage;
use crate::pool_task::PoolTask;
use crate::state_file::StateFileWriter;

/// The task that owns a pool, with its clock, journal and state file.
pub(crate) struct PoolTaskLoop {
    pub(crate) task: PoolTask,
    pub(crate) shared: Arc<GateShared>,
    pub(crate) clock: PoolClock,
    pub(crate) journal: Option<GateJournal>,
    pub(crate) state_file: Option<StateFileWriter>,
    pub(crate) drain: Option<DrainDeadline>,
}

/// State of a drain that has begun. `until` is the earliest deadline that any caller set; `None` if no caller set one.
#[derive(Default)]
pub(crate) struct DrainDeadline {
    until: Option<Instant>,
}

impl PoolTaskLoop {
    /// Runs until the gate is drained.
    pub(crate) async fn run(mut self) {
        let mut batch = VecDeque::new();
        while !self.is_over() {
            self.wait().await;
            self.shared.mailbox.take(&mut batch);
            if let Some(journal) = &mut self.journal {
                journal.check_failure(&mut self.task);
            }
            self.handle_all(&mut batch);
            self.task.apply_due_tick(self.now());
            self.keep_records().await;
            tokio::task::coop::consume_budget().await;
        }
        self.finish(batch).await;
    }

    fn now(&self) -> Micros {
        self.clock.now()
    }

    fn handle_all(&mut self, batch: &mut VecDeque<PoolMessage>) {
        while let Some(message) = batch.pop_front() {
            if message.has_turn() {
                self.shared.turns.add_permits(1);
            }
            let now = self.now();
            match message {
                PoolMessage::Drain { until } => self.begin_drain(now, until),
                message => self.task.handle(now, message),
            }
        }
    }

    fn begin_drain(&mut self, now: Micros, until: Option<Instant>) {
        self.task.begin_drain(now);
        let drain = self.drain.get_or_insert_default();
        drain.until = drain.until.into_iter().chain(until).min();
    }

    fn is_over(&self) -> bool {
        let Some(drain) = &self.drain else { return false };
        let late = drain.until.is_some_and(|until| until <= Instant::now());
        late || self.task.pool().in_flight() == 0
    }

    /// Waits for a message, or for the next time at which the pool, the journal, the state file or
    /// the drain needs work.
    async fn wait(&mut self) {
        let filled = self.shared.mailbox.wait_filled();
        match self.next_wake() {
            Some(at) => {
                let _ = tokio::time::timeout_at(at, filled).await;
            }
            None => filled.await,
        }
    }

    fn next_wake(&self) -> Option<Instant> {
        let change = self.task.pool().next_change().map(|at| self.clock.instant(at));
        let deadline = self.drain.as_ref().and_then(|drain| drain.until);
        let journal = self.journal.as_ref().and_then(GateJournal::next_try);
        let save = self.state_file.as_ref().and_then(|keeper| keeper.next_save(&self.task));
        [change, deadline, journal, save].into_iter().flatten().min()
    }

    /// Passes new events to the journal, and writes the state file if a write is due.
    async fn keep_records(&mut self) {
        if let Some(journal) = &mut self.journal {
            journal.pass_on(&mut self.task).await;
        } else {
            self.task.journal_lines.take();
        }
        if let Some(keeper) = &mut self.state_file {
            keeper.save_when_due(&mut self.task);
        }
    }

    /// Handles the messages that were sent before the mailbox closed. Then finishes the journal and
    /// the state file.
    async fn finish(mut self, mut batch: VecDeque<PoolMessage>) {
        batch.extend(self.shared.mailbox.close(TaskEnd::Drained));
        self.shared.turns.close();
        self.handle_all(&mut batch);
        self.keep_records().await;
        if let Some(journal) = self.journal.take() {
            journal.finish(&mut self.task).await;
        }
        if let Some(keeper) = self.state_file.take() {
            keeper.finish(&mut self.task).await;
        }
        let GateStatus { in_flight, journal, state, .. } = self.task.status();
        let _ = self.shared.outcome.set(DrainResult { still_in_flight: in_flight, journal, state });
    }
}

impl Drop for PoolTaskLoop {
    /// Closes the mailbox and wakes all waiting callers. This runs however the task ends.
    fn drop(&mut self) {
        self.shared.turns.close();
        drop(self.shared.mailbox.close(TaskEnd::Died));
        if let Some(journal) = &mut self.journal {
            journal.abandon(&mut self.task);
        }
        self.shared.over.close();
    }
}
