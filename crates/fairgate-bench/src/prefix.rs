//! Benchmarks of the prefix index: the time of a look-up by the length of the prompt and by the
//! number of stored prompts, and the memory per block.

use std::hint::black_box;

use fairgate_dialect::{PromptPiece, RequestFields, Route};
use fairgate_prefix::{
    CacheIdentity, PrefixIndex, PrefixWorker, PromptChain, PromptChainBuilder, SecretKey,
};
use fairgate_testkit::workload::SeededRng;

use crate::cases::{BenchCase, CaseSide, cycles, side};
use crate::measure::{TimedSubject, nanoseconds};
use crate::scenarios as pools;
use crate::steady::open;
use crate::table::RatioBar;

/// Number of blocks to which [`fill`] fills the index. The bar is 200 MB of memory for so many
/// blocks.
pub(crate) const BLOCKS: usize = 1_000_000;
const WORKERS: usize = 16;
const KEY: SecretKey = SecretKey::new([7; 16]);
const BYTES_PER_TOKEN: usize = 4;
/// Number of megabytes of different prompts that are looked up in turns, so that neither the
/// prompts nor their blocks stay in the processor's cache.
const MEGABYTES_ASKED: usize = 20;
/// Default length of a prompt in tokens, which is typical of an agent's request.
const PROMPT_TOKENS: usize = 4096;

/// All cases, in the order of the table.
pub(crate) static CASES: &[BenchCase] = &[
    lookup(
        "length",
        "index: read, hash and look up a prompt of n tokens, all of it held",
        side("16 k", || Box::new(PrefixLookup::new(16 << 10, 100))),
        side("128 k", || Box::new(PrefixLookup::new(128 << 10, 100))),
        RatioBar::GrowsAtMost(8.0),
    ),
    lookup(
        "stored",
        "index: look up a prompt of 4 096 tokens among n that are stored",
        side("1 000", || Box::new(PrefixLookup::new(PROMPT_TOKENS, 1000))),
        side("100 000", || Box::new(PrefixLookup::new(PROMPT_TOKENS, 100_000))),
        RatioBar::AtMost(2.0),
    ),
    lookup(
        "body",
        "a body of 128 k tokens: read by the gateway in any case, and for the index",
        side("Ask::read", || Box::new(BodyParsing::new(128 << 10))),
        side("index", || Box::new(PrefixLookup::new(128 << 10, 100))),
        RatioBar::None,
    ),
    cycles(
        "placing",
        "placing on one of n workers, each with cached tokens of its own",
        side("4", || open(pools::cached_workers(4))),
        side("64", || open(pools::cached_workers(64))),
        RatioBar::AtMost(8.0),
    ),
];

const fn lookup(
    name: &'static str,
    what: &'static str,
    base: CaseSide,
    big: CaseSide,
    bar: RatioBar,
) -> BenchCase {
    BenchCase { operations: 20, counted: Some(20), ..cycles(name, what, base, big, bar) }
}

/// Builds a chat body of about `tokens` tokens, with pseudo-random messages from `seed`.
fn body(tokens: usize, seed: u64) -> String {
    let mut rng = SeededRng::new(seed);
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

fn chain(body: &str, fields: &RequestFields) -> PromptChain {
    let identity = CacheIdentity { model: &fields.model, ..CacheIdentity::default() };
    let mut builder = PromptChainBuilder::new(KEY, identity);
    fields.prompt(Route::ChatCompletions, body.as_bytes(), |piece| match piece {
        PromptPiece::Text(text) => builder.text(text),
        PromptPiece::File { bytes, counted_bytes } => builder.file(bytes, counted_bytes),
    });
    builder.finish(fields.input_bytes / BYTES_PER_TOKEN as u64)
}

fn read(body: &str) -> RequestFields {
    RequestFields::read(Route::ChatCompletions, body.as_bytes()).expect("the body is a request")
}

/// Builds an index with the given number of prompts of 4096 tokens, spread over all workers of the
/// index.
fn filled(prompts: usize) -> (PrefixIndex, Vec<PrefixWorker>) {
    let mut index = PrefixIndex::new(usize::MAX);
    let workers: Vec<PrefixWorker> = (0..WORKERS).map(|_| index.add(1 << 40)).collect();
    for number in 0..prompts {
        let chain = stored_chain(number as u64, PROMPT_TOKENS);
        let _ = index.routed(workers[number % WORKERS], &chain);
    }
    (index, workers)
}

/// Builds a prompt chain from pseudo-random text of `tokens` tokens, without a JSON body.
fn stored_chain(seed: u64, tokens: usize) -> PromptChain {
    let mut rng = SeededRng::new(seed);
    let mut builder =
        PromptChainBuilder::new(KEY, CacheIdentity { model: "m", ..CacheIdentity::default() });
    for _ in 0..tokens * BYTES_PER_TOKEN / 256 {
        builder.text(&rng.next_u64().to_le_bytes().repeat(32));
    }
    builder.finish(tokens as u64)
}

/// A subject that computes the cached tokens of all workers from a body. Each operation uses the
/// next of many bodies.
struct PrefixLookup {
    bodies: Vec<(String, RequestFields)>,
    index: PrefixIndex,
    next: usize,
}

impl PrefixLookup {
    /// Creates bodies of `tokens` tokens that half of the workers have cached, in an index with
    /// `others` other prompts.
    fn new(tokens: usize, others: usize) -> Self {
        let (mut index, workers) = filled(others);
        let bodies = (0..MEGABYTES_ASKED * 1_000_000 / (tokens * BYTES_PER_TOKEN)).map(|number| {
            let body = body(tokens, (1 << 40) + number as u64);
            let fields = read(&body);
            (body, fields)
        });
        let bodies: Vec<_> = bodies.collect();
        for (body, fields) in &bodies {
            for &worker in workers.iter().step_by(2) {
                let _ = index.routed(worker, &chain(body, fields));
            }
        }
        Self { bodies, index, next: 0 }
    }
}

impl TimedSubject for PrefixLookup {
    fn time(&mut self, operations: u64) -> f64 {
        let work = || {
            for _ in 0..operations {
                self.next = (self.next + 1) % self.bodies.len();
                let (body, fields) = &self.bodies[self.next];
                let chain = chain(body, fields);
                let most = black_box(self.index.overlap(&chain).most());
                assert!(most > 0, "it is held");
            }
        };
        nanoseconds(work).1 / operations as f64
    }
}

/// A subject that parses a body as the gateway does, without looking it up in an index.
struct BodyParsing(String);

impl BodyParsing {
    fn new(tokens: usize) -> Self {
        Self(body(tokens, 1 << 40))
    }
}

impl TimedSubject for BodyParsing {
    fn time(&mut self, operations: u64) -> f64 {
        let work = || (0..operations).for_each(|_| drop(black_box(read(&self.0))));
        nanoseconds(work).1 / operations as f64
    }
}

/// Fills an index with four times as many blocks as its limit of a million, so that every block
/// left in the index has replaced an older block.
pub(crate) fn fill() -> PrefixIndex {
    let mut index = PrefixIndex::new(BLOCKS);
    let workers: Vec<PrefixWorker> = (0..WORKERS).map(|_| index.add(1 << 40)).collect();
    let blocks_each = stored_chain(0, PROMPT_TOKENS).len();
    for number in 0..4 * BLOCKS / blocks_each {
        let chain = stored_chain(number as u64, PROMPT_TOKENS);
        let _ = index.routed(workers[number % WORKERS], &chain);
    }
    index
}
