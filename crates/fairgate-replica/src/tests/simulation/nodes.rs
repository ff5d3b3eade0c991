//! The nodes of a cluster. One process after the other runs on each.

use std::sync::Arc;

use super::faults::AppendFault;
use crate::member_protocol::MemberProtocol;

/// A place where one process runs at a time, such as a pod.
#[derive(Debug)]
pub(super) struct SimulatedNode {
    pub(super) name: Arc<str>,
    /// Number of the process here; 0 before the first.
    pub(super) process: u64,
    pub(super) state: NodeState,
    pub(super) protocol: Option<MemberProtocol>,
    /// Time at which the process is woken next.
    pub(super) wake_at: u64,
    /// Time until which the process reaches neither log nor rows.
    pub(super) cut_until: u64,
    /// Time by which reads come late, and until when.
    pub(super) lag: u64,
    pub(super) lag_until: u64,
    pub(super) append_faults: Vec<AppendFault>,
    /// Number of the next reads that are delivered twice.
    pub(super) reads_twice: u64,
    /// Number of reads whose first new record is damaged.
    pub(super) damaged_reads: u64,
    /// True if the next two records come in the wrong order.
    pub(super) swaps_next: bool,
    /// True if a fault has changed the state of this process alone.
    pub(super) is_tampered: bool,
    /// Number of the file that the process has.
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

    /// Returns true if the process runs and reaches the log.
    pub(super) fn is_connected(&self, now: u64) -> bool {
        self.state == NodeState::Up && self.cut_until <= now
    }
}
