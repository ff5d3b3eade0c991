//! The fleet's calls, on both databases.

mod claims;
mod graphs;
mod logs;
mod people;
// One way to start PostgreSQL for tests.
#[allow(dead_code)]
#[path = "../../../fairgate-store/tests/it/server.rs"]
mod server;
mod transitions;
mod world;
