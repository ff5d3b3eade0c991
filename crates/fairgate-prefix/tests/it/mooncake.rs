//! Compares the tokens that the index expects to be cached with those that are really shared, on recorded
//! conversations.

use std::collections::HashSet;
use std::io::{BufRead, BufReader};

use fairgate_prefix::{CacheIdentity, PrefixIndex, PromptChainBuilder};
use fairgate_testkit::test_data;

use crate::KEY;

/// Number of tokens of a block in the trace.
const TRACE_BLOCK_TOKENS: u64 = 512;
const BYTES_PER_TOKEN: u64 = 4;

struct Request {
    tokens: u64,
    blocks: Vec<u64>,
}

/// Reads the trace; `None` if the trace does not exist.
fn trace() -> Option<Vec<Request>> {
    let path = test_data::shared_trace("mooncake_conversation.jsonl.gz")?;
    let file = std::fs::File::open(path).ok()?;
    let lines = BufReader::new(flate2::read::GzDecoder::new(file)).lines();
    let request = |line: String| {
        let line: serde_json::Value = serde_json::from_str(&line).unwrap();
        let ids = line["hash_ids"].as_array().unwrap();
        let blocks = ids.iter().map(|id| id.as_u64().unwrap()).collect();
        Request { tokens: line["input_length"].as_u64().unwrap(), blocks }
    };
    Some(lines.map(|line| request(line.unwrap())).collect())
}

/// Returns the part of a request's tokens, from 0 to 1, that an unlimited cache would have from earlier requests.
fn true_overlap(request: &Request, seen: &mut HashSet<u64>) -> f64 {
    let shared = request.blocks.iter().take_while(|id| seen.contains(id)).count() as u64;
    seen.extend(&request.blocks);
    (shared * TRACE_BLOCK_TOKENS).min(request.tokens) as f64 / request.tokens as f64
}

#[test]
fn the_expected_hits_of_recorded_conversations_are_within_two_percent() {
    let Some(trace) = trace() else { return };
    let mut index = PrefixIndex::new(usize::MAX);
    let worker = index.add(u64::MAX);
    let (mut seen, mut truth, mut expected) = (HashSet::new(), 0.0, 0.0);
    for request in &trace {
        truth += true_overlap(request, &mut seen);
        let mut builder =
            PromptChainBuilder::new(KEY, CacheIdentity { model: "m", ..CacheIdentity::default() });
        let mut left = request.tokens * BYTES_PER_TOKEN;
        for id in &request.blocks {
            let bytes = left.min(TRACE_BLOCK_TOKENS * BYTES_PER_TOKEN);
            let text = id.to_le_bytes().repeat(usize::try_from(bytes.div_ceil(8)).unwrap());
            builder.text(&text[..usize::try_from(bytes).unwrap()]);
            left -= bytes;
        }
        let chain = builder.finish(request.tokens);
        expected += index.overlap(&chain).tokens(worker) as f64 / request.tokens as f64;
        let _ = index.routed(worker, &chain);
    }
    let requests = trace.len() as f64;
    let (truth, expected) = (truth / requests, expected / requests);
    println!(
        "of a request, {truth:.4} is shared, {expected:.4} was expected; {} blocks",
        index.blocks()
    );
    assert!((0.40..0.42).contains(&truth), "SOURCES.md says 0.41: {truth}");
    assert!((expected / truth - 1.0).abs() < 0.02, "{expected} against {truth}");
}
