//! The fields of a decision that are compared between schedulers.

use std::sync::Arc;

use fairgate_core::decision::{Decision, RejectionReason};

/// A decision, reduced to the fields that a replay must reproduce.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ComparedDecision {
    /// A request is granted a slot.
    Grant {
        /// Id of the request.
        id: Arc<str>,
        /// True if the request waited longer than the pool's brownout wait; `None` if the pool has
        /// no brownout wait.
        brownout: Option<bool>,
        /// Name and rank of the worker; `None` if the pool has no workers.
        place: Option<(String, u32)>,
    },
    /// A request is rejected or pushed out of its queue.
    Reject {
        /// Id of the request.
        id: Arc<str>,
        /// Reason of the rejection.
        reason: RejectionReason,
    },
    /// A request waited until its deadline and expires.
    Expire {
        /// Id of the request.
        id: Arc<str>,
    },
}

impl From<&Decision> for ComparedDecision {
    fn from(decision: &Decision) -> Self {
        match decision {
            Decision::Grant(grant) => Self::Grant {
                id: grant.id.clone(),
                brownout: grant.brownout,
                place: grant.place.as_ref().map(|p| (p.worker.to_string(), p.rank)),
            },
            Decision::Reject(reject) => {
                Self::Reject { id: reject.id.clone(), reason: reject.reason }
            }
            Decision::Expire { id, .. } => Self::Expire { id: id.clone() },
        }
    }
}
