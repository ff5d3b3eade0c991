//! The rules by which tasks and projects use tokens. They decide which claims are valid, how many
//! tokens are set aside, how usage leaves the rolling window, and which budgets have room.
//!
//! The store applies the rules to requests with a task key, and the fleet applies them in its
//! rounds and views. The rules are pure functions. If a rule also exists in SQL, the SQL is in the
//! same module as the function. This crate opens no database: a caller passes rows as
//! [`UsageColumns`], and runs statements by [`UsageWriter`].

mod agent_credit;
mod balances;
mod claim;
mod claim_charges;
mod database;
mod held_task;
mod rolling_window;
mod set_aside;
pub mod sql;

pub use agent_credit::CreditSums;
pub use balances::{UsageBalances, UsageTerms, WindowBudgetExhausted};
pub use claim::{LeaseLost, TaskCapReached, TaskCapUnit, TaskClaim};
pub use claim_charges::{ClaimCharges, ClaimUsage};
pub use database::{UsageColumns, UsageValue, UsageWriter};
pub use held_task::{HELD_STATES, is_held};
pub use rolling_window::{UsageWindow, WindowSums};
pub use set_aside::{SET_ASIDE_BY_PROJECT, set_aside};
