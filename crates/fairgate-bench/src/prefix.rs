//! The prefix index: what a look-up takes by the length of the prompt, by what is stored, and what a block costs in memory.

use std::hint::black_box;

use fairgate_dialect::{Ask, Piece, Route};
use fairgate_prefix::{Chain, ChainBuilder, Identity, Index, SecretKey, Worker};
use fairgate_testkit::workload::Rng;

use crate::cases::{Case, Side, cycles, side};
use crate::measure::{Subject, nanoseconds};
use crate::scenarios as pools;
use crate::steady::open;
use crate::table::Bar;

/// What [`fill`] fills: the bar is 200 MB for that many.
pub(crate) const BLOCKS: usize = 1_000_000;
const WORKERS: usize = 16;
const KEY: SecretKey = SecretKey::new([7; 16]);
const BYTES_PER_TOKEN: usize = 4;
/// How much text is asked about in turns, so that neither it nor its blocks stay in the processor's cache.
const MEGABYTES_ASKED: usize = 20;
/// Where nothing else is said: an agent's prompt.
const PROMPT_TOKENS: usize = 4096;

/// All cases, in the order of the table.
pub(crate) static CASES: &[Case] = &[
    lookup(
        "length",
        "index: read, hash and look up a prompt of n tokens, all of it held",
        side("16 k", || Box::new(Lookup::new(16 << 10, 100))),
        side("128 k", || Box::new(Lookup::new(128 << 10, 100))),
        Bar::GrowsAtMost(8.0),
    ),
    lookup(
        "stored",
        "index: look up a prompt of 4 096 tokens among n that are stored",
        side("1 000", || Box::new(Lookup::new(PROMPT_TOKENS, 1000))),
        side("100 000", || Box::new(Lookup::new(PROMPT_TOKENS, 100_000))),
        Bar::AtMost(2.0),
    ),
    lookup(
        "body",
        "a body of 128 k tokens: read by the gateway in any case, and for the index",
        side("Ask::read", || Box::new(Reading::new(128 << 10))),
        side("index", || Box::new(Lookup::new(128 << 10, 100))),
        Bar::None,
    ),
    cycles(
        "placing",
        "placing on one of n workers, each with cached tokens of its own",
        side("4", || open(pools::cached_workers(4))),
        side("64", || open(pools::cached_workers(64))),
        Bar::AtMost(8.0),
    ),
];

const fn lookup(name: &'static str, what: &'static str, base: Side, big: Side, bar: Bar) -> Case {
    Case { operations: 20, counted: Some(20), ..cycles(name, what, base, big, bar) }
}

/// A chat of about so many tokens, whose messages come from a seed.
fn body(tokens: usize, seed: u64) -> String {
    let mut rng = Rng::new(seed);
    let mut text = String::from(r#"{"model":"m","stream":true,"messages":["#);
    let mut role = "user";
    while text.len() < tokens * BYTES_PER_TOKEN {
        text += &format!(r#"{{"role":"{role}","content":""#);
        for _ in 0..40 {
            text += &format!("{:016x} some words of a conversation.\\n", rng.next_u64());
        }
        text += "\"},";
        role = if role == "user" { "assistant" } else { "user" };
    }
    text.pop();
    text + "]}"
}

fn chain(body: &str, ask: &Ask) -> Chain {
    let identity = Identity { model: &ask.model, ..Identity::default() };
    let mut builder = ChainBuilder::new(KEY, identity);
    ask.prompt(Route::ChatCompletions, body.as_bytes(), |piece| match piece {
        Piece::Text(text) => builder.text(text),
        Piece::File { bytes, counted_bytes } => builder.file(bytes, counted_bytes),
    });
    builder.finish(ask.input_bytes / BYTES_PER_TOKEN as u64)
}

fn read(body: &str) -> Ask {
    Ask::read(Route::ChatCompletions, body.as_bytes()).expect("the body is a request")
}

/// An index with so many prompts of 4096 tokens, spread over its workers.
fn filled(prompts: usize) -> (Index, Vec<Worker>) {
    let mut index = Index::new(usize::MAX);
    let workers: Vec<Worker> = (0..WORKERS).map(|_| index.add(1 << 40)).collect();
    for number in 0..prompts {
        let chain = stored_chain(number as u64, PROMPT_TOKENS);
        let _ = index.routed(workers[number % WORKERS], &chain);
    }
    (index, workers)
}

/// A chain of text that comes from a seed, without JSON around it.
fn stored_chain(seed: u64, tokens: usize) -> Chain {
    let mut rng = Rng::new(seed);
    let mut builder = ChainBuilder::new(KEY, Identity { model: "m", ..Identity::default() });
    for _ in 0..tokens * BYTES_PER_TOKEN / 256 {
        builder.text(&rng.next_u64().to_le_bytes().repeat(32));
    }
    builder.finish(tokens as u64)
}

/// From the bodies to the cached tokens of all workers, another body each time.
struct Lookup {
    bodies: Vec<(String, Ask)>,
    index: Index,
    next: usize,
}

impl Lookup {
    /// Bodies of this length, held by half of the workers beside so many other prompts.
    fn new(tokens: usize, others: usize) -> Self {
        let (mut index, workers) = filled(others);
        let bodies = (0..MEGABYTES_ASKED * 1_000_000 / (tokens * BYTES_PER_TOKEN)).map(|number| {
            let body = body(tokens, (1 << 40) + number as u64);
            let ask = read(&body);
            (body, ask)
        });
        let bodies: Vec<_> = bodies.collect();
        for (body, ask) in &bodies {
            for &worker in workers.iter().step_by(2) {
                let _ = index.routed(worker, &chain(body, ask));
            }
        }
        Self { bodies, index, next: 0 }
    }
}

impl Subject for Lookup {
    fn time(&mut self, operations: u64) -> f64 {
        let work = || {
            for _ in 0..operations {
                self.next = (self.next + 1) % self.bodies.len();
                let (body, ask) = &self.bodies[self.next];
                let chain = chain(body, ask);
                let most = black_box(self.index.overlap(&chain).most());
                assert!(most > 0, "it is held");
            }
        };
        nanoseconds(work).1 / operations as f64
    }
}

/// What the gateway reads of a body whether there is an index or not.
struct Reading(String);

impl Reading {
    fn new(tokens: usize) -> Self {
        Self(body(tokens, 1 << 40))
    }
}

impl Subject for Reading {
    fn time(&mut self, operations: u64) -> f64 {
        let work = || (0..operations).for_each(|_| drop(black_box(read(&self.0))));
        nanoseconds(work).1 / operations as f64
    }
}

/// Fills an index to its bound of a million blocks, four times over, so that every block has come in the place of another.
pub(crate) fn fill() -> Index {
    let mut index = Index::new(BLOCKS);
    let workers: Vec<Worker> = (0..WORKERS).map(|_| index.add(1 << 40)).collect();
    let blocks_each = stored_chain(0, PROMPT_TOKENS).len();
    for number in 0..4 * BLOCKS / blocks_each {
        let chain = stored_chain(number as u64, PROMPT_TOKENS);
        let _ = index.routed(workers[number % WORKERS], &chain);
    }
    index
}
