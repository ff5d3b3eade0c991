//! The only thread that writes to SQLite. All rows and commands that are pending when the thread is
//! free are written in one transaction (group commit), and callers are answered after the commit.
//!
//! The [`Spool`] acknowledges rows before they come here, so the writer may wait a short time for
//! more rows. It does not wait while a caller needs an answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use fairgate_time::UnixMicros;
use rusqlite::Connection;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::CheckpointThread;
use super::batch::{HeldReservations, SqliteBatch};
use super::durability::SqliteDurability;
use super::queries;
use crate::budget::{ReservationGrant, ReservationRefused};
use crate::directory::{DirectoryChange, DirectoryChangeResult};
use crate::error::StoreError;
use crate::key_uses::KeyUseLog;
use crate::ledger::{AttemptRow, Reservation, ResolvedReservations};
use crate::log_throttle::LogThrottle;
use crate::pending_permits::PendingPermits;
use crate::private_files::FileLock;
use crate::spool::{Spool, SpooledRow, WAKE_ROWS};
use crate::transaction::{TransactionDurability, TransactionJob};

type Result<T> = std::result::Result<T, StoreError>;

/// Channel for the result of a command. The command is executed even if the receiver is gone.
pub(super) type Reply<T> = oneshot::Sender<Result<T>>;

/// Maximum number of commands in one transaction.
const BATCH_MAX: usize = 1_024;
/// Maximum number of rows in one transaction.
const ROWS_MAX: usize = 4_096;
/// Time for which rows are collected before a transaction writes them. They are safe in the spool, and any command ends
/// the wait. Each transaction also writes the sums of its rows and commits, so at some hundred rows a second, a fifth of
/// this time would cost a quarter more for each row.
const COLLECT: Duration = Duration::from_millis(100);
/// Number of rows after which the thread yields its core to other threads, because requests wait for the core and
/// nobody waits for these rows. This lowers the gateway's p99 by a tenth, at a fifth of its maximum load on two cores.
const ROWS_PER_YIELD: usize = 4;
/// Maximum pause after a failure, before the remaining rows are retried.
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(1);
/// Maximum wait, when the store closes, for commands of callers that hold a permit. Such commands
/// arrive within microseconds.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Command to the writer, and its permit.
pub(super) struct QueuedCommand {
    pub(super) command: SqliteCommand,
    pub(super) turn: Option<OwnedSemaphorePermit>,
}

/// Commands to the [`SqliteWriter`].
pub(super) enum SqliteCommand {
    /// Wakes the writer. Sent when the first row starts to wait in the spool, and again when many rows wait.
    Rows,
    /// Requests an answer once all rows that are now in the spool are in the database.
    Flush(Reply<()>),
    /// Writes a row that could not be written to the spool.
    Record(Box<AttemptRow>, Reply<()>),
    Reserve(Box<Reservation>, Reply<std::result::Result<ReservationGrant, ReservationRefused>>),
    Change(Box<(String, UnixMicros, DirectoryChange)>, Reply<DirectoryChangeResult>),
    Prune(UnixMicros, Reply<u64>),
    /// Runs a caller's transaction.
    Transact(Box<dyn TransactionJob>),
    /// Reads on the writer's connection, between transactions. This is the only way to read a database in memory.
    Read(Box<dyn FnOnce(&Connection) + Send>),
    Close(Reply<()>),
}

/// Result of a command, which is sent to the caller after the commit.
enum SqliteAnswer {
    Done,
    Reserved(std::result::Result<ReservationGrant, ReservationRefused>),
    Changed(Box<Result<DirectoryChangeResult>>),
    Pruned(u64),
}

pub(super) struct SqliteWriter {
    connection: Connection,
    held: HeldReservations,
    /// True if `held` must be read from the database again, because a transaction failed.
    stale: bool,
    /// Ids of requests whose reservation was made after the caller had left. These reservations must be released.
    orphans: Vec<String>,
    /// Durability to which the connection is set now.
    durability: SqliteDurability,
    /// Spool from which rows are taken; `None` for a database in memory.
    spool: Option<Arc<Spool>>,
    /// Acknowledged rows that are not written yet. Empty between transactions, except after a
    /// failure.
    rows: Vec<SpooledRow>,
    /// Rows that could not be written to the spool, each with its permit.
    unspooled: Vec<(Box<AttemptRow>, Option<OwnedSemaphorePermit>)>,
    /// True if the spool had more rows than fit into one transaction.
    more: bool,
    key_uses: KeyUseLog,
    log_throttle: LogThrottle<&'static str>,
    permits: PendingPermits,
    /// True if the last transaction failed. This flag is shared with the store's handle.
    failing: Arc<AtomicBool>,
    _lock: Option<FileLock>,
}

/// Closes the spool when the writer ends for any reason. After that, no row is written to files
/// that another process may already own.
impl Drop for SqliteWriter {
    fn drop(&mut self) {
        self.permits.close();
        if let Some(spool) = &self.spool {
            spool.close();
        }
    }
}

impl SqliteWriter {
    /// Creates the writer of a database. Writes the rows that an earlier process had acknowledged,
    /// and resolves the reservations of that process.
    pub(super) fn new(
        connection: Connection,
        spool: Option<Arc<Spool>>,
        turns: PendingPermits,
        failing: Arc<AtomicBool>,
        lock: Option<FileLock>,
    ) -> Result<(Self, ResolvedReservations)> {
        let mut held = read_reservations(&connection)?;
        if let Some(spool) = &spool {
            write_leftover_rows(&connection, &mut held, spool)?;
        }
        let mut batch = SqliteBatch::begin(&connection, &mut held)?;
        let resolved = batch.resolve()?;
        batch.commit()?;
        let writer = Self {
            connection,
            held,
            stale: false,
            orphans: Vec::new(),
            durability: SqliteDurability::Kill,
            spool,
            rows: Vec::new(),
            unspooled: Vec::new(),
            more: false,
            key_uses: KeyUseLog::default(),
            log_throttle: LogThrottle::default(),
            permits: turns,
            failing,
            _lock: lock,
        };
        Ok((writer, resolved))
    }

    /// Writes until a close command arrives, or until all senders of `inbox` are gone. Then stops the thread that makes
    /// checkpoints.
    pub(super) fn run(
        mut self,
        inbox: &Receiver<QueuedCommand>,
        checkpointer: Option<CheckpointThread>,
    ) {
        let mut closers = Vec::new();
        while closers.is_empty() {
            let Some(asked) = self.next(inbox) else { break };
            self.serve(asked, &mut closers);
        }
        // Callers that hold a permit still get their result; no further permits are given out.
        self.permits.close();
        if let Some(spool) = &self.spool {
            spool.stop();
        }
        let deadline = Instant::now() + CLOSE_TIMEOUT;
        loop {
            let asked = inbox.recv_timeout(Duration::from_millis(1)).ok();
            self.serve(asked.into_iter().collect(), &mut closers);
            let is_idle = self.orphans.is_empty() && !self.more;
            let is_done = self.permits.taken() <= self.unspooled.len() && (is_idle || self.stale);
            if is_done || Instant::now() > deadline {
                break;
            }
        }
        // The files must be closed before the caller gets the answer.
        if let Some(checkpointer) = checkpointer {
            checkpointer.end();
        }
        let kept = self.spool.as_ref().map_or(0, |spool| spool.close());
        let lost = self.unspooled.len();
        if kept > 0 || lost > 0 {
            tracing::error!(
                rows_beside = kept,
                rows_lost = lost,
                "the database took no more rows; those beside it, in the files -rows-0 and so on, are for the next start"
            );
        }
        drop(self);
        for reply in closers {
            let _ = reply.send(Ok(()));
        }
    }

    /// Waits for the next commands. Returns `None` when all senders of `inbox` are gone.
    fn next(&self, inbox: &Receiver<QueuedCommand>) -> Option<Vec<QueuedCommand>> {
        let is_idle = self.rows.is_empty() && self.unspooled.is_empty() && self.orphans.is_empty();
        let first = if is_idle && !self.more {
            Some(inbox.recv().ok()?)
        } else {
            // Orphans are released and remaining rows are written at once. After a failure,
            // everything is retried with the next command.
            let patience = if self.stale { RETRY_PAUSE_MAX } else { Duration::ZERO };
            match self.recv_until(inbox, Instant::now() + patience) {
                Ok(asked) => Some(asked),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        };
        let mut asked = Vec::new();
        if let Some(first) = first {
            let only_rows = matches!(first.command, SqliteCommand::Rows);
            asked.push(first);
            if only_rows {
                asked.extend(self.collect(inbox));
            }
            asked.extend(inbox.try_iter().take(BATCH_MAX));
        }
        Some(asked)
    }

    /// Waits for a command until `until`. Commands that only announce new rows are ignored, so that they do not trigger
    /// a retry on a database that has just failed.
    fn recv_until(
        &self,
        inbox: &Receiver<QueuedCommand>,
        until: Instant,
    ) -> std::result::Result<QueuedCommand, RecvTimeoutError> {
        loop {
            let asked = inbox.recv_timeout(until.saturating_duration_since(Instant::now()))?;
            if !self.stale || !matches!(asked.command, SqliteCommand::Rows) {
                return Ok(asked);
            }
        }
    }

    /// Waits while rows collect in the spool, until there are many or a command arrives that cannot wait. Returns that
    /// command.
    fn collect(&self, inbox: &Receiver<QueuedCommand>) -> Option<QueuedCommand> {
        let until = Instant::now() + COLLECT;
        loop {
            let asked = inbox.recv_timeout(until.saturating_duration_since(Instant::now())).ok()?;
            let waiting = self.spool.as_ref().map_or(0, |spool| spool.waiting());
            if !matches!(asked.command, SqliteCommand::Rows) || waiting >= WAKE_ROWS {
                return Some(asked);
            }
        }
    }

    fn serve(&mut self, asked: Vec<QueuedCommand>, closers: &mut Vec<Reply<()>>) {
        let mut turns = Vec::with_capacity(asked.len());
        let mut reads = Vec::new();
        let mut recorders = Vec::new();
        let mut writes = Vec::with_capacity(asked.len());
        for QueuedCommand { command, turn } in asked {
            match command {
                // From here on the row is kept until the database accepts it, even if its caller gets an error.
                SqliteCommand::Record(attempt, reply) => {
                    self.unspooled.push((attempt, turn));
                    recorders.push(reply);
                    continue;
                }
                SqliteCommand::Rows => {}
                SqliteCommand::Read(read) => reads.push(read),
                SqliteCommand::Close(reply) => closers.push(reply),
                write => writes.push(write),
            }
            turns.push(turn);
        }
        self.take_rows();
        let must_all_be_in = writes.iter().any(|write| matches!(write, SqliteCommand::Flush(_)));
        while must_all_be_in && self.more && self.write(Vec::new()).is_ok() {
            self.take_rows();
        }
        let written = self.write(writes);
        for reply in recorders {
            let _ = reply.send(written.clone().map_err(StoreError::Database));
        }
        reads.into_iter().for_each(|read| read(&self.connection));
    }

    /// Takes rows from the spool, up to the limit of one transaction.
    fn take_rows(&mut self) {
        let Some(spool) = &self.spool else { return };
        if let Err(problem) = spool.take(&mut self.rows, ROWS_MAX) {
            // The read is retried later, like everything that fails.
            self.stale = true;
            if let Some(left_out) = self.log_throttle.admit("read", tokio::time::Instant::now()) {
                tracing::error!(%problem, left_out, "rows beside the database cannot be read");
            }
        }
        self.more = spool.waiting() > 0;
    }

    /// Writes the waiting rows and runs the commands in one transaction. Returns the text of the error on failure.
    fn write(&mut self, mut commands: Vec<SqliteCommand>) -> std::result::Result<(), String> {
        let orphans = std::mem::take(&mut self.orphans);
        let has_rows = !self.rows.is_empty() || !self.unspooled.is_empty();
        if commands.is_empty() && orphans.is_empty() && !has_rows {
            return Ok(());
        }
        let answers = self.transact(&mut commands, &orphans);
        self.failing.store(answers.is_err(), Ordering::Relaxed);
        match answers {
            Ok(answers) => {
                self.unspooled.clear();
                let rows = std::mem::take(&mut self.rows);
                if let Some(spool) = &self.spool {
                    spool.mark_written(rows);
                }
                for (command, answer) in commands.into_iter().zip(answers) {
                    self.answer(command, answer);
                }
                Ok(())
            }
            Err(problem) => {
                self.stale = true;
                self.orphans = orphans;
                self.roll_back();
                self.log_failure(&problem, commands.len());
                commands.into_iter().for_each(|command| refuse(command, problem.repeated()));
                Err(problem.to_string())
            }
        }
    }

    /// Logs that the database accepts nothing, and syncs the spool to disk, because the spool may
    /// have the only copy of the rows for a long time.
    fn log_failure(&self, problem: &StoreError, commands_failed: usize) {
        let unsynced = self.spool.as_ref().and_then(|spool| spool.sync().err());
        let Some(left_out) = self.log_throttle.admit("write", tokio::time::Instant::now()) else {
            return;
        };
        let rows_beside = self.spool.as_ref().map_or(0, |spool| spool.pending_rows());
        let rows_in_memory = self.unspooled.len();
        tracing::error!(
            %problem,
            commands_failed,
            rows_beside,
            rows_in_memory,
            left_out,
            "the store could not write; rows are kept and tried again"
        );
        if let Some(problem) = unsynced {
            tracing::error!(%problem, "rows beside the database could not be synced");
        }
    }

    /// Rolls back a failed transaction, unless SQLite has done so already.
    fn roll_back(&self) {
        if !self.connection.is_autocommit()
            && let Err(problem) = self.connection.execute_batch("ROLLBACK")
        {
            tracing::error!(%problem, "the store could not roll back");
        }
    }

    fn transact(
        &mut self,
        commands: &mut [SqliteCommand],
        orphans: &[String],
    ) -> Result<Vec<SqliteAnswer>> {
        if self.stale {
            self.roll_back();
            self.held = read_reservations(&self.connection)?;
            self.stale = false;
        }
        self.make_durable(commands)?;
        let mut batch = SqliteBatch::begin(&self.connection, &mut self.held)?;
        orphans.iter().try_for_each(|request| batch.release(request))?;
        for some in self.rows.chunks(ROWS_PER_YIELD) {
            some.iter().try_for_each(|row| batch.record(&row.attempt))?;
            std::thread::yield_now();
        }
        self.unspooled.iter().try_for_each(|(attempt, _)| batch.record(attempt))?;
        let spooled = self.rows.iter().map(|row| &*row.attempt);
        let loose = self.unspooled.iter().map(|(attempt, _)| &**attempt);
        let key_uses = self.key_uses.due(spooled.chain(loose));
        batch.put_key_uses(&key_uses)?;
        let answers = commands.iter_mut().map(|command| apply(&mut batch, command)).collect();
        let answers: Result<Vec<_>> = answers;
        let answers = answers?;
        batch.commit()?;
        self.key_uses.note_written(key_uses);
        Ok(answers)
    }

    /// Sets the durability of the next transaction to the one that these commands need.
    fn make_durable(&mut self, commands: &[SqliteCommand]) -> Result<()> {
        let must_sync = |command: &SqliteCommand| match command {
            SqliteCommand::Change(..) => true,
            SqliteCommand::Transact(job) => job.keep() == TransactionDurability::ThroughPowerLoss,
            _ => false,
        };
        let durability = match commands.iter().any(must_sync) {
            true => SqliteDurability::PowerLoss,
            false => SqliteDurability::Kill,
        };
        if durability != self.durability {
            durability.set(&self.connection)?;
            self.durability = durability;
        }
        Ok(())
    }

    fn answer(&mut self, command: SqliteCommand, answer: SqliteAnswer) {
        match (command, answer) {
            (SqliteCommand::Record(_, reply) | SqliteCommand::Flush(reply), SqliteAnswer::Done) => {
                drop(reply.send(Ok(())))
            }
            (SqliteCommand::Reserve(reservation, reply), SqliteAnswer::Reserved(reserved)) => {
                let held = reserved.is_ok();
                if reply.send(Ok(reserved)).is_err() && held {
                    self.orphans.push(reservation.request);
                }
            }
            (SqliteCommand::Change(_, reply), SqliteAnswer::Changed(changed)) => {
                drop(reply.send(*changed))
            }
            (SqliteCommand::Prune(_, reply), SqliteAnswer::Pruned(rows)) => {
                drop(reply.send(Ok(rows)))
            }
            (SqliteCommand::Transact(job), SqliteAnswer::Done) => job.answer(Ok(())),
            // `apply` gives each command its own kind of answer.
            (command, _) => {
                let problem = "internal: an answer to another question".to_owned();
                refuse(command, StoreError::Database(problem));
            }
        }
    }
}

/// Writes the rows that an earlier process left in the spool, in batches.
fn write_leftover_rows(
    connection: &Connection,
    held: &mut HeldReservations,
    spool: &Spool,
) -> Result<()> {
    let unreadable =
        |problem| StoreError::Database(format!("the rows beside it cannot be read: {problem}"));
    loop {
        let mut rows = Vec::new();
        spool.take(&mut rows, ROWS_MAX).map_err(unreadable)?;
        if rows.is_empty() {
            return Ok(());
        }
        let mut batch = SqliteBatch::begin(connection, held)?;
        rows.iter().try_for_each(|row| batch.record(&row.attempt))?;
        batch.commit()?;
        spool.mark_written(rows);
    }
}

fn read_reservations(connection: &Connection) -> Result<HeldReservations> {
    let reservations = queries::reservations(connection)?;
    Ok(reservations.into_iter().map(|held| (held.request.clone(), held)).collect())
}

fn apply<'a>(batch: &mut SqliteBatch<'a>, command: &'a mut SqliteCommand) -> Result<SqliteAnswer> {
    Ok(match command {
        // The caller has left. Its last row may already be in this transaction, and then nothing
        // would end the reservation.
        SqliteCommand::Reserve(_, reply) if reply.is_closed() => SqliteAnswer::Done,
        SqliteCommand::Reserve(reservation, _) => {
            SqliteAnswer::Reserved(batch.reserve(reservation)?)
        }
        SqliteCommand::Change(asked, _) => {
            let (actor, at, change) = &**asked;
            SqliteAnswer::Changed(Box::new(batch.change(actor, *at, change)?))
        }
        SqliteCommand::Prune(before, _) => SqliteAnswer::Pruned(batch.prune(*before)?),
        SqliteCommand::Transact(job) => {
            batch.transact(&mut **job)?;
            SqliteAnswer::Done
        }
        SqliteCommand::Rows
        | SqliteCommand::Flush(_)
        | SqliteCommand::Record(..)
        | SqliteCommand::Read(_)
        | SqliteCommand::Close(_) => SqliteAnswer::Done,
    })
}

/// Answers a command with an error.
fn refuse(command: SqliteCommand, problem: StoreError) {
    match command {
        SqliteCommand::Record(_, reply)
        | SqliteCommand::Flush(reply)
        | SqliteCommand::Close(reply) => {
            drop(reply.send(Err(problem)));
        }
        SqliteCommand::Reserve(_, reply) => drop(reply.send(Err(problem))),
        SqliteCommand::Change(_, reply) => drop(reply.send(Err(problem))),
        SqliteCommand::Prune(_, reply) => drop(reply.send(Err(problem))),
        SqliteCommand::Transact(job) => job.answer(Err(problem)),
        SqliteCommand::Rows | SqliteCommand::Read(_) => {}
    }
}
