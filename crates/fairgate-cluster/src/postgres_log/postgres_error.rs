//! Errors of PostgreSQL, by what a member can do after them.

use fairgate_store::error_with_causes;
use tokio_postgres::error::SqlState;

use crate::cluster_log::ClusterLogError;

/// Converts an error of the driver. What may pass by itself is [`ClusterLogError::Unavailable`].
pub(super) fn from_postgres(error: tokio_postgres::Error) -> ClusterLogError {
    let Some(report) = error.as_db_error() else {
        return ClusterLogError::Unavailable(error_with_causes(&error));
    };
    let code = report.code().code();
    let text = format!("{} ({code})", report.message());
    // SQLSTATE classes 08: connections, 40: conflicts, 53: resources, 57: operator intervention, such as a shutdown.
    let may_pass = ["08", "40", "53", "57"].iter().any(|class| code.starts_with(class))
        || *report.code() == SqlState::LOCK_NOT_AVAILABLE;
    match may_pass {
        true => ClusterLogError::Unavailable(text),
        false => ClusterLogError::Refused(text),
    }
}
