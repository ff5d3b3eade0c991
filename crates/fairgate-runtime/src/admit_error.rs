//! Refusals of a gate. A refusal states the reached limit, the limit's current and maximum value,
//! and the time after which to retry.

use std::time::Duration;

use fairgate_core::decision::{RejectionLimit, RejectionReason};

/// Reason why a request got no permit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AdmitError {
    /// The pool rejected the request, either on its arrival or while it was queued, for example to make room for
    /// another request.
    #[error("refused: {}{}", reason.code(), fullness(limit.as_ref()))]
    Rejected {
        /// Reason of the rejection. It names the check that the request failed.
        reason: RejectionReason,
        /// The reached limit, with its current and maximum value; `None` if the reason is not a
        /// limit.
        limit: Option<RejectionLimit>,
        /// Expected wait of one more request of the same flow; `None` if unknown, or if a retry would not help.
        expected_wait: Option<Duration>,
        /// Time after which to retry; `None` if a retry would not help.
        retry_after: Option<Duration>,
    },
    /// The request waited for the maximum time allowed, which is the shorter of its own timeout and
    /// the pool's.
    #[error("waited {waited:?}, and no longer than {limit:?} is allowed")]
    Expired {
        /// Time that the request waited.
        waited: Duration,
        /// Maximum time that the request was allowed to wait.
        limit: Duration,
        /// Expected wait of one more request of the same flow; `None` if unknown.
        expected_wait: Option<Duration>,
        /// Time after which to retry.
        retry_after: Duration,
    },
    /// The request cannot be written to a journal. Nothing was submitted.
    #[error("field {field:?}: {problem}")]
    Invalid {
        /// Field of the submit that is invalid.
        field: &'static str,
        /// Reason why the field is invalid.
        problem: &'static str,
    },
    /// The gate is draining, or has been drained.
    #[error("the gate is draining")]
    Draining,
    /// The gate's task is gone, because it panicked or its runtime was shut down.
    #[error("the gate's task is gone")]
    Gone,
}

impl AdmitError {
    /// Returns the stable code that callers see.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Rejected { reason, .. } => reason.code(),
            Self::Expired { .. } => "queue_timeout",
            Self::Invalid { .. } => "invalid",
            Self::Draining => "draining",
            Self::Gone => "gone",
        }
    }

    /// Returns the expected wait of one more request of the flow: (requests queued in the flow + 1) ÷ the flow's grants
    /// per second in the last minute. The value has no bounds; `None` if the flow had no grants in that minute.
    pub fn expected_wait(&self) -> Option<Duration> {
        match self {
            Self::Rejected { expected_wait, .. } | Self::Expired { expected_wait, .. } => {
                *expected_wait
            }
            Self::Invalid { .. } | Self::Draining | Self::Gone => None,
        }
    }

    /// Returns the time after which to retry: the expected wait, but at least one second and at most
    /// [`GateOptions::retry_after_max`](crate::GateOptions::retry_after_max).
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Rejected { retry_after, .. } => *retry_after,
            Self::Expired { retry_after, .. } => Some(*retry_after),
            Self::Invalid { .. } | Self::Draining | Self::Gone => None,
        }
    }

    /// Returns the limit that was reached; `None` if the pool's reason is not a limit on requests or tokens.
    pub fn limit(&self) -> Option<&RejectionLimit> {
        match self {
            Self::Rejected { limit, .. } => limit.as_ref(),
            _ => None,
        }
    }
}

/// Error of a call that was not executed, because the gate's task has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GateClosedError {
    /// The gate was drained.
    #[error("the gate is drained")]
    Drained,
    /// The task panicked, or its runtime was shut down.
    #[error("the gate's task is gone")]
    Gone,
}

/// Reason why an operator's change was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GateChangeError {
    /// The gate's task has ended.
    #[error(transparent)]
    Closed(#[from] GateClosedError),
    /// The change cannot be written to a journal.
    #[error("field {field:?}: {problem}")]
    Invalid {
        /// Field of the change that is invalid.
        field: &'static str,
        /// Reason why the field is invalid.
        problem: &'static str,
    },
}

fn fullness(limit: Option<&RejectionLimit>) -> String {
    let Some(RejectionLimit { class, current, limit }) = limit else { return String::new() };
    let class = class.as_ref().map(|class| format!("class {class:?}: ")).unwrap_or_default();
    format!(" ({class}{current} of {limit})")
}
