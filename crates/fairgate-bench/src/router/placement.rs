//! What the rule of placement saves by itself: the conversations in virtual time, with other rules beside ours.
//!
//! The workers are those of the stage without HTTP: each reads one prompt at a time, and its cache forgets what was used
//! longest ago. A rule knows what every worker has cached and what it has still to read, so the difference between two rows
//! is what the rules differ in.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use super::workload::{BLOCK_TOKENS, Conversation};

/// How a worker is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// Fairgate's: the least that is to be read there, this prompt included; then the most cached; then the first worker.
    LeastToRead,
    /// The same, but a tie goes to the worker that was chosen longest ago.
    LeastToReadTiesByTurns,
    /// The most cached, whatever the worker has to do, where that is at least [`MUCH`]; else the least to read, ties by turns.
    MostCachedIfMuch,
    /// The most cached, whatever the worker has to do; a tie goes to the one that was chosen longest ago.
    MostCached,
}

impl Rule {
    pub(crate) const ALL: [Self; 4] =
        [Self::LeastToRead, Self::LeastToReadTiesByTurns, Self::MostCachedIfMuch, Self::MostCached];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::LeastToRead => "least to read (Fairgate)",
            Self::LeastToReadTiesByTurns => "least to read, ties by turns",
            Self::MostCachedIfMuch => "most cached, if 30 % of the prompt are",
            Self::MostCached => "most cached",
        }
    }
}

/// The part of a prompt from which on a cache is worth any wait, by the rule that says so.
const MUCH: f64 = 0.3;

/// What a rule came to.
pub(crate) struct Placed {
    /// The part of all input tokens that was cached.
    pub(crate) saved: f64,
    /// The prefill tokens of the worker with the most, over the mean.
    pub(crate) imbalance: f64,
    /// Of all requests, in order.
    first_tokens: Vec<Duration>,
}

impl Placed {
    pub(crate) fn first_token_ms(&self, percent: usize) -> f64 {
        let index = self.first_tokens.len() * percent / 100;
        self.first_tokens.get(index).map_or(f64::NAN, |time| time.as_secs_f64() * 1e3)
    }
}

/// The workers of a run.
pub(crate) struct Size {
    pub(crate) workers: usize,
    /// What each can keep.
    pub(crate) cache_tokens: u64,
    /// How long each reads a token.
    pub(crate) per_token: Duration,
}

struct Worker {
    cache: Cache,
    free_at: Duration,
    /// Prompts that are not read yet: when they are, and their tokens.
    to_read: VecDeque<(Duration, u64)>,
    chosen: u64,
    read_tokens: u64,
}

/// Places all requests by one rule.
pub(crate) fn place(requests: &[Conversation], size: &Size, rule: Rule) -> Placed {
    let new = || Worker {
        cache: Cache::new(size.cache_tokens / BLOCK_TOKENS),
        free_at: Duration::ZERO,
        to_read: VecDeque::new(),
        chosen: 0,
        read_tokens: 0,
    };
    let mut workers: Vec<Worker> = (0..size.workers).map(|_| new()).collect();
    let (mut all, mut first_tokens) = (0, Vec::new());
    for (turn, request) in (1..).zip(requests) {
        for worker in &mut workers {
            while worker.to_read.front().is_some_and(|(at, _)| *at <= request.at) {
                worker.to_read.pop_front();
            }
        }
        let most = workers.iter().map(|worker| worker.cached(request)).max().unwrap_or_default();
        let is_much = most as f64 >= request.tokens as f64 * MUCH;
        let key = |place: &usize| {
            let worker = &workers[*place];
            let cached = worker.cached(request);
            let waiting: u64 = worker.to_read.iter().map(|(_, tokens)| tokens).sum();
            let load = waiting + request.tokens - cached;
            match rule {
                Rule::LeastToRead => (load, Reverse(cached), *place as u64),
                Rule::MostCached => (0, Reverse(cached), worker.chosen),
                Rule::MostCachedIfMuch if is_much => (0, Reverse(cached), worker.chosen),
                Rule::LeastToReadTiesByTurns | Rule::MostCachedIfMuch => {
                    (load, Reverse(cached), worker.chosen)
                }
            }
        };
        let Some(place) = (0..workers.len()).min_by_key(key) else { break };
        let worker = &mut workers[place];
        let tokens = request.tokens - worker.cached(request);
        let reading = size.per_token * u32::try_from(tokens).unwrap_or(u32::MAX);
        worker.free_at = worker.free_at.max(request.at) + reading;
        worker.to_read.push_back((worker.free_at, tokens));
        worker.chosen = turn;
        worker.read_tokens += tokens;
        worker.cache.use_all(&request.blocks);
        first_tokens.push(worker.free_at - request.at);
        all += request.tokens;
    }
    first_tokens.sort_unstable();
    let read: u64 = workers.iter().map(|worker| worker.read_tokens).sum();
    let most = workers.iter().map(|worker| worker.read_tokens).max().unwrap_or_default();
    Placed {
        saved: 1.0 - read as f64 / all.max(1) as f64,
        imbalance: (most * workers.len() as u64) as f64 / read.max(1) as f64,
        first_tokens,
    }
}

impl Worker {
    fn cached(&self, request: &Conversation) -> u64 {
        let known = request.blocks.iter().take_while(|block| self.cache.has(**block)).count();
        (known as u64 * BLOCK_TOKENS).min(request.tokens)
    }
}

/// Blocks, of which those that were used longest ago are forgotten.
struct Cache {
    capacity: u64,
    clock: u64,
    used_at: HashMap<u64, u64>,
    by_use: BTreeMap<u64, u64>,
}

impl Cache {
    fn new(capacity: u64) -> Self {
        Self { capacity, clock: 0, used_at: HashMap::new(), by_use: BTreeMap::new() }
    }

    fn has(&self, block: u64) -> bool {
        self.used_at.contains_key(&block)
    }

    /// The last block is the first to go: one without those before it is worth nothing.
    fn use_all(&mut self, blocks: &[u64]) {
        for &block in blocks.iter().rev() {
            self.clock += 1;
            if let Some(before) = self.used_at.insert(block, self.clock) {
                self.by_use.remove(&before);
            }
            self.by_use.insert(self.clock, block);
        }
        while self.used_at.len() as u64 > self.capacity {
            let Some((_, block)) = self.by_use.pop_first() else { break };
            self.used_at.remove(&block);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(at_ms: u64, blocks: &[u64]) -> Conversation {
        let tokens = blocks.len() as u64 * BLOCK_TOKENS;
        Conversation { at: Duration::from_millis(at_ms), tokens, blocks: blocks.to_vec() }
    }

    fn size(workers: usize) -> Size {
        let per_token = Duration::from_micros(10);
        Size { workers, cache_tokens: 4 * BLOCK_TOKENS, per_token }
    }

    #[test]
    fn a_cache_forgets_the_ends_of_what_was_used_longest_ago() {
        let mut cache = Cache::new(3);
        cache.use_all(&[1, 2]);
        cache.use_all(&[3, 4]);
        assert_eq!([1, 2, 3, 4].map(|block| cache.has(block)), [true, false, true, true]);
    }

    #[test]
    fn ties_decide_where_new_prompts_go() {
        // Far apart, so that nobody has anything to read.
        let new: Vec<Conversation> =
            (0..8).map(|n| request(n * 1000, &[2 * n, 2 * n + 1])).collect();
        let first = place(&new, &size(4), Rule::LeastToRead);
        let turns = place(&new, &size(4), Rule::LeastToReadTiesByTurns);
        assert!((first.imbalance - 4.0).abs() < 1e-9, "{}", first.imbalance);
        assert!((turns.imbalance - 1.0).abs() < 1e-9, "{}", turns.imbalance);

        // Asked again, only four caches together have them all.
        let again: Vec<Conversation> =
            (0..16).map(|n| request(n * 1000, &[n % 8 * 2, n % 8 * 2 + 1])).collect();
        assert!(place(&again, &size(4), Rule::LeastToRead).saved.abs() < 1e-9);
        assert!((place(&again, &size(4), Rule::LeastToReadTiesByTurns).saved - 0.5).abs() < 1e-9);
    }

    #[test]
    fn the_most_cached_waits_where_the_least_to_read_does_not() {
        let hot: Vec<Conversation> = (0..8).map(|n| request(0, &[1, 2, 3, 100 + n])).collect();
        let cached = place(&hot, &size(4), Rule::MostCached);
        let least = place(&hot, &size(4), Rule::LeastToRead);
        assert!(cached.saved > least.saved);
        assert!(cached.first_token_ms(99) > least.first_token_ms(99));
    }
}
