//! What every store must do, on SQLite and on a real PostgreSQL.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "tests say what they found, and fail by panicking"
)]

mod away;
mod budgets;
mod claims;
mod crash;
mod database;
mod declarations;
mod directory;
mod full_disk;
mod ledger;
mod model;
mod money;
mod money_shared;
mod postgres_only;
mod response_ids;
mod rows;
mod sqlite_only;
mod synced;
mod upgrade;
