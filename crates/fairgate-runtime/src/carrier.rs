//! The task that owns a pool: it reads the letters, keeps the time and carries what the pool decides.

use std::collections::VecDeque;
use std::sync::Arc;

use fairgate_core::units::Micros;
use tokio::time::Instant;

use crate::clock::Clock;
use crate::desk::Desk;
use crate::gate::Shared;
use crate::journal::Journal;
use crate::live::{Drained, Live};
use crate::mailbox::Ended;
use crate::message::Message;
use crate::state::Keeper;

/// The task's own things.
pub(crate) struct Carrier {
    pub(crate) desk: Desk,
    pub(crate) shared: Arc<Shared>,
    pub(crate) clock: Clock,
    pub(crate) journal: Option<Journal>,
    pub(crate) keeper: Option<Keeper>,
    pub(crate) drain: Option<Drain>,
}

/// A gate that closes.
#[derive(Default)]
pub(crate) struct Drain {
    until: Option<Instant>,
}

impl Carrier {
    /// Runs until the gate is drained.
    pub(crate) async fn run(mut self) {
        let mut batch = VecDeque::new();
        while !self.is_over() {
            self.wait().await;
            self.shared.mailbox.take(&mut batch);
            if let Some(journal) = &mut self.journal {
                journal.look(&mut self.desk);
            }
            self.handle_all(&mut batch);
            self.desk.pass_time(self.now());
            self.keep_records().await;
            tokio::task::coop::consume_budget().await;
        }
        self.finish(batch).await;
    }

    fn now(&self) -> Micros {
        self.clock.now()
    }

    fn handle_all(&mut self, batch: &mut VecDeque<Message>) {
        while let Some(message) = batch.pop_front() {
            if message.has_turn() {
                self.shared.turns.add_permits(1);
            }
            let now = self.now();
            match message {
                Message::Drain { until } => self.begin_drain(now, until),
                message => self.desk.handle(now, message),
            }
        }
    }

    fn begin_drain(&mut self, now: Micros, until: Option<Instant>) {
        self.desk.begin_drain(now);
        let drain = self.drain.get_or_insert_default();
        drain.until = drain.until.into_iter().chain(until).min();
    }

    fn is_over(&self) -> bool {
        let Some(drain) = &self.drain else { return false };
        let late = drain.until.is_some_and(|until| until <= Instant::now());
        late || self.desk.pool().in_flight() == 0
    }

    /// Waits for a letter, or for the next thing that is to be done at some time.
    async fn wait(&mut self) {
        let filled = self.shared.mailbox.filled();
        match self.next_wake() {
            Some(at) => {
                let _ = tokio::time::timeout_at(at, filled).await;
            }
            None => filled.await,
        }
    }

    fn next_wake(&self) -> Option<Instant> {
        let change = self.desk.pool().next_change().map(|at| self.clock.instant(at));
        let deadline = self.drain.as_ref().and_then(|drain| drain.until);
        let journal = self.journal.as_ref().and_then(Journal::next_try);
        let save = self.keeper.as_ref().and_then(|keeper| keeper.next_save(&self.desk));
        [change, deadline, journal, save].into_iter().flatten().min()
    }

    /// Passes on what has happened to the journal and, where it is time, to the state file.
    async fn keep_records(&mut self) {
        if let Some(journal) = &mut self.journal {
            journal.pass_on(&mut self.desk).await;
        } else {
            self.desk.tape.take();
        }
        if let Some(keeper) = &mut self.keeper {
            keeper.save_when_due(&mut self.desk);
        }
    }

    /// What was sent until the mailbox closed still counts; then the records end.
    async fn finish(mut self, mut batch: VecDeque<Message>) {
        batch.extend(self.shared.mailbox.close(Ended::Drained));
        self.shared.turns.close();
        self.handle_all(&mut batch);
        self.keep_records().await;
        if let Some(journal) = self.journal.take() {
            journal.finish(&mut self.desk).await;
        }
        if let Some(keeper) = self.keeper.take() {
            keeper.finish(&mut self.desk).await;
        }
        let Live { in_flight, journal, state, .. } = self.desk.live();
        let _ = self.shared.outcome.set(Drained { still_in_flight: in_flight, journal, state });
    }
}

impl Drop for Carrier {
    /// However the task ends, nobody goes on waiting for it.
    fn drop(&mut self) {
        self.shared.turns.close();
        drop(self.shared.mailbox.close(Ended::Died));
        if let Some(journal) = &mut self.journal {
            journal.abandon(&mut self.desk);
        }
        self.shared.over.close();
    }
}
