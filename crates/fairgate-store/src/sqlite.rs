//! The store on SQLite: one thread that writes, a few connections that read, one process per file.

mod batch;
mod checkpoint;
mod columns;
mod file;
mod queries;
mod writer;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use fairgate_money::{Currency, UnixMicros};
use rusqlite::Connection;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::budget::{BudgetLeft, Granted, Owners, Refused};
use crate::directory::{Change, Changed, Directory};
use crate::error::StoreError;
use crate::ledger::{
    Attempt, AuditEntry, AuditQuery, LedgerQuery, PriceVersion, Reservation, Resolved, UsageQuery,
    UsageRow,
};
use crate::rows::Columns;
use crate::spool::{Back, Spool};
use crate::sql;
use crate::store::StoreOptions;
use crate::throttle::Throttle;
use crate::transaction::Job;
use crate::turns::Turns;
use file::Place;
use writer::{Asked, Command, Reply, Writer};

type Result<T> = std::result::Result<T, StoreError>;

/// How many queries read at once.
const READERS: usize = 3;

/// How long a row that has no line of its own waits for the database, which may be held by somebody else.
const DIRECTLY: Duration = Duration::from_secs(1);

/// A database on SQLite.
#[derive(Debug)]
pub(crate) struct Sqlite {
    writer: mpsc::Sender<Asked>,
    turns: Turns,
    failing: Arc<AtomicBool>,
    /// None in memory.
    spool: Option<Arc<Spool>>,
    complaints: Throttle<&'static str>,
    readers: Arc<Readers>,
}

/// Connections that read, each lent to one query at a time.
#[derive(Debug)]
struct Readers {
    /// None in memory.
    place: Option<Place>,
    idle: Mutex<Vec<Connection>>,
    turns: Arc<Semaphore>,
}

impl Sqlite {
    pub(crate) async fn open(path: &str, options: &StoreOptions) -> Result<(Self, Resolved)> {
        let path = path.to_owned();
        let turns = Turns::new(options.pending_max);
        let failing = Arc::new(AtomicBool::new(false));
        let (writer_turns, writer_failing) = (turns.clone(), failing.clone());
        let bounds = options.bounds();
        let opened = move || -> Result<_> {
            let place = Place::new(&path)?;
            let lock = place.lock()?;
            let connection = place.writer()?;
            let spool = place.spool(bounds)?.map(Arc::new);
            let (writer, resolved) =
                Writer::new(connection, spool.clone(), writer_turns, writer_failing, lock)?;
            let checkpointer = place.checkpointer()?;
            Ok((place, writer, spool, checkpointer, resolved))
        };
        let (place, writer, spool, checkpointer, resolved) = blocking(opened).await?;
        let (sender, inbox) = mpsc::channel();
        let checkpointer = checkpointer.map(beside).transpose()?;
        thread("fairgate-store", move || writer.run(&inbox, checkpointer))?;
        let place = matches!(place, Place::File(_)).then_some(place);
        let readers =
            Readers { place, idle: Mutex::default(), turns: Arc::new(Semaphore::new(READERS)) };
        let (readers, complaints) = (Arc::new(readers), Throttle::default());
        Ok((Self { writer: sender, turns, failing, spool, complaints, readers }, resolved))
    }

    /// Hands a command to the writer and waits for its answer. Once it is handed over, it is carried out, whether anyone
    /// waits or not.
    async fn ask<T>(&self, command: impl FnOnce(Reply<T>) -> Command) -> Result<T> {
        let turn = self.turns.next().await?;
        self.ask_with(Some(turn), command).await
    }

    async fn ask_with<T>(
        &self,
        turn: Option<OwnedSemaphorePermit>,
        command: impl FnOnce(Reply<T>) -> Command,
    ) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        let asked = Asked { command: command(reply), turn };
        self.writer.send(asked).map_err(|_| StoreError::Closed)?;
        answer.await.map_err(|_| StoreError::Closed)?
    }

    async fn read<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        if self.turns.are_closed() {
            return Err(StoreError::Closed);
        }
        if self.readers.place.is_none() {
            return self
                .ask(|reply| Command::Read(Box::new(move |it| drop(reply.send(query(it))))))
                .await;
        }
        let turn = self.readers.turns.clone().acquire_owned().await;
        let turn = turn.map_err(|_| StoreError::Closed)?;
        let readers = Arc::clone(&self.readers);
        // The turn is the query's, whether or not anyone still waits for it.
        blocking(move || {
            let answer = readers.lend(query);
            drop(turn);
            answer
        })
        .await
    }

    /// Reads what rows come to: whoever has recorded a row finds it.
    async fn read_rows<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        if self.spool.as_ref().is_some_and(|spool| spool.ahead() > 0) {
            self.ask(Command::Flush).await?;
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
        change: Change,
    ) -> Result<Changed> {
        let asked = Box::new((actor.to_owned(), at, change));
        self.ask(|reply| Command::Change(asked, reply)).await
    }

    pub(crate) async fn reserve(
        &self,
        reservation: Reservation,
    ) -> Result<std::result::Result<Granted, Refused>> {
        self.ask(|reply| Command::Reserve(Box::new(reservation), reply)).await
    }

    pub(crate) async fn budgets(
        &self,
        owners: Owners<'_>,
        at: UnixMicros,
    ) -> Result<Vec<BudgetLeft>> {
        let hosted = owners.hosted;
        let model = owners.model.map(|(model, budgets)| (model.to_owned(), budgets.to_owned()));
        let names = [owners.group, owners.tenant, owners.key].map(|name| name.map(str::to_owned));
        self.read_rows(move |it| {
            let [group, tenant, key] = names.each_ref().map(Option::as_deref);
            let model = model.as_ref().map(|(model, budgets)| (model.as_str(), budgets.as_slice()));
            queries::budgets(it, Owners { group, tenant, key, hosted, model }, at)
        })
        .await
    }

    pub(crate) async fn prices(&self) -> Result<Vec<PriceVersion>> {
        self.read(queries::prices).await
    }

    pub(crate) async fn currency(&self) -> Result<Option<Currency>> {
        self.read(queries::currency).await
    }

    pub(crate) async fn record(&self, attempt: Attempt) -> Result<()> {
        let attempt = Box::new(attempt);
        let Some(spool) = &self.spool else {
            return self.ask(|reply| Command::Record(attempt, reply)).await;
        };
        match spool.put(attempt) {
            Ok(is_news) => {
                if is_news {
                    // A writer that is gone has left the row in its file, for the next one.
                    let _ = self.writer.send(Asked { command: Command::Rows, turn: None });
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
        if let Some(left_out) = self.complaints.admit("no line", tokio::time::Instant::now()) {
            tracing::warn!(%problem, left_out, "rows can only go to the database itself");
        }
        let Some(turn) = self.turns.try_next() else { return Err(StoreError::Unrecorded(problem)) };
        if self.failing.load(Ordering::Relaxed) {
            // A database that has just failed is not waited for.
            let (reply, _) = oneshot::channel();
            let command = Command::Record(attempt, reply);
            let _ = self.writer.send(Asked { command, turn: Some(turn) });
            return Err(StoreError::Unrecorded(problem));
        }
        let written = self.ask_with(Some(turn), |reply| Command::Record(attempt, reply));
        match tokio::time::timeout(DIRECTLY, written).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(StoreError::Unrecorded(format!("{problem}; {error}"))),
            Err(_) => Err(StoreError::Unrecorded(format!("{problem}; the database is busy"))),
        }
    }

    pub(crate) fn is_writable(&self) -> bool {
        self.spool.as_ref().is_none_or(|spool| spool.is_writable())
    }

    pub(crate) fn rows_waiting(&self) -> u64 {
        self.spool.as_ref().map_or(0, |spool| spool.ahead())
    }

    pub(crate) async fn usage(&self, query: UsageQuery) -> Result<Vec<UsageRow>> {
        self.read_rows(move |it| queries::usage(it, &query)).await
    }

    pub(crate) async fn attempts(&self, query: LedgerQuery) -> Result<Vec<Attempt>> {
        self.read_rows(move |it| queries::attempts(it, &query)).await
    }

    pub(crate) async fn audit(&self, query: AuditQuery) -> Result<Vec<AuditEntry>> {
        self.read(move |it| queries::audit(it, &query)).await
    }

    pub(crate) async fn prune_some(&self, before: UnixMicros) -> Result<u64> {
        self.ask(|reply| Command::Prune(before, reply)).await
    }

    pub(crate) async fn transact(&self, job: Box<dyn Job>) -> Result<()> {
        let turn = Some(self.turns.next().await?);
        let asked = Asked { command: Command::Transact(job), turn };
        self.writer.send(asked).map_err(|_| StoreError::Closed)
    }

    pub(crate) async fn inspect(&self, mut job: Box<dyn Job>) -> Result<()> {
        self.read_rows(move |it| {
            columns::run(it, "BEGIN", [])?;
            job.work(&mut columns::OnConnection(it));
            columns::run(it, "ROLLBACK", [])?;
            job.answer(Ok(()));
            Ok(())
        })
        .await
    }

    pub(crate) async fn ping(&self) -> Result<()> {
        // After a failure it is seen whether that is over.
        if self.failing.load(Ordering::Relaxed) {
            self.ask(Command::Flush).await?;
        }
        self.read(|it| columns::first(it, sql::PING, [], |row| row.int(0))).await.map(drop)
    }

    pub(crate) async fn close(&self) -> Result<()> {
        // What reads at this moment ends first. SQLite tidies up its log with the last connection, if that one writes.
        let turns = u32::try_from(READERS).unwrap_or(1);
        if let Ok(all) = self.readers.turns.acquire_many(turns).await {
            self.readers.turns.close();
            self.readers.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
            drop(all);
        }
        // Without a turn: where the database takes nothing, all turns belong to rows.
        if self.turns.are_closed() {
            return Err(StoreError::Closed);
        }
        self.ask_with(None, Command::Close).await
    }
}

impl Readers {
    /// Runs a query on a connection of its own.
    fn lend<T>(&self, query: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
        let idle = || self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let connection = idle().pop();
        let connection = match connection {
            Some(connection) => connection,
            None => {
                let opened = self.place.as_ref().map(Place::reader).transpose()?;
                opened.flatten().ok_or(StoreError::Closed)?
            }
        };
        let answer = query(&connection)?;
        if !self.turns.is_closed() {
            idle().push(connection);
        }
        Ok(answer)
    }
}

/// A thread, and what ends it.
pub(super) struct Beside {
    stop: std::sync::mpsc::Sender<()>,
    thread: std::thread::JoinHandle<()>,
}

impl Beside {
    /// Ends it and waits for that.
    pub(super) fn end(self) {
        drop(self.stop);
        let _ = self.thread.join();
    }
}

fn beside(connection: Connection) -> Result<Beside> {
    let (stop, stopped) = std::sync::mpsc::channel();
    let thread = thread("fairgate-store-log", move || checkpoint::run(&connection, &stopped))?;
    Ok(Beside { stop, thread })
}

fn thread(name: &str, work: impl FnOnce() + Send + 'static) -> Result<std::thread::JoinHandle<()>> {
    let started = std::thread::Builder::new().name(name.to_owned()).spawn(work);
    started.map_err(|problem| StoreError::Database(format!("no thread to write: {problem}")))
}

/// Runs what blocks on a thread that may.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(|_| StoreError::Closed)?
}
