//! The store: one handle over either database.

use std::time::Duration;

use crate::directory::{Change, Changed, Directory, UnixMicros};
use crate::error::StoreError;
use crate::ledger::{
    Attempt, AuditEntry, AuditQuery, BudgetLeft, Exhausted, LedgerQuery, Reservation, Resolved,
    UsageQuery, UsageRow,
};

/// How a store behaves.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// How many rows may wait to be written; who finds no room waits.
    pub pending_max: usize,
    /// After how long without a sign of life another process's reservations are resolved (PostgreSQL).
    pub lease: Duration,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self { pending_max: 4096, lease: Duration::from_secs(30) }
    }
}

/// A handle to the database. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Store {
    // the helper who builds this crate decides
}

#[allow(clippy::unused_async, clippy::todo, unused_variables, missing_docs)]
impl Store {
    /// Opens `sqlite:PATH`, `sqlite::memory:` or `postgres://…`, brings its schema up to date, and resolves what dead
    /// processes left reserved.
    pub async fn open(url: &str, options: StoreOptions) -> Result<(Self, Resolved), StoreError> {
        todo!()
    }

    /// Everything that the gateway must know to tell who asks.
    pub async fn directory(&self) -> Result<Directory, StoreError> {
        todo!()
    }

    /// The directory's version: cheap, asked now and then by gateways that share a database.
    pub async fn directory_version(&self) -> Result<i64, StoreError> {
        todo!()
    }

    /// Makes a change and writes its audit entry, both or neither.
    pub async fn change(
        &self,
        actor: &str,
        at: UnixMicros,
        change: Change,
    ) -> Result<Changed, StoreError> {
        todo!()
    }

    /// Holds tokens for a request, where every budget of its tenant and key has room; changes nothing where one has not.
    /// Budgets are those in the database at this moment. Without any budget it holds nothing and says yes.
    pub async fn reserve(
        &self,
        reservation: Reservation,
    ) -> Result<Result<(), Exhausted>, StoreError> {
        todo!()
    }

    /// How the budgets of a tenant and one of its keys stand in the periods that `at` lies in.
    pub async fn budgets(
        &self,
        tenant: &str,
        key: Option<&str>,
        at: UnixMicros,
    ) -> Result<Vec<BudgetLeft>, StoreError> {
        todo!()
    }

    /// Writes a row, adds what was charged to the sums of its tenant and key, and ends the request's reservation where
    /// it has one: all in one transaction. Returns once that is committed, so that it outlives a killed process.
    pub async fn record(&self, attempt: Attempt) -> Result<(), StoreError> {
        todo!()
    }

    /// Sums of rows, the most charged first (days and hours in order).
    pub async fn usage(&self, query: UsageQuery) -> Result<Vec<UsageRow>, StoreError> {
        todo!()
    }

    /// Rows, newest first.
    pub async fn attempts(&self, query: LedgerQuery) -> Result<Vec<Attempt>, StoreError> {
        todo!()
    }

    /// Changes, newest first.
    pub async fn audit(&self, query: AuditQuery) -> Result<Vec<AuditEntry>, StoreError> {
        todo!()
    }

    /// Removes rows that started before `before`, a bounded number at a time. Sums and audit stay. Says how many went.
    pub async fn prune(&self, before: UnixMicros) -> Result<u64, StoreError> {
        todo!()
    }

    /// Whether the database answers.
    pub async fn ping(&self) -> Result<(), StoreError> {
        todo!()
    }

    /// Writes what is pending and closes. What is asked afterwards is [`StoreError::Closed`].
    pub async fn close(&self) -> Result<(), StoreError> {
        todo!()
    }
}
