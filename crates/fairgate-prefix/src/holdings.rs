//! What one worker is believed to hold: blocks in order of last use, the least recent goes first.
//!
//! A chain is moved to the front so that its first block is the most recent. Hence a block is always at least as recent as
//! those that extend it, evicting from the back never leaves a block without the blocks before it, and what is held of a chain is
//! always its beginning.

use hashbrown::HashTable;

use crate::route::Evidence;

const NONE: u32 = u32::MAX;

/// The most blocks of one worker: places in the list are 32 bits wide.
pub(crate) const BLOCKS_MAX: usize = (u32::MAX - 1) as usize;

struct Node {
    block: u64,
    /// When it was last routed to or reported.
    touched: u64,
    /// When an answer last showed that the engine had read it; 0 for never.
    confirmed: u64,
    /// Towards the most recent.
    newer: u32,
    /// Towards the least recent; in a free node, the next free one.
    older: u32,
}

/// Blocks, most recent first.
pub(crate) struct Holdings {
    nodes: Vec<Node>,
    by_block: HashTable<u32>,
    newest: u32,
    oldest: u32,
    free: u32,
    capacity: usize,
}

/// What a call changed in what is held.
#[derive(Clone, Copy)]
pub(crate) enum Change {
    Came(u64),
    Left(u64),
}

/// How a chain is used.
#[derive(Clone, Copy)]
pub(crate) enum Use {
    /// A request was sent: the engine will hold it soon.
    Sent,
    /// An answer came: the engine has read it.
    Answered,
}

impl Holdings {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            nodes: Vec::new(),
            by_block: HashTable::new(),
            newest: NONE,
            oldest: NONE,
            free: NONE,
            capacity,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.by_block.len()
    }

    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// All blocks, in no order that means anything.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = u64> + '_ {
        let mut at = self.newest;
        std::iter::from_fn(move || {
            let node = self.nodes.get(at as usize)?;
            at = node.older;
            Some(node.block)
        })
    }

    /// Another capacity. What has no room any more leaves, the least recent first.
    pub(crate) fn resize(&mut self, capacity: usize, changed: &mut impl FnMut(Change)) {
        self.capacity = capacity;
        while self.len() > capacity {
            self.evict(changed);
        }
        // Not at every small change: this takes time in proportion to what is held.
        if self.nodes.len() > capacity + capacity / 2 {
            self.compact();
        }
    }

    /// Gives the memory of free nodes back.
    fn compact(&mut self) {
        let mut compact = Self::new(self.capacity);
        compact.nodes.reserve_exact(self.len());
        let mut at = self.newest;
        let mut last = NONE;
        while let Some(&Node { block, touched, confirmed, older, .. }) = self.nodes.get(at as usize)
        {
            let node = Node { block, touched, confirmed, newer: NONE, older: NONE };
            last = compact.append(node, last);
            at = older;
        }
        *self = compact;
    }

    /// Puts a new node right behind another, or in front of all.
    fn append(&mut self, node: Node, newer: u32) -> u32 {
        let block = node.block;
        let at = self.place(node);
        self.by_block.insert_unique(block, at, |&at| self.nodes[at as usize].block);
        self.link_after(newer, at);
        at
    }

    /// What answers have shown to be held of a chain.
    pub(crate) fn evidence(&self, blocks: &[u64]) -> Vec<Evidence> {
        let mut evidence: Vec<Evidence> = Vec::new();
        let held = blocks.iter().map_while(|&block| self.find(block));
        let times = held.map(|at| self.nodes[at as usize].confirmed);
        for (number, confirmed) in times.take_while(|&confirmed| confirmed > 0).enumerate() {
            match evidence.last_mut() {
                Some(part) if part.confirmed == confirmed => part.end = number + 1,
                _ => evidence.push(Evidence { end: number + 1, confirmed }),
            }
        }
        evidence
    }

    /// Takes back those of these blocks that were last used at `time`. Whoever used one of them later has used all blocks
    /// before it too, so what stays held of a chain is still its beginning.
    pub(crate) fn take_back(
        &mut self,
        blocks: &[u64],
        time: u64,
        changed: &mut impl FnMut(Change),
    ) {
        for &block in blocks {
            if let Some(at) = self.find(block)
                && self.nodes[at as usize].touched == time
            {
                self.remove(at, changed);
            }
        }
    }

    /// From `now` on the beginning of this chain is the most recent, as far as there is room. Says how many of its blocks were
    /// held before.
    pub(crate) fn touch(
        &mut self,
        blocks: &[u64],
        now: u64,
        how: Use,
        changed: &mut impl FnMut(Change),
    ) -> usize {
        let blocks = &blocks[..blocks.len().min(self.capacity)];
        let mut last = NONE;
        for (number, &block) in blocks.iter().enumerate() {
            let known = self.find(block);
            let Some(at) = known else {
                self.add(&blocks[number..], last, now, how, changed);
                return number;
            };
            self.unlink(at);
            self.link_after(last, at);
            let node = &mut self.nodes[at as usize];
            node.touched = now;
            if matches!(how, Use::Answered) {
                node.confirmed = now;
            }
            last = at;
        }
        blocks.len()
    }

    /// Forgets everything that was last used at `time` or before.
    pub(crate) fn forget_until(&mut self, time: u64, changed: &mut impl FnMut(Change)) {
        while self.nodes.get(self.oldest as usize).is_some_and(|node| node.touched <= time) {
            self.evict(changed);
        }
    }

    /// Adds blocks that are not held, right behind one that is. None of the chain can be evicted meanwhile: all of it fits, and
    /// everything else is older.
    fn add(
        &mut self,
        blocks: &[u64],
        mut last: u32,
        now: u64,
        how: Use,
        changed: &mut impl FnMut(Change),
    ) {
        let confirmed = match how {
            Use::Sent => 0,
            Use::Answered => now,
        };
        for &block in blocks {
            if self.len() == self.capacity {
                self.evict(changed);
            }
            let node = Node { block, touched: now, confirmed, newer: NONE, older: NONE };
            last = self.append(node, last);
            changed(Change::Came(block));
        }
    }

    fn evict(&mut self, changed: &mut impl FnMut(Change)) {
        self.remove(self.oldest, changed);
    }

    fn remove(&mut self, at: u32, changed: &mut impl FnMut(Change)) {
        let block = self.nodes[at as usize].block;
        self.unlink(at);
        if let Ok(entry) = self.by_block.find_entry(block, |&other| other == at) {
            entry.remove();
        }
        self.nodes[at as usize].older = self.free;
        self.free = at;
        changed(Change::Left(block));
    }

    fn find(&self, block: u64) -> Option<u32> {
        self.by_block.find(block, |&at| self.nodes[at as usize].block == block).copied()
    }

    /// A place for a node: one that is free, or a new one. The list never grows past the capacity.
    fn place(&mut self, node: Node) -> u32 {
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
        let Node { newer, older, .. } = self.nodes[at as usize];
        match self.nodes.get_mut(newer as usize) {
            Some(node) => node.older = older,
            None => self.newest = older,
        }
        match self.nodes.get_mut(older as usize) {
            Some(node) => node.newer = newer,
            None => self.oldest = newer,
        }
    }

    /// Puts a node right behind another, or in front of all.
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
