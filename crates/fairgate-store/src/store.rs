//! The store: one handle over either database.

use std::future::ready;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use fairgate_money::{Currency, UnixMicros};

use crate::budget::{BudgetLeft, Granted, Owners, Refused};
use crate::directory::{Change, Changed, Directory};
use crate::error::StoreError;
use crate::ledger::{
    Attempt, AuditEntry, AuditQuery, LedgerQuery, PriceVersion, Reservation, Resolved, UsageQuery,
    UsageRow,
};
use crate::postgres::Postgres;
use crate::spool::Bounds;
use crate::sqlite::Sqlite;
use crate::transaction::{Keep, Transaction, job};
use crate::{check, sql};

/// What a call of [`Store`] returns: a future, boxed.
///
/// The box keeps builds short. The body of an `async fn` is compiled in every crate that awaits it, here with both
/// databases' clients inside it; behind a box it is compiled once, in this crate.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// What a transaction returns, with an error of its own kind: a future, boxed like [`Answer`].
pub type Outcome<'a, T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send + 'a>>;

/// How a store behaves.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// How many questions may be pending, and how many rows are held in memory until the database has them; further rows are
    /// in files only.
    pub pending_max: usize,
    /// How large the files may become that hold rows until the database has them, in bytes. Beyond that, rows are refused.
    pub spool_bytes_max: u64,
    /// The folder of those files, for this process alone. PostgreSQL needs one; on SQLite they lie beside the database.
    pub spool: Option<PathBuf>,
    /// How long [`Store::reserve`] and [`Store::budgets`] wait for a PostgreSQL that answers nobody.
    pub patience: Duration,
    /// After how long without a sign of life another process's reservations are resolved (PostgreSQL).
    pub lease: Duration,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            pending_max: 4096,
            spool_bytes_max: 1 << 30,
            spool: None,
            patience: Duration::from_millis(200),
            lease: Duration::from_secs(30),
        }
    }
}

impl StoreOptions {
    pub(crate) fn bounds(&self) -> Bounds {
        Bounds { memory_rows: self.pending_max, bytes_max: self.spool_bytes_max }
    }
}

/// A handle to the database. Cheap to clone; all clones are one store, which one of them closes for all.
#[derive(Clone, Debug)]
pub struct Store {
    backend: Backend,
}

#[derive(Clone, Debug)]
enum Backend {
    Sqlite(Arc<Sqlite>),
    Postgres(Arc<Postgres>),
}

/// The same call on whichever database it is.
macro_rules! on {
    ($store:expr, $backend:ident => $call:expr) => {
        match &$store.backend {
            Backend::Sqlite($backend) => Box::pin($call),
            Backend::Postgres($backend) => Box::pin($call),
        }
    };
}

impl Store {
    /// Opens `sqlite:PATH`, `sqlite::memory:` or `postgres://…`, brings its schema up to date, and resolves what dead
    /// processes left reserved.
    pub fn open(url: &str, options: StoreOptions) -> Answer<'_, (Self, Resolved)> {
        Box::pin(Self::opened(url, options))
    }

    async fn opened(url: &str, options: StoreOptions) -> Result<(Self, Resolved), StoreError> {
        if let Some(path) = url.strip_prefix("sqlite:") {
            let (sqlite, resolved) = Sqlite::open(path, &options).await?;
            return Ok((Self { backend: Backend::Sqlite(Arc::new(sqlite)) }, resolved));
        }
        let wrong = |problem| StoreError::Url { url: without_password(url), problem };
        if url.starts_with("postgres://") || url.starts_with("postgresql://") {
            let (postgres, resolved) = Postgres::open(url, &options).await.map_err(wrong)??;
            return Ok((Self { backend: Backend::Postgres(Arc::new(postgres)) }, resolved));
        }
        let known = "must be sqlite:PATH, sqlite::memory: or postgres://USER@HOST/DATABASE";
        Err(wrong(known.to_owned()))
    }

    /// Everything that the gateway must know to tell who asks.
    pub fn directory(&self) -> Answer<'_, Directory> {
        on!(self, it => it.directory())
    }

    /// The directory's version: cheap, asked now and then by gateways that share a database.
    pub fn directory_version(&self) -> Answer<'_, i64> {
        on!(self, it => it.directory_version())
    }

    /// Makes a change and writes its audit entry, both or neither. A change that leaves everything as it is (revoking a
    /// revoked key, a patch with what is there) is no error, no entry, and no new version.
    pub fn change<'a>(
        &'a self,
        actor: &'a str,
        at: UnixMicros,
        change: Change,
    ) -> Answer<'a, Changed> {
        if let Err(error) = check::change(actor, at, &change) {
            return Box::pin(ready(Err(error)));
        }
        on!(self, it => it.change(actor, at, change))
    }

    /// Holds provider tokens and money for a request, in all budgets of its group, tenant and key at once, and of the hosted
    /// tier where it asks for that; changes nothing where one of them has no room. Budgets are those in the database at
    /// this moment. Without any budget it holds nothing and says yes.
    ///
    /// A request that asks for hosted workers and does not fit there is granted without them, where it fits on own ones:
    /// [`Granted::hosted`] is false and [`Granted::why`] names the budget. Whoever has no own workers gives the hosted
    /// amounts for both.
    ///
    /// What is held belongs to the day and month that `at` lies in, and so does what the request uses in the end, even
    /// when that is after midnight. A request that already holds something holds the new amounts instead. Dropping the
    /// future before it has answered gives back what it may have reserved.
    pub fn reserve(&self, mut reservation: Reservation) -> Answer<'_, Result<Granted, Refused>> {
        if let Err(error) = reservation.fit() {
            return Box::pin(ready(Err(error)));
        }
        on!(self, it => it.reserve(reservation))
    }

    /// How the budgets of these owners stand in the periods that `at` lies in: the tenant's first, then the key's, the hosted
    /// tier's and the group's; those for any worker before those for hosted ones, tokens before money, days before months.
    pub fn budgets<'a>(
        &'a self,
        owners: Owners<'a>,
        at: UnixMicros,
    ) -> Answer<'a, Vec<BudgetLeft>> {
        on!(self, it => it.budgets(owners, at))
    }

    /// All prices that were ever in force, the oldest first. See [`Change::KeepPrices`].
    pub fn prices(&self) -> Answer<'_, Vec<PriceVersion>> {
        on!(self, it => it.prices())
    }

    /// The currency that money is counted in; none before there was a price.
    pub fn currency(&self) -> Answer<'_, Option<Currency>> {
        on!(self, it => it.currency())
    }

    /// Writes a row, adds what it used to the sums of its group, tenant and key (and of the hosted tier, where its tier is
    /// not 0), and ends the request's reservation where
    /// it is the request's last: all in one transaction. Returns once the row outlives a killed process, which is when its
    /// line is in a file on this machine. The database takes it some milliseconds later, or when it is back; what the request
    /// reserved stays reserved until then. Whoever asks this store for rows or sums finds it.
    ///
    /// [`StoreError::Unrecorded`] means that a kill may lose the row: neither the files nor the database took it. It is kept
    /// in memory, where there is room, and goes to the database when that takes rows again.
    ///
    /// A row that is there already is not written or charged again. One that was guessed (`lost`) gives way to the real
    /// one. The row is handed over at the first poll; dropping the future after that does not stop it.
    pub fn record(&self, mut attempt: Attempt) -> Answer<'_, ()> {
        if let Err(error) = attempt.fit() {
            return Box::pin(ready(Err(error)));
        }
        on!(self, it => it.record(attempt))
    }

    /// Whether a row would be kept now. False while the files take no lines, because the disk is full for instance: whoever
    /// must have a row for each answer should not begin one then. Costs nothing while all is well.
    pub fn can_record(&self) -> bool {
        match &self.backend {
            Backend::Sqlite(it) => it.is_writable(),
            Backend::Postgres(it) => it.is_writable(),
        }
    }

    /// How many rows are safe in files and not in the database yet.
    pub fn rows_waiting(&self) -> u64 {
        match &self.backend {
            Backend::Sqlite(it) => it.rows_waiting(),
            Backend::Postgres(it) => it.rows_waiting(),
        }
    }

    /// Sums of rows, the most charged first (days and hours in order); 10 000 at most.
    pub fn usage(&self, query: UsageQuery) -> Answer<'_, Vec<UsageRow>> {
        on!(self, it => it.usage(query))
    }

    /// Rows, newest first.
    pub fn attempts(&self, query: LedgerQuery) -> Answer<'_, Vec<Attempt>> {
        on!(self, it => it.attempts(query))
    }

    /// Changes, newest first.
    pub fn audit(&self, query: AuditQuery) -> Answer<'_, Vec<AuditEntry>> {
        on!(self, it => it.audit(query))
    }

    /// Removes rows that started before `before`, a bounded number at a time. Sums and audit stay. Says how many went.
    pub fn prune(&self, before: UnixMicros) -> Answer<'_, u64> {
        Box::pin(async move {
            let mut removed = 0;
            loop {
                let some = self.prune_some(before).await?;
                removed += some;
                if some < sql::PRUNE_ROWS.unsigned_abs() {
                    return Ok(removed);
                }
            }
        })
    }

    fn prune_some(&self, before: UnixMicros) -> Answer<'_, u64> {
        on!(self, it => it.prune_some(before))
    }

    /// Runs a transaction of the fleet. Where `work` returns an error, nothing is changed. Such transactions run one at a
    /// time, over all processes that share the database. Once it is handed over, at the first poll, it is carried out,
    /// whether anyone waits or not.
    pub fn transact<T, E>(
        &self,
        keep: Keep,
        work: impl FnOnce(&mut dyn Transaction) -> Result<T, E> + Send + 'static,
    ) -> Outcome<'_, T, E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        let (job, answer) = job(keep, work);
        let handed: Answer<'_, ()> = on!(self, it => it.transact(job));
        Box::pin(async move {
            handed.await?;
            answer.await.unwrap_or_else(|_| Err(StoreError::Closed.into()))
        })
    }

    /// Reads what the fleet keeps, as it was at one moment.
    pub fn inspect<T, E>(
        &self,
        work: impl FnOnce(&mut dyn Transaction) -> Result<T, E> + Send + 'static,
    ) -> Outcome<'_, T, E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        let (job, answer) = job(Keep::ThroughKill, work);
        let handed: Answer<'_, ()> = on!(self, it => it.inspect(job));
        Box::pin(async move {
            handed.await?;
            answer.await.unwrap_or_else(|_| Err(StoreError::Closed.into()))
        })
    }

    /// Whether the database answers.
    pub fn ping(&self) -> Answer<'_, ()> {
        on!(self, it => it.ping())
    }

    /// Writes what is pending and closes. What is asked afterwards is [`StoreError::Closed`].
    pub fn close(&self) -> Answer<'_, ()> {
        on!(self, it => it.close())
    }
}

/// An address that may be shown: what is between `:` and `@` is hidden.
fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let Some((user, place)) = rest.rsplit_once('@') else { return url.to_owned() };
    let user = user.split(':').next().unwrap_or_default();
    format!("{scheme}://{user}:***@{place}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_not_shown() {
        assert_eq!(without_password("pg://u:s3cr@t@host/db"), "pg://u:***@host/db");
        assert_eq!(without_password("mysql://host/db"), "mysql://host/db");
        assert_eq!(without_password("nonsense"), "nonsense");
    }
}
