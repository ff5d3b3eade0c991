//! The interface of a database that this crate needs: columns of rows, and statements without results.

/// Columns of a database row, which are numbered from 0.
pub trait UsageColumns {
    /// Error of the database. Also used for a null in a column that must not be null.
    type Error;

    /// Returns an integer; null is an error.
    fn int(&self, column: usize) -> Result<i64, Self::Error>;
    /// Returns an integer, or `None` for null.
    fn int_or_null(&self, column: usize) -> Result<Option<i64>, Self::Error>;
    /// Returns a non-negative integer; null and negative values are errors.
    fn count(&self, column: usize) -> Result<u64, Self::Error>;
    /// Returns a non-negative integer, or `None` for null; a negative value is an error.
    fn count_or_null(&self, column: usize) -> Result<Option<u64>, Self::Error>;
    /// Returns a text; null is an error.
    fn text(&self, column: usize) -> Result<String, Self::Error>;
    /// Returns a text, or `None` for null.
    fn text_or_null(&self, column: usize) -> Result<Option<String>, Self::Error>;
}

/// Open transaction in which statements can be run.
pub trait UsageWriter {
    /// Error of the database.
    type Error;

    /// Runs a statement without results. Returns the number of changed rows.
    fn run(&mut self, sql: &'static str, values: &[UsageValue<'_>]) -> Result<u64, Self::Error>;
}

/// Value for a placeholder of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsageValue<'a> {
    /// An integer that is not null.
    Int(i64),
    /// A text that is not null.
    Text(&'a str),
}
