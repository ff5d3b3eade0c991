//! The blocks that one worker is expected to hold, in order of last use. The least recent block is evicted first.
//!
//! When a chain is used, its blocks move to the front of the list, with the first block of the chain as the most
//! recent. Hence a block is always at least as recent as the blocks that come after it in a chain. So evicting from the
//! back never leaves a block without the blocks before it, and the held part of a chain is always its beginning.

use hashbrown::HashTable;

use crate::cache_expectation::ConfirmedBlocks;
use crate::recency::BlockRecency;

const NONE: u32 = u32::MAX;

/// Greatest number of blocks of one worker, because indexes of the list are 32 bits wide.
pub(crate) const BLOCKS_MAX: usize = (u32::MAX - 1) as usize;

struct HeldBlockNode {
    block: u64,
    /// Time of the last routing or report that used the block.
    touched: u64,
    /// Time of the last answer that showed that the engine had read the block; 0 if there was none.
    confirmed: u64,
    /// Index of the next node towards the most recent block.
    newer: u32,
    /// Index of the next node towards the least recent block; in a free node, index of the next free node.
    older: u32,
}

/// The blocks that one worker is expected to hold, most recent first.
pub(crate) struct HeldBlocks {
    nodes: Vec<HeldBlockNode>,
    by_block: HashTable<u32>,
    newest: u32,
    oldest: u32,
    free: u32,
    capacity: usize,
    recency: BlockRecency,
}

/// A change of the set of held blocks.
#[derive(Clone, Copy)]
pub(crate) enum HeldBlocksChange {
    Added(u64),
    Removed(u64),
}

/// The reason for which a chain counts as used.
#[derive(Clone, Copy)]
pub(crate) enum ChainUse {
    /// A request with the chain was sent, so the engine will hold the chain soon.
    Sent,
    /// An answer to a request with the chain arrived, so the engine has read the chain.
    Answered,
}

impl HeldBlocks {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            nodes: Vec::new(),
            by_block: HashTable::new(),
            newest: NONE,
            oldest: NONE,
            free: NONE,
            capacity,
            recency: BlockRecency::default(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.by_block.len()
    }

    /// Returns the number of held blocks if at least 7/8 of the capacity are taken; otherwise `None`.
    pub(crate) fn len_if_full(&self) -> Option<usize> {
        let is_full = self.len() >= self.capacity - self.capacity / 8;
        is_full.then(|| self.len())
    }

    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Returns the hashes of all held blocks. Callers must not depend on the order.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = u64> + '_ {
        let mut at = self.newest;
        std::iter::from_fn(move || {
            let node = self.nodes.get(at as usize)?;
            at = node.older;
            Some(node.block)
        })
    }

    /// Changes the capacity, in blocks. Blocks for which there is no room are evicted, the least recent first.
    pub(crate) fn resize(&mut self, capacity: usize, changed: &mut impl FnMut(HeldBlocksChange)) {
        self.capacity = capacity;
        while self.len() > capacity {
            self.evict(changed);
        }
        // Frees memory only after a large change, because this takes time in proportion to the held blocks.
        if self.nodes.len() > capacity + capacity / 2 {
            self.compact();
        }
    }

    /// Frees the memory of unused nodes.
    fn compact(&mut self) {
        let mut compact = Self::new(self.capacity);
        compact.recency = std::mem::take(&mut self.recency);
        compact.nodes.reserve_exact(self.len());
        let mut at = self.newest;
        let mut last = NONE;
        while let Some(&HeldBlockNode { block, touched, confirmed, older, .. }) =
            self.nodes.get(at as usize)
        {
            let node = HeldBlockNode { block, touched, confirmed, newer: NONE, older: NONE };
            last = compact.append(node, last);
            at = older;
        }
        *self = compact;
    }

    /// Inserts a new node right behind the node `newer`, or in front of all nodes if `newer` is no node.
    fn append(&mut self, node: HeldBlockNode, newer: u32) -> u32 {
        let block = node.block;
        let at = self.place(node);
        self.by_block.insert_unique(block, at, |&at| self.nodes[at as usize].block);
        self.link_after(newer, at);
        at
    }

    /// Returns the beginning of a chain whose blocks answers have shown to be held, divided into parts. All blocks of a
    /// part were last used at the same time and last confirmed at the same time.
    pub(crate) fn evidence(&self, blocks: &[u64]) -> Vec<ConfirmedBlocks> {
        let mut evidence: Vec<ConfirmedBlocks> = Vec::new();
        let mut touched: Vec<u64> = Vec::new();
        let held = blocks.iter().map_while(|&block| self.find(block));
        let nodes = held.map(|at| &self.nodes[at as usize]).take_while(|node| node.confirmed > 0);
        for (number, node) in nodes.enumerate() {
            match evidence.last_mut() {
                Some(part)
                    if part.confirmed == node.confirmed
                        && touched.last() == Some(&node.touched) =>
                {
                    part.end = number + 1;
                }
                _ => {
                    let (end, confirmed) = (number + 1, node.confirmed);
                    evidence.push(ConfirmedBlocks { start: number, end, confirmed, depth: 0 });
                    touched.push(node.touched);
                }
            }
        }
        let depths = self.recency.depths(touched.into_iter());
        for (part, depth) in evidence.iter_mut().zip(depths) {
            // Half of the other blocks that were used at about that time count as more recent, and half as less recent.
            let others = depth.own.saturating_sub(part.end - part.start);
            part.depth = depth.newer + others / 2;
        }
        evidence
    }

    /// Removes those of the given blocks that were last used at `time`. If a block was used again after `time`, all
    /// blocks before it in the chain were used again too and are kept. So the held part of a chain is still its
    /// beginning.
    pub(crate) fn take_back(
        &mut self,
        blocks: &[u64],
        time: u64,
        changed: &mut impl FnMut(HeldBlocksChange),
    ) {
        for &block in blocks {
            if let Some(at) = self.find(block)
                && self.nodes[at as usize].touched == time
            {
                self.remove(at, changed);
            }
        }
    }

    /// Makes the blocks of this chain the most recent ones, used at `now`. If the chain is longer than the capacity,
    /// only its beginning is held. Returns the number of the chain's blocks that were held before.
    pub(crate) fn touch(
        &mut self,
        blocks: &[u64],
        now: u64,
        how: ChainUse,
        changed: &mut impl FnMut(HeldBlocksChange),
    ) -> usize {
        let blocks = &blocks[..blocks.len().min(self.capacity)];
        self.recency.begin(now, self.capacity);
        let mut last = NONE;
        // Counts consecutive blocks that were last used at the same time together.
        let mut row = (0, 0);
        for (number, &block) in blocks.iter().enumerate() {
            let known = self.find(block);
            let Some(at) = known else {
                self.count_moved(row);
                self.add(&blocks[number..], last, now, how, changed);
                return number;
            };
            self.unlink(at);
            self.link_after(last, at);
            let node = &mut self.nodes[at as usize];
            let before = std::mem::replace(&mut node.touched, now);
            if matches!(how, ChainUse::Answered) {
                node.confirmed = now;
            }
            if before == row.0 {
                row.1 += 1;
            } else {
                self.count_moved(std::mem::replace(&mut row, (before, 1)));
            }
            last = at;
        }
        self.count_moved(row);
        blocks.len()
    }

    /// Moves blocks in the recency count from the time of their last use to the present time.
    fn count_moved(&mut self, (touched, blocks): (u64, usize)) {
        self.recency.count_left(touched, blocks);
        self.recency.count_used(blocks);
    }

    /// Forgets all blocks that were last used at `time` or before.
    pub(crate) fn forget_until(&mut self, time: u64, changed: &mut impl FnMut(HeldBlocksChange)) {
        while self.nodes.get(self.oldest as usize).is_some_and(|node| node.touched <= time) {
            self.evict(changed);
        }
    }

    /// Adds the rest of a chain, whose `blocks` are not held yet, right behind the node `last` of the chain's previous
    /// block. If there is no room, evicts older blocks of other chains. It never evicts a block of this chain, because
    /// the whole chain fits into the capacity and all its blocks are more recent than the others.
    fn add(
        &mut self,
        blocks: &[u64],
        mut last: u32,
        now: u64,
        how: ChainUse,
        changed: &mut impl FnMut(HeldBlocksChange),
    ) {
        let confirmed = match how {
            ChainUse::Sent => 0,
            ChainUse::Answered => now,
        };
        for &block in blocks {
            if self.len() == self.capacity {
                self.evict(changed);
            }
            let node = HeldBlockNode { block, touched: now, confirmed, newer: NONE, older: NONE };
            last = self.append(node, last);
            self.recency.count_used(1);
            changed(HeldBlocksChange::Added(block));
        }
    }

    fn evict(&mut self, changed: &mut impl FnMut(HeldBlocksChange)) {
        self.remove(self.oldest, changed);
    }

    fn remove(&mut self, at: u32, changed: &mut impl FnMut(HeldBlocksChange)) {
        let HeldBlockNode { block, touched, .. } = self.nodes[at as usize];
        self.recency.count_left(touched, 1);
        self.unlink(at);
        if let Ok(entry) = self.by_block.find_entry(block, |&other| other == at) {
            entry.remove();
        }
        self.nodes[at as usize].older = self.free;
        self.free = at;
        changed(HeldBlocksChange::Removed(block));
    }

    fn find(&self, block: u64) -> Option<u32> {
        self.by_block.find(block, |&at| self.nodes[at as usize].block == block).copied()
    }

    /// Stores a node at a free index, or at a new index if no index is free, and returns the index. The list never
    /// grows past the capacity.
    fn place(&mut self, node: HeldBlockNode) -> u32 {
        if self.free != NONE {
            let at = self.free;
            self.free = self.nodes[at as usize].older;
            self.nodes[at as usize] = node;
            return at;
        }
        if self.nodes.len() == self.nodes.capacity() {
            let more = self.nodes.len().max(16).min(self.capacity - self.nodes.len());
            self.nodes.reserve_exact(more);
        }
        self.nodes.push(node);
        u32::try_from(self.nodes.len() - 1).unwrap_or(NONE)
    }

    fn unlink(&mut self, at: u32) {
        let HeldBlockNode { newer, older, .. } = self.nodes[at as usize];
        match self.nodes.get_mut(newer as usize) {
            Some(node) => node.older = older,
            None => self.newest = older,
        }
        match self.nodes.get_mut(older as usize) {
            Some(node) => node.newer = newer,
            None => self.oldest = newer,
        }
    }

    /// Links a node right behind the node `newer`, or in front of all nodes if `newer` is no node.
    fn link_after(&mut self, newer: u32, at: u32) {
        let older = match self.nodes.get_mut(newer as usize) {
            Some(node) => std::mem::replace(&mut node.older, at),
            None => std::mem::replace(&mut self.newest, at),
        };
        match self.nodes.get_mut(older as usize) {
            Some(node) => node.newer = at,
            None => self.oldest = at,
        }
        let node = &mut self.nodes[at as usize];
        (node.newer, node.older) = (newer, older);
    }
}
