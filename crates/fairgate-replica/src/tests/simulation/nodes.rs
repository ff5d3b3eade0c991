//! The nodes of a cluster. On each node, one process runs after the other.

use std::sync::Arc;

use super::faults::AppendFault;
use crate::member_protocol::MemberProtocol;

/// A node, such as a pod, on which one process runs at a time.
#[derive(Debug)]
pub(super) struct SimulatedNode {
    pub(super) name: Arc<str>,
    /// Number of the process on this node; 0 before the first.
    pub(super) process: u64,
    pub(super) state: NodeState,
    pub(super) protocol: Option<MemberProtocol>,
    /// Time at which the process is woken next.
    pub(super) wake_at: u64,
    /// Time until which the process can reach neither the log nor the rows.
    pub(super) cut_until: u64,
    /// Delay of the node's reads until `lag_until`, in microseconds.
    pub(super) lag: u64,
    pub(super) lag_until: u64,
    pub(super) append_faults: Vec<AppendFault>,
    /// Number of further reads that are delivered twice.
    pub(super) reads_twice: u64,
    /// Number of further reads whose first new record is damaged.
    pub(super) damaged_reads: u64,
    /// True if the next two records are appended in the wrong order.
    pub(super) swaps_next: bool,
    /// True if a fault has changed the state of this process only.
    pub(super) is_tampered: bool,
    /// Number of the process's configuration file.
    pub(super) file: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodeState {
    Up,
    Paused { since: u64 },
    Down,
}

impl SimulatedNode {
    pub(super) fn new(index: usize) -> Self {
        Self {
            name: format!("gateway-{index}").into(),
            process: 0,
            state: NodeState::Down,
            protocol: None,
            wake_at: u64::MAX,
            cut_until: 0,
            lag: 0,
            lag_until: 0,
            append_faults: Vec::new(),
            reads_twice: 0,
            damaged_reads: 0,
            swaps_next: false,
            is_tampered: false,
            file: 0,
        }
    }

    pub(super) fn is_up(&self) -> bool {
        self.state != NodeState::Down
    }

    /// Returns true if the process runs and can reach the log.
    pub(super) fn is_connected(&self, now: u64) -> bool {
        self.state == NodeState::Up && self.cut_until <= now
    }
}
