//! The part of a decision that is compared.

use std::sync::Arc;

use fairgate_core::decision::{Decision, Reason};

/// A decision, reduced to what a replay must reproduce.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decided {
    /// A request has a slot.
    Grant {
        /// Which request.
        id: Arc<str>,
        /// Whether it waited longer than the brownout wait, where the pool has one.
        brownout: Option<bool>,
        /// Its worker and rank, where the pool has workers.
        place: Option<(String, u32)>,
    },
    /// A request is refused.
    Reject {
        /// Which request.
        id: Arc<str>,
        /// Why.
        reason: Reason,
    },
    /// A request waited too long.
    Expire {
        /// Which request.
        id: Arc<str>,
    },
}

impl From<&Decision> for Decided {
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
