//! Runs transactions of callers. Their code alternates between queries and decisions, and runs on a thread that may
//! block.

use tokio::runtime::Handle;

use super::connection::{PostgresSession, references, with_answer_timeout};
use super::error::PostgresError;
use super::sql::SYNCED;
use crate::error::StoreError;
use crate::rows::RowColumns;
use crate::sql::SqlValue;
use crate::transaction::{DatabaseKind, Transaction, TransactionDurability, TransactionJob};

/// Session that is given back, and the result of the transaction that ran on it.
type ReturnedSession = (PostgresSession, Result<(), PostgresError>);

/// Runs the transaction of a job and sends the job's result. If the database failed, the job's caller gets the error.
pub(super) async fn transact(
    session: PostgresSession,
    job: Box<dyn TransactionJob>,
) -> Result<ReturnedSession, StoreError> {
    let lock = fairgate_usage::sql::LOCK;
    let begin = match job.keep() {
        TransactionDurability::ThroughKill => format!("BEGIN; {lock}"),
        TransactionDurability::ThroughPowerLoss => format!("BEGIN; {SYNCED}; {lock}"),
    };
    on_a_thread(session, job, &begin).await
}

/// Runs a job that only reads, in one consistent snapshot of the database.
pub(super) async fn inspect(
    session: PostgresSession,
    job: Box<dyn TransactionJob>,
) -> Result<ReturnedSession, StoreError> {
    on_a_thread(session, job, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await
}

async fn on_a_thread(
    session: PostgresSession,
    mut job: Box<dyn TransactionJob>,
    begin: &str,
) -> Result<ReturnedSession, StoreError> {
    if let Err(trouble) = with_answer_timeout(session.run(begin)).await {
        return Ok((session, Err(trouble)));
    }
    let handle = Handle::current();
    let worked = tokio::task::spawn_blocking(move || {
        let mut session = session;
        let mut transaction = SessionTransaction { session: &mut session, handle, trouble: None };
        let keep = job.work(&mut transaction);
        let trouble = transaction.trouble;
        (session, job, keep, trouble)
    });
    let (session, job, keep, trouble) = worked.await.map_err(|_| StoreError::Closed)?;
    // The caller must see the error that broke the connection, because the work may have reported another one.
    if let Some(trouble) = trouble.filter(|_| keep || session.client.is_closed()) {
        return Ok((session, Err(trouble)));
    }
    let ended = with_answer_timeout(session.run(if keep { "COMMIT" } else { "ROLLBACK" })).await;
    if ended.is_ok() {
        job.answer(Ok(()));
    }
    Ok((session, ended))
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
