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
mod transitions;
mod webhooks;
mod world;
