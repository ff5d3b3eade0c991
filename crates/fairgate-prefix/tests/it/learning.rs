//! Tests of what the index learns from simulated workers whose caches are smaller than stated.

use std::collections::HashMap;

use fairgate_prefix::{
    BLOCK_BYTES, CacheIdentity, CacheReport, PrefixIndex, PrefixWorker, PromptChain,
    PromptChainBuilder,
};
use fairgate_testkit::workload::SeededRng;

use crate::{KEY, TOKENS};

/// A prompt as an engine sees it. Each number is a block.
type Prompt = Vec<u64>;

fn chain(prompt: &[u64]) -> PromptChain {
    let mut builder =
        PromptChainBuilder::new(KEY, CacheIdentity { model: "m", ..CacheIdentity::default() });
    for block in prompt {
        builder.text(&block.to_le_bytes().repeat(BLOCK_BYTES / 8));
    }
    builder.finish(prompt.len() as u64 * TOKENS)
}

/// An engine that caches the most recently used blocks.
struct Engine {
    capacity: usize,
    time: u64,
    used: HashMap<u64, u64>,
}

impl Engine {
    fn new(capacity: usize) -> Self {
        Self { capacity, time: 0, used: HashMap::new() }
    }

    /// Returns the number of a prompt's blocks that were cached, and caches the prompt.
    fn read(&mut self, prompt: &[u64]) -> u64 {
        let hits = prompt.iter().take_while(|block| self.used.contains_key(block)).count();
        for block in prompt.iter().rev() {
            self.time += 1;
            self.used.insert(*block, self.time);
        }
        if self.used.len() > self.capacity {
            let mut times: Vec<u64> = self.used.values().copied().collect();
            times.sort_unstable();
            let first = times[times.len() - self.capacity];
            self.used.retain(|_, time| *time >= first);
        }
        hits as u64
    }
}

/// Growing conversations. All begin with the same system prompt, and each has its own history.
struct Conversations {
    rng: SeededRng,
    open: Vec<Prompt>,
    made: u64,
}

impl Conversations {
    fn new(seed: u64, open: usize) -> Self {
        let mut made = Self { rng: SeededRng::new(seed), open: Vec::new(), made: 0 };
        made.open = (0..open).map(|_| made.system()).collect();
        made
    }

    fn system(&mut self) -> Prompt {
        (1 << 40..(1 << 40) + 16).collect()
    }

    fn turn(&mut self) -> Prompt {
        let at = self.rng.index(self.open.len());
        for _ in 0..self.rng.count(4..=12) {
            self.made += 1;
            self.open[at].push(self.made);
        }
        let prompt = self.open[at].clone();
        if prompt.len() > 100 {
            self.open[at] = self.system();
        }
        prompt
    }
}

struct World {
    index: PrefixIndex,
    worker: PrefixWorker,
    engine: Engine,
    believed: u64,
    missed: u64,
}

impl World {
    fn new(stated: usize, real: usize) -> Self {
        let mut index = PrefixIndex::new(1_000_000);
        let worker = index.add(stated as u64 * TOKENS);
        Self { index, worker, engine: Engine::new(real), believed: 0, missed: 0 }
    }

    fn ask(&mut self, prompt: &[u64], origin: u64) {
        let chain = chain(prompt);
        let believed = self.index.overlap(&chain).tokens(self.worker) / TOKENS;
        let route = self.index.routed(self.worker, &chain).unwrap();
        let cached = self.engine.read(prompt);
        let (input_tokens, cached_tokens) = (chain.input_tokens(), cached * TOKENS);
        self.index.observed(&route, &chain, CacheReport { input_tokens, cached_tokens, origin });
        self.believed += believed;
        self.missed += believed.saturating_sub(cached);
    }

    fn learned(&self) -> Option<u64> {
        self.index.learned_cache_tokens(self.worker).map(|tokens| tokens / TOKENS)
    }
}

#[test]
fn a_cache_two_to_eight_times_smaller_is_learned_within_a_third() {
    for (seed, factor) in [(1, 2), (2, 3), (3, 4), (4, 8)] {
        let real = 1000;
        let mut world = World::new(real * factor, real);
        let mut conversations = Conversations::new(seed, 20 * factor);
        let mut learned = Vec::new();
        for turn in 0..4000 {
            let prompt = conversations.turn();
            world.ask(&prompt, turn % 5);
            if turn >= 1000 {
                learned.push(world.learned().unwrap_or(u64::MAX));
            }
        }
        learned.sort_unstable();
        let [low, middle, high] = [5, 50, 95].map(|percent| learned[learned.len() * percent / 100]);
        println!("{factor}×: {low} {middle} {high}, {} of {}", world.missed, world.believed);
        assert!((750..=1333).contains(&middle), "{factor}×: {middle}");
        assert!(low >= 500 && high <= 2000, "{factor}×: {low} to {high}");
    }
}

#[test]
fn a_cache_that_grows_is_believed_in_again() {
    let mut world = World::new(4000, 1000);
    let mut conversations = Conversations::new(5, 80);
    let mut ask = |world: &mut World, turns: u64| {
        (0..turns).for_each(|turn| world.ask(&conversations.turn(), turn % 5));
    };
    ask(&mut world, 1000);
    assert!(world.learned().is_some_and(|blocks| blocks <= 1333), "{:?}", world.learned());
    world.engine.capacity = 2000;
    ask(&mut world, 1500);
    let learned = world.learned().unwrap();
    assert!((1500..=2667).contains(&learned), "{learned}");
    world.engine.capacity = 4000;
    ask(&mut world, 1500);
    assert!(world.learned().is_none_or(|blocks| blocks >= 3000), "{:?}", world.learned());
}

#[test]
fn a_cache_as_large_as_stated_is_believed_in() {
    let mut world = World::new(1000, 1000);
    let mut conversations = Conversations::new(6, 40);
    let mut least = 1000;
    for turn in 0..4000 {
        world.ask(&conversations.turn(), turn % 5);
        least = least.min(world.learned().unwrap_or(1000));
    }
    assert!(least >= 875, "{least}");
}

/// A tenant repeats prompts that the engine never caches. It sends as many requests as all others together, at depths
/// that it chooses.
#[test]
fn a_tenant_whose_prompts_are_never_cached_does_not_take_the_index_from_the_others() {
    for pause in [1, 4, 16, 64] {
        let mut world = World::new(1200, 1200);
        let mut conversations = Conversations::new(7, 24);
        let mut learned = Vec::new();
        for turn in 0..4000_u64 {
            world.ask(&conversations.turn(), 1 + turn % 3);
            if turn >= 1000 {
                learned.push(world.learned().unwrap_or(1200));
            }
            // The same prompt again after a while, whatever the engine does with it.
            let prompt: Prompt =
                (0..20).map(|block| 1 << 50 | (turn % pause) << 8 | block).collect();
            let chain = chain(&prompt);
            let route = world.index.routed(world.worker, &chain).unwrap();
            let input_tokens = chain.input_tokens();
            let report = CacheReport { input_tokens, cached_tokens: 0, origin: 0 };
            world.index.observed(&route, &chain, report);
        }
        learned.sort_unstable();
        let (least, middle) = (learned[learned.len() / 20], learned[learned.len() / 2]);
        println!("every {pause}: {least} {middle}");
        assert!(middle >= 900, "every {pause}: {middle}");
        assert!(least >= 600, "every {pause}: {least}");
    }
}

/// Answers without a number of cached tokens change nothing, and the index assumes the stated size.
#[test]
fn without_reports_nothing_is_learned() {
    let mut world = World::new(4000, 1000);
    let mut conversations = Conversations::new(8, 80);
    for _ in 0..2000 {
        let chain = chain(&conversations.turn());
        let _ = world.index.routed(world.worker, &chain);
    }
    assert_eq!((world.learned(), world.index.held_blocks(world.worker)), (None, 4000));
}
