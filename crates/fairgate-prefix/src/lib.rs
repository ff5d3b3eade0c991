#![doc = include_str!("../README.md")]

mod cache_expectation;
mod cache_size;
mod chain;
mod held_blocks;
mod index;
mod overlap;
mod prefix_worker;
mod recency;

pub use cache_expectation::PrefixRoute;
pub use chain::{BLOCK_BYTES, CacheIdentity, PromptChain, PromptChainBuilder, SecretKey};
pub use index::{CacheReport, PrefixIndex};
pub use overlap::PrefixOverlap;
pub use prefix_worker::PrefixWorker;
