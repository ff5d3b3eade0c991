//! Transactions of the fleet: work that asks and looks, on a thread that may block.

use tokio::runtime::Handle;

use super::link::{Session, references};
use super::trouble::Trouble;
use crate::error::StoreError;
use crate::rows::Columns;
use crate::sql::Value;
use crate::transaction::{Database, Job, Transaction};

/// Whoever changes the fleet waits for this row, so that one does at a time, over all processes.
pub(super) const LOCK_FLEET: &str = "SELECT version FROM fleet WHERE one = 1 FOR UPDATE";

/// A session that comes back, and how its transaction went.
type Back = (Session, Result<(), Trouble>);

/// Makes a job's transaction and answers it, unless the database failed: then the caller is told.
pub(super) async fn transact(session: Session, job: Box<dyn Job>) -> Result<Back, StoreError> {
    on_a_thread(session, job, &format!("BEGIN; {LOCK_FLEET}")).await
}

/// Does a job that only reads, all of it at one moment.
pub(super) async fn inspect(session: Session, job: Box<dyn Job>) -> Result<Back, StoreError> {
    on_a_thread(session, job, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await
}

async fn on_a_thread(
    session: Session,
    mut job: Box<dyn Job>,
    begin: &str,
) -> Result<Back, StoreError> {
    if let Err(trouble) = session.run(begin).await {
        return Ok((session, Err(trouble)));
    }
    let handle = Handle::current();
    let worked = tokio::task::spawn_blocking(move || {
        let mut session = session;
        let mut transaction = OnSession { session: &mut session, handle, trouble: None };
        let keep = job.work(&mut transaction);
        let trouble = transaction.trouble;
        (session, job, keep, trouble)
    });
    let (session, job, keep, trouble) = worked.await.map_err(|_| StoreError::Closed)?;
    // What broke the connection is the caller's to know: the work may have taken it for something else.
    if let Some(trouble) = trouble.filter(|_| keep || session.client.is_closed()) {
        return Ok((session, Err(trouble)));
    }
    let ended = session.run(if keep { "COMMIT" } else { "ROLLBACK" }).await;
    if ended.is_ok() {
        job.answer(Ok(()));
    }
    Ok((session, ended))
}

struct OnSession<'a> {
    session: &'a mut Session,
    handle: Handle,
    /// What went wrong first.
    trouble: Option<Trouble>,
}

impl OnSession<'_> {
    fn failed(&mut self, trouble: Trouble) -> StoreError {
        let text = match &trouble {
            Trouble::Link(text) | Trouble::Conflict(text) => text.clone(),
            Trouble::Refused(error) => error.to_string(),
        };
        self.trouble.get_or_insert(trouble);
        StoreError::Database(text)
    }
}

impl Transaction for OnSession<'_> {
    fn each(
        &mut self,
        sql: &str,
        values: &[Value],
        show: &mut dyn FnMut(&dyn Columns) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let asked = self.handle.block_on(async {
            let statement = self.session.prepare_some(sql).await?;
            Ok(self.session.client.query(&statement, &references(values)).await?)
        });
        let rows = asked.map_err(|trouble| self.failed(trouble))?;
        rows.iter().try_for_each(|row| show(row))
    }

    fn run(&mut self, sql: &str, values: &[Value]) -> Result<u64, StoreError> {
        let asked = self.handle.block_on(async {
            let statement = self.session.prepare_some(sql).await?;
            Ok(self.session.client.execute(&statement, &references(values)).await?)
        });
        asked.map_err(|trouble| self.failed(trouble))
    }

    fn database(&self) -> Database {
        Database::Postgres
    }
}
