//! The gate: every end of a permit, refusals, drains, restarts and the journal that it writes. Races are in
//! `tests/model.rs`, which is compiled with another `sync`.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test that fails here should stop here, and random ones print their seed"
)]

mod support;

mod drain;
mod journal;
mod permits;
mod refusals;
mod restart;
mod stress;
