//! What every store must do, on SQLite and on a real PostgreSQL.

mod budgets;
mod database;
mod directory;
mod ledger;
mod rows;
mod server;
