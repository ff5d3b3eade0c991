//! Fairgate's database: groups, tenants and keys, budgets and their reservations, the ledger of attempts, the prices
//! that applied, and the audit trail of every change. The database is SQLite by default, or PostgreSQL if the URL says
//! so. One test suite runs on both.

mod attempt_search;
mod budget;
mod budget_levels;
mod calendar;
mod change;
mod change_validation;
mod clamp;
mod declaration_record;
mod declaration_rows;
mod declarations;
mod directory;
mod error;
mod export_lock;
mod installation_secret;
mod key_rights;
mod key_uses;
mod ledger;
mod ledger_export;
mod log_throttle;
mod migrations;
mod pending_permits;
mod postgres;
mod private_files;
mod reservation;
mod response_ids;
mod rows;
mod secret;
mod sessions;
mod spool;
mod sql;
mod sqlite;
mod store;
mod store_options;
mod stored_words;
mod sums;
mod transaction;

pub use attempt_search::{
    AttemptCursor, AttemptFilter, AttemptPage, AttemptSearch, SearchBound, SearchStop,
};
pub use budget::{
    Budget, BudgetBalance, BudgetExhausted, BudgetOwners, BudgetPeriod, BudgetScope, BudgetTier,
    BudgetUnit, HostedUse, ReservationGrant, ReservationRefused,
};
pub use budget_levels::budgets_used;
pub use change::undo::fields_to_set_back;
pub use declaration_record::{DeclarationRecord, DeclaredKind, DeclaredSource};
pub use declarations::{
    DeclarationAction, DeclarationConflict, DeclarationError, DeclarationPlan, DeclarationStep,
    Declarations, DeclaredObject, plan_declarations,
};
pub use directory::{
    Directory, DirectoryChange, DirectoryChangeResult, DirectoryLimits, GATEWAY_TENANT, Group,
    GroupPatch, Key, KeyPatch, Tenant, TenantPatch,
};
pub use error::StoreError;
pub use export_lock::ExportLock;
pub use fairgate_money::{Currency, MicroUnits, Price};
pub use fairgate_time::UnixMicros;
pub use fairgate_usage::{
    LeaseLost, TaskCapReached, TaskCapUnit, TaskClaim, UsageTerms, UsageWindow,
    WindowBudgetExhausted,
};
pub use installation_secret::InstallationSecret;
pub use key_rights::{
    DEADLINE_MS_MAX, KeyRights, PRIORITY_MAX, PRIORITY_MIN, RightsPatch, WEIGHT_MILLI_MAX,
};
pub use ledger::{
    AttemptOutcome, AttemptRow, AuditEntry, AuditQuery, ChargeColumn, HostedMaximum, LedgerQuery,
    PriceVersion, Reservation, ResolvedReservations, UsageGrouping, UsageQuery, UsageRow,
    UsageSource, UsageSums,
};
pub use ledger_export::{
    ExportBacklog, ExportFuture, ExportPosition, ExportedRowLimits, LedgerDaySums, NumberedAttempt,
    PrunedRows, RemovedAttempt,
};
pub use log_throttle::LogThrottle;
pub use postgres::{PostgresAddress, error_with_causes};
pub use private_files::private_folder;
pub use response_ids::StoredResponseId;
pub use secret::{KeyHash, KeySecret};
pub use store::{Store, StoreFuture, TransactionFuture as TransactionOutcome};
pub use store_options::StoreOptions;
pub use transaction::{DatabaseKind, RowColumns, SqlValue, Transaction, TransactionDurability};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
