//! What Fairgate remembers: groups, tenants and keys, budgets and their reservations, the ledger of attempts, and the
//! audit trail of every change. SQLite by default, PostgreSQL by URL; one suite of tests runs on both.

mod calendar;
mod change;
mod check;
mod directory;
mod error;
mod fit;
mod ledger;
mod migrations;
mod postgres;
mod private;
mod rows;
mod secret;
mod spool;
mod sql;
mod sqlite;
mod store;
mod sums;
mod throttle;
mod turns;
mod words;

pub use directory::{
    Budget, Change, Changed, Directory, Group, GroupPatch, Key, KeyPatch, Limits, Period, Tenant,
    TenantPatch, UnixMicros,
};
pub use error::StoreError;
pub use ledger::{
    Attempt, AuditEntry, AuditQuery, BudgetLeft, By, Exhausted, LedgerQuery, Outcome, Reservation,
    Resolved, Scope, UsageQuery, UsageRow, UsageSource,
};
pub use secret::{KeyHash, Secret};
pub use store::{Answer, Store, StoreOptions};
pub use throttle::Throttle;
