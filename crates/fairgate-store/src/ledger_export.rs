//! Reads the ledger by rising row number, for a copy of it in another system, and keeps the
//! progress of that copy.
//!
//! # Order of numbers
//! A row gets its number when it is inserted. SQLite has one writer, so numbers become visible in order. PostgreSQL's
//! transactions take their numbers before they commit, so a lower number can become visible after a higher one, but only
//! as long as a transaction lasts. A reader therefore reads the numbers of the last minute again.
//!
//! # Versions
//! Rows are written once, with one exception. A guessed row, with the outcome `lost`, is deleted
//! when its request turns out to be alive, and real rows are written. Their attempt number and day
//! may differ from those of the guess. So each deleted guess is kept as a [`RemovedAttempt`] as
//! long as the copy may have it. If a copy gets several rows for the same attempt, the highest
//! version counts. A row's version is twice its number, and that of its removal is one higher,
//! which is less than the version of every later row.

use fairgate_time::{UnixMicros, UtcDay};

use crate::error::StoreError;
use crate::ledger::AttemptRow;
use crate::rows::{self, RowColumns};
use crate::sql::{SqlValue, attempt_columns};
use crate::store::{Store, TransactionFuture};
use crate::transaction::{DatabaseKind, Transaction, TransactionDurability};

/// Number of rows that are removed from the ledger in one transaction.
const PRUNE_ROWS: i64 = crate::sql::PRUNE_ROWS;

const ROWS: &str = concat!(
    "SELECT ",
    attempt_columns!(),
    ", row_number FROM attempts WHERE row_number > $1 AND row_number <= $2 ORDER BY row_number LIMIT $3"
);
/// Index of the row number's column, after the columns of an attempt.
const NUMBER_COLUMN: usize = 42;
const NUMBERS: &str = "SELECT row_number FROM attempts WHERE row_number > $1 AND row_number <= $2 \
     ORDER BY row_number LIMIT $3";
const LAST_NUMBER: &str = "SELECT COALESCE(MAX(row_number), 0) FROM attempts";
const FIRST_UNSENT: &str =
    "SELECT started_at, total_us FROM attempts WHERE row_number > $1 ORDER BY row_number LIMIT 1";
const REMOVED: &str = "SELECT row_number, request, attempt, tenant, started_at FROM removed_attempts \
     ORDER BY row_number LIMIT $1";
const FORGET_REMOVED: &str = "DELETE FROM removed_attempts WHERE row_number = $1";
const REGISTER: &str = "INSERT INTO ledger_exports (target, sent, settled) VALUES ($1, 0, 0) ON CONFLICT (target) DO NOTHING";
const POSITION: &str = "SELECT sent, settled FROM ledger_exports WHERE target = $1";
/// Advances a position. A position never decreases, because rows that another gateway has sent
/// meanwhile stay sent.
const ADVANCE: &str = "UPDATE ledger_exports SET sent = CASE WHEN sent < $1 THEN $1 ELSE sent END, \
     settled = CASE WHEN settled < $2 THEN $2 ELSE settled END WHERE target = $3";
const RESTART: &str = "UPDATE ledger_exports SET sent = 0, settled = 0 WHERE target = $1";
const PRUNE_SENT: &str = "DELETE FROM attempts WHERE row_number IN (SELECT row_number FROM attempts \
     WHERE started_at < $1 AND row_number <= $2 ORDER BY started_at LIMIT $3)";
const PRUNE_UNSENT: &str = "DELETE FROM attempts WHERE row_number IN (SELECT row_number FROM attempts \
     WHERE started_at < $1 AND row_number > $2 ORDER BY started_at LIMIT $3)";
const PRUNE_REMOVED: &str = "DELETE FROM removed_attempts WHERE started_at < $1";
const DAY_SUMS: &str = "SELECT COUNT(*), CAST(COALESCE(SUM(input_tokens), 0) AS BIGINT), \
     CAST(COALESCE(SUM(cached_tokens), 0) AS BIGINT), CAST(COALESCE(SUM(output_tokens), 0) AS BIGINT), \
     CAST(COALESCE(SUM(charged), 0) AS BIGINT), CAST(COALESCE(SUM(provider_tokens), 0) AS BIGINT), \
     CAST(COALESCE(SUM(money), 0) AS BIGINT) FROM attempts \
     WHERE started_at >= $1 AND started_at < $2 AND row_number <= $3";

/// Row of the ledger with its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumberedAttempt {
    /// Number of the row. Later rows have higher numbers.
    pub number: i64,
    /// Content of the row.
    pub attempt: AttemptRow,
}

/// A guessed row that was deleted from the ledger because its request was alive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemovedAttempt {
    /// Number that the deleted row had.
    pub number: i64,
    /// Id of its request.
    pub request: String,
    /// Number of the attempt within its request.
    pub attempt: u32,
    /// Tenant that made the request.
    pub tenant: String,
    /// Arrival of the request, as in the deleted row.
    pub started_at: UnixMicros,
}

/// Progress of the copy of the ledger in one target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExportPosition {
    /// Highest row number that was sent.
    pub sent: i64,
    /// Row number up to which all rows were sent and no further row can become visible.
    pub settled: i64,
}

/// Rows that the copy does not have yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExportBacklog {
    /// Number of row numbers after the last one that was sent. This is an upper bound of the rows,
    /// because some numbers have no row.
    pub rows: u64,
    /// End of the attempt of the oldest row that was not sent; `None` if all were.
    pub oldest: Option<UnixMicros>,
}

/// Sums over the rows of one day.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LedgerDaySums {
    /// Number of rows of the day.
    pub rows: u64,
    /// Input tokens, including cached tokens.
    pub input_tokens: u64,
    /// Input tokens that were in the upstream's cache.
    pub cached_tokens: u64,
    /// Output tokens of the responses.
    pub output_tokens: u64,
    /// Weighted tokens that were charged for the rows.
    pub charged: u64,
    /// Tokens as providers and token budgets count them.
    pub provider_tokens: u64,
    /// Cost in money, in micro-units of the installation's currency.
    pub money: u64,
}

/// Times before which rows are removed from a ledger that is exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExportedRowLimits {
    /// Rows that were sent are removed if their request arrived before this time.
    pub sent_before: UnixMicros,
    /// Other rows are removed if their request arrived before this earlier time.
    pub unsent_before: UnixMicros,
}

/// Number of rows that were removed from a ledger that is exported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrunedRows {
    /// Rows that the target has.
    pub sent: u64,
    /// Rows that were never sent. The target will not get them.
    pub unsent: u64,
}

/// Future of an operation of an export.
pub type ExportFuture<'a, T> = TransactionFuture<'a, T, StoreError>;

impl Store {
    /// Returns the position of a target, and registers the target if it is new. From then on,
    /// deleted guesses are kept for the target.
    pub fn register_export(&self, target: String) -> ExportFuture<'_, ExportPosition> {
        self.transact(TransactionDurability::ThroughKill, move |transaction| {
            let target: SqlValue = target.into();
            transaction.run(REGISTER, std::slice::from_ref(&target))?;
            position(transaction, target)
        })
    }

    /// Returns the position of a target, and the rows that it does not have yet. The position of a
    /// target that was never registered is 0.
    pub fn export_progress(
        &self,
        target: String,
    ) -> ExportFuture<'_, (ExportPosition, ExportBacklog)> {
        self.inspect(move |transaction| {
            let position = position(transaction, target.into())?;
            let last = transaction.first(LAST_NUMBER, &[], |row| row.int(0))?.unwrap_or(0);
            let rows = u64::try_from(last.saturating_sub(position.sent)).unwrap_or(0);
            let sent = [SqlValue::Int(position.sent)];
            let oldest = transaction.first(FIRST_UNSENT, &sent, |row| {
                Ok(UnixMicros(row.int(0)?.saturating_add(row.int(1)?)))
            })?;
            Ok((position, ExportBacklog { rows, oldest }))
        })
    }

    /// Stores the position up to which rows were sent to a target. Does not wait for the disk,
    /// because rows whose position is lost in a power failure are sent again.
    pub fn advance_export(&self, target: String, to: ExportPosition) -> ExportFuture<'_, ()> {
        self.transact(TransactionDurability::ThroughKill, move |transaction| {
            let values = [SqlValue::Int(to.sent), SqlValue::Int(to.settled), target.into()];
            transaction.run(ADVANCE, &values).map(drop)
        })
    }

    /// Sets the position of a target back to the start, because the target is empty.
    pub fn restart_export(&self, target: String) -> ExportFuture<'_, ()> {
        self.transact(TransactionDurability::ThroughKill, move |transaction| {
            transaction.run(RESTART, &[target.into()]).map(drop)
        })
    }

    /// Returns the rows with numbers above `after` and up to `through`, in the order of their
    /// numbers, at most `limit`.
    pub fn export_rows(
        &self,
        after: i64,
        through: i64,
        limit: u32,
    ) -> ExportFuture<'_, Vec<NumberedAttempt>> {
        let values = [SqlValue::Int(after), SqlValue::Int(through), limit.into()];
        self.inspect(move |transaction| {
            transaction.list(ROWS, &values, |row| {
                Ok(NumberedAttempt {
                    number: row.int(NUMBER_COLUMN)?,
                    attempt: rows::attempt(row)?,
                })
            })
        })
    }

    /// Returns the numbers of the rows above `after` and up to `through`, rising, at most `limit`.
    pub fn export_numbers(
        &self,
        after: i64,
        through: i64,
        limit: u32,
    ) -> ExportFuture<'_, Vec<i64>> {
        let values = [SqlValue::Int(after), SqlValue::Int(through), limit.into()];
        self.inspect(move |transaction| transaction.list(NUMBERS, &values, |row| row.int(0)))
    }

    /// Returns deleted guesses that are still kept, at most `limit`.
    pub fn removed_attempts(&self, limit: u32) -> ExportFuture<'_, Vec<RemovedAttempt>> {
        self.inspect(move |transaction| transaction.list(REMOVED, &[limit.into()], removed))
    }

    /// Forgets deleted guesses by the numbers that they had, because the target has their removals.
    pub fn forget_removed_attempts(&self, numbers: Vec<i64>) -> ExportFuture<'_, ()> {
        self.transact(TransactionDurability::ThroughKill, move |transaction| {
            numbers.into_iter().try_for_each(|number| {
                transaction.run(FORGET_REMOVED, &[SqlValue::Int(number)]).map(drop)
            })
        })
    }

    /// Removes old rows from a ledger that is exported to `target`. Each transaction removes a
    /// limited number of rows.
    pub fn prune_exported(
        &self,
        target: String,
        limits: ExportedRowLimits,
    ) -> ExportFuture<'_, PrunedRows> {
        Box::pin(async move {
            let position = self.export_progress(target).await?.0;
            let sent = self.prune_by_number(PRUNE_SENT, limits.sent_before, position.settled);
            let sent = sent.await?;
            let unsent = self.prune_by_number(PRUNE_UNSENT, limits.unsent_before, position.settled);
            let unsent = unsent.await?;
            self.prune_removed(limits.unsent_before).await?;
            Ok(PrunedRows { sent, unsent })
        })
    }

    /// Forgets deleted guesses of requests that arrived before `before`.
    pub(crate) fn prune_removed(&self, before: UnixMicros) -> ExportFuture<'_, u64> {
        let before = [SqlValue::from(before)];
        self.transact(TransactionDurability::ThroughKill, move |transaction| {
            transaction.run(PRUNE_REMOVED, &before)
        })
    }

    fn prune_by_number(
        &self,
        statement: &'static str,
        before: UnixMicros,
        number: i64,
    ) -> ExportFuture<'_, u64> {
        let values = [before.into(), SqlValue::Int(number), SqlValue::Int(PRUNE_ROWS)];
        Box::pin(async move {
            let mut removed = 0;
            loop {
                let values = values.clone();
                let some = self.transact(TransactionDurability::ThroughKill, move |transaction| {
                    transaction.run(statement, &values)
                });
                let some: u64 = some.await?;
                removed += some;
                if some < PRUNE_ROWS.unsigned_abs() {
                    return Ok(removed);
                }
            }
        })
    }

    /// Returns sums over the rows of one UTC day, by the arrival of their requests, up to row
    /// number `through`.
    pub fn day_sums(&self, day: UtcDay, through: i64) -> ExportFuture<'_, LedgerDaySums> {
        let end = UtcDay(day.0.saturating_add(1));
        let values = [day.midnight().into(), end.midnight().into(), SqlValue::Int(through)];
        self.inspect(move |transaction| {
            Ok(transaction.first(DAY_SUMS, &values, sums)?.unwrap_or_default())
        })
    }

    /// Returns true if rows can become visible in another order than that of their numbers.
    pub fn numbers_rows_out_of_order(&self) -> bool {
        self.database_kind() == DatabaseKind::Postgres
    }
}

fn position(
    transaction: &mut dyn Transaction,
    target: SqlValue,
) -> Result<ExportPosition, StoreError> {
    let read =
        |row: &dyn RowColumns| Ok(ExportPosition { sent: row.int(0)?, settled: row.int(1)? });
    Ok(transaction.first(POSITION, &[target], read)?.unwrap_or_default())
}

fn removed(row: &dyn RowColumns) -> Result<RemovedAttempt, StoreError> {
    Ok(RemovedAttempt {
        number: row.int(0)?,
        request: row.text(1)?,
        attempt: u32::try_from(row.int(2)?).unwrap_or(0),
        tenant: row.text(3)?,
        started_at: row.moment(4)?,
    })
}

fn sums(row: &dyn RowColumns) -> Result<LedgerDaySums, StoreError> {
    Ok(LedgerDaySums {
        rows: row.count(0)?,
        input_tokens: row.count(1)?,
        cached_tokens: row.count(2)?,
        output_tokens: row.count(3)?,
        charged: row.count(4)?,
        provider_tokens: row.count(5)?,
        money: row.count(6)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_is_after_the_columns_of_an_attempt() {
        assert_eq!(attempt_columns!().split(", ").count(), NUMBER_COLUMN);
    }
}
