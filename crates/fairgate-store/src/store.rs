//! The handle to the store, which works with either database.

use std::collections::HashMap;
use std::future::ready;
use std::pin::Pin;
use std::sync::Arc;

use fairgate_money::Currency;
use fairgate_time::UnixMicros;

use crate::budget::{BudgetBalance, BudgetOwners, ReservationGrant, ReservationRefused};
use crate::declarations::{DeclarationError, DeclarationPlan, Declarations};
use crate::directory::{Directory, DirectoryChange, DirectoryChangeResult};
use crate::error::StoreError;
use crate::export_lock::ExportLock;
use crate::installation_secret::InstallationSecret;
use crate::key_uses::read_key_uses;
use crate::ledger::{
    AttemptRow, AuditEntry, AuditQuery, LedgerQuery, PriceVersion, Reservation,
    ResolvedReservations, UsageQuery, UsageSums,
};
use crate::postgres::PostgresStore;
use crate::sqlite::SqliteStore;
use crate::store_options::StoreOptions;
use crate::transaction::{DatabaseKind, Transaction, TransactionDurability, job};
use crate::{change_validation, declaration_rows, sql};

/// Id of the advisory lock for the export of the ledger: "fgexport" in ASCII.
const EXPORT_LOCK: i64 = 0x6667_6578_706f_7274;

/// Boxed future that the methods of [`Store`] return.
///
/// The box keeps builds short. The body of an `async fn` is compiled in every crate that awaits the function, and here
/// the body contains the clients of both databases. Behind a box the body is compiled once, in this crate.
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// Boxed future of a transaction, with the error type of the transaction's code. It is boxed for the same reason as
/// [`StoreFuture`].
pub type TransactionFuture<'a, T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send + 'a>>;

/// Handle to the database, which is cheap to clone. All clones share one store, and closing one closes all.
///
/// # Order of calls
///
/// 1. [`Store::open`] once. It migrates the schema and resolves what dead processes left.
/// 2. [`Store::directory`] to authenticate callers. Call it again whenever [`Store::directory_version`] has changed, and
///    after each [`Store::change`] of this process.
/// 3. For each request:
///    1. [`Store::can_record`]. Start no request while it is false.
///    2. [`Store::reserve`] before the request is queued. [`Store::budgets`] may refuse it earlier, without reserving.
///    3. [`Store::record`] for each attempt, with [`AttemptRow::last`] for the last one, also if the request failed or
///       was refused. The last row ends the reservation. Answer the client when the future is ready.
///
///    A request that is never recorded keeps its reservation until this process ends, and is then charged in full.
/// 4. [`Store::usage`], [`Store::attempts`], [`Store::audit`] and [`Store::prices`] at any time. They see all rows that
///    this process recorded before.
/// 5. [`Store::transact`] and [`Store::inspect`] for tables of other crates, which have the SQL for them.
/// 6. [`Store::prune`] now and then, if old rows are not wanted.
/// 7. [`Store::close`] once, after the last row. Rows that the database did not take then stay in the spool for the next
///    process.
#[derive(Clone, Debug)]
pub struct Store {
    backend: StoreBackend,
}

#[derive(Clone, Debug)]
enum StoreBackend {
    Sqlite(Arc<SqliteStore>),
    Postgres(Arc<PostgresStore>),
}

/// Runs the same method on the store of either database.
macro_rules! on {
    ($store:expr, $backend:ident => $call:expr) => {
        match &$store.backend {
            StoreBackend::Sqlite($backend) => Box::pin($call),
            StoreBackend::Postgres($backend) => Box::pin($call),
        }
    };
}

impl Store {
    /// Opens `sqlite:PATH`, `sqlite::memory:` or `postgres://…`, migrates its schema, and resolves the reservations of
    /// dead processes.
    pub fn open(url: &str, options: StoreOptions) -> StoreFuture<'_, (Self, ResolvedReservations)> {
        Box::pin(Self::opened(url, options))
    }

    async fn opened(
        url: &str,
        options: StoreOptions,
    ) -> Result<(Self, ResolvedReservations), StoreError> {
        if let Some(path) = url.strip_prefix("sqlite:") {
            let (sqlite, resolved) = SqliteStore::open(path, &options).await?;
            return Ok((Self { backend: StoreBackend::Sqlite(Arc::new(sqlite)) }, resolved));
        }
        let wrong = |problem| StoreError::Url { url: without_password(url), problem };
        if url.starts_with("postgres://") || url.starts_with("postgresql://") {
            let (postgres, resolved) =
                PostgresStore::open(url, &options).await.map_err(wrong)??;
            return Ok((Self { backend: StoreBackend::Postgres(Arc::new(postgres)) }, resolved));
        }
        let known = "must be sqlite:PATH, sqlite::memory: or postgres://USER@HOST/DATABASE";
        Err(wrong(known.to_owned()))
    }

    /// Returns all data that the gateway needs to authenticate clients.
    pub fn directory(&self) -> StoreFuture<'_, Directory> {
        on!(self, it => it.directory())
    }

    /// Returns the version of the directory. This is cheap, so gateways that share a database can poll the version.
    pub fn directory_version(&self) -> StoreFuture<'_, i64> {
        on!(self, it => it.directory_version())
    }

    /// Applies a change of the directory and writes its audit entry, both or neither. A change without effect (revoking
    /// a revoked key, a patch with equal values) is not an error, and makes no audit entry and no new version.
    pub fn change<'a>(
        &'a self,
        actor: &'a str,
        at: UnixMicros,
        change: DirectoryChange,
    ) -> StoreFuture<'a, DirectoryChangeResult> {
        if let Err(error) = change_validation::change(actor, at, &change) {
            return Box::pin(ready(Err(error)));
        }
        on!(self, it => it.change(actor, at, change))
    }

    /// Returns what the declarations of a file would change, and changes nothing.
    pub fn preview_declarations(
        &self,
        declared: Arc<Declarations>,
        at: UnixMicros,
    ) -> TransactionFuture<'_, DeclarationPlan, DeclarationError> {
        self.inspect(move |transaction| declaration_rows::preview(transaction, &declared, at))
    }

    /// Applies the declarations of a file in one transaction, with an audit entry for each changed object. Declares
    /// nothing if that would disable more than half of what is declared, unless `may_disable_most`. Returns the changes.
    pub fn apply_declarations(
        &self,
        declared: Arc<Declarations>,
        at: UnixMicros,
        may_disable_most: bool,
    ) -> TransactionFuture<'_, DeclarationPlan, DeclarationError> {
        self.transact(TransactionDurability::ThroughPowerLoss, move |transaction| {
            declaration_rows::apply(transaction, &declared, at, may_disable_most)
        })
    }

    /// Reserves provider tokens and money for a request, in all budgets of its group, tenant and key at once, and of
    /// the hosted tier if the reservation asks for hosted workers. Changes nothing if one of these budgets has no room.
    /// The budgets are those in the database at this moment. If there is no budget, nothing is reserved and the request
    /// is granted.
    ///
    /// If the budgets have room for the request on own workers but not on hosted ones, the request is granted without
    /// hosted workers. [`ReservationGrant::hosted`] is then false, and [`ReservationGrant::hosted_exhausted`] names the
    /// budget. A caller without own workers passes the hosted amounts for both.
    ///
    /// The reservation counts in the day and month that contain its `at`, and so does the final usage of the request,
    /// even after midnight. A second reservation of a request replaces the first. If the future is dropped before it is
    /// ready, anything that it may have reserved is given back.
    pub fn reserve(
        &self,
        mut reservation: Reservation,
    ) -> StoreFuture<'_, Result<ReservationGrant, ReservationRefused>> {
        if let Err(error) = reservation.clamp() {
            return Box::pin(ready(Err(error)));
        }
        on!(self, it => it.reserve(reservation))
    }

    /// Returns the balances of the owners' budgets in the periods that contain `at`. The budgets of the tenant come
    /// first, then those of the key, the hosted tier and the group. For each owner, budgets for any worker come before
    /// those for hosted workers, tokens before money, and days before months.
    pub fn budgets<'a>(
        &'a self,
        owners: BudgetOwners<'a>,
        at: UnixMicros,
    ) -> StoreFuture<'a, Vec<BudgetBalance>> {
        on!(self, it => it.budgets(owners, at))
    }

    /// Lists all prices that were ever in force, oldest first. See [`DirectoryChange::KeepPrices`].
    pub fn prices(&self) -> StoreFuture<'_, Vec<PriceVersion>> {
        on!(self, it => it.prices())
    }

    /// Returns the number of other gateways that have the database open now, by the database's clock. A SQLite file is
    /// open in one process.
    pub fn other_gateways(&self) -> StoreFuture<'_, u64> {
        match &self.backend {
            StoreBackend::Sqlite(_) => Box::pin(ready(Ok(0))),
            StoreBackend::Postgres(it) => Box::pin(it.other_gateways()),
        }
    }

    /// Returns the currency of the installation; `None` before the first price was stored.
    pub fn currency(&self) -> StoreFuture<'_, Option<Currency>> {
        on!(self, it => it.currency())
    }

    /// Writes a row, adds its usage to the sums of its group, tenant and key (and of the hosted tier if the row's tier
    /// is not 0), and ends the request's reservation if this is the last row of the request. The database does all of
    /// this in one transaction. The future is ready once the row survives a kill of the process, which is when its line
    /// is in a file on this machine. The database gets the row some milliseconds later, or when the database is back;
    /// the reservation stays until then. Later reads through this store see the row.
    ///
    /// [`StoreError::Unrecorded`] means that a kill may lose the row, because neither the files nor the database
    /// accepted it. The row is kept in memory, if there is room, and is written when the database accepts rows again.
    ///
    /// A row that exists already is neither written nor charged again. A guessed row, with the outcome `lost`, is
    /// replaced by the real one. The row is handed over at the first poll, and is written even if the future is dropped
    /// after that.
    pub fn record(&self, attempt: impl Into<Box<AttemptRow>>) -> StoreFuture<'_, ()> {
        let mut attempt = attempt.into();
        if let Err(error) = attempt.clamp() {
            return Box::pin(ready(Err(error)));
        }
        on!(self, it => it.record(attempt))
    }

    /// Returns true if a row would be stored now. Returns false while the spool files cannot be written, for instance
    /// because the disk is full. A caller that needs a row for each response should then start no requests. The check
    /// is cheap in normal operation.
    pub fn can_record(&self) -> bool {
        match &self.backend {
            StoreBackend::Sqlite(it) => it.is_writable(),
            StoreBackend::Postgres(it) => it.is_writable(),
        }
    }

    /// Returns the number of rows that are safe in files but not in the database yet.
    pub fn rows_waiting(&self) -> u64 {
        match &self.backend {
            StoreBackend::Sqlite(it) => it.rows_waiting(),
            StoreBackend::Postgres(it) => it.rows_waiting(),
        }
    }

    /// Returns sums of ledger rows for at most 10 000 groups. Groups with the most charged tokens come first; days and
    /// hours are in the order of time.
    pub fn usage(&self, query: UsageQuery) -> StoreFuture<'_, UsageSums> {
        on!(self, it => it.usage(query))
    }

    /// Lists rows of the ledger, newest first.
    pub fn attempts(&self, query: LedgerQuery) -> StoreFuture<'_, Vec<AttemptRow>> {
        on!(self, it => it.attempts(query))
    }

    /// Lists audit entries, newest first.
    pub fn audit(&self, query: AuditQuery) -> StoreFuture<'_, Vec<AuditEntry>> {
        on!(self, it => it.audit(query))
    }

    /// Removes ledger rows of requests that arrived before `before`, a bounded number in each transaction. Sums and the
    /// audit trail stay. Returns the number of removed rows.
    pub fn prune(&self, before: UnixMicros) -> StoreFuture<'_, u64> {
        Box::pin(async move {
            let mut removed = 0;
            loop {
                let some = self.prune_some(before).await?;
                removed += some;
                if some < sql::PRUNE_ROWS.unsigned_abs() {
                    // An export that is no longer configured leaves notes behind.
                    self.prune_removed(before).await?;
                    return Ok(removed);
                }
            }
        })
    }

    fn prune_some(&self, before: UnixMicros) -> StoreFuture<'_, u64> {
        on!(self, it => it.prune_some(before))
    }

    /// Returns the secret of the installation that has this name. The first call on a database makes the secret; all
    /// gateways on the database get the same one.
    pub fn installation_secret(&self, name: &'static str) -> StoreFuture<'_, InstallationSecret> {
        self.transact(TransactionDurability::ThroughPowerLoss, move |transaction| {
            InstallationSecret::read_or_make(transaction, name)
        })
    }

    /// Returns the last use of each of these keys that was ever used, by key id. A use is known a minute later at the
    /// latest.
    pub fn key_uses(
        &self,
        keys: Vec<String>,
    ) -> TransactionFuture<'_, HashMap<String, UnixMicros>, StoreError> {
        self.inspect(move |transaction| read_key_uses(transaction, keys))
    }

    /// Runs a transaction of the caller. If `work` returns an error, nothing is changed. These transactions run one at a
    /// time, over all processes that share the database. Those of this process that wait at the same time share a commit,
    /// and each is answered after the commit. The transaction is handed over at the first poll; if the future is dropped
    /// after that, it may be committed or not.
    pub fn transact<T, E>(
        &self,
        keep: TransactionDurability,
        work: impl FnOnce(&mut dyn Transaction) -> Result<T, E> + Send + 'static,
    ) -> TransactionFuture<'_, T, E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        let (job, answer) = job(keep, work);
        let handed: StoreFuture<'_, ()> = on!(self, it => it.transact(job));
        Box::pin(async move {
            handed.await?;
            let answer = async { answer.await.map_err(|_| StoreError::Closed) };
            match &self.backend {
                StoreBackend::Sqlite(_) => answer.await?,
                StoreBackend::Postgres(it) => it.wait_for_transaction(answer).await?,
            }
        })
    }

    /// Runs `work`, which may only read, on one consistent snapshot.
    pub fn inspect<T, E>(
        &self,
        work: impl FnOnce(&mut dyn Transaction) -> Result<T, E> + Send + 'static,
    ) -> TransactionFuture<'_, T, E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        let (job, answer) = job(TransactionDurability::ThroughKill, work);
        let handed: StoreFuture<'_, ()> = on!(self, it => it.inspect(job));
        Box::pin(async move {
            handed.await?;
            answer.await.unwrap_or_else(|_| Err(StoreError::Closed.into()))
        })
    }

    /// Checks that the database answers.
    pub fn ping(&self) -> StoreFuture<'_, ()> {
        on!(self, it => it.ping())
    }

    /// Returns the kind of the database.
    pub(crate) fn database_kind(&self) -> DatabaseKind {
        match &self.backend {
            StoreBackend::Sqlite(_) => DatabaseKind::Sqlite,
            StoreBackend::Postgres(_) => DatabaseKind::Postgres,
        }
    }

    /// Returns the lock of the export, which is not held yet.
    pub fn export_lock(&self) -> ExportLock {
        match &self.backend {
            // The file has one process.
            StoreBackend::Sqlite(_) => ExportLock::always_held(),
            StoreBackend::Postgres(it) => ExportLock::on_server(it.advisory_lock(EXPORT_LOCK)),
        }
    }

    /// Writes pending rows and closes the store. Later calls fail with [`StoreError::Closed`].
    pub fn close(&self) -> StoreFuture<'_, ()> {
        on!(self, it => it.close())
    }
}

/// Returns a URL that may be shown, in which the password between `:` and `@` is hidden.
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
