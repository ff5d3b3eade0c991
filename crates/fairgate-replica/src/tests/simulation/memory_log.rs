//! A log in memory, with the faults that a log may have.

use crate::machine::LogEntry;
use crate::units::{EngineStamp, LogPosition};

/// The records of one generation.
#[derive(Debug, Default)]
pub(super) struct MemoryLog {
    /// Number of records that were pruned.
    pruned: u64,
    records: Vec<(EngineStamp, Vec<u8>)>,
}

impl MemoryLog {
    pub(super) fn end(&self) -> LogPosition {
        LogPosition(self.pruned + self.records.len() as u64)
    }

    pub(super) fn push(&mut self, stamp: EngineStamp, record: Vec<u8>) -> LogPosition {
        self.records.push((stamp, record));
        self.end()
    }

    pub(super) fn get(&self, position: LogPosition) -> Option<LogEntry<'_>> {
        let index = position.0.checked_sub(self.pruned + 1)?;
        let (stamp, record) = self.records.get(usize::try_from(index).ok()?)?;
        Some(LogEntry { position, stamp: *stamp, record })
    }

    /// Returns the records after a position; `None` if some of them were pruned.
    pub(super) fn after(&self, position: LogPosition) -> Option<Vec<LogEntry<'_>>> {
        if position.0 < self.pruned {
            return None;
        }
        let places = (position.0 + 1)..=self.end().0;
        Some(places.filter_map(|place| self.get(LogPosition(place))).collect())
    }

    pub(super) fn prune(&mut self, up_to: LogPosition) {
        let count = up_to.0.saturating_sub(self.pruned).min(self.records.len() as u64);
        self.records.drain(..usize::try_from(count).unwrap());
        self.pruned += count;
    }

    /// Loses the last records.
    pub(super) fn lose_tail(&mut self, count: usize) {
        let kept = self.records.len().saturating_sub(count);
        self.records.truncate(kept);
    }
}
