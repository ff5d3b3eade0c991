//! The index of the prefixes that workers hold, over all workers.

use crate::worker_handle::PrefixWorker;
use hashbrown::HashTable;

use crate::cache_expectation::PrefixRoute;
use crate::cache_size::CacheSize;
use crate::chain::{BLOCK_BYTES, PromptChain};
use crate::held_blocks::{BLOCKS_MAX, ChainUse, HeldBlocks, HeldBlocksChange};
use crate::overlap::PrefixOverlap;

/// Number of workers that share one word of bits in a [`HolderGroup`].
const GROUP: usize = u64::BITS as usize;

/// An index of the prefixes that each worker is expected to hold. See the [crate's page](crate) for the order of calls.
pub struct PrefixIndex {
    blocks_max: usize,
    places: Vec<PrefixPlace>,
    groups: Vec<HolderGroup>,
    /// Number of calls that have used a chain. All times in this crate are values of this counter.
    time: u64,
}

struct PrefixPlace {
    generation: u32,
    worker: Option<PrefixWorkerState>,
}

struct PrefixWorkerState {
    holdings: HeldBlocks,
    /// Size of the worker's cache in tokens, as the caller states it.
    stated_tokens: u64,
    size: CacheSize,
    epoch: u64,
}

/// The tokens that a worker reports in one answer. The index learns from them about the worker's cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheReport {
    /// Number of tokens of the prompt, as the engine counts them.
    pub input_tokens: u64,
    /// Number of the prompt's tokens that were cached when the request arrived.
    pub cached_tokens: u64,
    /// A number for the tenant of the request that no tenant can choose, such as a hash with a secret key. The number
    /// prevents a single tenant from deciding the assumed size of a cache. Use the same number for all requests if
    /// there are no tenants.
    pub origin: u64,
}

/// The blocks that a group of up to 64 workers hold. Each block is stored once with all its holders, so that one
/// look-up per block serves the whole group.
#[derive(Default)]
struct HolderGroup {
    holders: HashTable<BlockHolders>,
    present: u64,
}

#[derive(Clone, Copy)]
struct BlockHolders {
    block: u64,
    /// One bit for each worker of the group, set if the worker holds the block; never 0.
    workers: u64,
}

impl PrefixIndex {
    /// Creates an index of at most `blocks_max` blocks over all workers. A block takes at most about 80 bytes. If the
    /// caches of all workers together hold more than `blocks_max` blocks, this bound is divided among the workers in
    /// proportion to their caches.
    pub fn new(blocks_max: usize) -> Self {
        Self { blocks_max, places: Vec::new(), groups: Vec::new(), time: 0 }
    }

    /// Adds a worker whose cache is empty and has room for this many tokens. A token counts as 4 bytes.
    pub fn add(&mut self, cache_tokens: u64) -> PrefixWorker {
        let place = match self.places.iter().position(|place| place.worker.is_none()) {
            Some(place) => place,
            None => {
                self.places.push(PrefixPlace { generation: 0, worker: None });
                self.places.len() - 1
            }
        };
        if place / GROUP >= self.groups.len() {
            self.groups.push(HolderGroup::default());
        }
        self.groups[place / GROUP].present |= bit(place);
        let size = CacheSize::new(blocks_of_cache(cache_tokens));
        self.places[place].worker = Some(PrefixWorkerState {
            holdings: HeldBlocks::new(0),
            stated_tokens: cache_tokens,
            size,
            epoch: 0,
        });
        self.divide();
        let generation = self.places[place].generation;
        PrefixWorker { place: u32::try_from(place).unwrap_or(u32::MAX), generation }
    }

    /// Removes a worker and the blocks that it holds. Routes to the worker are ignored from now on.
    pub fn remove(&mut self, worker: PrefixWorker) {
        self.forget(worker);
        let Some(place) = self.present(worker) else { return };
        self.places[place].worker = None;
        self.places[place].generation = self.places[place].generation.wrapping_add(1);
        self.groups[place / GROUP].present &= !bit(place);
        self.divide();
    }

    /// Empties a worker's cache, because the worker restarted. The learned size of the cache is kept. Answers to
    /// earlier routes are ignored.
    pub fn forget(&mut self, worker: PrefixWorker) {
        let Some(place) = self.present(worker) else { return };
        let group = &mut self.groups[place / GROUP];
        let Some(state) = self.places[place].worker.as_mut() else { return };
        for block in state.holdings.blocks() {
            group.release(block, bit(place));
        }
        group.shrink();
        state.holdings = HeldBlocks::new(state.holdings.capacity());
        state.epoch += 1;
    }

    /// Sets the size of a worker's cache in tokens, as the worker's metrics state it. If this differs from the last
    /// stated size, the learned size is forgotten.
    pub fn resize(&mut self, worker: PrefixWorker, cache_tokens: u64) {
        let Some(place) = self.present(worker) else { return };
        let Some(state) = self.places[place].worker.as_mut() else { return };
        state.stated_tokens = cache_tokens;
        let stated = blocks_of_cache(cache_tokens);
        if state.size.stated() != stated {
            state.size = CacheSize::new(stated);
            self.divide();
        }
    }

    /// Returns the size of a worker's cache in tokens, as last stated by [`PrefixIndex::add`] or
    /// [`PrefixIndex::resize`]; `None` if the worker was removed.
    pub fn stated_cache_tokens(&self, worker: PrefixWorker) -> Option<u64> {
        self.state(worker).map(|state| state.stated_tokens)
    }

    /// Returns the size of a worker's cache in tokens that was learned from its answers. A token counts as 4 bytes.
    /// Returns `None` if the answers have not shown that the cache is smaller than stated, or if the worker was
    /// removed.
    pub fn learned_cache_tokens(&self, worker: PrefixWorker) -> Option<u64> {
        self.state(worker)?.size.learned().map(tokens_of_blocks)
    }

    /// Returns the part of this prompt that each worker holds. Costs one look-up per block for each group of 64
    /// workers, and stops at the first block that no worker of the group holds.
    pub fn overlap<'a>(&self, chain: &'a PromptChain) -> PrefixOverlap<'a> {
        let mut held = Vec::new();
        for (number, group) in self.groups.iter().enumerate() {
            group.overlap(chain.blocks(), |bit, blocks| {
                let place = number * GROUP + bit;
                let generation = self.places[place].generation;
                let place = u32::try_from(place).unwrap_or(u32::MAX);
                held.push((PrefixWorker { place, generation }, blocks));
            });
        }
        held.sort_unstable_by_key(|(worker, _)| worker.place);
        PrefixOverlap { chain, held }
    }

    /// Records that a request with this prompt was sent to a worker, which is expected to hold the prompt from now on.
    /// Returns `None` if the worker was removed.
    pub fn routed(&mut self, worker: PrefixWorker, chain: &PromptChain) -> Option<PrefixRoute> {
        let place = self.present(worker)?;
        let state = self.places[place].worker.as_ref()?;
        let (epoch, holdings) = (state.epoch, &state.holdings);
        let (full, evidence) = (holdings.len_if_full(), holdings.evidence(chain.blocks()));
        let held = self.touch(place, chain, ChainUse::Sent);
        Some(PrefixRoute { worker, epoch, sent: self.time, held, full, evidence })
    }

    /// Records that the worker did not work on the request and so does not hold its prompt in the cache. Blocks that
    /// the worker was expected to hold before the request stay, and so do blocks that another request has used since.
    /// Without this method, a client could send a long prompt that no engine reads, and the index would count it as
    /// cached.
    pub fn refused(&mut self, route: &PrefixRoute, chain: &PromptChain) {
        let Some(place) = self.present(route.worker) else { return };
        let Some(state) = self.places[place].worker.as_mut() else { return };
        if state.epoch != route.epoch {
            return;
        }
        let group = &mut self.groups[place / GROUP];
        let added = chain.blocks().get(route.held..).unwrap_or_default();
        state.holdings.take_back(added, route.sent, &mut |change| group.apply(change, bit(place)));
    }

    /// Records an answer that reports how much of the prompt was cached when the request arrived. Do not call this for
    /// an answer without such a report.
    ///
    /// By now the engine holds the whole prompt, and so does the index. If fewer blocks were cached than earlier
    /// answers showed, the engine has evicted the missing blocks, and with them all blocks that were used less
    /// recently. The index forgets these blocks, unless reports on other tenants' requests have just shown that such
    /// blocks are cached. If an engine repeatedly evicts blocks too early, its cache is smaller than stated, and the
    /// index learns the smaller size.
    pub fn observed(&mut self, route: &PrefixRoute, chain: &PromptChain, report: CacheReport) {
        let Some(place) = self.present(route.worker) else { return };
        let Some(state) = self.places[place].worker.as_mut() else { return };
        if state.epoch != route.epoch {
            return;
        }
        let cached = chain.blocks_of(report.cached_tokens, report.input_tokens);
        let sighting = route.sighting(cached);
        let is_disputed = |miss| state.size.is_disputed(report.origin, miss);
        if let Some(time) = route.contradicted(cached)
            && !sighting.miss.is_some_and(is_disputed)
        {
            let group = &mut self.groups[place / GROUP];
            state.holdings.forget_until(time, &mut |change| group.apply(change, bit(place)));
        }
        let before = state.size.blocks();
        state.size.learn(report.origin, sighting);
        if state.size.blocks() != before {
            self.divide();
        }
        self.touch(place, chain, ChainUse::Answered);
    }

    /// Returns the number of blocks that a worker is expected to hold; 0 if the worker was removed.
    pub fn held_blocks(&self, worker: PrefixWorker) -> usize {
        self.state(worker).map_or(0, |state| state.holdings.len())
    }

    /// Returns the number of blocks that all workers together are expected to hold; never more than the bound of the
    /// index.
    pub fn blocks(&self) -> usize {
        self.states().map(|state| state.holdings.len()).sum()
    }

    /// Marks a chain as used now. Returns the number of the chain's blocks that were held before.
    fn touch(&mut self, place: usize, chain: &PromptChain, how: ChainUse) -> usize {
        self.time += 1;
        let Some(state) = self.places[place].worker.as_mut() else { return 0 };
        let group = &mut self.groups[place / GROUP];
        let changed = &mut |change| group.apply(change, bit(place));
        state.holdings.touch(chain.blocks(), self.time, how, changed)
    }

    /// Divides the bound of the index among the workers. Each worker gets the size of its cache, or its proportional
    /// part if the sum of the sizes exceeds the bound.
    fn divide(&mut self) {
        let wanted: u128 = self.states().map(|state| state.size.blocks() as u128).sum();
        let bound = self.blocks_max as u128;
        for (place, worker) in self.places.iter_mut().enumerate() {
            let Some(state) = worker.worker.as_mut() else { continue };
            let own = state.size.blocks();
            let part = match wanted > bound {
                true => usize::try_from(own as u128 * bound / wanted).unwrap_or(usize::MAX),
                false => own,
            };
            let group = &mut self.groups[place / GROUP];
            state.holdings.resize(part, &mut |change| group.apply(change, bit(place)));
        }
        self.groups.iter_mut().for_each(HolderGroup::shrink);
    }

    fn states(&self) -> impl Iterator<Item = &PrefixWorkerState> {
        self.places.iter().filter_map(|place| place.worker.as_ref())
    }

    fn state(&self, worker: PrefixWorker) -> Option<&PrefixWorkerState> {
        self.present(worker).and_then(|place| self.places[place].worker.as_ref())
    }

    /// Returns the index of a worker in the list of workers; `None` if the worker was removed.
    fn present(&self, worker: PrefixWorker) -> Option<usize> {
        let place = self.places.get(worker.place as usize)?;
        let there = place.generation == worker.generation && place.worker.is_some();
        there.then_some(worker.place as usize)
    }
}

impl HolderGroup {
    /// Calls `each` with every worker of the group that holds at least the first block, and the number of leading
    /// blocks that it holds.
    fn overlap(&self, blocks: &[u64], mut each: impl FnMut(usize, usize)) {
        let mut all = self.present;
        let mut left = |workers: u64, blocks: usize| {
            let mut workers = workers;
            while workers != 0 && blocks > 0 {
                each(workers.trailing_zeros() as usize, blocks);
                workers &= workers - 1;
            }
        };
        for (number, &block) in blocks.iter().enumerate() {
            let held = self.find(block) & all;
            left(all & !held, number);
            all = held;
            if all == 0 {
                return;
            }
        }
        left(all, blocks.len());
    }

    fn find(&self, block: u64) -> u64 {
        self.holders.find(block, |held| held.block == block).map_or(0, |held| held.workers)
    }

    fn apply(&mut self, change: HeldBlocksChange, bit: u64) {
        match change {
            HeldBlocksChange::Added(block) => self.take(block, bit),
            HeldBlocksChange::Removed(block) => self.release(block, bit),
        }
    }

    fn take(&mut self, block: u64, bit: u64) {
        match self.holders.find_mut(block, |held| held.block == block) {
            Some(held) => held.workers |= bit,
            None => {
                let held = BlockHolders { block, workers: bit };
                self.holders.insert_unique(block, held, |held| held.block);
            }
        }
    }

    fn release(&mut self, block: u64, bit: u64) {
        let Ok(mut entry) = self.holders.find_entry(block, |held| held.block == block) else {
            return;
        };
        entry.get_mut().workers &= !bit;
        if entry.get().workers == 0 {
            entry.remove();
        }
    }

    /// Frees memory after many blocks were removed.
    fn shrink(&mut self) {
        if self.holders.len() < self.holders.capacity() / 4 {
            self.holders.shrink_to_fit(|held| held.block);
        }
    }
}

fn bit(place: usize) -> u64 {
    1 << (place % GROUP)
}

const BYTES_PER_TOKEN: u64 = 4;

/// Returns the number of blocks in a cache of this many tokens, at 4 bytes per token as in English text.
fn blocks_of_cache(tokens: u64) -> usize {
    let blocks = tokens.saturating_mul(BYTES_PER_TOKEN) / BLOCK_BYTES as u64;
    usize::try_from(blocks).unwrap_or(usize::MAX).min(BLOCKS_MAX)
}

fn tokens_of_blocks(blocks: usize) -> u64 {
    (blocks as u64).saturating_mul(BLOCK_BYTES as u64 / BYTES_PER_TOKEN)
}

impl std::fmt::Debug for PrefixIndex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let workers = self.states().count();
        f.debug_struct("Index")
            .field("workers", &workers)
            .field("blocks", &self.blocks())
            .finish_non_exhaustive()
    }
}
