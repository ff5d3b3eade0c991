//! A prefix cache as inference servers keep it: whole blocks, the least recently used goes first.

use std::collections::{BTreeMap, HashMap};

/// Remembers at most `capacity` blocks by the hash of the prefix that each one ends.
#[derive(Debug)]
pub(crate) struct PrefixCache {
    capacity: usize,
    /// Block to the time it was last used.
    used: HashMap<u64, u64>,
    /// The same by time, the oldest first.
    by_time: BTreeMap<u64, u64>,
    time: u64,
}

impl PrefixCache {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { capacity, used: HashMap::new(), by_time: BTreeMap::new(), time: 0 }
    }

    /// How many of a prompt's leading blocks are cached; from now on all of them are, as far as there is room.
    pub(crate) fn visit(&mut self, blocks: &[u64]) -> usize {
        let hits = blocks.iter().take_while(|block| self.used.contains_key(block)).count();
        // The last block first: it is the first to go, since nothing hits it without those before it.
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
