//! The fleet's calls, on SQLite and on a real PostgreSQL.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod claims;
mod days;
mod graphs;
mod labels;
mod limits;
mod logs;
mod people;
mod results;
mod rounds;
#[allow(dead_code, reason = "the store's tests need more of it")]
#[path = "../../../fairgate-store/tests/it/server.rs"]
mod server;
mod transitions;
mod webhooks;
mod world;
