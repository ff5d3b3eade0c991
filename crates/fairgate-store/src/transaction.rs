//! Transactions that somebody else writes: the fleet keeps its projects, tasks and agents in this store, with SQL of its own.
//!
//! The work of a transaction is an ordinary function over [`Transaction`], the same for both databases: it asks, looks at
//! the answer and asks again. It runs on a thread that may block.

use tokio::sync::oneshot;

use crate::error::StoreError;
pub use crate::rows::Columns;
pub use crate::sql::Value;

/// What a transaction can do. Placeholders are written `$1`, `$2`, … and must first appear in that order.
pub trait Transaction {
    /// Shows each row of a query to `row`.
    fn each(
        &mut self,
        sql: &str,
        values: &[Value],
        row: &mut dyn FnMut(&dyn Columns) -> Result<(), StoreError>,
    ) -> Result<(), StoreError>;

    /// Runs a statement; says how many rows it changed.
    fn run(&mut self, sql: &str, values: &[Value]) -> Result<u64, StoreError>;

    /// Which database it is, for the few statements that differ.
    fn database(&self) -> Database;
}

/// A kind of database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Database {
    /// SQLite.
    Sqlite,
    /// PostgreSQL.
    Postgres,
}

impl dyn Transaction + '_ {
    /// All rows of a query.
    pub fn list<T>(
        &mut self,
        sql: &str,
        values: &[Value],
        read: impl Fn(&dyn Columns) -> Result<T, StoreError>,
    ) -> Result<Vec<T>, StoreError> {
        let mut list = Vec::new();
        self.each(sql, values, &mut |row| {
            list.push(read(row)?);
            Ok(())
        })?;
        Ok(list)
    }

    /// The first row of a query, where there is one.
    pub fn first<T>(
        &mut self,
        sql: &str,
        values: &[Value],
        read: impl Fn(&dyn Columns) -> Result<T, StoreError>,
    ) -> Result<Option<T>, StoreError> {
        Ok(self.list(sql, values, read)?.into_iter().next())
    }
}

/// What a transaction must outlive once it is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// A killed process. SQLite does not wait for the disk; PostgreSQL does as it is set to.
    ThroughKill,
    /// A power cut.
    ThroughPowerLoss,
}

/// A transaction to be made, and whoever waits for what it comes to.
pub(crate) trait Job: Send {
    /// Does the work. Says whether to keep what it did.
    fn work(&mut self, transaction: &mut dyn Transaction) -> bool;
    /// Tells whoever waits, once the transaction is committed or undone; `Err` where the database failed.
    fn answer(self: Box<Self>, committed: Result<(), StoreError>);
    fn keep(&self) -> Keep;
}

struct Asked<T, E, W> {
    work: Option<W>,
    came_to: Option<Result<T, E>>,
    reply: oneshot::Sender<Result<T, E>>,
    keep: Keep,
}

/// A job, and where its answer comes.
pub(crate) fn job<T, E, W>(keep: Keep, work: W) -> (Box<dyn Job>, oneshot::Receiver<Result<T, E>>)
where
    T: Send + 'static,
    E: From<StoreError> + Send + 'static,
    W: FnOnce(&mut dyn Transaction) -> Result<T, E> + Send + 'static,
{
    let (reply, answer) = oneshot::channel();
    (Box::new(Asked { work: Some(work), came_to: None, reply, keep }), answer)
}

impl<T, E, W> Job for Asked<T, E, W>
where
    T: Send,
    E: From<StoreError> + Send,
    W: FnOnce(&mut dyn Transaction) -> Result<T, E> + Send,
{
    fn work(&mut self, transaction: &mut dyn Transaction) -> bool {
        let Some(work) = self.work.take() else { return false };
        let came_to = work(transaction);
        let keep = came_to.is_ok();
        self.came_to = Some(came_to);
        keep
    }

    fn answer(self: Box<Self>, committed: Result<(), StoreError>) {
        let came_to = match (self.came_to, committed) {
            (_, Err(error)) => Err(error.into()),
            (Some(came_to), Ok(())) => came_to,
            (None, Ok(())) => Err(StoreError::Closed.into()),
        };
        let _ = self.reply.send(came_to);
    }

    fn keep(&self) -> Keep {
        self.keep
    }
}
