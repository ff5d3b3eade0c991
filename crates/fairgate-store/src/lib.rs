//! What Fairgate remembers: groups, tenants and keys, budgets and their reservations, the ledger of attempts, the prices
//! that applied, and the audit trail of every change. SQLite by default, PostgreSQL by URL; one suite of tests runs on both.

mod budget;
mod calendar;
mod change;
mod check;
mod claims;
mod decide;
mod directory;
mod error;
mod fit;
pub mod fleet;
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
mod transaction;
mod turns;
mod words;

pub use budget::{
    Budget, BudgetLeft, BudgetTier, Exhausted, Granted, HostedUse, Owners, Period, Refused, Scope,
    Unit,
};
pub use claims::{FleetExhausted, FleetTerms, LeaseLost};
pub use directory::{
    AllowedTaints, Change, Changed, Directory, Group, GroupPatch, Key, KeyPatch, Limits,
    PRIORITY_MAX, PRIORITY_MIN, Rights, Tenant, TenantPatch,
};
pub use error::StoreError;
pub use fairgate_money::{Currency, MicroUnits, Price, UnixMicros};
pub use fleet::{TaskClaim, Window};
pub use ledger::{
    Attempt, AuditEntry, AuditQuery, By, HostedMost, LedgerQuery, Outcome, PriceVersion,
    Reservation, Resolved, UsageQuery, UsageRow, UsageSource,
};
pub use secret::{KeyHash, Secret};
pub use store::{Answer, Outcome as TransactionOutcome, Store, StoreOptions};
pub use throttle::Throttle;
pub use transaction::{Columns, Database, Keep, Transaction, Value};
