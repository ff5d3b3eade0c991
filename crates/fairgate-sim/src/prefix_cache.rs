//! A prefix cache as in inference servers. It stores whole blocks, and evicts the least recently used block first.

use std::collections::{BTreeMap, HashMap};

/// Prefix cache of at most `capacity` blocks. A block is known by the hash of the prompt up to the block's end.
#[derive(Debug)]
pub(crate) struct PrefixCache {
    capacity: usize,
    /// The last use of each block, by the block's hash. Times here count the uses of blocks.
    used: HashMap<u64, u64>,
    /// The hash of each block, by the time of its last use, the oldest first.
    by_time: BTreeMap<u64, u64>,
    time: u64,
}

impl PrefixCache {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { capacity, used: HashMap::new(), by_time: BTreeMap::new(), time: 0 }
    }

    /// Returns the number of leading blocks of a prompt that are cached. Then caches the blocks of the prompt from the
    /// first on, at most `capacity` of them, and evicts the blocks that were used longest ago.
    pub(crate) fn visit(&mut self, blocks: &[u64]) -> usize {
        let hits = blocks.iter().take_while(|block| self.used.contains_key(block)).count();
        // Goes from the last block to the first, so that the last is evicted first. A block is useless without the
        // blocks before it.
        for block in blocks.iter().take(self.capacity).rev() {
            self.time += 1;
            if let Some(before) = self.used.insert(*block, self.time) {
                self.by_time.remove(&before);
            }
            self.by_time.insert(self.time, *block);
        }
        while self.used.len() > self.capacity {
            let Some((_, oldest)) = self.by_time.pop_first() else { break };
            self.used.remove(&oldest);
        }
        hits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_hits_as_far_as_it_is_known() {
        let mut cache = PrefixCache::new(10);
        assert_eq!(cache.visit(&[1, 2, 3]), 0);
        assert_eq!(cache.visit(&[1, 2, 9]), 2);
        assert_eq!(cache.visit(&[9, 1, 2]), 3);
        assert_eq!(cache.visit(&[7, 1]), 0);
    }

    #[test]
    fn the_least_recently_used_end_of_a_prefix_goes_first() {
        let mut cache = PrefixCache::new(3);
        cache.visit(&[1, 2]);
        cache.visit(&[5, 6]);
        assert_eq!(cache.visit(&[1, 2]), 1, "block 2 had to go");
        cache.visit(&[11, 12, 13, 14, 15]);
        assert_eq!((cache.used.len(), cache.by_time.len()), (3, 3));
        assert_eq!(cache.visit(&[11, 12, 13, 14, 15]), 3);
    }
}
