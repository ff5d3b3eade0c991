//! The protocol of one member: the lines that it sends to the log, and its actions after it has
//! read records.
//!
//! [`MemberProtocol`] does no I/O and reads no clock. Its shell
//! - passes it what clients and backends do ([`submit`](MemberProtocol::submit),
//!   [`release`](MemberProtocol::release), …) and what it reads of the log ([`read`](MemberProtocol::read)),
//! - appends the records that [`poll_record`](MemberProtocol::poll_record) returns, and ignores the engine's answers: a
//!   member knows that a record was appended when it reads it,
//! - does what [`poll_output`](MemberProtocol::poll_output) returns, and calls `poll_record` again at
//!   [`next_wake`](MemberProtocol::next_wake).

mod batch_sender;
mod duties;
mod local_requests;
mod reading;
mod standing;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use fairgate_core::decision::{Grant, RejectedRequest};
use serde::{Deserialize, Serialize};

use self::batch_sender::BatchSender;
pub use self::local_requests::{FlightEnd, SubmitError};
use self::local_requests::{LocalRequests, RequestKey};
use crate::cluster_config::ClusterConfig;
use crate::decision::{ClusterDecision, ClusterEffects, JoinRefusal};
use crate::generation::GenerationReport;
use crate::limits::LimitRefusal;
use crate::line::{ClusterLine, LogLine};
use crate::record::RECORD_BYTES_MAX;
use crate::replica::Replica;
use crate::snapshot::SnapshotError;
use crate::units::{ClusterMicros, LogPosition, MemberEpoch, MemberNumber};

/// A time, or a duration, on the process's own monotonic clock, in microseconds. The clock must
/// continue while the process is paused. It does not matter whether it runs while the computer
/// sleeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LocalMicros(pub u64);

impl LocalMicros {
    /// Returns the time that is `span` later.
    pub const fn after(self, span: Self) -> Self {
        Self(self.0.saturating_add(span.0))
    }

    /// Returns the duration from `earlier` to this time; 0 if `earlier` is later.
    pub const fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }
}

/// Time after which a record is sent again if it was not read back.
const RESEND_AFTER: LocalMicros = LocalMicros(500_000);

/// Time after which a refused join is tried again. A running request that the pool refused is
/// submitted again after the same time.
const JOIN_AGAIN_AFTER: LocalMicros = LocalMicros(1_000_000);

/// Number of bytes of a record that are reserved for its first line.
const HEADER_BYTES: usize = 2048;

/// A process that wants to be a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberIdentity {
    /// Name of the member, such as that of its pod.
    pub name: Arc<str>,
    /// Id of the process. No other process ever has this id.
    pub process: Arc<str>,
    /// Address at which other members reach the process.
    pub address: Arc<str>,
    /// True if the process holds the lock of the spool of its name.
    pub spool_lock: bool,
    /// The oldest and the newest version of the rules that the process offers.
    pub knows: (u32, u32),
    /// False if the process must not propose a new version of the rules, so that an older program
    /// can still be installed again.
    pub may_upgrade: bool,
}

/// An instruction to the shell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberOutput {
    /// A client's request has got its slot. Start it.
    Granted {
        /// Name of the pool.
        pool: Arc<str>,
        /// The grant, with the worker.
        grant: Grant,
    },
    /// A client's request will not be served.
    Refused {
        /// Name of the pool.
        pool: Arc<str>,
        /// Id of the request.
        id: Arc<str>,
        /// Reason of the refusal.
        reason: RequestRefusal,
    },
    /// Abort a request in flight, because its slot will be given to others.
    CutFlight {
        /// Name of the pool.
        pool: Arc<str>,
        /// Id of the request.
        id: Arc<str>,
    },
    /// The process is a member now.
    Joined {
        /// Epoch that begins.
        epoch: MemberEpoch,
    },
    /// The process may not join now. It will try again.
    JoinRefused(JoinRefusal),
    /// The cluster has ended the process's epoch. The process will try to join again.
    EpochEnded,
    /// The process has left the cluster, and may stop.
    Left,
    /// Store a snapshot outside of the log. Then call [`MemberProtocol::snapshot_stored`].
    StoreSnapshot {
        /// Position of the snapshot.
        position: LogPosition,
        /// Bytes of the whole snapshot.
        bytes: Vec<u8>,
    },
    /// The log may be pruned up to a position.
    Prune {
        /// The last record that is no longer needed.
        up_to: LogPosition,
    },
    /// A record's bytes are damaged. Read it once more.
    ReadAgain {
        /// Position of the record.
        position: LogPosition,
    },
    /// A record's bytes are still damaged. Start again from the last snapshot, with
    /// [`MemberProtocol::restart`].
    RestartFromSnapshot,
    /// The log is no longer the same order for all members. Send the report to the other members
    /// outside of the log, and begin the next generation with [`MemberProtocol::begin_generation`].
    GenerationNeeded {
        /// The state that this member offers as the base.
        report: GenerationReport,
        /// The reason, for people.
        reason: String,
    },
    /// The rules in force have a version that this program does not know. The program must stop.
    UnknownVersion {
        /// The version in force.
        needed: u32,
    },
    /// The process has not read its own `alive` for too long. Ask the other members for their
    /// cluster time, and pass the answers to [`MemberProtocol::peers_answered`].
    AskPeers,
    /// A decision that code outside of this crate may need, such as [`ClusterDecision::Published`].
    Decided(ClusterDecision),
}

/// Reason why a client's request will not be served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestRefusal {
    /// A limit of the request's tenant or key is reached.
    Limit(LimitRefusal),
    /// The pool has rejected the request.
    Rejected(RejectedRequest),
    /// The request has waited too long.
    Expired,
    /// The cluster has no such pool.
    NoPool,
    /// The line of the request made the machine of every member panic.
    InternalError,
}

/// The phase of a process in the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
enum MemberPhase {
    /// The process is not a member, and joins at `join_at`. `was_ended` is true if new requests are
    /// refused until then.
    Out { join_at: LocalMicros, was_ended: bool },
    /// The process has sent its join and has not read it back yet.
    Joining { record: Vec<u8>, sent_at: LocalMicros, was_ended: bool },
    /// The process is a member.
    In { number: MemberNumber, epoch: MemberEpoch },
    /// The process waits for the next generation.
    Suspended,
    /// The process has left, or cannot continue.
    Gone,
}

/// The protocol of one member; see the [crate documentation](crate) for the rules.
#[derive(Debug)]
pub struct MemberProtocol {
    identity: MemberIdentity,
    config: ClusterConfig,
    /// Version of the directory that the process has read.
    directory: u64,
    replica: Replica,
    phase: MemberPhase,
    /// Number of joins so far.
    attempts: u64,
    sender: BatchSender,
    requests: LocalRequests,
    /// The process's opinions on workers, by pool and worker. They are stated again in each epoch.
    opinions: BTreeMap<(Arc<str>, Arc<str>), (bool, ClusterMicros)>,
    leaving: bool,
    /// Time at which the last `alive` that was read back had been written.
    confirmed_at: LocalMicros,
    /// Time at which the last `alive` was written.
    alive_at: LocalMicros,
    /// Time at which the last record was applied.
    applied_at: LocalMicros,
    tick_at: LocalMicros,
    asked_peers_at: Option<LocalMicros>,
    /// The last known position of the log's end.
    log_end: LogPosition,
    /// Position of a record with damaged bytes, and true if the member has restarted from a
    /// snapshot because of it.
    damaged: Option<(LogPosition, bool)>,
    /// Position up to which records were applied before a restart. The member has already acted on
    /// their decisions.
    replay_until: LogPosition,
    last_mark: (LogPosition, ClusterMicros),
    mark_is_sent: bool,
    outputs: VecDeque<MemberOutput>,
    effects: ClusterEffects,
}

/// Error for a configuration that does not fit in a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the pools' configuration takes {bytes} bytes in the log, where a record holds {max}: name fewer \
     weights in the policies"
)]
pub struct ConfigTooLargeError {
    /// Size of the configuration in bytes.
    pub bytes: usize,
    /// Maximum size that fits, in bytes.
    pub max: usize,
}

/// Error for a line that does not fit in a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a line of {bytes} bytes does not fit in a record of the log")]
pub struct LineTooLongError {
    /// Size of the line in bytes.
    pub bytes: usize,
}

fn checked_config(config: &ClusterConfig) -> Result<(), ConfigTooLargeError> {
    let bytes = serde_json::to_vec(config).map_or(usize::MAX, |text| text.len());
    let max = RECORD_BYTES_MAX - 2 * HEADER_BYTES;
    match bytes <= max {
        true => Ok(()),
        false => Err(ConfigTooLargeError { bytes, max }),
    }
}

impl MemberProtocol {
    /// Creates a process that joins after it has read the log to its end.
    pub fn new(
        identity: MemberIdentity,
        config: ClusterConfig,
        directory: u64,
        replica: Replica,
        now: LocalMicros,
    ) -> Result<Self, ConfigTooLargeError> {
        checked_config(&config)?;
        let machine = replica.machine();
        Ok(Self {
            last_mark: (machine.position(), machine.now()),
            log_end: machine.position(),
            identity,
            config,
            directory,
            replica,
            phase: MemberPhase::Out { join_at: now, was_ended: true },
            attempts: 0,
            sender: BatchSender::default(),
            requests: LocalRequests::default(),
            opinions: BTreeMap::new(),
            leaving: false,
            confirmed_at: now,
            alive_at: now,
            applied_at: now,
            tick_at: now,
            asked_peers_at: None,
            damaged: None,
            replay_until: LogPosition(0),
            mark_is_sent: false,
            outputs: VecDeque::new(),
            effects: ClusterEffects::default(),
        })
    }

    /// Also collects the events that pools apply, for their journals; see
    /// [`take_pool_events`](Self::take_pool_events).
    #[must_use]
    pub fn with_pool_events(self) -> Self {
        Self { effects: ClusterEffects::with_pool_events(), ..self }
    }

    /// Removes and returns the events that pools have applied since the last call, in order.
    pub fn take_pool_events(&mut self) -> Vec<crate::decision::AppliedPoolEvent> {
        std::mem::take(&mut self.effects.pool_events)
    }

    /// Returns the member's replica, for reading only.
    pub fn replica(&self) -> &Replica {
        &self.replica
    }

    #[cfg(test)]
    pub(crate) fn replica_mut(&mut self) -> &mut Replica {
        &mut self.replica
    }

    /// Limits the number of lines in a record, so that several records are in transit at once.
    #[cfg(test)]
    pub(crate) fn set_lines_max(&mut self, lines_max: usize) {
        self.sender.set_lines_max(lines_max);
    }

    #[cfg(test)]
    fn is_mutated(&self, mutation: crate::tests::simulation::Mutation) -> bool {
        self.replica.machine().mutation == Some(mutation)
    }

    /// Returns true if the process has no requests, and the log contains the ends of all earlier
    /// ones.
    pub fn is_idle(&self) -> bool {
        self.requests.is_empty()
    }

    /// Returns the member's number and epoch; `None` while it is not in the cluster.
    pub fn epoch(&self) -> Option<(MemberNumber, MemberEpoch)> {
        match self.phase {
            MemberPhase::In { number, epoch } => Some((number, epoch)),
            _ => None,
        }
    }

    /// Returns the next instruction; `None` if there is none.
    pub fn poll_output(&mut self) -> Option<MemberOutput> {
        self.outputs.pop_front()
    }

    /// Sends a line to the log, such as a worker's change or a limit. The line is dropped if the
    /// process is not a member now, and is lost if its epoch ends before the line is applied. So
    /// publish such lines again after [`MemberOutput::Joined`].
    pub fn publish(&mut self, line: &LogLine) -> Result<(), LineTooLongError> {
        let mut text = String::new();
        line.write(&mut text);
        if text.len() > RECORD_BYTES_MAX - HEADER_BYTES {
            return Err(LineTooLongError { bytes: text.len() });
        }
        if self.epoch().is_some() {
            self.sender.push(text, None);
        }
        Ok(())
    }

    /// Sends an opinion on a worker if it has changed. It is sent again at the start of each epoch.
    pub fn set_opinion(
        &mut self,
        pool: &Arc<str>,
        worker: &Arc<str>,
        up: bool,
        wait: ClusterMicros,
    ) {
        let before = self.opinions.insert((pool.clone(), worker.clone()), (up, wait));
        if before != Some((up, wait)) && self.epoch().is_some() {
            self.say(ClusterLine::Opinion { pool: pool.clone(), worker: worker.clone(), up, wait });
        }
    }

    /// Records the version of the directory that the process has read. Sends it if it is newer than
    /// the cluster's.
    pub fn set_directory(&mut self, version: u64) {
        self.directory = version;
        if self.epoch().is_some() && version > self.replica.machine().directory() {
            self.say(ClusterLine::Directory { version });
        }
    }

    /// Uses the changed file of this process, and puts it in force for the cluster. If the process
    /// is not a member now, its next join contains the file, and the rule for joins applies.
    pub fn reload(&mut self, config: ClusterConfig) -> Result<(), ConfigTooLargeError> {
        checked_config(&config)?;
        if self.epoch().is_some() {
            self.say(ClusterLine::Reload { config: Box::new(config.clone()) });
        }
        self.config = config;
        Ok(())
    }

    /// Makes the process leave the cluster once its requests, queued and in flight, have ended. New requests are
    /// refused.
    pub fn leave(&mut self) {
        self.leaving = true;
    }

    /// Sends a line which states that a snapshot is stored. Does nothing if the process is not a
    /// member now.
    pub fn snapshot_stored(&mut self, position: LogPosition, hash: crate::units::ShortHash) {
        if self.epoch().is_some() {
            self.say(ClusterLine::SnapshotStored { position, hash });
        }
    }

    /// Sends a line that does not belong to one request.
    fn say(&mut self, line: ClusterLine) {
        self.say_of(&LogLine::Cluster(line), None);
    }

    fn say_of(&mut self, line: &LogLine, key: Option<RequestKey>) {
        let mut text = String::new();
        line.write(&mut text);
        self.sender.push(text, key);
    }

    /// Returns the bytes with which the next generation begins if this member's state is chosen.
    pub fn base_for(&self, generation: u64) -> Vec<u8> {
        let mut machine = self.replica.machine().clone();
        machine.begin_generation(generation);
        machine.snapshot()
    }

    /// Begins the next generation on an empty log, from the chosen member's state. The member joins
    /// it and names its requests again.
    pub fn begin_generation(
        &mut self,
        base: Vec<u8>,
        now: LocalMicros,
    ) -> Result<(), SnapshotError> {
        self.restart(base)?;
        self.replay_until = LogPosition(0);
        self.sender.clear();
        self.requests.forget_epoch();
        self.log_end = self.replica.machine().position();
        self.damaged = None;
        if self.phase != MemberPhase::Gone {
            let was_ended = matches!(self.phase, MemberPhase::Out { was_ended: true, .. });
            self.phase = MemberPhase::Out { join_at: now, was_ended };
        }
        Ok(())
    }

    /// Restarts from a snapshot of the same generation, because a record is damaged, or was pruned
    /// before it was read. The member continues in its epoch, unless the snapshot is ahead of the
    /// records that it had applied. In that case it has missed decisions about its requests, so it
    /// joins again and names all of them.
    pub fn restart(&mut self, snapshot: Vec<u8>) -> Result<(), SnapshotError> {
        let (knows, before) = (self.replica.machine().knows, self.replica.machine().position());
        self.replica = Replica::restore_knowing(snapshot, knows)?;
        let machine = self.replica.machine();
        let position = machine.position();
        self.last_mark = (position, machine.now());
        self.mark_is_sent = false;
        self.damaged = self.damaged.map(|(position, _)| (position, true));
        self.replay_until = self.replay_until.max(before);
        if position > before && self.epoch().is_some() {
            self.sender.clear();
            self.requests.forget_epoch();
            self.phase = MemberPhase::Out { join_at: LocalMicros(0), was_ended: false };
        }
        Ok(())
    }
}
