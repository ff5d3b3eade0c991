//! The scheduler of Fairgate: a deterministic state machine, (state, now, event) → decisions.
//!
//! Nothing in this crate reads a clock, draws a random number, uses a float, waits, logs or talks to the
//! outside; time comes in with each event. The same events give the same decisions on every machine. It is `no_std`,
//! so the compiler keeps clocks, threads and I/O out.
//!
//! Start with [`Pool`]: make one from an [`event::PoolConfig`], then call [`Pool::apply`] with each
//! [`event::Event`] in order; it tells a [`decision::Sink`] what is decided. Between events, ask it anything:
//! [`Pool::next_change`], [`Pool::whereabouts`], [`Pool::fairness`], [`Pool::snapshot`].

#![no_std]
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

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod apportion;
mod arbiter;
pub mod attribute;
pub mod decision;
pub mod drr;
pub mod engine;
pub mod event;
pub mod explain;
mod extremes;
pub mod fairness;
mod forget;
mod intern;
mod level;
pub mod load;
pub mod meter;
mod names;
pub mod policy;
mod pool;
pub mod proportional;
mod queue;
mod ranking;
mod rate;
mod requests;
pub mod restore;
mod room;
mod rounds;
pub mod share;
mod slab;
pub mod snapshot;
mod tree;
pub mod units;
mod workers;

pub use decision::TimeWentBack;
pub use pool::Pool;
pub use requests::Handle;
