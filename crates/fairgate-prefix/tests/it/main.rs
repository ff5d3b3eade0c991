//! The index as a caller sees it: beside a naive one, on a recorded trace, and case by case.
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

/// The chain of a prompt in which each number is a block, at 4 bytes a token.
fn chain(symbols: &[u8]) -> PromptChain {
    let mut builder =
        PromptChainBuilder::new(KEY, CacheIdentity { model: "m", ..CacheIdentity::default() });
    for &symbol in symbols {
        builder.text(&[symbol; BLOCK_BYTES]);
    }
    builder.finish(symbols.len() as u64 * TOKENS)
}

/// The tokens of a block in [`chain`].
const TOKENS: u64 = BLOCK_BYTES as u64 / 4;

/// An answer to this prompt that says that so many of its blocks were cached.
fn report(chain: &PromptChain, blocks: u64) -> CacheReport {
    CacheReport { input_tokens: chain.input_tokens(), cached_tokens: blocks * TOKENS, origin: 0 }
}
