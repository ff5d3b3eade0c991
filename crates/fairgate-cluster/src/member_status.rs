//! The state that a member shows of itself.

use std::time::Duration;

use fairgate_replica::{ClusterMicros, LogPosition, MemberEpoch, MemberNumber, ShortHash};

/// The standing of a process in its cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberStanding {
    /// The process is not a member: it joins, or joins again.
    Joining,
    /// The process is a member.
    Member {
        /// Number of the process.
        number: MemberNumber,
        /// Epoch of the process.
        epoch: MemberEpoch,
    },
    /// The log is no longer the same for all, and the next generation has not begun yet.
    BetweenGenerations,
    /// The process has left.
    Left,
    /// The process cannot be a member. The text says why, and what to do.
    Failed(String),
}

/// The state of a member, as its handles see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberStatus {
    /// Standing of the process.
    pub phase: MemberStanding,
    /// Generation of its replica.
    pub generation: u64,
    /// Place of the last record that it has applied.
    pub position: LogPosition,
    /// Running hash at that place.
    pub hash: ShortHash,
    /// Place of the log's last record, as far as the process knows. The difference to `position` is its lag.
    pub log_end: LogPosition,
    /// Cluster time of its replica.
    pub time: ClusterMicros,
    /// Time since the last sign of life of this process that it read back from the log was written.
    pub silent_for: Duration,
    /// The last trouble with the log; `None` if the last call worked.
    pub trouble: Option<String>,
}

impl MemberStatus {
    /// Returns true if the process is a member now.
    pub fn is_member(&self) -> bool {
        matches!(self.phase, MemberStanding::Member { .. })
    }

    /// Returns true if the process has left, or cannot be a member.
    pub fn is_over(&self) -> bool {
        matches!(self.phase, MemberStanding::Left | MemberStanding::Failed(_))
    }
}
