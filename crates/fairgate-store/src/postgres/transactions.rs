//! Runs callers' transactions. Their code alternates between queries and decisions, and runs on a
//! thread that may block.
//!
//! Callers' transactions run one at a time, over all processes, because each locks the same row
//! until it is committed, and a commit waits for the disk. So the [`PostgresTransactor`] runs all
//! waiting transactions of callers in one transaction of the database, each within a savepoint, and
//! answers their callers after the commit. If one of them fails, only that one is rolled back.

use tokio::runtime::Handle;
use tokio::sync::mpsc;

use super::connection::{PostgresConnection, PostgresSession, references, with_answer_timeout};
use super::error::PostgresError;
use super::sql::SYNCED;
use crate::error::StoreError;
use crate::rows::RowColumns;
use crate::sql::SqlValue;
use crate::transaction::{DatabaseKind, Transaction, TransactionDurability, TransactionJob};

/// Maximum number of callers' transactions in one transaction of the database.
const BATCH_MAX: usize = 64;
/// Statement that begins an ordinary transaction.
const BEGIN: &str = "BEGIN";
/// Statement that begins a transaction which reads a consistent snapshot.
const BEGIN_READ_ONLY: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
/// Statement that begins a caller's transaction within a batch. The transaction is then kept by
/// [`KEEP`] or undone by [`UNDO`].
const MARK: &str = "SAVEPOINT caller";
/// Statement that keeps a caller's transaction and begins the next one.
const KEEP: &str = "RELEASE caller; SAVEPOINT caller";
/// Statement that undoes a caller's transaction. Its savepoint remains for the next one.
const UNDO: &str = "ROLLBACK TO caller";

/// The async task that runs callers' transactions.
pub(super) struct PostgresTransactor {
    connection: PostgresConnection,
}

impl PostgresTransactor {
    pub(super) fn new(connection: PostgresConnection) -> Self {
        Self { connection }
    }

    /// Runs transactions until all senders of `inbox` are gone.
    pub(super) async fn run(mut self, mut inbox: mpsc::Receiver<Box<dyn TransactionJob>>) {
        while let Some(first) = inbox.recv().await {
            let mut jobs = vec![first];
            while jobs.len() < BATCH_MAX {
                let Ok(job) = inbox.try_recv() else { break };
                jobs.push(job);
            }
            // The callers of these jobs have given up, for example because the server did not
            // answer.
            jobs.retain(|job| !job.is_abandoned());
            if !jobs.is_empty() {
                self.transact(jobs).await;
            }
        }
    }

    async fn transact(&mut self, jobs: Vec<Box<dyn TransactionJob>>) {
        let session = match self.connection.take_session().await {
            Ok(session) => session,
            Err(trouble) => return answer_all(jobs, &trouble.into()),
        };
        // If the work panics, its session is lost, and its callers get the error that the store is closed.
        let Ok((session, outcome)) = run_batch(session, jobs).await else { return };
        self.connection.return_session(session, &outcome).await;
    }
}

/// The session, which is given back, and the result of the transaction that ran on it.
type ReturnedSession = (PostgresSession, Result<(), PostgresError>);

/// Runs jobs in one transaction, and sends their results once it is committed.
async fn run_batch(
    session: PostgresSession,
    jobs: Vec<Box<dyn TransactionJob>>,
) -> Result<ReturnedSession, StoreError> {
    let is_synced = jobs.iter().any(|job| job.keep() == TransactionDurability::ThroughPowerLoss);
    let synced = if is_synced { SYNCED } else { "" };
    let mark = if jobs.len() > 1 { MARK } else { "" };
    let lock = fairgate_usage::sql::LOCK;
    on_a_thread(session, jobs, &format!("{BEGIN}; {synced}; {lock}; {mark}")).await
}

/// Runs a job that only reads, in one consistent snapshot of the database.
pub(super) async fn inspect(
    session: PostgresSession,
    job: Box<dyn TransactionJob>,
) -> Result<ReturnedSession, StoreError> {
    on_a_thread(session, vec![job], BEGIN_READ_ONLY).await
}

async fn on_a_thread(
    session: PostgresSession,
    jobs: Vec<Box<dyn TransactionJob>>,
    begin: &str,
) -> Result<ReturnedSession, StoreError> {
    if let Err(trouble) = with_answer_timeout(session.run(begin)).await {
        return Ok((session, failed(jobs, trouble)));
    }
    let handle = Handle::current();
    let worked = tokio::task::spawn_blocking(move || {
        let mut session = session;
        let worked = work(&mut session, &handle, jobs);
        (session, worked)
    });
    let (session, worked) = worked.await.map_err(|_| StoreError::Closed)?;
    let BatchWork { jobs, end } = match worked {
        Ok(worked) => worked,
        Err((jobs, trouble)) => return Ok((session, failed(jobs, trouble))),
    };
    if let Err(trouble) = with_answer_timeout(session.run(&end)).await {
        let jobs = jobs.into_iter().map(|(job, _)| job).collect();
        return Ok((session, failed(jobs, trouble)));
    }
    for (job, result) in jobs {
        job.answer(result);
    }
    Ok((session, Ok(())))
}

/// Sends the error to the callers of all jobs, and returns it.
fn failed(jobs: Vec<Box<dyn TransactionJob>>, trouble: PostgresError) -> Result<(), PostgresError> {
    let is_broken = matches!(trouble, PostgresError::Connection(_));
    let problem = StoreError::from(trouble);
    answer_all(jobs, &problem);
    match is_broken {
        true => Err(PostgresError::Connection(problem.to_string())),
        false => Err(PostgresError::Refused(problem)),
    }
}

fn answer_all(jobs: Vec<Box<dyn TransactionJob>>, problem: &StoreError) {
    jobs.into_iter().for_each(|job| job.answer(Err(problem.repeated())));
}

/// The jobs of a batch after their work was done, and the statement that ends the transaction. A
/// job has an error if the database has undone its work.
struct BatchWork {
    jobs: Vec<(Box<dyn TransactionJob>, Result<(), StoreError>)>,
    end: String,
}

/// Does the work of the jobs, one after the other. Fails if the connection breaks; then nothing is
/// written.
fn work(
    session: &mut PostgresSession,
    handle: &Handle,
    jobs: Vec<Box<dyn TransactionJob>>,
) -> Result<BatchWork, (Vec<Box<dyn TransactionJob>>, PostgresError)> {
    let is_alone = jobs.len() == 1;
    let mut end = "COMMIT".to_owned();
    let mut done: Vec<(Box<dyn TransactionJob>, Result<(), StoreError>)> = Vec::new();
    let mut jobs = jobs.into_iter().peekable();
    while let Some(mut job) = jobs.next() {
        let mut transaction =
            SessionTransaction { session: &mut *session, handle: handle.clone(), trouble: None };
        let is_done = job.work(&mut transaction);
        let mut trouble = transaction.trouble;
        let keep = is_done && trouble.is_none() && !job.is_abandoned();
        let is_last = jobs.peek().is_none();
        let mut is_broken =
            session.client.is_closed() || matches!(trouble, Some(PostgresError::Connection(_)));
        if !is_broken && !is_last {
            let next = session.run(if keep { KEEP } else { UNDO });
            if let Err(problem) = handle.block_on(with_answer_timeout(next)) {
                (is_broken, trouble) = (true, Some(problem));
            }
        } else if !keep {
            end = if is_alone { "ROLLBACK".to_owned() } else { format!("{UNDO}; COMMIT") };
        }
        match trouble {
            // The callers must get the error that broke the connection, because the work may have
            // returned another error.
            Some(trouble) if is_broken => {
                let all = done.into_iter().map(|(job, _)| job).chain([job]).chain(jobs);
                return Err((all.collect(), trouble));
            }
            // The work ignored the error of a statement.
            Some(trouble) if is_done => done.push((job, Err(trouble.into()))),
            _ => done.push((job, Ok(()))),
        }
    }
    Ok(BatchWork { jobs: done, end })
}

struct SessionTransaction<'a> {
    session: &'a mut PostgresSession,
    handle: Handle,
    /// First error that a statement of the transaction returned; `None` if there was none.
    trouble: Option<PostgresError>,
}

impl SessionTransaction<'_> {
    fn failed(&mut self, trouble: PostgresError) -> StoreError {
        let text = match &trouble {
            PostgresError::Connection(text) | PostgresError::Conflict(text) => text.clone(),
            PostgresError::Refused(error) => error.to_string(),
        };
        self.trouble.get_or_insert(trouble);
        StoreError::Database(text)
    }
}

impl Transaction for SessionTransaction<'_> {
    fn each(
        &mut self,
        sql: &str,
        values: &[SqlValue],
        show: &mut dyn FnMut(&dyn RowColumns) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let asked = self.handle.block_on(with_answer_timeout(async {
            let statement = self.session.prepare_dynamic(sql).await?;
            let rows = self.session.client.query(&statement, &references(values)).await?;
            self.session.record_answer();
            Ok(rows)
        }));
        let rows = asked.map_err(|trouble| self.failed(trouble))?;
        rows.iter().try_for_each(|row| show(row))
    }

    fn run(&mut self, sql: &str, values: &[SqlValue]) -> Result<u64, StoreError> {
        let asked = self.handle.block_on(with_answer_timeout(async {
            let statement = self.session.prepare_dynamic(sql).await?;
            let rows = self.session.client.execute(&statement, &references(values)).await?;
            self.session.record_answer();
            Ok(rows)
        }));
        asked.map_err(|trouble| self.failed(trouble))
    }

    fn database(&self) -> DatabaseKind {
        DatabaseKind::Postgres
    }
}
