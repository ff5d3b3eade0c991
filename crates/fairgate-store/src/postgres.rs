//! The store on PostgreSQL, which several gateways may share: one task that writes rows, one that reserves, one that gives
//! signs of life, and a few connections for everything else. Rows are acknowledged with a line in this process's own
//! [`Spool`], whether or not the server is there.

mod address;
mod arrays;
mod budgets;
mod fleet;
mod jobs;
mod lease;
mod ledger;
mod link;
mod pulse;
mod queries;
mod schema;
mod sql;
mod tls;
mod trouble;
mod writer;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::time::{Instant, timeout};

use fairgate_money::{Currency, UnixMicros};

use crate::budget::{BudgetLeft, Granted, Owners, Refused};
use crate::directory::{Change, Changed, Directory};
use crate::error::StoreError;
use crate::ledger::{
    Attempt, AuditEntry, AuditQuery, LedgerQuery, PriceVersion, Reservation, Resolved, UsageQuery,
    UsageRow,
};
use crate::private::{FileLock, private_folder};
use crate::spool::{Back, Files, Spool};
use crate::store::StoreOptions;
use crate::throttle::Throttle;
use crate::transaction::Job;
use crate::turns::Turns;
use address::Address;
use budgets::Reserver;
use lease::Lease;
use link::{ANSWER_TIMEOUT, Link, SUM_TIMEOUT, in_time, within};
use pulse::Pulse;
use trouble::Trouble;
use writer::{Reply, Writer};

type Result<T> = std::result::Result<T, StoreError>;

/// How many queries and changes run at once.
const DESKS: usize = 3;
/// With more rows than this on their way, as after an outage, budgets are taken as they are in the database: waiting for so
/// many could take long, and what they reserved is still reserved there.
const FEW: u64 = 2_048;
/// How long the tasks get to end when the store closes.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// A database on PostgreSQL.
pub(crate) struct Postgres {
    spool: Arc<Spool>,
    writer: mpsc::UnboundedSender<writer::Command>,
    /// For rows that are not in the spool.
    turns: Turns,
    /// Whether the last rows did not get into the database.
    failing: Arc<AtomicBool>,
    pulse: Pulse,
    complaints: Throttle<&'static str>,
    budgets: mpsc::Sender<budgets::Command>,
    lease: mpsc::Sender<Reply<()>>,
    desks: [Mutex<Link>; DESKS],
    next_desk: AtomicUsize,
    closed: AtomicBool,
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres").finish_non_exhaustive()
    }
}

/// Runs a query at one of the desks, and once more where its connection broke: reading twice does no harm.
macro_rules! read {
    ($self:expr, $session:ident => $query:expr) => {
        read!($self, ANSWER_TIMEOUT, $session => $query)
    };
    ($self:expr, $limit:expr, $session:ident => $query:expr) => {{
        let mut link = $self.desk().await?;
        let mut tries = 0;
        loop {
            tries += 1;
            let outcome = match link.take().await {
                Ok($session) => {
                    let outcome = within($limit, async {
                        let $session = &$session;
                        $query.await
                    });
                    let outcome = outcome.await;
                    link.give_back($session, &outcome).await;
                    outcome
                }
                Err(trouble) => Err(trouble),
            };
            match outcome {
                Err(Trouble::Link(_)) if tries == 1 => {}
                outcome => break outcome.map_err(StoreError::from),
            }
        }
    }};
}

impl Postgres {
    /// Connects, brings the schema up to date, and resolves what processes that are gone left reserved. What is wrong with the
    /// URL, where something is, is the outer error.
    pub(crate) async fn open(
        url: &str,
        options: &StoreOptions,
    ) -> std::result::Result<Result<(Self, Resolved)>, String> {
        let address = Arc::new(Address::parse(url)?);
        let Some(folder) = options.spool.clone() else {
            return Err(
                "PostgreSQL needs a folder for rows on their way to it: `store.spool`".into()
            );
        };
        Ok(Self::connect(address, folder, options).await)
    }

    async fn connect(
        address: Arc<Address>,
        folder: PathBuf,
        options: &StoreOptions,
    ) -> Result<(Self, Resolved)> {
        let bounds = options.bounds();
        let opened = tokio::task::spawn_blocking(move || open_spool(&folder, bounds));
        let spool = Arc::new(opened.await.map_err(|_| StoreError::Closed)??);
        let pulse = Pulse::new(options.patience);
        let link = || Link::new(Arc::clone(&address), pulse.clone());
        let mut first = link();
        let session = first.take().await?;
        let migrated = within(schema::TIMEOUT, schema::migrate(&session)).await;
        first.give_back(session, &migrated).await;
        migrated?;

        // Before anything is taken for lost: these rows may be what became of it.
        let failing = Arc::new(AtomicBool::new(false));
        let mut rows = Writer::new(link(), spool.clone(), failing.clone());
        rows.bring_in().await?;
        let instance = instance()?;
        let complaints = Throttle::default();
        let mut lease = Lease { link: first, instance, length: options.lease, complaints };
        let resolved = lease.begin().await?;

        let (writer, commands) = mpsc::unbounded_channel();
        let (budgets, reservations) = mpsc::channel(options.pending_max.max(1));
        let (lease_end, end) = mpsc::channel(1);
        tokio::spawn(rows.run(commands));
        tokio::spawn(Reserver::new(link(), instance).run(reservations));
        tokio::spawn(lease.run(end));
        let desks = std::array::from_fn(|_| Mutex::new(link()));
        let store = Self {
            spool,
            writer,
            turns: Turns::new(options.pending_max),
            failing,
            pulse,
            complaints: Throttle::default(),
            budgets,
            lease: lease_end,
            desks,
            next_desk: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
        };
        Ok((store, resolved))
    }

    /// A connection that is free, or will be.
    async fn desk(&self) -> Result<tokio::sync::MutexGuard<'_, Link>> {
        let free = self.desks.iter().find_map(|desk| desk.try_lock().ok());
        let link = match free {
            Some(link) => link,
            None => {
                let next = self.next_desk.fetch_add(1, Ordering::Relaxed) % DESKS;
                self.desks[next].lock().await
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

    /// Not tried again where the connection breaks: whether it was made is not known then.
    pub(crate) async fn change(
        &self,
        actor: &str,
        at: UnixMicros,
        change: Change,
    ) -> Result<Changed> {
        let mut link = self.desk().await?;
        let session = link.take().await?;
        let outcome = in_time(queries::change(&session, actor, at, &change)).await;
        link.give_back(session, &outcome).await;
        Ok(outcome?)
    }

    pub(crate) async fn reserve(
        &self,
        reservation: Reservation,
    ) -> Result<std::result::Result<Granted, Refused>> {
        let command = |reply| budgets::Command::Reserve(Box::new(reservation), reply);
        let reserve = async {
            self.flush_few().await?;
            ask(&self.budgets, command).await
        };
        self.pulse.or_away(reserve).await
    }

    pub(crate) async fn budgets(
        &self,
        owners: Owners<'_>,
        at: UnixMicros,
    ) -> Result<Vec<BudgetLeft>> {
        let read = async {
            self.flush_few().await?;
            read!(self, session => queries::budgets(session, owners, at))
        };
        self.pulse.or_away(read).await
    }

    pub(crate) async fn prices(&self) -> Result<Vec<PriceVersion>> {
        read!(self, session => queries::prices(session))
    }

    pub(crate) async fn currency(&self) -> Result<Option<Currency>> {
        read!(self, session => queries::currency(session))
    }

    pub(crate) async fn record(&self, attempt: Attempt) -> Result<()> {
        match self.spool.put(Box::new(attempt)) {
            Ok(is_news) => {
                if is_news {
                    // A writer that is gone has left the row in its file, for the next one.
                    let _ = self.writer.send(writer::Command::Rows);
                }
                Ok(())
            }
            Err(Back { problem: None, .. }) => Err(StoreError::Closed),
            Err(Back { attempt, problem: Some(problem) }) => {
                self.record_without_line(attempt, problem.to_string()).await
            }
        }
    }

    /// A row that has no line is safe once the database has it. Whatever is told here, the database gets the row as soon as it
    /// takes it, where there is room in memory until then.
    async fn record_without_line(&self, attempt: Box<Attempt>, problem: String) -> Result<()> {
        if let Some(left_out) = self.complaints.admit("no line", Instant::now()) {
            tracing::warn!(%problem, left_out, "rows can only go to PostgreSQL itself");
        }
        let Some(turn) = self.turns.try_next() else { return Err(StoreError::Unrecorded(problem)) };
        let (reply, answer) = oneshot::channel();
        let command = writer::Command::Record(attempt, turn, reply);
        self.writer.send(command).map_err(|_| StoreError::Closed)?;
        // A database that has just failed is not waited for.
        if self.failing.load(Ordering::Relaxed) {
            return Err(StoreError::Unrecorded(problem));
        }
        let written = async { answer.await.map_err(|_| StoreError::Closed)? };
        let written = self.pulse.or_away(written).await;
        written.map_err(|error| StoreError::Unrecorded(format!("{problem}; {error}")))
    }

    pub(crate) fn is_writable(&self) -> bool {
        self.spool.is_writable()
    }

    pub(crate) fn rows_waiting(&self) -> u64 {
        self.spool.ahead()
    }

    /// Brings the rows that are here now into the database, unless they are many: budgets are then looked at without them.
    async fn flush_few(&self) -> Result<()> {
        if self.spool.ahead() > FEW { Ok(()) } else { self.flush().await }
    }

    /// Brings the rows that are here now into the database.
    async fn flush(&self) -> Result<()> {
        if self.spool.ahead() == 0 {
            return Ok(());
        }
        let (reply, answer) = oneshot::channel();
        self.writer.send(writer::Command::Flush(reply)).map_err(|_| StoreError::Closed)?;
        let in_time = timeout(ANSWER_TIMEOUT, answer).await;
        let late = |_| {
            let rows = self.spool.ahead();
            StoreError::Database(format!("{rows} rows are not in PostgreSQL yet; try again"))
        };
        in_time.map_err(late)?.map_err(|_| StoreError::Closed)?
    }

    pub(crate) async fn usage(&self, query: UsageQuery) -> Result<Vec<UsageRow>> {
        self.flush().await?;
        read!(self, SUM_TIMEOUT, session => queries::usage(session, &query))
    }

    pub(crate) async fn attempts(&self, query: LedgerQuery) -> Result<Vec<Attempt>> {
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

    /// Not tried again where the connection breaks: whether it was made is not known then.
    pub(crate) async fn transact(&self, job: Box<dyn Job>) -> Result<()> {
        // What calls used is in before a task's end looks at it.
        self.flush_few().await?;
        let mut link = self.desk().await?;
        let session = link.take().await?;
        let (session, outcome) = jobs::transact(session, job).await?;
        link.give_back(session, &outcome).await;
        Ok(outcome?)
    }

    pub(crate) async fn inspect(&self, job: Box<dyn Job>) -> Result<()> {
        self.flush().await?;
        let mut link = self.desk().await?;
        let session = link.take().await?;
        let (session, outcome) = jobs::inspect(session, job).await?;
        link.give_back(session, &outcome).await;
        Ok(outcome?)
    }

    pub(crate) async fn ping(&self) -> Result<()> {
        read!(self, session => queries::ping(session))
    }

    pub(crate) async fn close(&self) -> Result<()> {
        if self.closed.swap(true, Ordering::AcqRel) {
            return Err(StoreError::Closed);
        }
        let (reply, written) = oneshot::channel();
        self.writer.send(writer::Command::Close(reply)).map_err(|_| StoreError::Closed)?;
        // Rows before the lease: what they settle must not look abandoned.
        let written = written.await.map_err(|_| StoreError::Closed)?;
        let reserved = soon(ask(&self.budgets, budgets::Command::Close)).await;
        let ended = soon(ask(&self.lease, |reply| reply)).await;
        written.and(reserved).and(ended)
    }
}

/// Hands something to a task and waits for its answer. Once it is handed over, it is carried out, whether anyone waits or
/// not.
async fn ask<T, C>(task: &mpsc::Sender<C>, command: impl FnOnce(Reply<T>) -> C) -> Result<T> {
    let (reply, answer) = oneshot::channel();
    task.send(command(reply)).await.map_err(|_| StoreError::Closed)?;
    answer.await.map_err(|_| StoreError::Closed)?
}

/// What must end while the process does. Where the server is away, others will find that this process is gone.
async fn soon<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let late = |_| StoreError::Database("PostgreSQL did not answer while the store closed".into());
    timeout(LAST_WORDS, work).await.map_err(late)?
}

/// Opens the folder of rows on their way, for this process alone.
fn open_spool(folder: &Path, bounds: crate::spool::Bounds) -> Result<Spool> {
    let failed = |what: &str, problem: std::io::Error| {
        let folder = folder.display();
        StoreError::Database(format!("cannot {what} the folder `store.spool`, {folder}: {problem}"))
    };
    private_folder(folder).map_err(|problem| failed("make", problem))?;
    let lock = FileLock::take(&folder.join("lock")).map_err(|problem| failed("lock", problem))?;
    let Some(lock) = lock else {
        return Err(StoreError::SpoolLocked { folder: folder.display().to_string() });
    };
    let spool = Spool::open(Files::inside(folder), bounds, Some(lock));
    spool.map_err(|problem| failed("use", problem))
}

/// A number for this process that no other has.
fn instance() -> Result<i64> {
    let number = getrandom::u64().map_err(|problem| {
        StoreError::Database(format!("the system gives no random number: {problem}"))
    })?;
    Ok(i64::from_ne_bytes(number.to_ne_bytes()))
}
