//! The async task that moves rows from the [`Spool`] to the database, in order and hundreds at a
//! time.
//!
//! The spool acknowledges rows before they come here. While the server does not answer, the rows
//! stay in the spool and are retried, and no request waits for that. Writing a row again has no
//! effect. So a batch is simply retried if it is not known whether it was committed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fairgate_time::UnixMicros;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use tokio::time::{Instant, timeout, timeout_at};

use super::connection::{PostgresConnection, with_answer_timeout};
use super::error::PostgresError;
use super::ledger;
use crate::error::StoreError;
use crate::key_uses::KeyUseLog;
use crate::ledger::AttemptRow;
use crate::log_throttle::LogThrottle;
use crate::spool::{Spool, SpooledRow, WAKE_ROWS};

type Result<T> = std::result::Result<T, PostgresError>;

/// Channel for the result of a command. The command is executed even if the receiver is gone.
pub(super) type Reply<T> = oneshot::Sender<std::result::Result<T, StoreError>>;

/// Maximum number of rows from the spool in one transaction.
const BATCH_MAX: usize = 1_024;
/// Time for which rows are collected before a transaction writes them.
const COLLECT: Duration = Duration::from_millis(10);
/// Maximum number of immediate retries of a batch after conflicts with other transactions.
const CONFLICTS_MAX: u32 = 5;
/// Maximum pause after a failure, before rows are retried.
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(1);
/// Maximum time to write the last rows when the store closes. The next process writes the remaining
/// rows.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);

/// Commands to the [`PostgresWriter`].
pub(super) enum PostgresWriterCommand {
    /// Wakes the writer. Sent when the first row starts to wait in the spool, and again when many rows wait.
    Rows,
    /// Requests an answer once all rows that are now in the spool are in the database, or at the
    /// next failure.
    Flush(Reply<()>),
    /// A row that is not in the spool, and its permit.
    Record(Box<AttemptRow>, OwnedSemaphorePermit, Reply<()>),
    Close(Reply<()>),
}

/// State of the async task that writes rows.
pub(super) struct PostgresWriter {
    link: PostgresConnection,
    spool: Arc<Spool>,
    /// Rows taken from the spool that are not written yet. Empty between transactions, except after
    /// a failure.
    rows: Vec<SpooledRow>,
    /// Rows that could not be written to the spool, with the channels to their callers.
    unspooled: Vec<UnspooledRow>,
    /// Callers that wait for a flush, each with the number of rows of the spool that must be in the database before the
    /// caller is answered.
    flushers: Vec<(u64, Reply<()>)>,
    /// True if the last transaction failed.
    failing: Arc<AtomicBool>,
    key_uses: KeyUseLog,
    log_throttle: LogThrottle<&'static str>,
}

struct UnspooledRow {
    attempt: Box<AttemptRow>,
    /// Channel to the caller; `None` once the caller has got the answer that the row is not safe
    /// yet.
    reply: Option<Reply<()>>,
    _turn: OwnedSemaphorePermit,
}

impl PostgresWriter {
    pub(super) fn new(
        link: PostgresConnection,
        spool: Arc<Spool>,
        failing: Arc<AtomicBool>,
    ) -> Self {
        Self {
            link,
            spool,
            rows: Vec::new(),
            unspooled: Vec::new(),
            flushers: Vec::new(),
            failing,
            key_uses: KeyUseLog::default(),
            log_throttle: LogThrottle::default(),
        }
    }

    /// Writes the rows that an earlier process left in the spool. Fails at the first error, without retries.
    pub(super) async fn write_leftover_rows(&mut self) -> std::result::Result<(), StoreError> {
        while self.spool.waiting() > 0 {
            self.take_rows()?;
            self.write().await?;
        }
        Ok(())
    }

    /// Writes rows until a close command arrives, or until all senders of `inbox` are gone.
    pub(super) async fn run(mut self, mut inbox: mpsc::UnboundedReceiver<PostgresWriterCommand>) {
        let mut closer = None;
        while self.wait_for_work(&mut inbox, &mut closer).await && closer.is_none() {
            self.write_round().await;
        }
        self.end(&mut inbox).await;
        drop(inbox);
        drop(self);
        if let Some(reply) = closer {
            let _ = reply.send(Ok(()));
        }
    }

    /// Waits for rows or commands. Returns false if no more commands can arrive.
    async fn wait_for_work(
        &mut self,
        inbox: &mut mpsc::UnboundedReceiver<PostgresWriterCommand>,
        closer: &mut Option<Reply<()>>,
    ) -> bool {
        let is_failing = self.failing.load(Ordering::Relaxed);
        if is_failing {
            let until = self.link.next_attempt().max(Instant::now() + RETRY_PAUSE_MAX / 4);
            let until = until.min(Instant::now() + RETRY_PAUSE_MAX);
            // Commands that arrive before then wait for the next attempt.
            while let Ok(command) = timeout_at(until, inbox.recv()).await {
                let Some(command) = command else { return false };
                self.accept(command, closer);
                if closer.is_some() {
                    return true;
                }
            }
            return true;
        }
        if self.spool.waiting() == 0 && self.unspooled.is_empty() {
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

    /// Returns true if no caller waits for an answer and few rows wait, so that the writer may
    /// collect more rows.
    fn may_collect(&self) -> bool {
        self.flushers.is_empty() && self.unspooled.is_empty() && self.spool.waiting() < WAKE_ROWS
    }

    fn accept(&mut self, command: PostgresWriterCommand, closer: &mut Option<Reply<()>>) {
        match command {
            PostgresWriterCommand::Rows => {}
            PostgresWriterCommand::Flush(reply) => {
                self.flushers.push((self.spool.rows_accepted(), reply))
            }
            PostgresWriterCommand::Record(attempt, turn, reply) => {
                self.unspooled.push(UnspooledRow { attempt, reply: Some(reply), _turn: turn });
            }
            PostgresWriterCommand::Close(reply) => *closer = Some(reply),
        }
    }

    /// Runs one transaction, and answers all callers that wait for its rows.
    async fn write_round(&mut self) {
        let outcome = match self.take_rows() {
            Ok(()) => self.write().await.map_err(StoreError::from),
            Err(error) => Err(error),
        };
        self.failing.store(outcome.is_err(), Ordering::Relaxed);
        let Err(error) = outcome else {
            // All rows that were taken are written, so the rows in the database are the oldest
            // ones. If some of them had been kept for the next round, the outcome would be an
            // error, and the flushers would get that error below.
            debug_assert!(self.rows.is_empty());
            let spool = &self.spool;
            for (_, reply) in self.flushers.extract_if(.., |(rows, _)| spool.has_written(*rows)) {
                let _ = reply.send(Ok(()));
            }
            return;
        };
        self.log_failure(&error);
        let problem = error.to_string();
        let waiting = self.unspooled.iter_mut().filter_map(|loose| loose.reply.take());
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

    /// Logs that rows wait, and syncs them to disk, because the files may be the only copy for a
    /// long time.
    fn log_failure(&self, error: &StoreError) {
        let unsynced = self.spool.sync().err();
        let Some(left_out) = self.log_throttle.admit("write", Instant::now()) else { return };
        let rows_waiting = self.spool.pending_rows();
        tracing::error!(
            %error,
            rows_waiting,
            rows_in_memory = self.unspooled.len(),
            left_out,
            "rows cannot be brought to PostgreSQL; they are kept and tried again"
        );
        if let Some(problem) = unsynced {
            tracing::error!(%problem, "rows on their way to PostgreSQL could not be synced");
        }
    }

    /// Writes the rows that were taken from the spool. A row that PostgreSQL rejects because of its
    /// content is put into a separate file, so that it does not block the other rows.
    async fn write(&mut self) -> Result<()> {
        let spooled = self.rows.iter().map(|row| &*row.attempt);
        let attempts: Vec<_> =
            spooled.chain(self.unspooled.iter().map(|loose| &*loose.attempt)).collect();
        let outcome = write(&mut self.link, &attempts).await;
        let key_uses = self.key_uses.due(attempts.iter().copied());
        if attempts.len() > 1 && matches!(outcome, Err(PostgresError::Refused(_))) {
            return self.write_one_by_one().await;
        }
        outcome?;
        self.spool.mark_written(std::mem::take(&mut self.rows));
        for loose in self.unspooled.drain(..) {
            loose.confirm();
        }
        self.write_key_uses(key_uses).await;
        Ok(())
    }

    /// Writes the last uses of keys. After a failure they are written with the keys' next rows.
    async fn write_key_uses(&mut self, uses: Vec<(String, UnixMicros)>) {
        if uses.is_empty() {
            return;
        }
        let Ok(mut session) = self.link.take_session().await else { return };
        let outcome = with_answer_timeout(ledger::put_key_uses(&mut session, &uses)).await;
        self.link.return_session(session, &outcome).await;
        match outcome {
            Ok(()) => self.key_uses.note_written(uses),
            Err(error) => {
                let error = StoreError::from(error);
                tracing::debug!(%error, "the last uses of keys could not be written");
            }
        }
    }

    /// Writes each row in a transaction of its own, after a batch was rejected. If the database
    /// accepts other rows, the rejected rows are put into a separate file. If it rejects every row,
    /// all rows are kept.
    async fn write_one_by_one(&mut self) -> Result<()> {
        let (mut refused, mut is_any_written) = (Vec::new(), false);
        for row in std::mem::take(&mut self.rows) {
            match write(&mut self.link, &[&row.attempt]).await {
                Ok(()) => {
                    is_any_written = true;
                    self.spool.mark_written(vec![row]);
                }
                Err(trouble) => refused.push((row, trouble)),
            }
        }
        let mut kept = Vec::new();
        for loose in std::mem::take(&mut self.unspooled) {
            match write(&mut self.link, &[&loose.attempt]).await {
                Ok(()) => {
                    is_any_written = true;
                    loose.confirm();
                }
                Err(_) => kept.push(loose),
            }
        }
        self.unspooled = kept;
        let mut last = Ok(());
        for (row, trouble) in refused {
            let is_to_blame = is_any_written && matches!(trouble, PostgresError::Refused(_));
            match is_to_blame.then(|| self.spool.set_aside(&row.attempt)) {
                Some(Ok(file)) => {
                    let (request, error) = (&row.attempt.request, StoreError::from(trouble));
                    tracing::error!(
                        %request,
                        %error,
                        file = %file.display(),
                        "PostgreSQL refuses a row; it was kept aside and is not in the ledger"
                    );
                    self.spool.mark_written(vec![row]);
                }
                _ => {
                    self.rows.push(row);
                    last = Err(trouble);
                }
            }
        }
        last
    }

    /// Writes as many of the remaining rows as possible within [`CLOSE_TIMEOUT`]. The next process
    /// writes the rows that are left in the files.
    async fn end(&mut self, inbox: &mut mpsc::UnboundedReceiver<PostgresWriterCommand>) {
        inbox.close();
        self.spool.stop();
        while let Ok(command) = inbox.try_recv() {
            self.accept(command, &mut None);
        }
        let last_rows = timeout(CLOSE_TIMEOUT, async {
            loop {
                self.write_round().await;
                let is_done = self.spool.pending_rows() == 0 && self.unspooled.is_empty();
                if is_done || self.failing.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
        let _ = last_rows.await;
        let kept = self.spool.close();
        if kept > 0 || !self.unspooled.is_empty() {
            tracing::error!(
                rows_kept = kept,
                rows_lost = self.unspooled.len(),
                "PostgreSQL took no more rows; those in the folder `store.spool` are for the next start"
            );
        }
    }
}

impl UnspooledRow {
    /// Sends the caller the answer that the row is in the database.
    fn confirm(mut self) {
        if let Some(reply) = self.reply.take() {
            let _ = reply.send(Ok(()));
        }
    }
}

async fn write(link: &mut PostgresConnection, attempts: &[&AttemptRow]) -> Result<()> {
    if attempts.is_empty() {
        return Ok(());
    }
    let mut conflicts = 0;
    loop {
        match once(link, attempts).await {
            Err(PostgresError::Conflict(_)) if conflicts < CONFLICTS_MAX => conflicts += 1,
            // A broken connection, for example after a restart of the server, may be replaced at
            // once.
            Err(PostgresError::Connection(_))
                if conflicts == 0 && link.next_attempt() <= Instant::now() =>
            {
                conflicts += 1;
            }
            outcome => return outcome,
        }
    }
}

async fn once(link: &mut PostgresConnection, attempts: &[&AttemptRow]) -> Result<()> {
    let mut session = link.take_session().await?;
    let outcome = with_answer_timeout(ledger::transact(&mut session, attempts)).await;
    link.return_session(session, &outcome).await;
    outcome
}
