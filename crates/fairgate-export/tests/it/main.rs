//! Tests of the export against a small server that answers the export's statements like ClickHouse,
//! on SQLite and on a real PostgreSQL.

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
