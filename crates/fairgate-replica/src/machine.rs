//! The machine that every member runs. It takes records and returns decisions.
//!
//! [`ClusterMachine::apply`] is the only method that decides. It reads no clock and depends only on
//! the records and their timestamps. So members that have applied the same records have equal
//! snapshots, byte for byte.

/// Builds the context that the machine passes to its pools. It is a macro because a method would
/// borrow the whole machine, while the pools are borrowed at the same time.
macro_rules! pool_context {
    ($machine:expr, $effects:expr) => {
        PoolContext {
            now: $machine.clock.now,
            position: $machine.position,
            limits: &mut $machine.limits,
            effects: $effects,
            #[cfg(test)]
            mutation: $machine.mutation,
        }
    };
}

mod membership;
mod pool_lines;
mod time;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use fairgate_core::Pool;

use crate::clock::ClusterClock;
use crate::cluster_config::{ClusterConfig, ConfigInForce};
use crate::decision::{
    ClusterDecision, ClusterEffects, LineRefusal, SubmitRefusal, hash_decisions,
};
use crate::limits::ClusterLimits;
use crate::line::{ClusterLine, LogLine};
use crate::members::{ClusterMember, MemberTable};
use crate::recent_hashes::RecentHashes;
use crate::record::{Record, RecordError, RecordHeader, decode_record};
use crate::replicated_pool::{LineSender, PoolContext, ReplicatedPool};
use crate::units::{ClusterMicros, EngineStamp, LogPosition, MemberEpoch, MemberNumber, ShortHash};

/// The oldest and the newest version of the rules that this program knows. A change of any
/// decision, including those of the core, must raise the newest version. If it was not raised, the
/// tests that replay the logs in `recorded` fail.
pub const MACHINE_VERSIONS: (u32, u32) = (1, 1);

/// One record, with its position in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogEntry<'a> {
    /// Position of the record.
    pub position: LogPosition,
    /// The engine's time when it accepted the record.
    pub stamp: EngineStamp,
    /// The bytes that a member appended.
    pub record: &'a [u8],
}

/// Outcome of applying a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordOutcome {
    /// The lines of the record were applied.
    Applied,
    /// A record with this number was applied before, so this one is a copy.
    Duplicate,
    /// An earlier record of the same sender is missing. The sender will send both records again.
    Missing,
    /// The record was ignored. Either the epoch of its sender has ended, or it belongs to another
    /// cluster or generation, or it contains a join and other lines.
    NotCounted,
}

/// Outcome of applying a record, with the record's sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordReceipt {
    /// Number of the sender; 0 in the record of a join.
    pub member: MemberNumber,
    /// Epoch of the sender.
    pub epoch: MemberEpoch,
    /// Number of the record in the epoch.
    pub batch: u64,
    /// Outcome of applying the record.
    pub outcome: RecordOutcome,
}

/// Reason why a record was not applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// The record is not the next one. Nothing has changed.
    #[error("record {got} is not the next one, {expected}", got = got.0, expected = expected.0)]
    NotNext {
        /// Position of the record.
        got: LogPosition,
        /// Position of the next record.
        expected: LogPosition,
    },
    /// The record's bytes cannot be decoded. Nothing has changed. Reading the record again may
    /// help.
    #[error("record {}: {error}", position.0)]
    Unreadable {
        /// Position of the record.
        position: LogPosition,
        /// Error in the bytes.
        error: RecordError,
    },
    /// The sender had applied records beyond this position before it built its record, so the log
    /// has lost records. A new generation is needed. Nothing has changed.
    #[error("the log has lost records: record {} was built on record {}", position.0, built_on.0)]
    LostRecords {
        /// Position of the record.
        position: LogPosition,
        /// Position up to which the sender had applied the log.
        built_on: LogPosition,
    },
    /// The running hashes of the sender and of this machine differ at the same position. A new
    /// generation is needed. Nothing has changed.
    #[error(
        "fork: member {} had another state at record {} than this one", member.0, built_on.0
    )]
    Fork {
        /// Number of the sender; 0 if it had not joined yet.
        member: MemberNumber,
        /// Position at which the two hashes differ. The states may have differed before.
        built_on: LogPosition,
    },
    /// A line puts a version of the rules in force that this program does not know. The machine
    /// must not be used any more.
    #[error("version {needed} of the rules is in force, and this program knows {}", knows.1)]
    UnknownVersion {
        /// The version in force.
        needed: u32,
        /// The oldest and the newest version that this program knows.
        knows: (u32, u32),
    },
    /// The machine panicked at this record, or stopped at an earlier one. It must not be used any more.
    /// [`Replica`](crate::Replica) recovers from a line that panics.
    #[error("record {} stopped the machine", position.0)]
    Stopped {
        /// Position of the record.
        position: LogPosition,
        /// Index of the line that panicked, counted from 0. `None` if the panic happened before the
        /// first line, or if the machine had stopped at an earlier record.
        line: Option<u32>,
    },
}

/// The replicated machine of a cluster.
#[derive(Clone, Debug)]
pub struct ClusterMachine {
    pub(crate) cluster: Arc<str>,
    pub(crate) version: u32,
    /// The oldest and the newest version that this program knows. They are not part of the
    /// replicated state.
    pub(crate) knows: (u32, u32),
    pub(crate) generation: u64,
    pub(crate) position: LogPosition,
    pub(crate) hash: blake3::Hash,
    pub(crate) recent: RecentHashes,
    pub(crate) clock: ClusterClock,
    pub(crate) members: MemberTable,
    pub(crate) config: ConfigInForce,
    /// The configurations of the live members, by digest.
    pub(crate) member_configs: BTreeMap<ShortHash, Arc<ClusterConfig>>,
    pub(crate) pools: BTreeMap<Arc<str>, ReplicatedPool>,
    pub(crate) limits: ClusterLimits,
    pub(crate) directory: u64,
    /// Number of marks so far. It decides which member takes the next snapshot.
    pub(crate) marks: u64,
    /// Position of the last stored snapshot.
    pub(crate) snapshot: LogPosition,
    /// Time since which all live members know the next version; `None` if at least one does not
    /// know it.
    pub(crate) next_known_since: Option<ClusterMicros>,
    /// True after an error that stopped the machine; no more records are applied.
    pub(crate) is_stopped: bool,
    #[cfg(test)]
    pub(crate) mutation: Option<crate::tests::simulation::Mutation>,
}

impl ClusterMachine {
    /// Creates the machine of a new cluster: generation 1, no members, no pools.
    pub fn new(cluster: &str, version: u32) -> Self {
        let hash = blake3::hash(cluster.as_bytes());
        Self {
            cluster: cluster.into(),
            version,
            knows: MACHINE_VERSIONS,
            generation: 1,
            position: LogPosition(0),
            hash,
            recent: RecentHashes::starting_at(LogPosition(0), ShortHash::of(&hash)),
            clock: ClusterClock::default(),
            members: MemberTable::default(),
            config: ConfigInForce::default(),
            member_configs: BTreeMap::new(),
            pools: BTreeMap::new(),
            limits: ClusterLimits::default(),
            directory: 0,
            marks: 0,
            snapshot: LogPosition(0),
            next_known_since: None,
            is_stopped: false,
            #[cfg(test)]
            mutation: None,
        }
    }

    /// Applies the next record. Adds decisions to `effects` in order; adds none if it fails.
    pub fn apply(
        &mut self,
        entry: &LogEntry<'_>,
        effects: &mut ClusterEffects,
    ) -> Result<RecordReceipt, ApplyError> {
        self.apply_without(entry, &BTreeSet::new(), effects)
    }

    /// Applies the next record without the lines that have these indexes, because these lines made
    /// the machine panic before.
    pub(crate) fn apply_without(
        &mut self,
        entry: &LogEntry<'_>,
        without: &BTreeSet<u32>,
        effects: &mut ClusterEffects,
    ) -> Result<RecordReceipt, ApplyError> {
        let position = entry.position;
        if position != self.position.next() {
            return Err(ApplyError::NotNext { got: position, expected: self.position.next() });
        }
        if self.is_stopped {
            return Err(ApplyError::Stopped { position, line: None });
        }
        let record = decode_record(entry.record)
            .map_err(|error| ApplyError::Unreadable { position, error })?;
        self.check_built_on(position, &record.header)?;
        let before = effects.lengths();
        let applied = self.apply_checked(entry, &record, without, effects);
        match applied {
            Ok(_) => self.advance_hash(entry, &effects.decisions[before.0..]),
            Err(_) => {
                self.is_stopped = true;
                effects.truncate(before);
            }
        }
        let RecordHeader { member, epoch, batch, .. } = record.header;
        applied.map(|outcome| RecordReceipt { member, epoch, batch, outcome })
    }

    fn is_of_this_log(&self, header: &RecordHeader) -> bool {
        header.cluster == self.cluster && header.generation == self.generation
    }

    /// Compares the hash on which a record was built with this machine's hash at the same position.
    fn check_built_on(
        &self,
        position: LogPosition,
        header: &RecordHeader,
    ) -> Result<(), ApplyError> {
        let (built_on, hash) = header.built_on;
        if !self.is_of_this_log(header) {
            return Ok(());
        }
        if built_on > self.position {
            return Err(ApplyError::LostRecords { position, built_on });
        }
        match self.recent.get(built_on) {
            Some(own) if own != hash => Err(ApplyError::Fork { member: header.member, built_on }),
            _ => Ok(()),
        }
    }

    fn apply_checked(
        &mut self,
        entry: &LogEntry<'_>,
        record: &Record<'_>,
        without: &BTreeSet<u32>,
        effects: &mut ClusterEffects,
    ) -> Result<RecordOutcome, ApplyError> {
        let position = entry.position;
        self.position = position;
        let passed = catch_unwind(AssertUnwindSafe(|| self.pass_time(entry.stamp, effects)));
        passed.map_err(|_| ApplyError::Stopped { position, line: None })?;
        let sender = match self.admit(&record.header) {
            Ok(sender) => sender,
            Err(outcome) => return Ok(outcome),
        };
        for (index, text) in (0u32..).zip(&record.lines) {
            if without.contains(&index) {
                self.refuse_stopper(text, index, sender, effects);
                continue;
            }
            let applied =
                catch_unwind(AssertUnwindSafe(|| self.apply_line(text, index, sender, effects)));
            applied.map_err(|_| ApplyError::Stopped { position, line: Some(index) })??;
        }
        self.remove_empty_pools(effects);
        Ok(RecordOutcome::Applied)
    }

    /// Decides whether a record counts, and who its sender is. A record of a join has no sender
    /// yet.
    fn admit(&mut self, header: &RecordHeader) -> Result<LineSender, RecordOutcome> {
        let sender = LineSender { member: header.member, epoch: header.epoch };
        if !self.is_of_this_log(header) {
            return Err(RecordOutcome::NotCounted);
        }
        if header.member == MemberNumber(0) {
            return match header.lines {
                1 => Ok(sender),
                _ => Err(RecordOutcome::NotCounted),
            };
        }
        let member = self.members.get_mut(header.member);
        let Some(member) = member.filter(|it| it.epoch() == Some(header.epoch)) else {
            return Err(RecordOutcome::NotCounted);
        };
        match header.batch.cmp(&(member.last_batch + 1)) {
            std::cmp::Ordering::Less => Err(RecordOutcome::Duplicate),
            #[cfg(test)]
            std::cmp::Ordering::Greater
                if self.mutation == Some(crate::tests::simulation::Mutation::GapsAreIgnored) =>
            {
                member.last_batch = header.batch;
                Ok(sender)
            }
            std::cmp::Ordering::Greater => Err(RecordOutcome::Missing),
            std::cmp::Ordering::Equal => {
                member.last_batch = header.batch;
                Ok(sender)
            }
        }
    }

    fn apply_line(
        &mut self,
        text: &str,
        index: u32,
        sender: LineSender,
        effects: &mut ClusterEffects,
    ) -> Result<(), ApplyError> {
        let is_join_record = sender.member == MemberNumber(0);
        let member = self.members.get(sender.member);
        let counts = member.is_some_and(|it| it.epoch() == Some(sender.epoch));
        let (member, line) = (sender.member, index);
        let refuse = |reason| ClusterDecision::LineRefused { member, line, reason };
        match LogLine::parse(text) {
            Err(_) => effects.decided(refuse(LineRefusal::Unreadable)),
            Ok(LogLine::Cluster(ClusterLine::Join(join))) if is_join_record => {
                self.join(&join, effects);
            }
            // The sender's epoch ended earlier in this record, or the record has no sender.
            Ok(_) if !counts => effects.decided(refuse(LineRefusal::Misplaced)),
            Ok(LogLine::Pool(line)) => self.apply_pool_line(line, sender, effects),
            Ok(LogLine::Cluster(ClusterLine::Join(_))) => {
                effects.decided(refuse(LineRefusal::Misplaced));
            }
            Ok(LogLine::Cluster(line)) => return self.apply_cluster_line(line, sender, effects),
        }
        Ok(())
    }

    /// Refuses a line that makes the machine panic. If the line submits a request, the request is
    /// refused too.
    fn refuse_stopper(
        &self,
        text: &str,
        index: u32,
        sender: LineSender,
        effects: &mut ClusterEffects,
    ) {
        let (member, reason) = (sender.member, LineRefusal::StoppedTheMachine);
        effects.decided(ClusterDecision::LineRefused { member, line: index, reason });
        if let Ok(LogLine::Pool(line)) = LogLine::parse(text)
            && let fairgate_core::event::Event::Submit(submit) = line.event
        {
            let (pool, id, reason) = (line.pool, submit.id, SubmitRefusal::InternalError);
            effects.decided(ClusterDecision::SubmitRefused { pool, id, member, reason });
        }
    }

    fn advance_hash(&mut self, entry: &LogEntry<'_>, decisions: &[ClusterDecision]) {
        let mut hasher = blake3::Hasher::new();
        hasher.update(self.hash.as_bytes());
        hasher.update(&entry.position.0.to_le_bytes());
        hasher.update(&entry.stamp.0.to_le_bytes());
        hasher.update(&(entry.record.len() as u64).to_le_bytes());
        hasher.update(entry.record);
        hash_decisions(&mut hasher, decisions);
        hasher.update(&self.version.to_le_bytes());
        self.hash = hasher.finalize();
        self.recent.push(ShortHash::of(&self.hash));
    }

    /// Begins another generation with this state, on an empty log. Every member has one lease to
    /// join it and to name its requests again. Until then its requests keep their slots and their
    /// positions in the queue.
    pub fn begin_generation(&mut self, generation: u64) {
        let mut hasher = blake3::Hasher::new();
        hasher.update(self.hash.as_bytes());
        hasher.update(&generation.to_le_bytes());
        self.hash = hasher.finalize();
        self.generation = generation;
        self.position = LogPosition(0);
        self.snapshot = LogPosition(0);
        self.recent = RecentHashes::starting_at(LogPosition(0), ShortHash::of(&self.hash));
        self.clock.forget_stamps();
        self.members.expect_all(self.clock.now);
        self.pools.values_mut().for_each(ReplicatedPool::begin_generation);
        self.next_known_since = None;
    }

    /// Calls `with` for each pool, in the order of their names.
    fn each_pool(
        &mut self,
        effects: &mut ClusterEffects,
        mut with: impl FnMut(&mut ReplicatedPool, &mut PoolContext<'_>),
    ) {
        let mut context = pool_context!(self, effects);
        self.pools.values_mut().for_each(|pool| with(pool, &mut context));
    }

    fn remove_empty_pools(&mut self, effects: &mut ClusterEffects) {
        if !self.pools.values().any(|pool| pool.is_closing()) {
            return;
        }
        self.pools.retain(|name, pool| {
            let goes = pool.is_closing() && pool.is_empty();
            if goes {
                effects.decided(ClusterDecision::PoolRemoved { pool: name.clone() });
            }
            !goes
        });
    }
}

impl ClusterMachine {
    /// Returns the name of the cluster.
    pub fn cluster(&self) -> &Arc<str> {
        &self.cluster
    }

    /// Returns the version of the rules in force.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Returns the number of the generation.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns the position of the last record that was applied.
    pub fn position(&self) -> LogPosition {
        self.position
    }

    /// Returns the running hash over all records and decisions.
    pub fn hash(&self) -> ShortHash {
        ShortHash::of(&self.hash)
    }

    /// Returns the cluster time at the last record.
    pub fn now(&self) -> ClusterMicros {
        self.clock.now
    }

    /// Returns all processes that are in the cluster or ended recently, in the order of their
    /// numbers.
    pub fn members(&self) -> impl Iterator<Item = &ClusterMember> {
        self.members.all()
    }

    /// Returns the process with this number; `None` if the cluster does not know it.
    pub fn member(&self, number: MemberNumber) -> Option<&ClusterMember> {
        self.members.get(number)
    }

    /// Returns the rank of a live member; `None` if the member is not live. Members send ticks in
    /// the order of their ranks. The member of rank 0 also does the tasks of which only one member
    /// should take care, such as marking snapshots.
    pub fn rank(&self, number: MemberNumber) -> Option<usize> {
        self.members.live().position(|member| member.number == number)
    }

    /// Returns a pool, for reading only; `None` if the cluster has no pool of this name.
    pub fn pool(&self, name: &str) -> Option<&Pool> {
        self.pools.get(name).map(ReplicatedPool::pool)
    }

    /// Returns the names of all pools, sorted.
    pub fn pool_names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.pools.keys()
    }

    /// Returns the member that owns a request; `None` if no such request is queued or in flight.
    pub fn holder(&self, pool: &str, id: &str) -> Option<&ClusterMember> {
        let request = self.pools.get(pool)?.find(id)?;
        self.members.get(request.member)
    }

    /// Returns the worker on which a request is in flight; `None` if it is not in flight, or its pool has no workers.
    pub fn flight_worker(&self, pool: &str, id: &str) -> Option<&Arc<str>> {
        self.pools.get(pool)?.flight_worker(id)
    }

    /// Returns the number of requests in flight on each worker of a pool, sorted by worker.
    pub fn worker_flights(&self, pool: &str) -> impl Iterator<Item = (&Arc<str>, u64)> {
        self.pools.get(pool).into_iter().flat_map(ReplicatedPool::worker_flights)
    }

    /// Returns the limits of tenants and keys.
    pub fn limits(&self) -> &ClusterLimits {
        &self.limits
    }

    /// Returns the newest version of the directory that any member has stated.
    pub fn directory(&self) -> u64 {
        self.directory
    }

    /// Returns the configuration in force.
    pub fn config(&self) -> &Arc<ClusterConfig> {
        &self.config.config
    }

    /// Returns the digest of the configuration in force; `None` before the first join.
    pub fn config_digest(&self) -> Option<ShortHash> {
        self.config.digest
    }

    /// Returns the version that an upgrade would put in force. `None` unless all live members have
    /// known it for the time `upgrade_after` of the configuration.
    pub fn allowed_upgrade(&self) -> Option<u32> {
        let known = self.clock.now.since(self.next_known_since?);
        (known >= self.config.config.timing.upgrade_after).then_some(self.version + 1)
    }

    /// Returns the number and the epoch of a process; `None` if the process is not live.
    pub fn epoch_of(&self, name: &str, process: &str) -> Option<(MemberNumber, MemberEpoch)> {
        let member = self.members.find_process(name, process)?;
        Some((member.number, member.epoch()?))
    }
}

#[cfg(test)]
mod tests;
