//! A copy of the ledger in ClickHouse.
//!
//! [`LedgerExport::run`] reads the rows of the ledger in the order of their numbers, sends them in
//! batches, and stores its position in the ledger's database. A batch is sent again if it is
//! unknown whether it arrived, and the table replaces rows that it gets twice. So every row is sent
//! at least once and counted once. [`LedgerExport::check`] compares the ledger with the copy, day
//! by day.
//!
//! No request waits for ClickHouse. Rows are in the ledger first, and stay there while ClickHouse is away, slow or
//! full.
//!
//! | module | job |
//! |---|---|
//! | `clickhouse_client` | HTTP requests to ClickHouse, and what its errors mean |
//! | `table` | the columns, the statement that creates the table, the check of a table that is there |
//! | `row_json` | one row of the ledger as one line of JSON |
//! | `sent_numbers` | row numbers that were sent and may be read again |
//! | `exporter` | one step after the other: lock, rows, removed rows, rows that became visible late |
//! | `export_status` | what metrics and readiness show |
//! | `comparison` | sums of both sides, day by day |

mod clickhouse_client;
mod comparison;
mod export_error;
mod export_status;
mod exporter;
mod row_json;
mod sent_numbers;
mod table;

pub use clickhouse_client::ClickHouseTarget;
pub use comparison::{DayComparison, ExportComparison};
pub use export_error::ExportError;
pub use export_status::ExportStatus;
pub use exporter::{ExportOptions, ExportStep, ExportTask, LedgerExport, UNSENT_DAYS};
pub use table::{TABLE, create_table_statement};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
