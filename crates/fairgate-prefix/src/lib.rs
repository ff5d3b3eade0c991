#![doc = include_str!("../README.md")]

mod chain;
mod holdings;
mod index;
mod overlap;
mod route;

pub use chain::{BLOCK_BYTES, Chain, ChainBuilder, Identity, SecretKey};
pub use index::{Index, Worker};
pub use overlap::Overlap;
pub use route::Route;
