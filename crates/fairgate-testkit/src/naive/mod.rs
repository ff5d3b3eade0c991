//! The naive scheduler: the replay rules transcribed sentence by sentence, as the oracle for the
//! fast core.
//!
//! No value is stored that can be computed again. Every look scans every flow and every queued
//! request, and counts again the requests that are queued, in flight and at each place. Text in
//! quotation marks is quoted from the specification. These modules have its sections:
//!
//! - "The journal", the three steps of an event, the full queue: `pool`
//! - "The policy: a tree", readiness, heads, queue order: `tree` and `request`
//! - the kinds of node: `drr`, `share` (with `apportion`), `bands` and `load`
//! - "Workers": `worker` for one worker, its rates and its pause; `state` for places and the state
//!   that all nodes may read.
//!
//! # Widths
//!
//! Integers are wide enough never to wrap. A sum of n token counts of 64 bits, times 2^32, fits 127
//! bits while n is below 2^31. A rate's level stays within 2^64 × 60 × 10^6, below 2^90. Only one
//! product may be wider: the rise of a level over a long time. That product saturates. This does
//! not change the result, because the greatest level is far below.

mod apportion;
mod bands;
mod branches;
mod compared_decision;
mod drr;
mod load;
mod pool;
mod request;
mod share;
mod state;
mod tree;
mod worker;

pub use branches::RuleBranch;
pub use compared_decision::ComparedDecision;
pub use pool::NaivePool;
pub use request::NaiveRequest;
