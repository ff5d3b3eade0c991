//! Log messages about a failing upstream. They show the reason of failures, without a line for
//! every failed request.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use fairgate_store::LogThrottle;
use tokio::time::Instant;

use crate::upstream_failure::FailureKind;

/// Failure of a request or health check on an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureCause {
    /// The request failed before the head of an answer came.
    Failed(FailureKind),
    /// The upstream answered with this status.
    Answered(u16),
}

impl fmt::Display for FailureCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(kind) => f.write_str(kind.words()),
            Self::Answered(status) => write!(f, "answered with status {status}"),
        }
    }
}

/// Limits the number of log messages about one upstream, and keeps the causes of its last failures.
#[derive(Default)]
pub(super) struct FailureLog {
    said: LogThrottle<FailureCause>,
    inner: Mutex<LastFailures>,
}

#[derive(Default)]
struct LastFailures {
    request: Option<FailureCause>,
    check: Option<FailureCause>,
}

impl FailureLog {
    /// Records a failed request. If this failure is to be logged, returns the number of similar failures that were not
    /// logged since the last message.
    pub(super) fn record_request(&self, cause: FailureCause, now: Instant) -> Option<u64> {
        self.lock().request = Some(cause);
        self.said.admit(cause, now)
    }

    /// Records a failed health check.
    pub(super) fn record_check(&self, cause: FailureCause) {
        self.lock().check = Some(cause);
    }

    /// Returns the cause of the last failed request.
    pub(super) fn last_request(&self) -> Option<FailureCause> {
        self.lock().request
    }

    /// Returns the cause of the last failed health check.
    pub(super) fn last_check(&self) -> Option<FailureCause> {
        self.lock().check
    }

    fn lock(&self) -> MutexGuard<'_, LastFailures> {
        // The two values are independent, so poison is harmless.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_is_said_once_and_the_last_is_remembered() {
        let complaints = FailureLog::default();
        let said = |cause| complaints.record_request(cause, Instant::now());
        let (refused, broken) =
            (FailureCause::Failed(FailureKind::Connect), FailureCause::Answered(500));
        assert_eq!((said(refused), said(refused)), (Some(0), None));
        assert_eq!(said(broken), Some(0));
        assert_eq!(complaints.last_request(), Some(broken));
    }
}
