//! The store on SQLite: one thread that writes, a few connections that read, one process per file.

mod batch;
mod checkpoint;
mod columns;
mod durability;
mod file;
mod queries;
mod writer;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use fairgate_money::Currency;
use fairgate_time::UnixMicros;
use rusqlite::Connection;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::budget::{BudgetBalance, BudgetOwners, ReservationGrant, ReservationRefused};
use crate::directory::{Directory, DirectoryChange, DirectoryChangeResult};
use crate::error::StoreError;
use crate::ledger::{
    AttemptRow, AuditEntry, AuditQuery, LedgerQuery, PriceVersion, Reservation,
    ResolvedReservations, UsageQuery, UsageSums,
};
use crate::log_throttle::LogThrottle;
use crate::pending_permits::PendingPermits;
use crate::rows::RowColumns;
use crate::spool::{RowWriter, Spool, SpoolIntake, SpoolPutError};
use crate::sql;
use crate::store_options::StoreOptions;
use crate::transaction::TransactionJob;
use file::SqliteLocation;
use writer::{QueuedCommand, Reply, SqliteCommand, SqliteWriter};

type Result<T> = std::result::Result<T, StoreError>;

/// Number of read connections. This many queries can run at once.
const READERS: usize = 3;

/// Longest wait for the database when a row could not be written to the spool. Another program may have locked the
/// database.
const DIRECT_WRITE_TIMEOUT: Duration = Duration::from_secs(1);

/// A database on SQLite.
#[derive(Debug)]
pub(crate) struct SqliteStore {
    writer: mpsc::Sender<QueuedCommand>,
    permits: PendingPermits,
    failing: Arc<AtomicBool>,
    /// Spool of the rows that wait for the database; `None` for a database in memory, which has no spool.
    spool: Option<Arc<Spool>>,
    /// Way of rows into the spool; `None` without a spool.
    intake: Option<Arc<SpoolIntake>>,
    log_throttle: LogThrottle<&'static str>,
    readers: Arc<ReadConnections>,
}

/// Channel from the spool's intake to the writer.
struct ToSqliteWriter {
    writer: mpsc::Sender<QueuedCommand>,
    permits: PendingPermits,
}

impl RowWriter for ToSqliteWriter {
    fn wake(&self) {
        // If the writer has ended, the rows stay in their file for the next process.
        let _ = self.writer.send(QueuedCommand { command: SqliteCommand::Rows, turn: None });
    }

    fn keep(&self, attempt: Box<AttemptRow>) {
        if let Some(turn) = self.permits.try_next() {
            let (reply, _) = oneshot::channel();
            let command = SqliteCommand::Record(attempt, reply);
            let _ = self.writer.send(QueuedCommand { command, turn: Some(turn) });
        }
    }
}

/// Read connections, each lent to one query at a time.
#[derive(Debug)]
struct ReadConnections {
    /// Location of the database file; `None` for a database in memory, which has no file to open again.
    place: Option<SqliteLocation>,
    idle: Mutex<Vec<Connection>>,
    permits: Arc<Semaphore>,
}

impl SqliteStore {
    pub(crate) async fn open(
        path: &str,
        options: &StoreOptions,
    ) -> Result<(Self, ResolvedReservations)> {
        let path = path.to_owned();
        let turns = PendingPermits::new(options.pending_max);
        let failing = Arc::new(AtomicBool::new(false));
        let (writer_turns, writer_failing) = (turns.clone(), failing.clone());
        let bounds = options.bounds();
        let opened = move || -> Result<_> {
            let place = SqliteLocation::new(&path)?;
            let lock = place.lock()?;
            let connection = place.writer()?;
            let spool = place.spool(bounds)?.map(Arc::new);
            let (writer, resolved) =
                SqliteWriter::new(connection, spool.clone(), writer_turns, writer_failing, lock)?;
            let checkpointer = place.checkpointer()?;
            Ok((place, writer, spool, checkpointer, resolved))
        };
        let (place, writer, spool, checkpointer, resolved) = blocking(opened).await?;
        let (sender, inbox) = mpsc::channel();
        let checkpointer = checkpointer.map(start_checkpointer).transpose()?;
        thread("fairgate-store", move || writer.run(&inbox, checkpointer))?;
        let place = matches!(place, SqliteLocation::File(_)).then_some(place);
        let readers = ReadConnections {
            place,
            idle: Mutex::default(),
            permits: Arc::new(Semaphore::new(READERS)),
        };
        let (readers, complaints) = (Arc::new(readers), LogThrottle::default());
        let intake = spool.as_ref().map(|spool| {
            let writer = ToSqliteWriter { writer: sender.clone(), permits: turns.clone() };
            SpoolIntake::new(Arc::clone(spool), Box::new(writer))
        });
        Ok((
            Self {
                writer: sender,
                permits: turns,
                failing,
                spool,
                intake,
                log_throttle: complaints,
                readers,
            },
            resolved,
        ))
    }

    /// Sends a command to the writer thread and waits for the result. Once sent, the command is carried out even if the
    /// caller stops waiting.
    async fn ask<T>(&self, command: impl FnOnce(Reply<T>) -> SqliteCommand) -> Result<T> {
        let turn = self.permits.next().await?;
        self.ask_with(Some(turn), command).await
    }

    async fn ask_with<T>(
        &self,
        turn: Option<OwnedSemaphorePermit>,
        command: impl FnOnce(Reply<T>) -> SqliteCommand,
    ) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        let asked = QueuedCommand { command: command(reply), turn };
        self.writer.send(asked).map_err(|_| StoreError::Closed)?;
        answer.await.map_err(|_| StoreError::Closed)?
    }

    async fn read<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        if self.permits.are_closed() {
            return Err(StoreError::Closed);
        }
        if self.readers.place.is_none() {
            return self
                .ask(|reply| SqliteCommand::Read(Box::new(move |it| drop(reply.send(query(it))))))
                .await;
        }
        let turn = self.readers.permits.clone().acquire_owned().await;
        let turn = turn.map_err(|_| StoreError::Closed)?;
        let readers = Arc::clone(&self.readers);
        // The query keeps its permit even if the caller stops waiting.
        blocking(move || {
            let answer = readers.run_query(query);
            drop(turn);
            answer
        })
        .await
    }

    /// Reads data that depends on ledger rows. Flushes the spool first, so that all recorded rows are included.
    async fn read_rows<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.write_waiting();
        if self.spool.as_ref().is_some_and(|spool| spool.pending_rows() > 0) {
            self.ask(SqliteCommand::Flush).await?;
        }
        self.read(query).await
    }

    pub(crate) async fn directory(&self) -> Result<Directory> {
        self.read(queries::directory).await
    }

    pub(crate) async fn directory_version(&self) -> Result<i64> {
        self.read(queries::directory_version).await
    }

    pub(crate) async fn change(
        &self,
        actor: &str,
        at: UnixMicros,
        change: DirectoryChange,
    ) -> Result<DirectoryChangeResult> {
        let asked = Box::new((actor.to_owned(), at, change));
        self.ask(|reply| SqliteCommand::Change(asked, reply)).await
    }

    pub(crate) async fn reserve(
        &self,
        reservation: Reservation,
    ) -> Result<std::result::Result<ReservationGrant, ReservationRefused>> {
        self.ask(|reply| SqliteCommand::Reserve(Box::new(reservation), reply)).await
    }

    pub(crate) async fn budgets(
        &self,
        owners: BudgetOwners<'_>,
        at: UnixMicros,
    ) -> Result<Vec<BudgetBalance>> {
        let hosted = owners.hosted;
        let model = owners.model.map(|(model, budgets)| (model.to_owned(), budgets.to_owned()));
        let names = [owners.group, owners.tenant, owners.key].map(|name| name.map(str::to_owned));
        self.read_rows(move |it| {
            let [group, tenant, key] = names.each_ref().map(Option::as_deref);
            let model = model.as_ref().map(|(model, budgets)| (model.as_str(), budgets.as_slice()));
            queries::budgets(it, BudgetOwners { group, tenant, key, hosted, model }, at)
        })
        .await
    }

    pub(crate) async fn prices(&self) -> Result<Vec<PriceVersion>> {
        self.read(queries::prices).await
    }

    pub(crate) async fn currency(&self) -> Result<Option<Currency>> {
        self.read(queries::currency).await
    }

    pub(crate) async fn record(&self, attempt: Box<AttemptRow>) -> Result<()> {
        let Some(intake) = &self.intake else {
            return self.ask(|reply| SqliteCommand::Record(attempt, reply)).await;
        };
        match intake.put(attempt).await {
            Ok(()) => Ok(()),
            Err(SpoolPutError::Closed) => Err(StoreError::Closed),
            Err(SpoolPutError::Unwritten { attempt, problem }) => {
                self.record_without_line(attempt, problem.to_string()).await
            }
        }
    }

    /// Records a row that could not be written to the spool. Returns `Ok` once the database has the row. Even after an
    /// error, the row is kept in memory, if there is room, and written as soon as the database accepts it.
    async fn record_without_line(&self, attempt: Box<AttemptRow>, problem: String) -> Result<()> {
        if let Some(left_out) = self.log_throttle.admit("no line", tokio::time::Instant::now()) {
            tracing::warn!(%problem, left_out, "rows can only go to the database itself");
        }
        let Some(turn) = self.permits.try_next() else {
            return Err(StoreError::Unrecorded(problem));
        };
        if self.failing.load(Ordering::Relaxed) {
            // Do not wait for a database that has just failed.
            let (reply, _) = oneshot::channel();
            let command = SqliteCommand::Record(attempt, reply);
            let _ = self.writer.send(QueuedCommand { command, turn: Some(turn) });
            return Err(StoreError::Unrecorded(problem));
        }
        let written = self.ask_with(Some(turn), |reply| SqliteCommand::Record(attempt, reply));
        match tokio::time::timeout(DIRECT_WRITE_TIMEOUT, written).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(StoreError::Unrecorded(format!("{problem}; {error}"))),
            Err(_) => Err(StoreError::Unrecorded(format!("{problem}; the database is busy"))),
        }
    }

    /// Writes the rows that are on their way into the spool.
    fn write_waiting(&self) {
        if let Some(intake) = &self.intake {
            intake.write_waiting();
        }
    }

    pub(crate) fn is_writable(&self) -> bool {
        self.spool.as_ref().is_none_or(|spool| spool.is_writable())
    }

    pub(crate) fn rows_waiting(&self) -> u64 {
        self.spool.as_ref().map_or(0, |spool| spool.pending_rows())
    }

    pub(crate) async fn usage(&self, query: UsageQuery) -> Result<UsageSums> {
        self.read_rows(move |it| queries::usage(it, &query)).await
    }

    pub(crate) async fn attempts(&self, query: LedgerQuery) -> Result<Vec<AttemptRow>> {
        self.read_rows(move |it| queries::attempts(it, &query)).await
    }

    pub(crate) async fn audit(&self, query: AuditQuery) -> Result<Vec<AuditEntry>> {
        self.read(move |it| queries::audit(it, &query)).await
    }

    pub(crate) async fn prune_some(&self, before: UnixMicros) -> Result<u64> {
        self.ask(|reply| SqliteCommand::Prune(before, reply)).await
    }

    pub(crate) async fn transact(&self, job: Box<dyn TransactionJob>) -> Result<()> {
        let turn = Some(self.permits.next().await?);
        let asked = QueuedCommand { command: SqliteCommand::Transact(job), turn };
        self.writer.send(asked).map_err(|_| StoreError::Closed)
    }

    pub(crate) async fn inspect(&self, mut job: Box<dyn TransactionJob>) -> Result<()> {
        self.read_rows(move |it| {
            columns::run(it, "BEGIN", [])?;
            job.work(&mut columns::ConnectionTransaction(it));
            columns::run(it, "ROLLBACK", [])?;
            job.answer(Ok(()));
            Ok(())
        })
        .await
    }

    pub(crate) async fn ping(&self) -> Result<()> {
        // After a failure, a write tests whether the database has recovered.
        if self.failing.load(Ordering::Relaxed) {
            self.ask(SqliteCommand::Flush).await?;
        }
        self.read(|it| columns::first(it, sql::PING, [], |row| row.int(0))).await.map(drop)
    }

    pub(crate) async fn close(&self) -> Result<()> {
        // Running reads end first. SQLite cleans up its log when the last connection closes, but only if that one can
        // write.
        let turns = u32::try_from(READERS).unwrap_or(1);
        if let Ok(all) = self.readers.permits.acquire_many(turns).await {
            self.readers.permits.close();
            self.readers.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
            drop(all);
        }
        self.write_waiting();
        // Sent without a permit: if the database accepts nothing, rows hold all permits.
        if self.permits.are_closed() {
            return Err(StoreError::Closed);
        }
        self.ask_with(None, SqliteCommand::Close).await
    }
}

impl ReadConnections {
    /// Runs a query on a read connection that no other query uses at the same time.
    fn run_query<T>(&self, query: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
        let idle = || self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let connection = idle().pop();
        let connection = match connection {
            Some(connection) => connection,
            None => {
                let opened = self.place.as_ref().map(SqliteLocation::reader).transpose()?;
                opened.flatten().ok_or(StoreError::Closed)?
            }
        };
        let answer = query(&connection)?;
        if !self.permits.is_closed() {
            idle().push(connection);
        }
        Ok(answer)
    }
}

/// Thread that makes checkpoints, and the channel that ends the thread.
pub(super) struct CheckpointThread {
    stop: std::sync::mpsc::Sender<()>,
    thread: std::thread::JoinHandle<()>,
}

impl CheckpointThread {
    /// Stops the thread and waits until it has ended.
    pub(super) fn end(self) {
        drop(self.stop);
        let _ = self.thread.join();
    }
}

fn start_checkpointer(connection: Connection) -> Result<CheckpointThread> {
    let (stop, stopped) = std::sync::mpsc::channel();
    let thread = thread("fairgate-store-log", move || checkpoint::run(&connection, &stopped))?;
    Ok(CheckpointThread { stop, thread })
}

fn thread(name: &str, work: impl FnOnce() + Send + 'static) -> Result<std::thread::JoinHandle<()>> {
    let started = std::thread::Builder::new().name(name.to_owned()).spawn(work);
    started.map_err(|problem| StoreError::Database(format!("no thread to write: {problem}")))
}

/// Runs blocking work on a thread on which blocking is allowed.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(|_| StoreError::Closed)?
}
