//! Refusal is a value: which limit, how full, how much it holds, when to come back.

use std::time::Duration;

use fairgate_core::decision::{Limit, Reason};

/// Why a request did not get a permit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The pool refused it, at once or when it had to make room.
    #[error("refused: {}{}", reason.code(), fullness(limit.as_ref()))]
    Rejected {
        /// Which test it failed.
        reason: Reason,
        /// The limit that was reached, how full it was and how much it holds, where the reason is one.
        limit: Option<Limit>,
        /// When to come back; absent where coming back changes nothing.
        retry_after: Option<Duration>,
    },
    /// It waited as long as the pool lets a request wait.
    #[error("waited {waited:?}, and no longer than {limit:?} is allowed")]
    Expired {
        /// How long it waited.
        waited: Duration,
        /// How long a request may wait.
        limit: Duration,
        /// When to come back.
        retry_after: Duration,
    },
    /// It can be put in no journal: nothing was submitted.
    #[error("field {field:?}: {problem}")]
    Invalid {
        /// The field of the submit.
        field: &'static str,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The gate is closing, or has closed.
    #[error("the gate is draining")]
    Draining,
    /// The gate's task is gone: of a bug, or with its runtime.
    #[error("the gate's task is gone")]
    Gone,
}

impl Refused {
    /// The stable code that callers see.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Rejected { reason, .. } => reason.code(),
            Self::Expired { .. } => "queue_timeout",
            Self::Invalid { .. } => "invalid",
            Self::Draining => "draining",
            Self::Gone => "gone",
        }
    }

    /// When to come back: what is ahead, at the rate at which requests have lately ended. From one second to
    /// [`Options::retry_after_max`](crate::Options::retry_after_max).
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Rejected { retry_after, .. } => *retry_after,
            Self::Expired { retry_after, .. } => Some(*retry_after),
            Self::Invalid { .. } | Self::Draining | Self::Gone => None,
        }
    }

    /// The limit that was reached, where the pool has one that counts requests or tokens.
    pub fn limit(&self) -> Option<&Limit> {
        match self {
            Self::Rejected { limit, .. } => limit.as_ref(),
            _ => None,
        }
    }
}

/// The gate's task is gone, or has been drained: nobody is there to do it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Closed {
    /// It was drained.
    #[error("the gate is drained")]
    Drained,
    /// It died: of a bug, or with the runtime that it ran on.
    #[error("the gate's task is gone")]
    Gone,
}

/// Why an operator's change was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    /// The gate's task is not there any more.
    #[error(transparent)]
    Closed(#[from] Closed),
    /// The change can be put in no journal.
    #[error("field {field:?}: {problem}")]
    Invalid {
        /// The field of the change.
        field: &'static str,
        /// What is wrong with it.
        problem: &'static str,
    },
}

fn fullness(limit: Option<&Limit>) -> String {
    let Some(Limit { class, current, limit }) = limit else { return String::new() };
    let class = class.as_ref().map(|class| format!("class {class:?}: ")).unwrap_or_default();
    format!(" ({class}{current} of {limit})")
}
