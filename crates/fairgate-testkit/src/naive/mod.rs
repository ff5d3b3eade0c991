//! The naive scheduler: the replay rules transcribed sentence by sentence, as the oracle for the fast core.
//!
//! Nothing is kept that can be worked out again. Every look scans every flow and every waiting request;
//! what waits, what is in flight and what a place carries is counted anew each time. Lay `SPEC.md` beside it:
//!
//! - "The journal", the three steps of an event, the full queue: `pool`
//! - "The policy: a tree", readiness, heads, queue order: `tree` and `request`
//! - the three kinds of node: `drr`, `share` (with `apportion`) and `load`
//! - "Workers": `worker` for one worker, its rates and its pause; `world` for places and whatever else all
//!   nodes may look at.
//!
//! # Widths
//!
//! Integers are wide enough never to wrap. A sum of n token counts of 64 bits, times 2^32, fits 127 bits
//! while n is below 2^31. A rate's level stays within 2^64 × 60 × 10^6, below 2^90. Only one product may be
//! wider: how much a level rises over a long time. It saturates, which is exact, as the level's top is far
//! below.

mod apportion;
mod decided;
mod drr;
mod load;
mod pool;
mod request;
mod share;
mod tree;
mod worker;
mod world;

pub use decided::Decided;
pub use pool::NaivePool;
pub use request::Request;
