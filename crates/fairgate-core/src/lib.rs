//! The scheduler of Fairgate: a deterministic state machine, (state, now, event) → decisions.
//!
//! Nothing in this crate reads a clock, draws a random number, uses a float, waits, logs or talks to the
//! outside; time comes in with each event. The same events give the same decisions on every machine.

#![deny(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::float_arithmetic
)]
// Test code may cast its small numbers plainly.
#![cfg_attr(
    test,
    allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap, clippy::cast_sign_loss)
)]

pub mod apportion;
mod arbiter;
pub mod attribute;
pub mod decision;
pub mod drr;
pub mod event;
pub mod explain;
mod extremes;
pub mod fairness;
mod intern;
mod level;
pub mod load;
pub mod policy;
mod pool;
pub mod proportional;
mod queue;
mod requests;
pub mod restore;
mod room;
mod rounds;
pub mod share;
pub mod snapshot;
mod tree;
pub mod units;
mod workers;

pub use pool::{Pool, TimeWentBack};
