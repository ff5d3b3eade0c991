//! The gateway over real sockets.

mod support;

mod admin;
mod budgets;
mod encrypted;
mod ends;
mod happy;
mod hostile;
mod operations;
mod streaming;
mod workers;
