//! Keeps the running hashes of the last records, for comparison with the hashes in other members'
//! records.

use std::collections::VecDeque;

use crate::units::{LogPosition, ShortHash};

/// Number of hashes that are kept.
const KEPT_MAX: usize = 65_536;

/// The hashes at consecutive positions of the log.
#[derive(Clone, Debug, Default)]
pub(crate) struct RecentHashes {
    hashes: VecDeque<ShortHash>,
    last: LogPosition,
}

impl RecentHashes {
    /// Creates the list with the hash of one position.
    pub(crate) fn starting_at(position: LogPosition, hash: ShortHash) -> Self {
        Self { hashes: VecDeque::from([hash]), last: position }
    }

    /// Adds the hash of the next position.
    pub(crate) fn push(&mut self, hash: ShortHash) {
        self.last = self.last.next();
        self.hashes.push_back(hash);
        if self.hashes.len() > KEPT_MAX {
            self.hashes.pop_front();
        }
    }

    /// Returns the hash at a position; `None` if it is not kept.
    pub(crate) fn get(&self, position: LogPosition) -> Option<ShortHash> {
        let back = usize::try_from(self.last.0.checked_sub(position.0)?).ok()?;
        let index = self.hashes.len().checked_sub(back + 1)?;
        self.hashes.get(index).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_hashes_are_kept() {
        let hash = |i: u64| ShortHash(i.to_be_bytes());
        let mut recent = RecentHashes::starting_at(LogPosition(10), hash(10));
        for i in 11..100_000 {
            recent.push(hash(i));
        }
        assert_eq!(recent.get(LogPosition(99_999)), Some(hash(99_999)));
        assert_eq!(recent.get(LogPosition(100_000)), None);
        let oldest = LogPosition(100_000 - 65_536);
        assert_eq!(recent.get(oldest), Some(hash(oldest.0)));
        assert_eq!(recent.get(LogPosition(oldest.0 - 1)), None);
    }
}
