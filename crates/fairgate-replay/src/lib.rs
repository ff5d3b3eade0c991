//! Replays journals of Fairgate's pools.
//!
//! # Order of calls
//!
//! 1. Choose the files: [`ReplayPlan::of_file`], or [`ReplayPlan::of_folder`] for the folder of a pool's journal and a
//!    time range.
//! 2. [`ReplayJournal::open`] returns the pool at the beginning of the range, and the journal from there on.
//! 3. [`replay`] applies the events, and calls a [`ReplayListener`]: [`DecisionPrinter`], [`HistoryCollector`] or
//!    [`SilentListener`]. [`replay_under`] does the same under another policy.
//! 4. [`policy_diff`] runs both passes of a what-if, and compares them.
//!
//! `fairgate replay` and the gateway's `POST /api/v1/what-if` are thin layers over this crate, so their results are
//! equal.

mod decisions;
mod diff;
mod edition;
mod error;
mod explain;
pub mod fairness;
mod files;
mod flow_tally;
mod journal;
mod live_requests;
mod other_policy;
mod path;
mod recording;
mod runs;
mod shown_unit;
mod steps;
pub mod text_format;
mod what_if;

pub use decisions::DecisionPrinter;
pub use diff::{DiffColumn, PolicyDiff};
pub use edition::OtherEdition;
pub use error::ReplayError;
pub use explain::HistoryCollector;
pub use files::{ReplayPlan, ReplayRange};
pub use journal::{InputOpener, ProgressListener, ReplayJournal};
pub use other_policy::{FlowWeight, OtherPolicy};
pub use runs::{DiffRun, JournalOpener, policy_diff, replay_under};
pub use shown_unit::ShownUnit;
pub use steps::{ReplayListener, ReplayStep, SilentListener, replay};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
