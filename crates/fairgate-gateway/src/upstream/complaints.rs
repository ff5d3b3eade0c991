//! What the log says about a backend that fails: enough to find out why, and not a line for each request.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use fairgate_store::Throttle;
use tokio::time::Instant;

use super::failure::FailureKind;

/// What went wrong on a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// It failed.
    Failed(FailureKind),
    /// It answered with this status.
    Answered(u16),
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(kind) => f.write_str(kind.words()),
            Self::Answered(status) => write!(f, "answered with status {status}"),
        }
    }
}

/// What was said, and what was not.
#[derive(Default)]
pub(super) struct Complaints {
    said: Throttle<Cause>,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    request: Option<Cause>,
    check: Option<Cause>,
}

impl Complaints {
    /// A request failed. Where that is to be logged: how many like it were left out since the last time.
    pub(super) fn of_request(&self, cause: Cause, now: Instant) -> Option<u64> {
        self.lock().request = Some(cause);
        self.said.admit(cause, now)
    }

    /// A health check failed.
    pub(super) fn of_check(&self, cause: Cause) {
        self.lock().check = Some(cause);
    }

    /// Why the last request failed.
    pub(super) fn last_request(&self) -> Option<Cause> {
        self.lock().request
    }

    /// Why the last bad health check was bad.
    pub(super) fn last_check(&self) -> Option<Cause> {
        self.lock().check
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Counts, of which none depends on another.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_is_said_once_and_the_last_is_remembered() {
        let complaints = Complaints::default();
        let said = |cause| complaints.of_request(cause, Instant::now());
        let (refused, broken) = (Cause::Failed(FailureKind::Connect), Cause::Answered(500));
        assert_eq!((said(refused), said(refused)), (Some(0), None));
        assert_eq!(said(broken), Some(0));
        assert_eq!(complaints.last_request(), Some(broken));
    }
}
