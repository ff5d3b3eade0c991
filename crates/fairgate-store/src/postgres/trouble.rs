//! What went wrong, told by what can be done about it.

use tokio_postgres::error::SqlState;

use crate::error::StoreError;

/// Why PostgreSQL did not do what it was asked.
#[derive(Debug)]
pub(super) enum Trouble {
    /// There is no connection, or none any more: whether the transaction was committed is not known.
    Link(String),
    /// Others were in the way; nothing was changed, and trying again will do.
    Conflict(String),
    /// It said no; nothing was changed.
    Refused(StoreError),
}

impl From<StoreError> for Trouble {
    fn from(error: StoreError) -> Self {
        Self::Refused(error)
    }
}

impl From<tokio_postgres::Error> for Trouble {
    fn from(error: tokio_postgres::Error) -> Self {
        let Some(told) = error.as_db_error() else {
            return Self::Link(message(&error));
        };
        let text = format!("{} ({})", told.message(), told.code().code());
        match told.code() {
            code if [
                SqlState::T_R_DEADLOCK_DETECTED,
                SqlState::T_R_SERIALIZATION_FAILURE,
                SqlState::LOCK_NOT_AVAILABLE,
            ]
            .contains(code) =>
            {
                Self::Conflict(text)
            }
            // 08: connections, 53: resources, 57: an operator, who is stopping the server.
            code if ["08", "53", "57"].iter().any(|class| code.code().starts_with(class))
                && *code != SqlState::QUERY_CANCELED =>
            {
                Self::Link(text)
            }
            _ => Self::Refused(StoreError::Database(text)),
        }
    }
}

impl From<Trouble> for StoreError {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Link(text) | Trouble::Conflict(text) => Self::Database(text),
            Trouble::Refused(error) => error,
        }
    }
}

/// An error with what caused it.
fn message(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text.push_str(": ");
        text.push_str(&next.to_string());
        cause = next.source();
    }
    text
}
