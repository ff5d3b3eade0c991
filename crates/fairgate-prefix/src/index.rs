//! Who holds what, over all workers.

use hashbrown::HashTable;

use crate::chain::{BLOCK_BYTES, Chain};
use crate::holdings::{BLOCKS_MAX, Change, Holdings, Use};
use crate::overlap::Overlap;
use crate::route::Route;

/// Workers whose holdings stand in one word.
const GROUP: usize = u64::BITS as usize;

/// A worker of an [`Index`], from [`Index::add`] until [`Index::remove`]. After that it stands for nobody, also where its place
/// has gone to another worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Worker {
    pub(crate) place: u32,
    generation: u32,
}

/// Which worker holds which prefix. See the [crate's page](crate) for the order of calls.
pub struct Index {
    blocks_max: usize,
    places: Vec<Place>,
    groups: Vec<Group>,
    /// Counts the calls that use a chain, from 1.
    time: u64,
}

struct Place {
    generation: u32,
    worker: Option<State>,
}

struct State {
    holdings: Holdings,
    /// The size of its cache, in blocks, as the caller states it.
    stated: usize,
    epoch: u64,
}

/// The blocks of up to 64 workers, and who of them holds each: one look-up a block for all of them.
#[derive(Default)]
struct Group {
    holders: HashTable<Held>,
    present: u64,
}

#[derive(Clone, Copy)]
struct Held {
    block: u64,
    /// One bit for each worker of the group; never 0.
    workers: u64,
}

impl Index {
    /// An index of at most so many blocks over all workers: about 80 bytes each at most. The bound is divided among the workers in proportion to
    /// the sizes of their caches, where those are more than it allows.
    pub fn new(blocks_max: usize) -> Self {
        Self { blocks_max, places: Vec::new(), groups: Vec::new(), time: 0 }
    }

    /// A worker with an empty cache of this many tokens, at 4 bytes a token.
    pub fn add(&mut self, cache_tokens: u64) -> Worker {
        let place = match self.places.iter().position(|place| place.worker.is_none()) {
            Some(place) => place,
            None => {
                self.places.push(Place { generation: 0, worker: None });
                self.places.len() - 1
            }
        };
        if place / GROUP >= self.groups.len() {
            self.groups.push(Group::default());
        }
        self.groups[place / GROUP].present |= bit(place);
        let (stated, holdings) = (blocks_of_cache(cache_tokens), Holdings::new(0));
        self.places[place].worker = Some(State { holdings, stated, epoch: 0 });
        self.divide();
        let generation = self.places[place].generation;
        Worker { place: u32::try_from(place).unwrap_or(u32::MAX), generation }
    }

    /// The worker is gone, and what it held is forgotten. What was routed to it before is ignored from now on.
    pub fn remove(&mut self, worker: Worker) {
        self.forget(worker);
        let Some(place) = self.present(worker) else { return };
        self.places[place].worker = None;
        self.places[place].generation = self.places[place].generation.wrapping_add(1);
        self.groups[place / GROUP].present &= !bit(place);
        self.divide();
    }

    /// The worker restarted: its cache is empty. Answers to what was routed before are ignored.
    pub fn forget(&mut self, worker: Worker) {
        let Some(place) = self.present(worker) else { return };
        let group = &mut self.groups[place / GROUP];
        let Some(state) = self.places[place].worker.as_mut() else { return };
        for block in state.holdings.blocks() {
            group.release(block, bit(place));
        }
        group.shrink();
        state.holdings = Holdings::new(state.holdings.capacity());
        state.epoch += 1;
    }

    /// The worker's cache has this many tokens, as its metrics say.
    pub fn resize(&mut self, worker: Worker, cache_tokens: u64) {
        let Some(place) = self.present(worker) else { return };
        let Some(state) = self.places[place].worker.as_mut() else { return };
        state.stated = blocks_of_cache(cache_tokens);
        self.divide();
    }

    /// How much of this prompt each worker holds. One look-up for each block and 64 workers, up to the first block that nobody holds.
    pub fn overlap<'a>(&self, chain: &'a Chain) -> Overlap<'a> {
        let mut held = Vec::new();
        for (number, group) in self.groups.iter().enumerate() {
            group.overlap(chain.blocks(), |bit, blocks| {
                let place = number * GROUP + bit;
                let generation = self.places[place].generation;
                let place = u32::try_from(place).unwrap_or(u32::MAX);
                held.push((Worker { place, generation }, blocks));
            });
        }
        held.sort_unstable_by_key(|(worker, _)| worker.place);
        Overlap { chain, held }
    }

    /// A request with this prompt was sent to a worker, which from now on is expected to hold it. `None` where the worker is not
    /// there any more.
    pub fn routed(&mut self, worker: Worker, chain: &Chain) -> Option<Route> {
        let place = self.present(worker)?;
        let state = self.places[place].worker.as_ref()?;
        let (epoch, evidence) = (state.epoch, state.holdings.evidence(chain.blocks()));
        let held = self.touch(place, chain, Use::Sent);
        Some(Route { worker, epoch, sent: self.time, held, evidence })
    }

    /// The worker did not work on the request, so its cache does not hold the prompt. What it was believed to hold before stays, and
    /// so does what another request has used since. Who could make the index believe in a prompt that no engine read would have
    /// long prompts taken for cached ones.
    pub fn refused(&mut self, route: &Route, chain: &Chain) {
        let Some(place) = self.present(route.worker) else { return };
        let Some(state) = self.places[place].worker.as_mut() else { return };
        if state.epoch != route.epoch {
            return;
        }
        let group = &mut self.groups[place / GROUP];
        let added = chain.blocks().get(route.held..).unwrap_or_default();
        state.holdings.take_back(added, route.sent, &mut |change| group.apply(change, bit(place)));
    }

    /// The answer came and says that `cached_tokens` of `input_tokens` had been cached when the request arrived. Call it only where the
    /// answer says so.
    ///
    /// By now the engine holds the whole prompt, and so does the index. Where less had been cached than earlier answers
    /// showed, the engine has evicted those blocks, and with them everything that was used less recently: that is
    /// forgotten.
    pub fn observed(
        &mut self,
        route: &Route,
        chain: &Chain,
        input_tokens: u64,
        cached_tokens: u64,
    ) {
        let Some(place) = self.present(route.worker) else { return };
        let Some(state) = self.places[place].worker.as_mut() else { return };
        if state.epoch != route.epoch {
            return;
        }
        let cached = chain.blocks_of(cached_tokens, input_tokens);
        if let Some(time) = route.contradicted(cached) {
            let group = &mut self.groups[place / GROUP];
            state.holdings.forget_until(time, &mut |change| group.apply(change, bit(place)));
        }
        self.touch(place, chain, Use::Answered);
    }

    /// How many blocks this worker is believed to hold.
    pub fn held_blocks(&self, worker: Worker) -> usize {
        let state = self.present(worker).and_then(|place| self.places[place].worker.as_ref());
        state.map_or(0, |state| state.holdings.len())
    }

    /// How many blocks are remembered over all workers; never more than the bound.
    pub fn blocks(&self) -> usize {
        self.states().map(|state| state.holdings.len()).sum()
    }

    /// Says how many blocks of the chain were held before.
    fn touch(&mut self, place: usize, chain: &Chain, how: Use) -> usize {
        self.time += 1;
        let Some(state) = self.places[place].worker.as_mut() else { return 0 };
        let group = &mut self.groups[place / GROUP];
        let changed = &mut |change| group.apply(change, bit(place));
        state.holdings.touch(chain.blocks(), self.time, how, changed)
    }

    /// Divides the bound among the workers: what each states, or its part where that is more in all than the bound.
    fn divide(&mut self) {
        let stated: u128 = self.states().map(|state| state.stated as u128).sum();
        let bound = self.blocks_max as u128;
        for (place, worker) in self.places.iter_mut().enumerate() {
            let Some(state) = worker.worker.as_mut() else { continue };
            let part = match stated > bound {
                true => {
                    usize::try_from(state.stated as u128 * bound / stated).unwrap_or(usize::MAX)
                }
                false => state.stated,
            };
            let group = &mut self.groups[place / GROUP];
            state.holdings.resize(part, &mut |change| group.apply(change, bit(place)));
        }
        self.groups.iter_mut().for_each(Group::shrink);
    }

    fn states(&self) -> impl Iterator<Item = &State> {
        self.places.iter().filter_map(|place| place.worker.as_ref())
    }

    /// The place of a worker that is there.
    fn present(&self, worker: Worker) -> Option<usize> {
        let place = self.places.get(worker.place as usize)?;
        let there = place.generation == worker.generation && place.worker.is_some();
        there.then_some(worker.place as usize)
    }
}

impl Group {
    /// Says for each worker of the group that holds at least one block how many it holds.
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

    fn apply(&mut self, change: Change, bit: u64) {
        match change {
            Change::Came(block) => self.take(block, bit),
            Change::Left(block) => self.release(block, bit),
        }
    }

    fn take(&mut self, block: u64, bit: u64) {
        match self.holders.find_mut(block, |held| held.block == block) {
            Some(held) => held.workers |= bit,
            None => {
                let held = Held { block, workers: bit };
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

    /// Gives memory back after many have left.
    fn shrink(&mut self) {
        if self.holders.len() < self.holders.capacity() / 4 {
            self.holders.shrink_to_fit(|held| held.block);
        }
    }
}

fn bit(place: usize) -> u64 {
    1 << (place % GROUP)
}

/// The blocks of a cache of this many tokens, at the 4 bytes a token of English text.
fn blocks_of_cache(tokens: u64) -> usize {
    const BYTES_PER_TOKEN: u64 = 4;
    let blocks = tokens.saturating_mul(BYTES_PER_TOKEN) / BLOCK_BYTES as u64;
    usize::try_from(blocks).unwrap_or(usize::MAX).min(BLOCKS_MAX)
}

impl std::fmt::Debug for Index {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let workers = self.states().count();
        f.debug_struct("Index")
            .field("workers", &workers)
            .field("blocks", &self.blocks())
            .finish_non_exhaustive()
    }
}
