//! `fairgate prove`: a published experiment, run over real sockets and judged from three independent accounts.
//!
//! One process holds simulated backends, a real gateway with its database and its journal, and clients that each keep a
//! connection of their own and ask again as soon as they have their answer. A small tenant floods the pool; when it is full,
//! the others join; in the end everybody finishes. Then [`judge`](judge::judge) compares what the journal, the ledger and
//! the clients say, and measures the service of each against its ideal and the bound that the scheduler is proven to keep.
//!
//! ```no_run
//! use fairgate_prove::observe::Nobody;
//! use fairgate_prove::scenario::{Pace, scenarios};
//! use fairgate_prove::{RunOptions, run};
//!
//! for scenario in scenarios(Pace::Normal) {
//!     let report = run(&scenario, &RunOptions::default(), &mut Nobody)?;
//!     assert!(report.passed(), "{:?}", report.bars);
//! }
//! # Ok::<(), fairgate_prove::ProveError>(())
//! ```
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod answer;
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
mod service;
mod slots;
mod world;

pub use error::ProveError;
pub use run::{RunOptions, run};
