//! One member's copy of the machine, which recovers from a line that makes it panic.
//!
//! The core panics on overflow by design. A bug in the rules would therefore stop every member at
//! the same line, and again after each restart. So each replica keeps its last snapshot and the
//! records since then. If a line panics, the replica restores the snapshot, applies the records
//! again, and skips that line. Every member does so at the same position, because the line panics
//! on every member. If it panicked on one member only, the running hashes would differ, which is
//! detected as a fork.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::decision::ClusterEffects;
use crate::machine::{ApplyError, ClusterMachine, LogEntry, MACHINE_VERSIONS, RecordReceipt};
use crate::snapshot::SnapshotError;
use crate::units::{EngineStamp, LogPosition};

/// Number of records after which a replica takes a new snapshot. It limits the memory for the
/// records, and the time to apply them again.
const CHECKPOINT_RECORDS: usize = 20_000;

/// The machine of one member, with a snapshot and records for recovering from a line that makes it
/// panic.
#[derive(Clone, Debug)]
pub struct Replica {
    machine: ClusterMachine,
    checkpoint: Vec<u8>,
    /// The records since the checkpoint.
    since: VecDeque<KeptRecord>,
    /// The lines that were skipped, by the position of their record.
    stoppers: BTreeMap<LogPosition, BTreeSet<u32>>,
}

#[derive(Clone, Debug)]
struct KeptRecord {
    position: LogPosition,
    stamp: EngineStamp,
    record: Vec<u8>,
}

impl Replica {
    /// Creates a replica from a machine.
    pub fn new(machine: ClusterMachine) -> Self {
        let checkpoint = machine.snapshot();
        Self { machine, checkpoint, since: VecDeque::new(), stoppers: BTreeMap::new() }
    }

    /// Creates a replica from a snapshot.
    pub fn restore(snapshot: Vec<u8>) -> Result<Self, SnapshotError> {
        Self::restore_knowing(snapshot, MACHINE_VERSIONS)
    }

    pub(crate) fn restore_knowing(
        snapshot: Vec<u8>,
        knows: (u32, u32),
    ) -> Result<Self, SnapshotError> {
        let machine = ClusterMachine::restore_knowing(&snapshot, knows)?;
        let (since, stoppers) = (VecDeque::new(), BTreeMap::new());
        Ok(Self { machine, checkpoint: snapshot, since, stoppers })
    }

    /// Returns the machine, for reading only.
    pub fn machine(&self) -> &ClusterMachine {
        &self.machine
    }

    #[cfg(test)]
    pub(crate) fn machine_mut(&mut self) -> &mut ClusterMachine {
        &mut self.machine
    }

    /// Returns the lines that were skipped since the last checkpoint, each with the position of its
    /// record.
    pub fn lines_left_out(&self) -> impl Iterator<Item = (LogPosition, u32)> + '_ {
        let lines = self.stoppers.iter();
        lines.flat_map(|(position, lines)| lines.iter().map(|line| (*position, *line)))
    }

    /// Applies the next record. A line that makes the machine panic is skipped and refused.
    pub fn apply(
        &mut self,
        entry: &LogEntry<'_>,
        effects: &mut ClusterEffects,
    ) -> Result<RecordReceipt, ApplyError> {
        loop {
            let without = self.stoppers.get(&entry.position).cloned().unwrap_or_default();
            match self.machine.apply_without(entry, &without, effects) {
                Ok(receipt) => {
                    self.keep(entry);
                    return Ok(receipt);
                }
                Err(ApplyError::Stopped { position, line: Some(line) }) => {
                    self.stoppers.entry(position).or_default().insert(line);
                    self.replay()?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Applies the records since the checkpoint again, without the lines that make the machine
    /// panic.
    fn replay(&mut self) -> Result<(), ApplyError> {
        let knows = self.machine.knows;
        let position = self.machine.position();
        let stopped = ApplyError::Stopped { position, line: None };
        let mut machine =
            ClusterMachine::restore_knowing(&self.checkpoint, knows).map_err(|_| stopped)?;
        #[cfg(test)]
        machine.mutation.clone_from(&self.machine.mutation);
        let mut repeated = ClusterEffects::default();
        for kept in &self.since {
            let KeptRecord { position, stamp, record } = kept;
            let (position, stamp) = (*position, *stamp);
            let without = self.stoppers.get(&position).cloned().unwrap_or_default();
            let entry = LogEntry { position, stamp, record };
            machine.apply_without(&entry, &without, &mut repeated)?;
            repeated.truncate((0, 0));
        }
        self.machine = machine;
        Ok(())
    }

    fn keep(&mut self, entry: &LogEntry<'_>) {
        let (position, stamp) = (entry.position, entry.stamp);
        self.since.push_back(KeptRecord { position, stamp, record: entry.record.to_vec() });
        if self.since.len() >= CHECKPOINT_RECORDS {
            self.take_checkpoint();
        }
    }

    /// Takes a snapshot, from which the replica will recover if necessary. Members take turns at
    /// storing their snapshots.
    pub fn take_checkpoint(&mut self) -> &[u8] {
        self.checkpoint = self.machine.snapshot();
        self.since.clear();
        self.stoppers.clear();
        &self.checkpoint
    }

    /// Begins another generation with this replica's state.
    pub fn begin_generation(&mut self, generation: u64) {
        self.machine.begin_generation(generation);
        self.take_checkpoint();
    }
}
