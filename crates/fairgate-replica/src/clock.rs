//! Cluster time: how the timestamps of the log's engine advance the clock of all pools.
//!
//! Each record has a timestamp: the time at which the engine accepted it. Timestamps may jump,
//! because the engine's host corrects its clock or another server takes over. The engine may also
//! stop for a while, because it restarts. Neither may end a lease or expire a request. So only
//! records advance cluster time, and each record advances it by
//!
//! ```text
//! clamp(timestamp − expected, 0, most)     most = 2/5 of the lease
//! ```
//!
//! where `expected` is the highest timestamp so far. A jump of a day forward advances time by
//! `most`, and a jump back does not change it. The first record after a minute without records
//! advances it by `most`.
//!
//! After a jump back by a day, timestamps stay below the highest one for a day. Time must not stop
//! for that long, because no rate limit would refill and no lease would end. So while a timestamp
//! is below `expected`, time advances by `clamp(timestamp − previous timestamp, 0, most)`, and
//! `expected` advances by the same amount. A clock that jumps forward and back again therefore adds
//! `most` once, and no period is counted twice.

use serde::{Deserialize, Serialize};

use crate::units::{ClusterMicros, EngineStamp};

/// Clock of a cluster. Only records advance it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ClusterClock {
    pub(crate) now: ClusterMicros,
    /// Timestamps with which the next record is compared; `None` before the first record of a
    /// generation.
    stamps: Option<SeenStamps>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct SeenStamps {
    last: EngineStamp,
    expected: EngineStamp,
}

impl ClusterClock {
    /// Advances time for one record, by at most `most`. The first record of a generation does not
    /// advance it.
    pub(crate) fn advance(&mut self, stamp: EngineStamp, most: ClusterMicros) {
        let Some(seen) = self.stamps else {
            self.stamps = Some(SeenStamps { last: stamp, expected: stamp });
            return;
        };
        let (moved, expected) = match stamp.0.checked_sub(seen.expected.0) {
            Some(ahead) => (ahead.min(most.0), stamp),
            None => {
                let moved = stamp.0.saturating_sub(seen.last.0).min(most.0);
                (moved, EngineStamp(seen.expected.0.saturating_add(moved)))
            }
        };
        self.now = self.now.after(ClusterMicros(moved));
        self.stamps = Some(SeenStamps { last: stamp, expected });
    }

    /// Forgets the timestamps, because the next log may have another clock.
    pub(crate) fn forget_stamps(&mut self) {
        self.stamps = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: ClusterMicros = ClusterMicros::seconds(2);

    fn after(stamps: &[u64]) -> Vec<u64> {
        let mut clock = ClusterClock::default();
        let mut times = Vec::new();
        for stamp in stamps {
            clock.advance(EngineStamp(*stamp), MOST);
            times.push(clock.now.0);
        }
        times
    }

    const S: u64 = 1_000_000;
    const DAY: u64 = 86_400 * S;

    #[test]
    fn time_follows_the_stamps_and_a_stall_counts_for_nobody() {
        assert_eq!(after(&[5, 9, 9, 20]), [0, 4, 4, 15]);
        assert_eq!(after(&[0, S, 61 * S, 62 * S]), [0, S, 3 * S, 4 * S]);
    }

    #[test]
    fn a_jump_of_a_day_moves_time_by_two_seconds_at_most() {
        assert_eq!(after(&[DAY, DAY + S, 2 * DAY, 2 * DAY + S]), [0, S, 3 * S, 4 * S]);
        assert_eq!(after(&[DAY, DAY + S, 5, 5 + S, 5 + 2 * S]), [0, S, S, 2 * S, 3 * S]);
    }

    #[test]
    fn two_clocks_in_turns_count_the_time_between_once() {
        let stamps: Vec<u64> = (0..40).map(|i| i * S + if i % 4 < 2 { DAY } else { 0 }).collect();
        let last = *after(&stamps).last().unwrap();
        assert!(last <= 41 * S, "{last}");
        assert!(last >= 19 * S, "{last}: time must not stand still either");
    }
}
