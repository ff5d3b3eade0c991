//! Tests of the gateway over real sockets.
// A row of the ledger has more fields than `json!` takes with the default limit.
#![recursion_limit = "256"]
#![allow(clippy::unwrap_used, unreachable_pub, reason = "a test that fails here should stop here")]

mod support;

mod account_models;
mod admin;
mod arriving;
mod bands;
mod budgets;
mod classes;
mod clever;
mod closed_accounts;
mod compressed;
mod continued;
mod deadlines;
mod doors;
mod encrypted;
mod ends;
mod engine_controls;
mod estimates;
mod export;
mod files;
mod fleet;
mod happy;
mod hosted;
mod hostile;
mod lease_reports;
mod leases;
mod liars;
mod limits;
mod logged;
mod money_unit;
mod operations;
mod resets;
mod revoked;
mod rights;
mod router;
mod slot_price;
mod staff;
mod streaming;
mod task_keys;
mod task_weights;
mod tiers;
mod unrecorded;
mod unwell;
mod worker_time;
mod worker_time_loop;
mod worker_time_shared;
mod workers;
