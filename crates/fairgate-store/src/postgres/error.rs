//! Errors of PostgreSQL, classified by how the caller can react.

use tokio_postgres::error::SqlState;

use crate::error::StoreError;

/// Reason why an operation on PostgreSQL failed.
#[derive(Debug)]
pub(super) enum PostgresError {
    /// There is no connection, or the connection broke. It is not known whether the transaction was committed.
    Connection(String),
    /// The transaction conflicted with others. Nothing was changed, and a retry will help.
    Conflict(String),
    /// The server rejected the operation. Nothing was changed.
    Refused(StoreError),
}

impl From<StoreError> for PostgresError {
    fn from(error: StoreError) -> Self {
        Self::Refused(error)
    }
}

impl From<tokio_postgres::Error> for PostgresError {
    fn from(error: tokio_postgres::Error) -> Self {
        let Some(error_report) = error.as_db_error() else {
            return Self::Connection(error_with_causes(&error));
        };
        let text = format!("{} ({})", error_report.message(), error_report.code().code());
        match error_report.code() {
            code if [
                SqlState::T_R_DEADLOCK_DETECTED,
                SqlState::T_R_SERIALIZATION_FAILURE,
                SqlState::LOCK_NOT_AVAILABLE,
            ]
            .contains(code) =>
            {
                Self::Conflict(text)
            }
            // SQLSTATE classes 08: connections, 53: resources, 57: operator intervention, such as a shutdown.
            code if ["08", "53", "57"].iter().any(|class| code.code().starts_with(class))
                && *code != SqlState::QUERY_CANCELED =>
            {
                Self::Connection(text)
            }
            _ => Self::Refused(StoreError::Database(text)),
        }
    }
}

impl From<PostgresError> for StoreError {
    fn from(trouble: PostgresError) -> Self {
        match trouble {
            PostgresError::Connection(text) | PostgresError::Conflict(text) => Self::Database(text),
            PostgresError::Refused(error) => error,
        }
    }
}

/// Formats an error together with the errors that caused it.
pub fn error_with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text.push_str(": ");
        text.push_str(&next.to_string());
        cause = next.source();
    }
    text
}
