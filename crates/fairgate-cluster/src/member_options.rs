//! Options of a member, and what its embedder provides.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use fairgate_replica::{
    AppliedPoolEvent, ClusterConfig, ClusterDecision, ClusterMachine, ClusterMicros, LogLine,
    MemberIdentity,
};

/// Options of a member.
pub struct MemberOptions {
    /// The process, as the cluster knows it.
    pub identity: MemberIdentity,
    /// The part of the process's file that the machine needs.
    pub config: ClusterConfig,
    /// Version of the directory that the process has read.
    pub directory: u64,
    /// Time without an answer of the log after which new requests are refused. Default: 30 s.
    pub patience: Duration,
    /// Greatest number of this process's requests that wait at once. Default: 100 000.
    pub waiting_max: usize,
    /// Number of submits that may be unread at once; further callers wait in their own futures. Default: 1024.
    pub turns: usize,
    /// Receives what the member applies. Default: nothing.
    pub observer: Box<dyn MemberObserver>,
    /// Asks other members for their time; `None` if they cannot be reached. Default: `None`.
    pub peers: Option<Arc<dyn PeerClocks>>,
}

impl MemberOptions {
    /// Creates the options of a process with its defaults.
    pub fn new(identity: MemberIdentity, config: ClusterConfig) -> Self {
        Self {
            identity,
            config,
            directory: 0,
            patience: Duration::from_secs(30),
            waiting_max: 100_000,
            turns: 1024,
            observer: Box::new(()),
            peers: None,
        }
    }
}

impl fmt::Debug for MemberOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemberOptions")
            .field("identity", &self.identity)
            .field("patience", &self.patience)
            .finish_non_exhaustive()
    }
}

/// Receives what a member applies, in the order of the log. The calls are made in the member's task, and must not block.
pub trait MemberObserver: Send + 'static {
    /// Returns true if [`pool_event`](Self::pool_event) is to be called. It is asked once, at the start.
    fn wants_pool_events(&self) -> bool {
        false
    }

    /// Takes the machine that the member begins with: at the start, from a snapshot, or in another generation. Events
    /// that follow were applied to it, so a journal begins a new file here. After a damaged record, events may come
    /// again that were taken before.
    fn restored(&mut self, _machine: &ClusterMachine) {}

    /// Takes an event that a pool has applied, for the pool's journal.
    fn pool_event(&mut self, _event: &AppliedPoolEvent) {}

    /// Takes a decision that is not about this member's requests, such as a text that a member has published.
    fn decided(&mut self, _decision: &ClusterDecision) {}

    /// Returns the lines that this member sends at the beginning of each of its epochs, such as limits.
    fn epoch_lines(&mut self) -> Vec<LogLine> {
        Vec::new()
    }
}

impl MemberObserver for () {}

/// Answers of other members: the cluster times that they have reached.
pub type PeerAnswers = Pin<Box<dyn Future<Output = Vec<ClusterMicros>> + Send>>;

/// Asks other members for their cluster time, without the log.
///
/// A member that has not reached the log for long asks, because it must know whether the others go on without it. If
/// none can be asked, such a member cuts off its requests in flight, even if the log stands still for all.
pub trait PeerClocks: Send + Sync + 'static {
    /// Asks the members at these addresses. The answer should come within a second, and may be incomplete.
    fn ask(&self, addresses: Vec<Arc<str>>) -> PeerAnswers;
}
