//! The store on PostgreSQL, which several gateways may share. One async task writes rows, one reserves, one runs
//! transactions of callers, one sends heartbeats, and a few connections serve everything else. Rows are acknowledged
//! with a line in this process's own [`Spool`], even if the server does not answer.

mod address;
mod advisory_lock;
mod claims;
mod column_arrays;
mod connection;
mod error;
mod lease;
mod ledger;
mod liveness;
mod queries;
mod reserver;
mod schema;
mod sql;
mod tls;
mod transactions;
mod writer;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::time::{Instant, timeout};

use fairgate_money::Currency;
use fairgate_time::UnixMicros;

use crate::budget::{BudgetBalance, BudgetOwners, ReservationGrant, ReservationRefused};
use crate::directory::{Directory, DirectoryChange, DirectoryChangeResult};
use crate::error::StoreError;
use crate::ledger::{
    AttemptRow, AuditEntry, AuditQuery, LedgerQuery, PriceVersion, Reservation,
    ResolvedReservations, UsageQuery, UsageSums,
};
use crate::log_throttle::LogThrottle;
use crate::pending_permits::PendingPermits;
use crate::private_files::{FileLock, private_folder};
use crate::spool::{RowWriter, Spool, SpoolFiles, SpoolIntake, SpoolPutError};
use crate::store_options::StoreOptions;
use crate::transaction::TransactionJob;
pub use address::PostgresAddress;
pub(crate) use advisory_lock::AdvisoryLock;
use connection::{
    ANSWER_TIMEOUT, PostgresConnection, SUM_TIMEOUT, with_answer_timeout, with_timeout,
};
use error::PostgresError;
pub use error::error_with_causes;
use lease::InstanceLease;
use liveness::ServerLiveness;
use reserver::PostgresReserver;
use transactions::PostgresTransactor;
use writer::{PostgresWriter, Reply};

type Result<T> = std::result::Result<T, StoreError>;

/// Number of connections for queries and changes. This many of them can run at once.
const CONNECTIONS: usize = 3;
/// Maximum number of pending rows that are flushed to the database before budgets are read. After
/// an outage there may be more, and flushing them could take long. Budgets are then read without
/// them. This is safe, because the reservations of their requests still count in the database.
const FLUSH_ROWS_MAX: u64 = 2_048;
/// Maximum time for which the server may be silent while a caller's read waits.
const INSPECT_PATIENCE: Duration = Duration::from_secs(1);
/// Maximum time for which the server may be silent while a caller's transaction waits. It is longer
/// than that for a read, because the transaction may have to wait for one of another process.
const TRANSACT_PATIENCE: Duration = Duration::from_secs(3);
/// Maximum time that each of the store's async tasks gets to end when the store closes.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// A database on PostgreSQL.
pub(crate) struct PostgresStore {
    address: Arc<PostgresAddress>,
    spool: Arc<Spool>,
    /// The entrance of rows to the spool.
    intake: Arc<SpoolIntake>,
    writer: mpsc::UnboundedSender<writer::PostgresWriterCommand>,
    /// Permits for rows that could not be written to the spool.
    permits: PendingPermits,
    /// True if the last transaction that wrote rows failed.
    failing: Arc<AtomicBool>,
    liveness: ServerLiveness,
    log_throttle: LogThrottle<&'static str>,
    budgets: mpsc::Sender<reserver::ReserverCommand>,
    transactor: mpsc::Sender<Box<dyn TransactionJob>>,
    lease: mpsc::Sender<Reply<()>>,
    connections: [Mutex<PostgresConnection>; CONNECTIONS],
    next_connection: AtomicUsize,
    closed: AtomicBool,
}

/// Channel from the spool's intake to the writer.
struct ToPostgresWriter {
    writer: mpsc::UnboundedSender<writer::PostgresWriterCommand>,
    permits: PendingPermits,
}

impl RowWriter for ToPostgresWriter {
    fn wake(&self) {
        // If the writer has ended, the rows stay in their file for the next process.
        let _ = self.writer.send(writer::PostgresWriterCommand::Rows);
    }

    fn keep(&self, attempt: Box<AttemptRow>) {
        if let Some(turn) = self.permits.try_next() {
            let (reply, _) = oneshot::channel();
            let _ = self.writer.send(writer::PostgresWriterCommand::Record(attempt, turn, reply));
        }
    }
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres").finish_non_exhaustive()
    }
}

/// Runs a query on one of the shared connections, and once more if the connection broke. Repeating
/// a read does no harm.
macro_rules! read {
    ($self:expr, $session:ident => $query:expr) => {
        read!($self, ANSWER_TIMEOUT, $session => $query)
    };
    ($self:expr, $limit:expr, $session:ident => $query:expr) => {{
        let mut link = $self.connection().await?;
        let mut tries = 0;
        loop {
            tries += 1;
            let outcome = match link.take_session().await {
                Ok($session) => {
                    let outcome = with_timeout($limit, async {
                        let $session = &$session;
                        $query.await
                    });
                    let outcome = outcome.await;
                    link.return_session($session, &outcome).await;
                    outcome
                }
                Err(trouble) => Err(trouble),
            };
            match outcome {
                Err(PostgresError::Connection(_)) if tries == 1 => {}
                outcome => break outcome.map_err(StoreError::from),
            }
        }
    }};
}

impl PostgresStore {
    /// Connects, migrates the schema, and resolves the reservations of dead processes. The outer error describes an
    /// invalid URL or a missing spool folder, and the inner error is any other failure.
    pub(crate) async fn open(
        url: &str,
        options: &StoreOptions,
    ) -> std::result::Result<Result<(Self, ResolvedReservations)>, String> {
        let address = Arc::new(PostgresAddress::parse(url)?);
        let Some(folder) = options.spool.clone() else {
            return Err(
                "PostgreSQL needs a folder for rows on their way to it: `store.spool`".into()
            );
        };
        Ok(Self::connect(address, folder, options).await)
    }

    async fn connect(
        address: Arc<PostgresAddress>,
        folder: PathBuf,
        options: &StoreOptions,
    ) -> Result<(Self, ResolvedReservations)> {
        let bounds = options.bounds();
        let opened = tokio::task::spawn_blocking(move || open_spool(&folder, bounds));
        let spool = Arc::new(opened.await.map_err(|_| StoreError::Closed)??);
        let pulse = ServerLiveness::new(options.patience);
        let link = || PostgresConnection::new(Arc::clone(&address), pulse.clone());
        let mut first = link();
        let session = first.take_session().await?;
        let migrated = with_timeout(schema::TIMEOUT, schema::migrate(&session)).await;
        first.return_session(session, &migrated).await;
        migrated?;

        // Rows of an earlier process are written before reservations are resolved, because they may
        // settle some of them.
        let failing = Arc::new(AtomicBool::new(false));
        let mut rows = PostgresWriter::new(link(), spool.clone(), failing.clone());
        rows.write_leftover_rows().await?;
        let instance = instance()?;
        let complaints = LogThrottle::default();
        let mut lease = InstanceLease {
            link: first,
            instance,
            length: options.lease,
            log_throttle: complaints,
        };
        let resolved = lease.renew_and_resolve().await?;

        let (writer, commands) = mpsc::unbounded_channel();
        let (budgets, reservations) = mpsc::channel(options.pending_max.max(1));
        let (transactor, jobs) = mpsc::channel(options.pending_max.max(1));
        let (lease_end, end) = mpsc::channel(1);
        tokio::spawn(rows.run(commands));
        tokio::spawn(PostgresReserver::new(link(), instance).run(reservations));
        tokio::spawn(PostgresTransactor::new(link()).run(jobs));
        tokio::spawn(lease.run(end));
        let desks = std::array::from_fn(|_| Mutex::new(link()));
        let permits = PendingPermits::new(options.pending_max);
        let to_writer = ToPostgresWriter { writer: writer.clone(), permits: permits.clone() };
        let store = Self {
            address,
            intake: SpoolIntake::new(Arc::clone(&spool), Box::new(to_writer)),
            spool,
            writer,
            permits,
            failing,
            liveness: pulse,
            log_throttle: LogThrottle::default(),
            budgets,
            transactor,
            lease: lease_end,
            connections: desks,
            next_connection: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
        };
        Ok((store, resolved))
    }

    /// Returns a free connection. Waits until one is free if all are in use.
    async fn connection(&self) -> Result<tokio::sync::MutexGuard<'_, PostgresConnection>> {
        let free = self.connections.iter().find_map(|desk| desk.try_lock().ok());
        let link = match free {
            Some(link) => link,
            None => {
                let next = self.next_connection.fetch_add(1, Ordering::Relaxed) % CONNECTIONS;
                self.connections[next].lock().await
            }
        };
        if self.closed.load(Ordering::Acquire) { Err(StoreError::Closed) } else { Ok(link) }
    }

    pub(crate) async fn directory(&self) -> Result<Directory> {
        read!(self, session => queries::directory(session))
    }

    pub(crate) async fn directory_version(&self) -> Result<i64> {
        read!(self, session => queries::directory_version(session))
    }

    /// Applies a change of the directory. The change is not retried if the connection breaks,
    /// because it may have been committed.
    pub(crate) async fn change(
        &self,
        actor: &str,
        at: UnixMicros,
        change: DirectoryChange,
    ) -> Result<DirectoryChangeResult> {
        let mut link = self.connection().await?;
        let session = link.take_session().await?;
        let outcome = with_answer_timeout(queries::change(&session, actor, at, &change)).await;
        link.return_session(session, &outcome).await;
        Ok(outcome?)
    }

    pub(crate) async fn reserve(
        &self,
        reservation: Reservation,
    ) -> Result<std::result::Result<ReservationGrant, ReservationRefused>> {
        let command = |reply| reserver::ReserverCommand::Reserve(Box::new(reservation), reply);
        let reserve = async {
            self.flush_few().await?;
            ask(&self.budgets, command).await
        };
        self.liveness.wait_unless_silent(reserve).await
    }

    pub(crate) async fn budgets(
        &self,
        owners: BudgetOwners<'_>,
        at: UnixMicros,
    ) -> Result<Vec<BudgetBalance>> {
        let read = async {
            self.flush_few().await?;
            read!(self, session => queries::budgets(session, owners, at))
        };
        self.liveness.wait_unless_silent(read).await
    }

    pub(crate) async fn prices(&self) -> Result<Vec<PriceVersion>> {
        read!(self, session => queries::prices(session))
    }

    pub(crate) async fn other_gateways(&self) -> Result<u64> {
        read!(self, session => queries::other_gateways(session))
    }

    pub(crate) async fn currency(&self) -> Result<Option<Currency>> {
        read!(self, session => queries::currency(session))
    }

    pub(crate) async fn record(&self, attempt: Box<AttemptRow>) -> Result<()> {
        match self.intake.put(attempt).await {
            Ok(()) => Ok(()),
            Err(SpoolPutError::Closed) => Err(StoreError::Closed),
            Err(SpoolPutError::Unwritten { attempt, problem }) => {
                self.record_without_line(attempt, problem.to_string()).await
            }
        }
    }

    /// Records a row that could not be written to the spool. Returns `Ok` once the database has the
    /// row. After an error, the row stays in memory, if there is room, and is written as soon as
    /// the database accepts it.
    async fn record_without_line(&self, attempt: Box<AttemptRow>, problem: String) -> Result<()> {
        if let Some(left_out) = self.log_throttle.admit("no line", Instant::now()) {
            tracing::warn!(%problem, left_out, "rows can only go to PostgreSQL itself");
        }
        let Some(turn) = self.permits.try_next() else {
            return Err(StoreError::Unrecorded(problem));
        };
        let (reply, answer) = oneshot::channel();
        let command = writer::PostgresWriterCommand::Record(attempt, turn, reply);
        self.writer.send(command).map_err(|_| StoreError::Closed)?;
        // Do not wait for a database that has just failed.
        if self.failing.load(Ordering::Relaxed) {
            return Err(StoreError::Unrecorded(problem));
        }
        let written = async { answer.await.map_err(|_| StoreError::Closed)? };
        let written = self.liveness.wait_unless_silent(written).await;
        written.map_err(|error| StoreError::Unrecorded(format!("{problem}; {error}")))
    }

    pub(crate) fn is_writable(&self) -> bool {
        self.spool.is_writable()
    }

    pub(crate) fn rows_waiting(&self) -> u64 {
        self.spool.pending_rows()
    }

    /// Flushes the spool, unless it has more than [`FLUSH_ROWS_MAX`] rows.
    async fn flush_few(&self) -> Result<()> {
        self.intake.write_waiting();
        if self.spool.pending_rows() > FLUSH_ROWS_MAX { Ok(()) } else { self.flush().await }
    }

    /// Writes all rows that are in the spool now to the database.
    async fn flush(&self) -> Result<()> {
        self.intake.write_waiting();
        if self.spool.pending_rows() == 0 {
            return Ok(());
        }
        let (reply, answer) = oneshot::channel();
        self.writer
            .send(writer::PostgresWriterCommand::Flush(reply))
            .map_err(|_| StoreError::Closed)?;
        let in_time = timeout(ANSWER_TIMEOUT, answer).await;
        let late = |_| {
            let rows = self.spool.pending_rows();
            StoreError::Database(format!("{rows} rows are not in PostgreSQL yet; try again"))
        };
        in_time.map_err(late)?.map_err(|_| StoreError::Closed)?
    }

    pub(crate) async fn usage(&self, query: UsageQuery) -> Result<UsageSums> {
        self.flush().await?;
        read!(self, SUM_TIMEOUT, session => queries::usage(session, &query))
    }

    pub(crate) async fn attempts(&self, query: LedgerQuery) -> Result<Vec<AttemptRow>> {
        self.flush().await?;
        read!(self, session => queries::attempts(session, &query))
    }

    pub(crate) async fn audit(&self, query: AuditQuery) -> Result<Vec<AuditEntry>> {
        read!(self, session => queries::audit(session, &query))
    }

    pub(crate) async fn prune_some(&self, before: UnixMicros) -> Result<u64> {
        self.flush().await?;
        read!(self, session => queries::prune_some(session, before))
    }

    /// Hands over a caller's transaction. It is not retried if the connection breaks, because it
    /// may have been committed.
    pub(crate) async fn transact(&self, job: Box<dyn TransactionJob>) -> Result<()> {
        let handed = async {
            // The end of a task reads the usage of its calls, so their rows must be in the database
            // before.
            self.flush_few().await?;
            if self.closed.load(Ordering::Acquire) {
                return Err(StoreError::Closed);
            }
            self.transactor.send(job).await.map_err(|_| StoreError::Closed)
        };
        self.wait_for_transaction(handed).await
    }

    /// Waits for a part of a caller's transaction as long as the server answers other statements.
    pub(crate) async fn wait_for_transaction<T>(
        &self,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        self.liveness.wait_unless_silent_for(TRANSACT_PATIENCE, work).await
    }

    pub(crate) async fn inspect(&self, job: Box<dyn TransactionJob>) -> Result<()> {
        let inspected = async {
            self.flush().await?;
            let mut link = self.connection().await?;
            let session = link.take_session().await?;
            let (session, outcome) = transactions::inspect(session, job).await?;
            link.return_session(session, &outcome).await;
            Ok(outcome?)
        };
        self.liveness.wait_unless_silent_for(INSPECT_PATIENCE, inspected).await
    }

    /// Creates an advisory lock with a connection of its own, which is opened later.
    pub(crate) fn advisory_lock(&self, id: i64) -> AdvisoryLock {
        let connection = PostgresConnection::new(Arc::clone(&self.address), self.liveness.clone());
        AdvisoryLock::new(connection, id)
    }

    pub(crate) async fn ping(&self) -> Result<()> {
        read!(self, session => queries::ping(session))
    }

    pub(crate) async fn close(&self) -> Result<()> {
        if self.closed.swap(true, Ordering::AcqRel) {
            return Err(StoreError::Closed);
        }
        self.intake.write_waiting();
        let (reply, written) = oneshot::channel();
        self.writer
            .send(writer::PostgresWriterCommand::Close(reply))
            .map_err(|_| StoreError::Closed)?;
        // Rows are written before the lease ends; otherwise their reservations would look abandoned.
        let written = written.await.map_err(|_| StoreError::Closed)?;
        let reserved =
            with_close_timeout(ask(&self.budgets, reserver::ReserverCommand::Close)).await;
        let ended = with_close_timeout(ask(&self.lease, |reply| reply)).await;
        written.and(reserved).and(ended)
    }
}

/// Sends a command to one of the store's async tasks and waits for the result. Once sent, the command is carried out
/// even if the caller stops waiting.
async fn ask<T, C>(task: &mpsc::Sender<C>, command: impl FnOnce(Reply<T>) -> C) -> Result<T> {
    let (reply, answer) = oneshot::channel();
    task.send(command(reply)).await.map_err(|_| StoreError::Closed)?;
    answer.await.map_err(|_| StoreError::Closed)?
}

/// Runs work that must end while the store closes, for at most [`CLOSE_TIMEOUT`]. If the server
/// does not answer, other processes will resolve the reservations of this process.
async fn with_close_timeout<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let late = |_| StoreError::Database("PostgreSQL did not answer while the store closed".into());
    timeout(CLOSE_TIMEOUT, work).await.map_err(late)?
}

/// Opens the spool in a folder, and locks the folder against other processes.
fn open_spool(folder: &Path, bounds: crate::spool::SpoolBounds) -> Result<Spool> {
    let failed = |what: &str, problem: std::io::Error| {
        let folder = folder.display();
        StoreError::Database(format!("cannot {what} the folder `store.spool`, {folder}: {problem}"))
    };
    private_folder(folder).map_err(|problem| failed("make", problem))?;
    let lock = FileLock::take(&folder.join("lock")).map_err(|problem| failed("lock", problem))?;
    let Some(lock) = lock else {
        return Err(StoreError::SpoolLocked { folder: folder.display().to_string() });
    };
    let spool = Spool::open(SpoolFiles::inside(folder), bounds, Some(lock));
    spool.map_err(|problem| failed("use", problem))
}

/// Generates a random number that identifies this process.
fn instance() -> Result<i64> {
    let number = getrandom::u64().map_err(|problem| {
        StoreError::Database(format!("the system gives no random number: {problem}"))
    })?;
    Ok(i64::from_ne_bytes(number.to_ne_bytes()))
}
