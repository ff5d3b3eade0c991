//! The gateway over real sockets.

#![allow(clippy::unwrap_used, unreachable_pub, reason = "a test that fails here should stop here")]

mod support;

mod admin;
mod budgets;
mod encrypted;
mod ends;
mod estimates;
mod happy;
mod hostile;
mod limits;
mod operations;
mod revoked;
mod streaming;
mod workers;
