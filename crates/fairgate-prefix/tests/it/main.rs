//! Tests of the index through its public interface: against a naive index, on a recorded trace, and
//! with single cases.
#![allow(clippy::unwrap_used)]

mod cases;
mod learning;
mod mooncake;
mod naive;
mod properties;

use fairgate_prefix::{
    BLOCK_BYTES, CacheIdentity, CacheReport, PromptChain, PromptChainBuilder, SecretKey,
};

const KEY: SecretKey = SecretKey::new([5; 16]);

/// Builds the chain of a prompt in which each number is a block, at 4 bytes per token.
fn chain(symbols: &[u8]) -> PromptChain {
    let mut builder =
        PromptChainBuilder::new(KEY, CacheIdentity { model: "m", ..CacheIdentity::default() });
    for &symbol in symbols {
        builder.text(&[symbol; BLOCK_BYTES]);
    }
    builder.finish(symbols.len() as u64 * TOKENS)
}

/// Number of tokens of a block in [`chain`].
const TOKENS: u64 = BLOCK_BYTES as u64 / 4;

/// Builds the report of an answer to this prompt, with `blocks` of the prompt's blocks cached.
fn report(chain: &PromptChain, blocks: u64) -> CacheReport {
    CacheReport { input_tokens: chain.input_tokens(), cached_tokens: blocks * TOKENS, origin: 0 }
}
