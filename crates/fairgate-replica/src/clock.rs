//! Cluster time: how far the stamps of the engine move the clock of all pools.
//!
//! Each record carries the time at which the engine took it. That time may jump: the engine's host corrects its clock,
//! or another server takes over. And the engine may stand still: it restarts. Neither may cost anybody a lease, a
//! timeout or a place. So time moves with records alone, and with each record by
//!
//! ```text
//! clamp(stamp − expected, 0, most)        most = 2/5 of the lease
//! ```
//!
//! where `expected` is the highest stamp so far. A jump of a day forward moves time by `most`, a jump back not at all,
//! and a log that stood still for a minute moves it by `most`.
//!
//! After a jump back, stamps stay below the highest one for as long as the jump was wide. Time must not stand still for
//! that long, because then no rate would fill and no lease would end. So while a stamp is below `expected`, time moves
//! by its distance from the stamp before it, within the same bounds, and `expected` moves along. A clock that jumps
//! there and back again therefore costs `most` once, and the time between is counted once.

use serde::{Deserialize, Serialize};

use crate::units::{ClusterMicros, EngineStamp};

/// The clock of a cluster, which only records move.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ClusterClock {
    pub(crate) now: ClusterMicros,
    /// The stamp before, and the stamp that the fastest clock seen would show now; `None` before the first record of a
    /// generation.
    stamps: Option<SeenStamps>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct SeenStamps {
    last: EngineStamp,
    expected: EngineStamp,
}

impl ClusterClock {
    /// Moves time by one record, at most by `most`.
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

    /// Forgets the stamps, because another log, perhaps with another clock, comes next.
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
