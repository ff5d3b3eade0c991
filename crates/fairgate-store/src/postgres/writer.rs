//! The task that brings rows from the [`Spool`] into the database, in order and by the hundred.
//!
//! Rows are acknowledged by the spool before they come here. While the server is away they stay there, and are tried again
//! until it is back; nobody waits for that. A row is written once however often it is tried, so a batch whose fate is unknown
//! is simply tried again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use tokio::time::{Instant, timeout, timeout_at};

use super::ledger;
use super::link::{Link, in_time};
use super::trouble::Trouble;
use crate::error::StoreError;
use crate::ledger::Attempt;
use crate::spool::{MANY, Row, Spool};
use crate::throttle::Throttle;

type Result<T> = std::result::Result<T, Trouble>;

/// Where an answer goes. That nobody waits for it any more does not undo what was asked.
pub(super) type Reply<T> = oneshot::Sender<std::result::Result<T, StoreError>>;

/// How many rows one transaction takes.
const BATCH_MAX: usize = 1_024;
/// How long rows are collected before they are written.
const COLLECT: Duration = Duration::from_millis(10);
/// How often a batch is tried at once that others were in the way of.
const CONFLICTS_MAX: u32 = 5;
/// How long after a failure the rows are tried again, at the latest.
const AGAIN: Duration = Duration::from_secs(1);
/// How long the last rows may take when the store closes; those that it takes longer for are left to the next process.
const LAST_ROWS: Duration = Duration::from_secs(3);

/// What the task is asked.
pub(super) enum Command {
    /// There are rows in the spool, or many of them.
    Rows,
    /// Answered once all rows of the spool are in the database, or at the next failure.
    Flush(Reply<()>),
    /// A row that is not in the spool, and its place among those that may be pending.
    Record(Box<Attempt>, OwnedSemaphorePermit, Reply<()>),
    Close(Reply<()>),
}

/// The task.
pub(super) struct Writer {
    link: Link,
    spool: Arc<Spool>,
    /// Rows that were taken from the spool: more than none only after a failure.
    rows: Vec<Row>,
    /// Rows that are not in the spool, with whoever waits for them.
    loose: Vec<Loose>,
    /// Those who wait until so many rows of the spool are in the database.
    flushers: Vec<(u64, Reply<()>)>,
    /// Whether the last transaction failed.
    failing: Arc<AtomicBool>,
    complaints: Throttle<&'static str>,
}

struct Loose {
    attempt: Box<Attempt>,
    /// None once it was told that the row is not safe yet.
    reply: Option<Reply<()>>,
    _turn: OwnedSemaphorePermit,
}

impl Writer {
    pub(super) fn new(link: Link, spool: Arc<Spool>, failing: Arc<AtomicBool>) -> Self {
        Self {
            link,
            spool,
            rows: Vec::new(),
            loose: Vec::new(),
            flushers: Vec::new(),
            failing,
            complaints: Throttle::default(),
        }
    }

    /// Brings in what an earlier process left; an error where that does not work at once.
    pub(super) async fn bring_in(&mut self) -> std::result::Result<(), StoreError> {
        while self.spool.waiting() > 0 {
            self.take_rows()?;
            self.write().await?;
        }
        Ok(())
    }

    /// Writes until it is told to close, or until nobody is left who could ask.
    pub(super) async fn run(mut self, mut inbox: mpsc::UnboundedReceiver<Command>) {
        let mut closer = None;
        while self.next(&mut inbox, &mut closer).await && closer.is_none() {
            self.round().await;
        }
        self.end(&mut inbox).await;
        drop(inbox);
        drop(self);
        if let Some(reply) = closer {
            let _ = reply.send(Ok(()));
        }
    }

    /// Waits for something to do; false where there will never be anything.
    async fn next(
        &mut self,
        inbox: &mut mpsc::UnboundedReceiver<Command>,
        closer: &mut Option<Reply<()>>,
    ) -> bool {
        let is_failing = self.failing.load(Ordering::Relaxed);
        if is_failing {
            let until = self.link.next_attempt().max(Instant::now() + AGAIN / 4);
            let until = until.min(Instant::now() + AGAIN);
            // Whoever asks in the meantime waits for the next attempt.
            while let Ok(command) = timeout_at(until, inbox.recv()).await {
                let Some(command) = command else { return false };
                self.accept(command, closer);
                if closer.is_some() {
                    return true;
                }
            }
            return true;
        }
        if self.spool.waiting() == 0 && self.loose.is_empty() {
            let Some(command) = inbox.recv().await else { return false };
            self.accept(command, closer);
        }
        let until = Instant::now() + COLLECT;
        while self.may_collect()
            && closer.is_none()
            && let Ok(Some(command)) = timeout_at(until, inbox.recv()).await
        {
            self.accept(command, closer);
        }
        while let Ok(command) = inbox.try_recv() {
            self.accept(command, closer);
        }
        true
    }

    /// Whether nobody waits, and a fuller batch is worth a moment.
    fn may_collect(&self) -> bool {
        self.flushers.is_empty() && self.loose.is_empty() && self.spool.waiting() < MANY
    }

    fn accept(&mut self, command: Command, closer: &mut Option<Reply<()>>) {
        match command {
            Command::Rows => {}
            Command::Flush(reply) => self.flushers.push((self.spool.put_so_far(), reply)),
            Command::Record(attempt, turn, reply) => {
                self.loose.push(Loose { attempt, reply: Some(reply), _turn: turn });
            }
            Command::Close(reply) => *closer = Some(reply),
        }
    }

    /// One transaction, and everybody who waits for it is told.
    async fn round(&mut self) {
        let outcome = match self.take_rows() {
            Ok(()) => self.write().await.map_err(StoreError::from),
            Err(error) => Err(error),
        };
        self.failing.store(outcome.is_err(), Ordering::Relaxed);
        let Err(error) = outcome else {
            let spool = &self.spool;
            for (_, reply) in self.flushers.extract_if(.., |(rows, _)| spool.has_written(*rows)) {
                let _ = reply.send(Ok(()));
            }
            return;
        };
        self.complain(&error);
        let problem = error.to_string();
        let waiting = self.loose.iter_mut().filter_map(|loose| loose.reply.take());
        for reply in waiting.chain(self.flushers.drain(..).map(|(_, reply)| reply)) {
            let _ = reply.send(Err(StoreError::Database(problem.clone())));
        }
    }

    fn take_rows(&mut self) -> std::result::Result<(), StoreError> {
        let unreadable = |problem| {
            StoreError::Database(format!(
                "rows on their way to PostgreSQL cannot be read: {problem}"
            ))
        };
        self.spool.take(&mut self.rows, BATCH_MAX).map_err(unreadable)
    }

    /// Says that rows wait, and brings them to the disk: they may be the only copy for long.
    fn complain(&self, error: &StoreError) {
        let unsynced = self.spool.sync().err();
        let Some(left_out) = self.complaints.admit("write", Instant::now()) else { return };
        let rows_waiting = self.spool.ahead();
        tracing::error!(
            %error,
            rows_waiting,
            rows_in_memory = self.loose.len(),
            left_out,
            "rows cannot be brought to PostgreSQL; they are kept and tried again"
        );
        if let Some(problem) = unsynced {
            tracing::error!(%problem, "rows on their way to PostgreSQL could not be synced");
        }
    }

    /// Writes what was taken. What PostgreSQL refuses for what is in it is kept aside, so that it holds up nothing else.
    async fn write(&mut self) -> Result<()> {
        let spooled = self.rows.iter().map(|row| &*row.attempt);
        let attempts: Vec<_> =
            spooled.chain(self.loose.iter().map(|loose| &*loose.attempt)).collect();
        let outcome = write(&mut self.link, &attempts).await;
        if attempts.len() > 1 && matches!(outcome, Err(Trouble::Refused(_))) {
            return self.write_one_by_one().await;
        }
        outcome?;
        self.spool.written(std::mem::take(&mut self.rows));
        for loose in self.loose.drain(..) {
            loose.confirm();
        }
        Ok(())
    }

    /// One of several rows is to blame, or the database refuses all of them: then all are kept.
    async fn write_one_by_one(&mut self) -> Result<()> {
        let (mut refused, mut is_any_written) = (Vec::new(), false);
        for row in std::mem::take(&mut self.rows) {
            match write(&mut self.link, &[&row.attempt]).await {
                Ok(()) => {
                    is_any_written = true;
                    self.spool.written(vec![row]);
                }
                Err(trouble) => refused.push((row, trouble)),
            }
        }
        let mut kept = Vec::new();
        for loose in std::mem::take(&mut self.loose) {
            match write(&mut self.link, &[&loose.attempt]).await {
                Ok(()) => {
                    is_any_written = true;
                    loose.confirm();
                }
                Err(_) => kept.push(loose),
            }
        }
        self.loose = kept;
        let mut last = Ok(());
        for (row, trouble) in refused {
            let is_to_blame = is_any_written && matches!(trouble, Trouble::Refused(_));
            match is_to_blame.then(|| self.spool.refuse(&row.attempt)) {
                Some(Ok(file)) => {
                    let (request, error) = (&row.attempt.request, StoreError::from(trouble));
                    tracing::error!(
                        %request,
                        %error,
                        file = %file.display(),
                        "PostgreSQL refuses a row; it was kept aside and is not in the ledger"
                    );
                    self.spool.written(vec![row]);
                }
                _ => {
                    self.rows.push(row);
                    last = Err(trouble);
                }
            }
        }
        last
    }

    /// Writes what it can in a bounded time. What is left in the files is for the next process.
    async fn end(&mut self, inbox: &mut mpsc::UnboundedReceiver<Command>) {
        inbox.close();
        self.spool.stop();
        while let Ok(command) = inbox.try_recv() {
            self.accept(command, &mut None);
        }
        let last_rows = timeout(LAST_ROWS, async {
            loop {
                self.round().await;
                let is_done = self.spool.ahead() == 0 && self.loose.is_empty();
                if is_done || self.failing.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
        let _ = last_rows.await;
        let kept = self.spool.close();
        if kept > 0 || !self.loose.is_empty() {
            tracing::error!(
                rows_kept = kept,
                rows_lost = self.loose.len(),
                "PostgreSQL took no more rows; those in the folder `store.spool` are for the next start"
            );
        }
    }
}

impl Loose {
    /// It is in the database.
    fn confirm(mut self) {
        if let Some(reply) = self.reply.take() {
            let _ = reply.send(Ok(()));
        }
    }
}

async fn write(link: &mut Link, attempts: &[&Attempt]) -> Result<()> {
    if attempts.is_empty() {
        return Ok(());
    }
    let mut conflicts = 0;
    loop {
        match once(link, attempts).await {
            Err(Trouble::Conflict(_)) if conflicts < CONFLICTS_MAX => conflicts += 1,
            // A connection that broke, as in a restart, may be had anew at once.
            Err(Trouble::Link(_)) if conflicts == 0 && link.next_attempt() <= Instant::now() => {
                conflicts += 1;
            }
            outcome => return outcome,
        }
    }
}

async fn once(link: &mut Link, attempts: &[&Attempt]) -> Result<()> {
    let mut session = link.take().await?;
    let outcome = in_time(ledger::transact(&mut session, attempts)).await;
    link.give_back(session, &outcome).await;
    outcome
}
