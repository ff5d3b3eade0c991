//! The scheduler of Fairgate: a deterministic state machine, (state, now, event) → decisions.
//!
//! Nothing in this crate reads a clock, draws a random number, uses a float, waits, logs or does I/O; the time comes
//! with each event. Equal events give equal decisions on every machine. The crate is `no_std`, so the compiler keeps
//! clocks, threads and I/O out.
//!
//! Start with [`Pool`]: create one from an [`event::PoolConfig`], then call [`Pool::apply`] with each [`event::Event`]
//! in order; the decisions go to a [`decision::DecisionSink`]. Between events, query the pool with
//! [`Pool::next_change`], [`Pool::request_location`], [`Pool::fairness`], [`Pool::snapshot`].
//!
//! # Invariants
//! - A request that arrived earlier has a lower `seq` and a tick that is not higher. So arrival, `seq` and tick give
//!   the same order, and the request with the lowest `seq` is the oldest by all three.
//! - Equal events give equal snapshots, byte for byte, even if a pool was restored in between, so that replicas can
//!   compare their snapshots. Handles, meters and the set of forgotten flows follow from the events alone.
//! - No code iterates a hash table. Hash tables are only queried by key.
//! - One timer is enough: [`Pool::next_change`] is the next time at which the pool changes by time alone.
//!
//! # Costs
//! With n flows in a node, d levels of the tree and P places (ranks of workers):
//!
//! ```text
//! submit, grant, release, cancel through share and drr      O(d · log n)
//! the same through load as the root                         O(log² n) typically, O(√n · log² n) against an adversary
//! a load node inside another node                           one step for each such node per tick
//! placing a granted request                                 O(P)
//! a place fills or frees                                    the demands whose witness it is, then the queues that
//!                                                           watch a demand that thereby opened or closed
//! hold, resume, weight or cap of a flow                     O(copies of that flow · d · log n)
//! partitioned root: a flow becomes active or idle,          O(n log n), n ≤ capacity
//!   or capacity or a weight changes
//! full queue: finding the request that makes room           O(d · log n)
//! policy event, snapshot, restore, request_location         O(everything)
//! ```

#![no_std]
#![deny(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::float_arithmetic
)]
// Test code may cast small numbers without checks.
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
pub mod bands;
mod convex_hull;
pub mod decision;
pub mod drr;
pub mod engine;
pub mod event;
pub mod explain;
pub mod fairness;
mod flow_names;
mod forget;
mod full_queue;
mod intern;
pub mod load;
pub mod meter;
pub mod policy;
mod policy_flow;
mod policy_level;
mod pool;
pub mod proportional;
mod queue;
mod ranking;
mod rate;
mod requests;
pub mod restore;
mod rounds;
pub mod share;
mod slab;
pub mod snapshot;
mod tree;
pub mod units;
mod workers;

pub use decision::TimeWentBackError;
pub use pool::Pool;
pub use requests::RequestHandle;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
