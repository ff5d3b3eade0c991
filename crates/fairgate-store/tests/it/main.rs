//! What every store must do, on SQLite and on a real PostgreSQL.

mod budgets;
mod crash;
mod database;
mod directory;
mod ledger;
mod model;
mod postgres_only;
mod rows;
mod server;
mod sqlite_only;
