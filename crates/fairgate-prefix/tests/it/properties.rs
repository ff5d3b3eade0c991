//! Random calls of the index and of the naive index. Both must always return the same.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use fairgate_prefix::{CacheReport, PrefixIndex, PrefixRoute, PrefixWorker};
use fairgate_testkit::seeds;
use fairgate_testkit::workload::SeededRng;

use crate::naive::{NaiveIndex, NaiveRoute};
use crate::{TOKENS, chain, report};

const STEPS: usize = 300;

struct Both {
    rng: SeededRng,
    /// True if one worker is never changed, so that its reports accumulate.
    is_calm: bool,
    index: PrefixIndex,
    naive: NaiveIndex,
    /// The workers by name, including removed workers.
    workers: Vec<PrefixWorker>,
    in_flight: Vec<(PrefixRoute, NaiveRoute, Vec<u8>)>,
    /// Number of checks that found a learned size.
    learned: usize,
}

impl Both {
    fn new(seed: u64) -> Self {
        let mut rng = SeededRng::new(seed);
        let (blocks_max, is_calm) = (rng.count(0..=120), rng.index(2) == 0);
        let naive = NaiveIndex::new(blocks_max);
        Self {
            rng,
            is_calm,
            index: PrefixIndex::new(blocks_max),
            naive,
            workers: Vec::new(),
            in_flight: Vec::new(),
            learned: 0,
        }
    }

    fn number(&mut self, below: usize) -> usize {
        self.rng.index(below)
    }

    /// Draws a prompt of few different symbols, so that prompts share beginnings.
    fn prompt(&mut self) -> Vec<u8> {
        let length = self.number(16);
        if self.is_calm {
            return vec![self.rng.one_of(&[1, 2, 3, 4, 5]); length];
        }
        let same = self.number(3) > 0;
        (0..length).map(|_| if same { 1 } else { self.rng.one_of(&[0, 1]) }).collect()
    }

    fn add(&mut self) {
        let blocks = self.number(40);
        self.naive.add(self.workers.len(), blocks);
        self.workers.push(self.index.add(blocks as u64 * TOKENS));
    }

    fn step(&mut self) {
        if self.naive.workers.is_empty() {
            return self.add();
        }
        // Sometimes one that left.
        let name = self.number(self.workers.len());
        let worker = self.workers[name];
        let there = self.naive.workers.iter().any(|worker| worker.name == name);
        let call = if self.is_calm { 4 + self.number(36) } else { self.number(40) };
        match call {
            0 => self.add(),
            1 => {
                self.naive.remove(name);
                self.index.remove(worker);
            }
            2 if there => {
                self.naive.forget(name);
                self.index.forget(worker);
            }
            3 if there => {
                let blocks = self.number(40);
                self.naive.resize(name, blocks);
                self.index.resize(worker, blocks as u64 * TOKENS);
            }
            4..=22 => {
                let prompt = self.prompt();
                let routes =
                    (self.index.routed(worker, &chain(&prompt)), self.naive.routed(name, &prompt));
                match routes {
                    (Some(route), Some(naive)) => self.in_flight.push((route, naive, prompt)),
                    (None, None) => {}
                    _ => panic!("one of them knows worker {name}, the other does not"),
                }
            }
            23..=26 if !self.in_flight.is_empty() => {
                let refused = self.number(self.in_flight.len());
                let (route, naive, prompt) = self.in_flight.swap_remove(refused);
                self.index.refused(&route, &chain(&prompt));
                self.naive.refused(&naive, &prompt);
            }
            27.. if !self.in_flight.is_empty() => {
                let answered = self.number(self.in_flight.len());
                let (route, naive, prompt) = self.in_flight.swap_remove(answered);
                // Often all, as in a cache that is large enough, or nothing, as in one that is not.
                let cached = match (self.number(4), self.is_calm) {
                    (0, _) => prompt.len(),
                    (1 | 2, true) => 0,
                    _ => self.number(prompt.len() + 1),
                };
                let (chain, origin) = (chain(&prompt), self.rng.one_of(&[3, 4, 12]));
                let report = CacheReport { origin, ..report(&chain, cached as u64) };
                self.index.observed(&route, &chain, report);
                self.naive.observed(&naive, &prompt, cached, origin);
            }
            _ => {}
        }
    }

    fn check(&mut self, when: &str) {
        let prompt = self.prompt();
        let chain = chain(&prompt);
        let overlap = self.index.overlap(&chain);
        for (name, &worker) in self.workers.iter().enumerate() {
            assert_eq!(
                overlap.tokens(worker),
                self.naive.overlap(name, &prompt),
                "{when}: worker {name}, {prompt:?}"
            );
            assert_eq!(
                self.index.held_blocks(worker),
                self.naive.held_blocks(name),
                "{when}: worker {name}"
            );
            let learned = self.index.learned_cache_tokens(worker);
            let naive = self.naive.learned(name).map(|blocks| blocks as u64 * TOKENS);
            assert_eq!(learned, naive, "{when}: worker {name}");
            self.learned += usize::from(learned.is_some());
        }
        assert!(self.index.blocks() <= self.naive.blocks_max, "{when}");
    }
}

#[test]
fn the_index_always_says_what_the_naive_one_says() {
    let learned = AtomicUsize::new(0);
    let cases = seeds::cases() / 20;
    seeds::for_each_seed("prefix index", cases, |seed| {
        let mut both = Both::new(seed);
        for step in 0..STEPS {
            both.step();
            both.check(&format!("seed {seed}, step {step}"));
        }
        learned.fetch_add(both.learned, Relaxed);
    });
    let learned = learned.into_inner();
    assert!(
        cases < 20 || learned > 10 * cases as usize,
        "sizes are hardly ever learned: {learned}"
    );
}
