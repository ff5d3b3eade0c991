//! Random calls, given to the index and to the naive one: both must always say the same.

use fairgate_prefix::{Index, Route, Worker};
use fairgate_testkit::seeds;
use fairgate_testkit::workload::Rng;

use crate::naive::{NaiveIndex, NaiveRoute};
use crate::{TOKENS, chain};

const STEPS: usize = 300;

struct Both {
    rng: Rng,
    index: Index,
    naive: NaiveIndex,
    /// By name, with those that left.
    workers: Vec<Worker>,
    in_flight: Vec<(Route, NaiveRoute, Vec<u8>)>,
}

impl Both {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let blocks_max = rng.count(0..=120);
        let naive = NaiveIndex::new(blocks_max);
        Self {
            rng,
            index: Index::new(blocks_max),
            naive,
            workers: Vec::new(),
            in_flight: Vec::new(),
        }
    }

    fn number(&mut self, below: usize) -> usize {
        self.rng.index(below)
    }

    /// Few symbols, so that prompts share beginnings.
    fn prompt(&mut self) -> Vec<u8> {
        let length = self.number(16);
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
        match self.number(40) {
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
                let cached = self.number(prompt.len() + 1);
                let chain = chain(&prompt);
                self.index.observed(&route, &chain, chain.input_tokens(), cached as u64 * TOKENS);
                self.naive.observed(&naive, &prompt, cached);
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
        }
        assert!(self.index.blocks() <= self.naive.blocks_max, "{when}");
    }
}

#[test]
fn the_index_always_says_what_the_naive_one_says() {
    seeds::for_each_seed("prefix index", seeds::cases() / 20, |seed| {
        let mut both = Both::new(seed);
        for step in 0..STEPS {
            both.step();
            both.check(&format!("seed {seed}, step {step}"));
        }
    });
}
