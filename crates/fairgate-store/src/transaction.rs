//! Transactions of other crates, which have tables of their own in this store, with their own SQL.
//!
//! The work of a transaction is an ordinary function that gets a [`Transaction`]. It is the same
//! for both databases. The function can run a query, inspect the result and run the next query. It
//! runs on a thread that may block.

use fairgate_usage::{UsageValue, UsageWriter};
use tokio::sync::oneshot;

use crate::error::StoreError;
pub use crate::rows::RowColumns;
pub use crate::sql::SqlValue;

/// Operations inside a transaction. Placeholders are written `$1`, `$2`, … and must first appear in that order.
pub trait Transaction {
    /// Passes each row of a query to `row`.
    fn each(
        &mut self,
        sql: &str,
        values: &[SqlValue],
        row: &mut dyn FnMut(&dyn RowColumns) -> Result<(), StoreError>,
    ) -> Result<(), StoreError>;

    /// Runs a statement without results. Returns the number of changed rows.
    fn run(&mut self, sql: &str, values: &[SqlValue]) -> Result<u64, StoreError>;

    /// Returns the kind of the database, for the few statements that differ between the databases.
    fn database(&self) -> DatabaseKind;
}

/// Kind of database: SQLite or PostgreSQL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatabaseKind {
    /// An SQLite file or memory database.
    Sqlite,
    /// A database on a PostgreSQL server.
    Postgres,
}

impl dyn Transaction + '_ {
    /// Returns all rows of a query.
    pub fn list<T>(
        &mut self,
        sql: &str,
        values: &[SqlValue],
        read: impl Fn(&dyn RowColumns) -> Result<T, StoreError>,
    ) -> Result<Vec<T>, StoreError> {
        let mut list = Vec::new();
        self.each(sql, values, &mut |row| {
            list.push(read(row)?);
            Ok(())
        })?;
        Ok(list)
    }

    /// Returns the first row of a query, or `None` if the query has no rows.
    pub fn first<T>(
        &mut self,
        sql: &str,
        values: &[SqlValue],
        read: impl Fn(&dyn RowColumns) -> Result<T, StoreError>,
    ) -> Result<Option<T>, StoreError> {
        Ok(self.list(sql, values, read)?.into_iter().next())
    }
}

impl UsageWriter for dyn Transaction + '_ {
    type Error = StoreError;

    fn run(&mut self, sql: &'static str, values: &[UsageValue<'_>]) -> Result<u64, StoreError> {
        let value = |value: &UsageValue<'_>| match value {
            UsageValue::Int(int) => SqlValue::Int(*int),
            UsageValue::Text(text) => SqlValue::Text((*text).to_owned()),
        };
        Transaction::run(self, sql, &values.iter().map(value).collect::<Vec<_>>())
    }
}

/// The failure that an acknowledged transaction must survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionDurability {
    /// Kill of this process. SQLite does not wait for the disk at each commit. PostgreSQL follows
    /// the database's setting `synchronous_commit`.
    ThroughKill,
    /// Power loss of the database's machine. The commit waits for the disk, even if PostgreSQL's
    /// `synchronous_commit` is `off`.
    ThroughPowerLoss,
}

/// A transaction to run, with the channel for its result.
pub(crate) trait TransactionJob: Send {
    /// Runs the work of the transaction. Returns true to commit, false to roll back.
    fn work(&mut self, transaction: &mut dyn Transaction) -> bool;
    /// Sends the result of the work to the caller, after the transaction was committed or rolled
    /// back. If the database failed, `committed` is an error, and is sent instead.
    fn answer(self: Box<Self>, committed: Result<(), StoreError>);
    fn keep(&self) -> TransactionDurability;
    /// Returns true if the caller no longer waits for the result.
    fn is_abandoned(&self) -> bool;
}

struct PendingTransaction<T, E, W> {
    work: Option<W>,
    result: Option<Result<T, E>>,
    reply: oneshot::Sender<Result<T, E>>,
    keep: TransactionDurability,
}

/// Creates a job, and the channel on which its result arrives.
pub(crate) fn job<T, E, W>(
    keep: TransactionDurability,
    work: W,
) -> (Box<dyn TransactionJob>, oneshot::Receiver<Result<T, E>>)
where
    T: Send + 'static,
    E: From<StoreError> + Send + 'static,
    W: FnOnce(&mut dyn Transaction) -> Result<T, E> + Send + 'static,
{
    let (reply, answer) = oneshot::channel();
    (Box::new(PendingTransaction { work: Some(work), result: None, reply, keep }), answer)
}

impl<T, E, W> TransactionJob for PendingTransaction<T, E, W>
where
    T: Send,
    E: From<StoreError> + Send,
    W: FnOnce(&mut dyn Transaction) -> Result<T, E> + Send,
{
    fn work(&mut self, transaction: &mut dyn Transaction) -> bool {
        let Some(work) = self.work.take() else { return false };
        let came_to = work(transaction);
        let keep = came_to.is_ok();
        self.result = Some(came_to);
        keep
    }

    fn answer(self: Box<Self>, committed: Result<(), StoreError>) {
        let came_to = match (self.result, committed) {
            (_, Err(error)) => Err(error.into()),
            (Some(came_to), Ok(())) => came_to,
            (None, Ok(())) => Err(StoreError::Closed.into()),
        };
        let _ = self.reply.send(came_to);
    }

    fn keep(&self) -> TransactionDurability {
        self.keep
    }

    fn is_abandoned(&self) -> bool {
        self.reply.is_closed()
    }
}
