//! Converts values to and from SQLite's types, and runs statements.

use rusqlite::types::ToSqlOutput;
use rusqlite::{Connection, ErrorCode, Row, ToSql, ffi};

use crate::error::StoreError;
use crate::rows::RowColumns;
use crate::sql::{SqlStatement, SqlValue};
use crate::transaction::{DatabaseKind, Transaction};

type Result<T> = std::result::Result<T, StoreError>;

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        // The disk is full, or the file may not grow.
        let is_full = error.sqlite_error().is_some_and(|failure| {
            failure.code == ErrorCode::DiskFull || failure.extended_code == ffi::SQLITE_IOERR_WRITE
        });
        match is_full {
            true => Self::Full(error.to_string()),
            false => Self::Database(error.to_string()),
        }
    }
}

impl ToSql for SqlValue {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        match self {
            Self::Int(int) => int.to_sql(),
            Self::MaybeInt(int) => int.to_sql(),
            Self::Text(text) => text.to_sql(),
            Self::MaybeText(text) => text.to_sql(),
            Self::Flag(flag) => flag.to_sql(),
            Self::Bytes(bytes) => bytes.to_sql(),
            Self::MaybeBytes(bytes) => bytes.to_sql(),
        }
    }
}

impl RowColumns for Row<'_> {
    fn int_or_null(&self, column: usize) -> Result<Option<i64>> {
        Ok(self.get(column)?)
    }

    fn text_or_null(&self, column: usize) -> Result<Option<String>> {
        Ok(self.get(column)?)
    }

    fn flag(&self, column: usize) -> Result<bool> {
        Ok(self.get(column)?)
    }

    fn bytes(&self, column: usize) -> Result<Vec<u8>> {
        Ok(self.get(column)?)
    }
}

/// Returns all rows of a query.
pub(super) fn list<T>(
    connection: &Connection,
    sql: &str,
    values: impl rusqlite::Params,
    read: impl Fn(&Row<'_>) -> Result<T>,
) -> Result<Vec<T>> {
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query(values)?;
    let mut list = Vec::new();
    while let Some(row) = rows.next()? {
        list.push(read(row)?);
    }
    Ok(list)
}

/// Returns the first row of a query, or `None` if the query has no rows.
pub(super) fn first<T>(
    connection: &Connection,
    sql: &str,
    values: impl rusqlite::Params,
    read: impl Fn(&Row<'_>) -> Result<T>,
) -> Result<Option<T>> {
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query(values)?;
    rows.next()?.map(read).transpose()
}

/// Runs a statement without results. Returns the number of changed rows.
pub(super) fn run(
    connection: &Connection,
    sql: &str,
    values: impl rusqlite::Params,
) -> Result<usize> {
    Ok(connection.prepare_cached(sql)?.execute(values)?)
}

/// Returns all rows of a [`SqlStatement`].
pub(super) fn ask<T>(
    connection: &Connection,
    statement: &SqlStatement,
    read: impl Fn(&Row<'_>) -> Result<T>,
) -> Result<Vec<T>> {
    list(connection, &statement.sql, rusqlite::params_from_iter(&statement.values), read)
}

/// A caller's transaction, which runs inside an open transaction of this connection.
pub(super) struct ConnectionTransaction<'a>(pub(super) &'a Connection);

impl Transaction for ConnectionTransaction<'_> {
    fn each(
        &mut self,
        sql: &str,
        values: &[SqlValue],
        show: &mut dyn FnMut(&dyn RowColumns) -> Result<()>,
    ) -> Result<()> {
        let mut statement = self.0.prepare_cached(sql)?;
        let mut rows = statement.query(rusqlite::params_from_iter(values))?;
        while let Some(row) = rows.next()? {
            show(row)?;
        }
        Ok(())
    }

    fn run(&mut self, sql: &str, values: &[SqlValue]) -> Result<u64> {
        let changed = run(self.0, sql, rusqlite::params_from_iter(values))?;
        Ok(u64::try_from(changed).unwrap_or(u64::MAX))
    }

    fn database(&self) -> DatabaseKind {
        DatabaseKind::Sqlite
    }
}
