#![doc = include_str!("../README.md")]

mod cache_expectation;
mod cache_size;
mod chain;
mod held_blocks;
mod index;
mod overlap;
mod recency;
mod worker_handle;

pub use cache_expectation::PrefixRoute;
pub use chain::{BLOCK_BYTES, CacheIdentity, PromptChain, PromptChainBuilder, SecretKey};
pub use index::{CacheReport, PrefixIndex};
pub use overlap::PrefixOverlap;
pub use worker_handle::PrefixWorker;
