//! The index as a caller sees it: beside a naive one, on a recorded trace, and case by case.
#![allow(clippy::unwrap_used)]

mod cases;
mod mooncake;
mod naive;
mod properties;

use fairgate_prefix::{BLOCK_BYTES, Chain, ChainBuilder, Identity, SecretKey};

const KEY: SecretKey = SecretKey::new([5; 16]);

/// The chain of a prompt in which each number is a block, at 4 bytes a token.
fn chain(symbols: &[u8]) -> Chain {
    let mut builder = ChainBuilder::new(KEY, Identity { model: "m", ..Identity::default() });
    for &symbol in symbols {
        builder.text(&[symbol; BLOCK_BYTES]);
    }
    builder.finish(symbols.len() as u64 * TOKENS)
}

/// The tokens of a block in [`chain`].
const TOKENS: u64 = BLOCK_BYTES as u64 / 4;
