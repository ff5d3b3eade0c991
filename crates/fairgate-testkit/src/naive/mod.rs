//! The naive scheduler: the replay rules transcribed sentence by sentence, as the oracle for the fast core.
//!
//! Nothing is kept that can be worked out again. Every look scans every flow and every waiting request;
//! what waits, what flies and what a place carries is counted anew each time. Lay `SPEC.md` beside it:
//!
//! - "The journal", the three steps of an event, the full queue: `pool`
//! - "The policy: a tree", readiness, heads, queue order: `tree` and `request`
//! - the three kinds of node: `drr`, `share` (with `apportion`) and `load`
//! - "Workers": `world`, which also holds whatever else all nodes may look at.
//!
//! Integers are wide enough never to wrap: a sum of n token counts of 64 bits, times 2^32, fits 127 bits
//! while n is below 2^31, and nothing else here grows faster.

mod apportion;
mod decided;
mod drr;
mod load;
mod pool;
mod request;
mod share;
mod tree;
mod world;

pub use decided::Decided;
pub use pool::NaivePool;
pub use request::Request;
