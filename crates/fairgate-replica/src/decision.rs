//! Decisions of the machine, and their bytes in the running hash.

use std::sync::Arc;

use blake3::Hasher;
use fairgate_core::decision::{Decision, GrantedPlace};
use fairgate_core::event::Event;

use crate::limits::{ClusterLimitReached, LimitRefusal};
use crate::units::{ClusterMicros, LogPosition, MemberEpoch, MemberNumber, ShortHash};

/// One decision of the machine. Every member's machine makes the same decisions at the same
/// position of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterDecision {
    /// A pool has decided about a request.
    Pool {
        /// Name of the pool.
        pool: Arc<str>,
        /// Member to which the request belongs.
        member: MemberNumber,
        /// Grant, rejection or expiry.
        decision: Decision,
    },
    /// A submit was refused because its tenant or key has reached a limit.
    LimitReached {
        /// Name of the pool.
        pool: Arc<str>,
        /// Id of the request.
        id: Arc<str>,
        /// Member that submitted the request.
        member: MemberNumber,
        /// The reached limit, and the time after which to try again.
        refusal: LimitRefusal,
    },
    /// A submit was refused before its pool saw it.
    SubmitRefused {
        /// Name of the pool, as the submit states it.
        pool: Arc<str>,
        /// Id of the request.
        id: Arc<str>,
        /// Member that submitted the request.
        member: MemberNumber,
        /// Reason why the submit was refused.
        reason: SubmitRefusal,
    },
    /// The member has named a request again in its current epoch, and the cluster still has the
    /// request. It keeps its position in the queue, or its slot.
    TakenUp {
        /// Name of the pool.
        pool: Arc<str>,
        /// Id of the request.
        id: Arc<str>,
        /// Member to which the request belongs.
        member: MemberNumber,
    },
    /// The cluster has ended a request without a line about it. Either the epoch of its member has
    /// ended, or the member did not name it again, or the time `orphans` is over.
    EndedByCluster {
        /// Name of the pool.
        pool: Arc<str>,
        /// Id of the request.
        id: Arc<str>,
        /// Member to which the request belonged.
        member: MemberNumber,
        /// True if the request was in flight, so that its slot is now free; false if it was queued.
        was_in_flight: bool,
    },
    /// A process has joined the cluster.
    Joined {
        /// Number of the process.
        member: MemberNumber,
        /// Epoch that begins with the join.
        epoch: MemberEpoch,
        /// Name of the member.
        name: Arc<str>,
        /// Id of the process.
        process: Arc<str>,
        /// Number of the process's join.
        attempt: u64,
    },
    /// The join of a process was refused.
    JoinRefused {
        /// Name of the member.
        name: Arc<str>,
        /// Id of the process.
        process: Arc<str>,
        /// Number of the process's join.
        attempt: u64,
        /// Reason why the join was refused.
        reason: JoinRefusal,
    },
    /// A member's epoch has ended.
    MemberEnded {
        /// Number of the process.
        member: MemberNumber,
        /// Reason why the epoch has ended.
        reason: MemberEnd,
    },
    /// A line was refused and changed nothing.
    LineRefused {
        /// Sender of the line.
        member: MemberNumber,
        /// Index of the line in its record, counted from 0.
        line: u32,
        /// Reason why the line was refused.
        reason: LineRefusal,
    },
    /// Another configuration has taken effect.
    ConfigInForce {
        /// Digest of the configuration that is now in force.
        digest: ShortHash,
    },
    /// A pool was restored from its own snapshot with other limits, because those limits cannot change while a pool
    /// runs. A journal must begin a new file here.
    PoolRestarted {
        /// Name of the pool.
        pool: Arc<str>,
    },
    /// A pool that is no longer in the configuration has become empty and was removed.
    PoolRemoved {
        /// Name of the pool.
        pool: Arc<str>,
    },
    /// The directory has a new version, which every member should read.
    DirectoryChanged {
        /// The version that is now valid.
        version: u64,
    },
    /// A member should take a snapshot at this position.
    SnapshotDue {
        /// The member that should take it.
        taker: MemberNumber,
    },
    /// A snapshot is stored, so older records are no longer needed.
    SnapshotStored {
        /// Position of the snapshot.
        position: LogPosition,
        /// Hash of the snapshot's bytes, as its taker states it.
        hash: ShortHash,
        /// Position of the previous snapshot. Records up to this position may be pruned.
        prune_up_to: LogPosition,
    },
    /// The rules of another version apply from here on.
    Upgraded {
        /// The version that is now in force.
        to: u32,
    },
    /// A member has published a text for code outside of the machine.
    Published {
        /// Sender of the line.
        member: MemberNumber,
        /// Topic. Readers use it to select the texts that they need.
        topic: Box<str>,
        /// Text, whose format depends on the topic.
        body: Box<str>,
    },
}

/// Reason why a submit was refused before its pool saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubmitRefusal {
    /// The configuration in force has no pool of this name.
    NoPool,
    /// The line of the request makes the machine panic, so every member skips it.
    InternalError,
}

/// Reason why a process may not join the cluster now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinRefusal {
    /// Another process of this name has not ended, and the join does not prove that this process is
    /// dead.
    NameTaken,
    /// The process does not know the version of the rules that is in force.
    UnknownVersion {
        /// The version in force.
        in_force: u32,
    },
    /// The name or the process id is not valid (see [`is_valid_name`](crate::is_valid_name)), or the address is longer
    /// than 1024 bytes.
    BadName,
    /// The cluster knows 128 processes already, live or ended recently.
    TooManyMembers,
}

/// Reason why a member's epoch has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberEnd {
    /// No `alive` renewed the lease in time. An `alive` does not count if its sender is more than
    /// one lease behind in applying the log.
    Lapsed,
    /// The process has left.
    Left,
    /// A later process of the same name holds the lock of the spool, so this process no longer runs.
    Replaced,
    /// An operator has removed the member.
    Removed,
}

/// Reason why a line was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LineRefusal {
    /// The line cannot be parsed by this version.
    Unreadable,
    /// The line is not allowed at this position: for example a `join` in a record of a member, or a
    /// line after the sender's `leave`.
    Misplaced,
    /// The line makes the machine of every member panic.
    StoppedTheMachine,
}

/// An event that a pool has applied, for the pool's journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppliedPoolEvent {
    /// Name of the pool.
    pub pool: Arc<str>,
    /// Cluster time at which the event was applied.
    pub at: ClusterMicros,
    /// The event, as the core's pool has applied it.
    pub event: Event,
}

/// Effects of one or several records, in order.
#[derive(Clone, Debug, Default)]
pub struct ClusterEffects {
    /// The decisions of all records since the last time that they were taken.
    pub decisions: Vec<ClusterDecision>,
    /// The events that pools have applied. Empty unless the value was created by
    /// [`Self::with_pool_events`].
    pub pool_events: Vec<AppliedPoolEvent>,
    wants_pool_events: bool,
}

impl ClusterEffects {
    /// Creates empty effects that also collect the events of pools, for their journals.
    pub fn with_pool_events() -> Self {
        Self { wants_pool_events: true, ..Self::default() }
    }

    pub(crate) fn decided(&mut self, decision: ClusterDecision) {
        self.decisions.push(decision);
    }

    pub(crate) fn pool_event(&mut self, pool: &Arc<str>, at: ClusterMicros, event: &Event) {
        if self.wants_pool_events {
            let event = AppliedPoolEvent { pool: pool.clone(), at, event: event.clone() };
            self.pool_events.push(event);
        }
    }

    /// Keeps only the first `decisions` decisions and the first `pool_events` events.
    pub(crate) fn truncate(&mut self, (decisions, pool_events): (usize, usize)) {
        self.decisions.truncate(decisions);
        self.pool_events.truncate(pool_events);
    }

    pub(crate) fn lengths(&self) -> (usize, usize) {
        (self.decisions.len(), self.pool_events.len())
    }
}

/// Bytes of decisions, for the running hash. They do not depend on names in the code. Each text is
/// preceded by its length, so different decisions have different bytes.
#[derive(Default)]
struct DecisionBytes(Vec<u8>);

impl DecisionBytes {
    fn kind(&mut self, kind: u8) -> &mut Self {
        self.0.push(kind);
        self
    }

    fn number(&mut self, number: u64) -> &mut Self {
        self.0.extend_from_slice(&number.to_le_bytes());
        self
    }

    fn wide(&mut self, number: u128) -> &mut Self {
        self.0.extend_from_slice(&number.to_le_bytes());
        self
    }

    fn text(&mut self, text: &str) -> &mut Self {
        self.number(text.len() as u64);
        self.0.extend_from_slice(text.as_bytes());
        self
    }

    fn request(&mut self, kind: u8, pool: &str, id: &str, member: MemberNumber) -> &mut Self {
        self.kind(kind).text(pool).text(id).number(member.0)
    }

    fn place(&mut self, place: Option<&GrantedPlace>) {
        match place {
            None => self.kind(0),
            Some(place) => self.kind(1).text(&place.worker).number(place.rank.into()),
        };
    }

    fn pool_decision(&mut self, pool: &str, member: MemberNumber, decision: &Decision) {
        match decision {
            Decision::Grant(it) => {
                self.request(1, pool, &it.id, member).number(it.cost.0).number(it.waited.0);
                self.kind(it.brownout.map_or(2, u8::from)).place(it.place.as_ref());
            }
            Decision::Reject(it) => {
                self.request(2, pool, &it.id, member).text(it.reason.code());
                match &it.limit {
                    None => self.kind(0),
                    Some(limit) => {
                        let class = limit.class.as_deref().unwrap_or_default();
                        self.kind(1).text(class).wide(limit.current).wide(limit.limit)
                    }
                };
            }
            Decision::Expire { id, .. } => {
                self.request(3, pool, id, member);
            }
        }
    }

    fn limit_refusal(&mut self, refusal: &LimitRefusal) {
        self.kind(refusal.owner as u8).text(&refusal.name).text(refusal.reached.code());
        let (limit, amount, wait) = match refusal.reached {
            ClusterLimitReached::RequestsPerMinute { limit, retry_after } => {
                (limit, 0, retry_after)
            }
            ClusterLimitReached::TokensPerMinute { limit, over, retry_after } => {
                (limit, over, retry_after)
            }
            ClusterLimitReached::QueuedRequests { limit, waiting }
            | ClusterLimitReached::QueuedBytes { limit, waiting } => {
                (limit, waiting, ClusterMicros(0))
            }
        };
        self.number(limit).number(amount).number(wait.0);
    }

    fn join_refusal(&mut self, reason: JoinRefusal) {
        match reason {
            JoinRefusal::NameTaken => self.kind(0),
            JoinRefusal::UnknownVersion { in_force } => self.kind(1).number(in_force.into()),
            JoinRefusal::BadName => self.kind(2),
            JoinRefusal::TooManyMembers => self.kind(3),
        };
    }

    fn decision(&mut self, decision: &ClusterDecision) {
        use ClusterDecision as D;
        match decision {
            D::Pool { pool, member, decision } => self.pool_decision(pool, *member, decision),
            D::LimitReached { pool, id, member, refusal } => {
                self.request(4, pool, id, *member).limit_refusal(refusal);
            }
            D::SubmitRefused { pool, id, member, reason } => {
                self.request(5, pool, id, *member).kind(*reason as u8);
            }
            D::TakenUp { pool, id, member } => {
                self.request(6, pool, id, *member);
            }
            D::EndedByCluster { pool, id, member, was_in_flight } => {
                self.request(7, pool, id, *member).kind((*was_in_flight).into());
            }
            D::Joined { member, epoch, name, process, attempt } => {
                self.kind(8).number(member.0).number(epoch.0);
                self.text(name).text(process).number(*attempt);
            }
            D::JoinRefused { name, process, attempt, reason } => {
                self.kind(9).text(name).text(process).number(*attempt).join_refusal(*reason);
            }
            other => self.rare_decision(other),
        }
    }

    fn rare_decision(&mut self, decision: &ClusterDecision) {
        use ClusterDecision as D;
        match decision {
            D::MemberEnded { member, reason } => {
                self.kind(10).number(member.0).kind(*reason as u8);
            }
            D::LineRefused { member, line, reason } => {
                let reason = match reason {
                    LineRefusal::Unreadable => 0,
                    LineRefusal::Misplaced => 1,
                    LineRefusal::StoppedTheMachine => 2,
                };
                self.kind(11).number(member.0).number((*line).into()).kind(reason);
            }
            D::ConfigInForce { digest } => {
                self.kind(12).number(u64::from_le_bytes(digest.0));
            }
            D::PoolRestarted { pool } => {
                self.kind(13).text(pool);
            }
            D::PoolRemoved { pool } => {
                self.kind(14).text(pool);
            }
            D::DirectoryChanged { version } => {
                self.kind(15).number(*version);
            }
            D::SnapshotDue { taker } => {
                self.kind(16).number(taker.0);
            }
            D::SnapshotStored { position, hash, prune_up_to } => {
                self.kind(17).number(position.0).number(u64::from_le_bytes(hash.0));
                self.number(prune_up_to.0);
            }
            D::Upgraded { to } => {
                self.kind(18).number((*to).into());
            }
            D::Published { member, topic, body } => {
                self.kind(19).number(member.0).text(topic).text(body);
            }
            // `decision` writes the others.
            _ => {}
        }
    }
}

/// Adds decisions to a hash.
pub(crate) fn hash_decisions(hasher: &mut Hasher, decisions: &[ClusterDecision]) {
    let mut bytes = DecisionBytes::default();
    decisions.iter().for_each(|decision| bytes.decision(decision));
    hasher.update(&bytes.0);
}
