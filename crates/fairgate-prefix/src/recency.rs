//! The depth of a block in a worker's list, which is the number of held blocks that were used more recently.
//!
//! An exact depth would need an ordered tree over all blocks. Instead, blocks are counted by the time of their last
//! use, in at most [`STRETCHES_MAX`] stretches of time, which takes constant memory. Time is a count of uses of the
//! index. A new stretch begins once the present one holds blocks for 1/64 of the capacity. Two neighbouring stretches
//! are merged only if both together hold at most 1/32 of the capacity. So a depth is wrong by at most 1/32 of the
//! capacity, plus the blocks of one use.

/// Greatest number of stretches of time that are counted separately.
const STRETCHES_MAX: usize = 128;
/// A new stretch begins once the last stretch holds capacity ÷ this number of blocks.
const STRETCH_PART: usize = 64;
/// Two neighbouring stretches are merged only if together they hold at most capacity ÷ this number of blocks. At most
/// 31 of the 64 pairs can hold more than that, so merging the other pairs always makes room for another stretch.
const PAIR_PART: usize = 32;

/// Number of held blocks by the time of their last use, in stretches of time.
#[derive(Default)]
pub(crate) struct BlockRecency {
    /// The stretches of time, oldest first.
    stretches: Vec<CallStretch>,
}

#[derive(Clone, Copy)]
struct CallStretch {
    /// Time of the first use that belongs to the stretch.
    since: u64,
    /// Number of held blocks whose last use was in the stretch.
    blocks: usize,
}

/// The depth of the blocks of one stretch, which is known only as a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockDepth {
    /// Number of held blocks that were last used in more recent stretches.
    pub(crate) newer: usize,
    /// Number of held blocks of the stretch itself.
    pub(crate) own: usize,
}

impl BlockRecency {
    /// Begins a use at time `now`. Blocks that are counted afterwards were used at that time.
    pub(crate) fn begin(&mut self, now: u64, capacity: usize) {
        let enough = (capacity / STRETCH_PART).max(1);
        if self.stretches.last().is_some_and(|last| last.blocks < enough) {
            return;
        }
        if self.stretches.len() == STRETCHES_MAX {
            self.merge(capacity / PAIR_PART);
        }
        self.stretches.push(CallStretch { since: now, blocks: 0 });
    }

    /// Counts blocks that are used at the time of the last [`BlockRecency::begin`].
    pub(crate) fn count_used(&mut self, blocks: usize) {
        if let Some(last) = self.stretches.last_mut() {
            last.blocks += blocks;
        }
    }

    /// Subtracts blocks that were last used at `touched` from the count, because they are used again now or are no
    /// longer held.
    pub(crate) fn count_left(&mut self, touched: u64, blocks: usize) {
        let after = self.stretches.partition_point(|stretch| stretch.since <= touched);
        if let Some(stretch) = after.checked_sub(1).and_then(|at| self.stretches.get_mut(at)) {
            stretch.blocks = stretch.blocks.saturating_sub(blocks);
        }
    }

    /// Returns the depths of blocks that were last used at these times, which must be given latest first.
    pub(crate) fn depths(
        &self,
        touched: impl Iterator<Item = u64>,
    ) -> impl Iterator<Item = BlockDepth> {
        let mut stretches = self.stretches.iter().rev().copied();
        let mut at = stretches.next();
        let mut newer = 0;
        touched.map(move |touched| {
            while let Some(stretch) = at
                && stretch.since > touched
            {
                newer += stretch.blocks;
                at = stretches.next();
            }
            BlockDepth { newer, own: at.map_or(0, |stretch| stretch.blocks) }
        })
    }

    fn merge(&mut self, blocks_max: usize) {
        let mut merged = Vec::with_capacity(STRETCHES_MAX);
        for pair in self.stretches.chunks(2) {
            match *pair {
                [older, newer] if older.blocks + newer.blocks <= blocks_max => {
                    merged.push(CallStretch { blocks: older.blocks + newer.blocks, ..older });
                }
                _ => merged.extend_from_slice(pair),
            }
        }
        self.stretches = merged;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn depth(recency: &BlockRecency, touched: u64) -> BlockDepth {
        recency.depths(std::iter::once(touched)).next().unwrap()
    }

    #[test]
    fn later_stretches_lie_on_top_and_blocks_move_there() {
        let mut recency = BlockRecency::default();
        for (now, blocks) in [(1, 10), (2, 20), (3, 5)] {
            recency.begin(now, 640);
            recency.count_used(blocks);
        }
        assert_eq!(depth(&recency, 1), BlockDepth { newer: 25, own: 10 });
        assert_eq!(depth(&recency, 3), BlockDepth { newer: 0, own: 5 });
        // Five are fewer than 1/64 of the capacity: the next call belongs to the same stretch.
        recency.begin(4, 640);
        recency.count_left(1, 10);
        recency.count_used(10);
        assert_eq!(depth(&recency, 4), BlockDepth { newer: 0, own: 15 });
        assert_eq!(depth(&recency, 2), BlockDepth { newer: 15, own: 20 });
        let all: Vec<usize> = recency.depths([4, 2, 2, 1].into_iter()).map(|it| it.newer).collect();
        assert_eq!(all, [0, 15, 15, 35]);
    }

    #[test]
    fn the_list_stays_short_and_depths_stay_close() {
        // Capacity 6 400; every call uses 100 blocks, and 99 of 100 of them are used again soon after.
        let mut recency = BlockRecency::default();
        for now in 1..=10_000_u64 {
            if now > 3 {
                recency.count_left(now - 3, 99);
            }
            if now > 6000 {
                recency.count_left(now - 6000, 1);
            }
            recency.begin(now, 6400);
            recency.count_used(100);
            assert!(recency.stretches.len() <= STRETCHES_MAX);
        }
        for back in [10_u64, 1000, 5000] {
            // One for each call, and 99 more for each of the last three.
            let exact = usize::try_from(back).unwrap() + 3 * 99;
            let BlockDepth { newer, own } = depth(&recency, 10_000 - back);
            assert!(own <= 6400 / 32 + 100, "{own}");
            assert!(newer <= exact && exact <= newer + own, "{newer} {own} {exact}");
        }
    }
}
