//! Writes the whole machine as text, and restores it.
//!
//! The first line contains the machine without its pools. Two lines follow for each pool: its
//! configuration with the owners of its requests, and the core's snapshot in the form of a
//! journal's first line. Equal machines have equal snapshots, byte for byte, even if one of them
//! was restored from a snapshot. So two members are equal if the hashes of their snapshots are
//! equal.
//!
//! A snapshot does not contain the hashes of earlier records. After a restore, the hashes in other
//! members' records are compared only from the position of the snapshot on.

use std::collections::BTreeMap;
use std::sync::Arc;

use fairgate_journal::{JournalReader, JournalStart, JournalWriter};
use serde::{Deserialize, Serialize};

use crate::clock::ClusterClock;
use crate::cluster_config::{ClusterConfig, ConfigInForce};
use crate::limits::ClusterLimits;
use crate::machine::{ClusterMachine, MACHINE_VERSIONS};
use crate::members::MemberTable;
use crate::recent_hashes::RecentHashes;
use crate::replicated_pool::{PoolSnapshotBody, ReplicatedPool};
use crate::units::{ClusterMicros, LogPosition, ShortHash};

/// Version of the format of snapshots.
const SNAPSHOT_VERSION: u32 = 1;

/// The first line of a snapshot.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct MachineBody {
    fairgate_cluster_snapshot: u32,
    cluster: Arc<str>,
    machine: u32,
    generation: u64,
    position: LogPosition,
    hash: Box<str>,
    clock: ClusterClock,
    members: MemberTable,
    config: ConfigInForce,
    member_configs: Vec<(ShortHash, Arc<ClusterConfig>)>,
    limits: ClusterLimits,
    directory: u64,
    marks: u64,
    snapshot: LogPosition,
    next_known_since: Option<ClusterMicros>,
    pools: usize,
}

/// Reason why no machine can be restored from the bytes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// The snapshot has a version of the rules that this program does not know.
    #[error(
        "the cluster runs version {in_force} of the rules, and this program knows {} to {}: start a \
         release that knows it", knows.0, knows.1
    )]
    UnknownVersion {
        /// The version in force.
        in_force: u32,
        /// The oldest and the newest version that this program knows.
        knows: (u32, u32),
    },
    /// The bytes are not a snapshot, or not a complete one.
    #[error("line {line} of the snapshot: {problem}")]
    Bad {
        /// Number of the line, counted from 1.
        line: usize,
        /// Error in the line.
        problem: String,
    },
}

fn bad(line: usize, problem: impl ToString) -> SnapshotError {
    SnapshotError::Bad { line, problem: problem.to_string() }
}

impl ClusterMachine {
    /// Writes the whole machine.
    pub fn snapshot(&self) -> Vec<u8> {
        let configs = self.member_configs.iter();
        let body = MachineBody {
            fairgate_cluster_snapshot: SNAPSHOT_VERSION,
            cluster: self.cluster.clone(),
            machine: self.version,
            generation: self.generation,
            position: self.position,
            hash: self.hash.to_hex().as_str().into(),
            clock: self.clock.clone(),
            members: self.members.clone(),
            config: self.config.clone(),
            member_configs: configs.map(|(digest, it)| (*digest, it.clone())).collect(),
            limits: self.limits.clone(),
            directory: self.directory,
            marks: self.marks,
            snapshot: self.snapshot,
            next_known_since: self.next_known_since,
            pools: self.pools.len(),
        };
        #[cfg(test)]
        let body = match self.mutation {
            Some(crate::tests::simulation::Mutation::SnapshotsForget) => {
                MachineBody { marks: 0, ..body }
            }
            _ => body,
        };
        // This cannot fail: it writes to memory, and all keys are texts or numbers.
        let mut bytes = serde_json::to_vec(&body).unwrap_or_default();
        bytes.push(b'\n');
        for pool in self.pools.values() {
            bytes.extend(serde_json::to_vec(&pool.body()).unwrap_or_default());
            bytes.push(b'\n');
            let mut writer = JournalWriter::new(bytes);
            let _ = writer.write_snapshot(&pool.pool().snapshot());
            bytes = writer.into_inner();
        }
        bytes
    }

    /// Restores a machine. Fails if this program does not know the snapshot's version of the rules.
    pub fn restore(bytes: &[u8]) -> Result<Self, SnapshotError> {
        Self::restore_knowing(bytes, MACHINE_VERSIONS)
    }

    pub(crate) fn restore_knowing(bytes: &[u8], knows: (u32, u32)) -> Result<Self, SnapshotError> {
        let mut lines = (1..).zip(bytes.split_inclusive(|byte| *byte == b'\n'));
        let (_, first) = lines.next().ok_or_else(|| bad(1, "is missing"))?;
        let body: MachineBody = serde_json::from_slice(first).map_err(|error| bad(1, error))?;
        if body.fairgate_cluster_snapshot != SNAPSHOT_VERSION {
            let version = body.fairgate_cluster_snapshot;
            return Err(bad(1, format!("version {version} of the format is not known")));
        }
        if !(knows.0..=knows.1).contains(&body.machine) {
            return Err(SnapshotError::UnknownVersion { in_force: body.machine, knows });
        }
        let hash = blake3::Hash::from_hex(&*body.hash).map_err(|error| bad(1, error))?;
        let mut pools = BTreeMap::new();
        for _ in 0..body.pools {
            let (number, line) = lines.next().ok_or_else(|| bad(1, "a pool is missing"))?;
            let owners: PoolSnapshotBody =
                serde_json::from_slice(line).map_err(|error| bad(number, error))?;
            let (number, line) = lines.next().ok_or_else(|| bad(number, "has no pool"))?;
            let pool = restore_core_pool(number, line)?;
            let name = owners.pool.clone();
            let pool = ReplicatedPool::restore(owners, pool).map_err(|error| bad(number, error))?;
            pools.insert(name, pool);
        }
        if let Some((number, _)) = lines.next() {
            return Err(bad(number, "nothing more was expected"));
        }
        let mut machine = Self::new(&body.cluster, body.machine);
        machine.knows = knows;
        machine.generation = body.generation;
        machine.position = body.position;
        machine.hash = hash;
        machine.recent = RecentHashes::starting_at(body.position, ShortHash::of(&hash));
        machine.clock = body.clock;
        machine.members = body.members;
        machine.config = body.config;
        machine.member_configs = body.member_configs.into_iter().collect();
        machine.limits = body.limits;
        machine.directory = body.directory;
        machine.marks = body.marks;
        machine.snapshot = body.snapshot;
        machine.next_known_since = body.next_known_since;
        machine.pools = pools;
        Ok(machine)
    }

    /// Returns the hash of the machine's snapshot.
    pub fn state_hash(&self) -> ShortHash {
        snapshot_hash(&self.snapshot())
    }
}

/// Returns the hash of a snapshot's bytes. The taker of the snapshot states this hash in the log.
pub fn snapshot_hash(bytes: &[u8]) -> ShortHash {
    ShortHash::of(&blake3::hash(bytes))
}

fn restore_core_pool(number: usize, line: &[u8]) -> Result<fairgate_core::Pool, SnapshotError> {
    let (start, _) = JournalReader::open(line).map_err(|error| bad(number, error))?;
    match start {
        JournalStart::Snapshot(_) => start.into_pool().map_err(|error| bad(number, error)),
        JournalStart::Fresh(_) => Err(bad(number, "is the beginning of a journal")),
    }
}
