//! Inserts rows into the ledger, one by one or several with one statement.
//!
//! A statement opens the table and its indices, and finds its place in each of them. With several rows, it does so once
//! for all of them. Both statements are prepared once, and are looked up once for each transaction.

use std::sync::LazyLock;

use rusqlite::{CachedStatement, Connection, ErrorCode, Statement};

use crate::error::StoreError;
use crate::ledger::AttemptRow;
use crate::sql;
use crate::stored_words::StoredWord;
use crate::sums::signed;

type Result<T> = std::result::Result<T, StoreError>;

/// Number of rows in a statement with several rows.
pub(super) const ROWS_PER_STATEMENT: usize = 8;
/// Number of columns of a row, which are as many placeholders.
const COLUMNS: usize = sql::ATTEMPT_COLUMNS;

/// Inserts [`ROWS_PER_STATEMENT`] rows, or none of them if one exists already.
static PUT_ATTEMPTS: LazyLock<String> = LazyLock::new(|| {
    let row = format!("({})", ["?"; COLUMNS].join(", "));
    let rows = [row.as_str(); ROWS_PER_STATEMENT].join(", ");
    format!("{}{rows}", sql::INTO_ATTEMPTS)
});

/// The two statements, once a transaction has used them.
#[derive(Default)]
pub(super) struct RowInsert<'a> {
    one: Option<CachedStatement<'a>>,
    several: Option<CachedStatement<'a>>,
}

impl<'a> RowInsert<'a> {
    /// Inserts a row. Returns false if the row exists already.
    pub(super) fn one(&mut self, connection: &'a Connection, attempt: &AttemptRow) -> Result<bool> {
        let statement = prepared(&mut self.one, connection, sql::PUT_ATTEMPT)?;
        bind(statement, 0, attempt)?;
        Ok(statement.raw_execute()? > 0)
    }

    /// Inserts [`ROWS_PER_STATEMENT`] rows. Returns false if one of them exists already; none is inserted then.
    pub(super) fn several<'r>(
        &mut self,
        connection: &'a Connection,
        attempts: impl Iterator<Item = &'r AttemptRow>,
    ) -> Result<bool> {
        let statement = prepared(&mut self.several, connection, &PUT_ATTEMPTS)?;
        for (row, attempt) in attempts.enumerate() {
            bind(statement, row, attempt)?;
        }
        match statement.raw_execute() {
            Ok(_) => Ok(true),
            // SQLite has undone the statement, and the transaction goes on.
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) => {
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }
}

fn prepared<'s, 'a>(
    slot: &'s mut Option<CachedStatement<'a>>,
    connection: &'a Connection,
    sql: &str,
) -> Result<&'s mut Statement<'a>> {
    let statement = match slot.take() {
        Some(statement) => statement,
        None => connection.prepare_cached(sql)?,
    };
    let statement: &'s mut Statement<'a> = slot.insert(statement);
    Ok(statement)
}

/// Binds the values of a row to its placeholders. `row` is the number of rows before it in the statement.
fn bind(statement: &mut Statement<'_>, row: usize, attempt: &AttemptRow) -> rusqlite::Result<()> {
    let mut last = row * COLUMNS;
    macro_rules! bind_all {
        ($($value:expr,)*) => {$(
            last += 1;
            statement.raw_bind_parameter(last, $value)?;
        )*};
    }
    let claim = attempt.claim.as_ref();
    bind_all! {
        attempt.request.as_str(),
        attempt.attempt,
        attempt.last,
        attempt.started_at.0,
        attempt.group.as_str(),
        attempt.tenant.as_str(),
        attempt.key.as_str(),
        attempt.agent.as_deref(),
        attempt.session.as_deref(),
        attempt.route.as_str(),
        attempt.stream,
        attempt.model.as_str(),
        attempt.pool.as_deref(),
        attempt.worker.as_deref(),
        signed(attempt.estimate),
        signed(attempt.input_tokens),
        signed(attempt.cached_tokens),
        signed(attempt.output_tokens),
        signed(attempt.charged),
        attempt.usage.word(),
        signed(attempt.waited_us),
        attempt.first_token_us.map(signed),
        signed(attempt.total_us),
        attempt.status,
        attempt.outcome.word(),
        attempt.code.as_deref(),
        attempt.brownout,
        signed(attempt.occupied),
        signed(attempt.provider_tokens),
        signed(attempt.money.0),
        attempt.price.as_deref(),
        attempt.tier,
        attempt.class.as_deref(),
        claim.map(|claim| claim.project.as_str()),
        claim.map(|claim| claim.task.as_str()),
        claim.map(|claim| signed(claim.epoch)),
        signed(attempt.estimate_uncached),
        signed(attempt.charged_uncached),
        signed(attempt.cache_written_tokens),
        signed(attempt.cache_written_1h_tokens),
    }
    debug_assert_eq!(last, (row + 1) * COLUMNS);
    Ok(())
}
