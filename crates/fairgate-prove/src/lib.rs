//! `fairgate prove`: a published experiment, run over real sockets and judged from three
//! independent accounts.
//!
//! One process holds the simulated backends, a real gateway with its database and its journal, and
//! the clients. Each client keeps one connection and sends its next request as soon as it has the
//! answer to the previous one. A small tenant floods the pool; when the pool is full, the other
//! tenants join; at the end all clients finish. Then [`judge`](judge::judge) compares the journal,
//! the ledger and the clients' results. The judge also compares the service of each tenant with the
//! tenant's ideal and with the scheduler's proven bound.
//!
//! ```no_run
//! use fairgate_prove::observe::SilentObserver;
//! use fairgate_prove::scenario::{ExperimentLength, scenarios};
//! use fairgate_prove::{RunOptions, run};
//!
//! for scenario in scenarios(ExperimentLength::Normal) {
//!     let report = run(&scenario, &RunOptions::default(), &mut SilentObserver)?;
//!     assert!(report.passed(), "{:?}", report.bars);
//! }
//! # Ok::<(), fairgate_prove::ProveError>(())
//! ```
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod answer_parser;
mod client;
mod error;
pub mod evidence;
mod fleet;
mod folder;
pub mod judge;
pub mod observe;
pub mod render;
mod replay;
pub mod report;
mod run;
pub mod scenario;
mod servers;
mod service;
mod slots;

pub use error::ProveError;
pub use run::{RunOptions, run};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
