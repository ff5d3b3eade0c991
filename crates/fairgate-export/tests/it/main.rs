//! The export against a small server that does what ClickHouse does with the statements of the export, on SQLite and on a
//! real PostgreSQL.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "tests say what they found, and fail by panicking"
)]

mod comparing;
mod exporting;
mod failing;
mod fake_clickhouse;
mod late_rows;
mod ledger;
mod pruning;
mod replaced_rows;
