//! The async shell around one deterministic pool. One tokio task owns one [`Pool`](fairgate_core::Pool). All calls
//! reach that task through a [`Gate`].
//!
//! ```
//! # use fairgate_core::event::{PoolConfig, Submit};
//! # use fairgate_core::units::Tokens;
//! # use fairgate_runtime::{GateOptions, start};
//! # use std::time::Duration;
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
//! # runtime.block_on(async {
//! let policy = fairgate_journal::parse_policy(r#"{"share":{"by":"tenant"}}"#)?;
//! let config = PoolConfig { max_queue: Some(100), ..PoolConfig::new(2, policy) };
//! let gate = start(config, GateOptions::default())?;
//! let permit = gate.admit(Submit::new("r1")).await?;
//! // …the work, and then what it really used:
//! permit.settle(Tokens(812));
//! assert_eq!(gate.drain(Duration::from_secs(10)).await?.still_in_flight, 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The pool decides; the task delivers the decisions. A [`Permit`] gives its slot back exactly
//! once, even if its holder panics or is dropped. If a caller leaves before it has received its
//! grant, one lock decides whether the caller or the task gives the slot back (`handoff.rs`).
//!
//! # Bounds
//! Memory is bounded by these limits, whatever clients do:
//! - Requests queued in the pool: `max_queue`, without which no gate starts. Requests in flight: the pool's capacity.
//! - Submits and operator calls that the task has not read yet: [`GateOptions::turns`]. A caller that finds no free
//!   turn waits in its own future, first come, first served; nothing else is stored for the caller.
//! - Messages that report an end never wait for a turn, so that a `Drop` can send them. There are at most two for each
//!   permit (first token, end) and one for each abandoned admission, and every admission had a turn. Messages are read
//!   in order. Consider the moment at which the oldest unread message was sent. Every unread message is about a request
//!   that was queued, was in flight or had a turn at that moment. So at most 3 × (`max_queue` + capacity + turns)
//!   messages are unread at once.
//! - Flows: one for each value of an attribute that the policy shares by. The pool forgets an idle flow once its
//!   state no longer affects decisions; a `share` flow that is ahead of virtual time is kept until virtual time has
//!   passed it. A caller that lets clients choose such values must therefore bound how many exist at once.
//! - Text of one submit: [`MAX_SUBMIT_TEXT_BYTES`].
//! - Copies of the pool for [`Gate::whereabouts`]: one at a time.
//! - The journal: [`JournalOptions::buffer_bytes_max`] of lines or one batch, whichever is more, and at most one
//!   snapshot in the buffer and one being written; on disk [`JournalOptions::files_max`] files. The state file: one
//!   snapshot being written.
//!
//! The pool's time is the number of microseconds on tokio's clock since the pool first started. It
//! never goes back: after a restart it continues from the latest time in the state file and the
//! newest journal.
//!
//! # After a crash
//! A drain saves everything. A killed process loses what it had not passed to the operating system:
//! the last events of the journal, and the changes of scores since the last write of the state
//! file. Each file of the journal can still be replayed up to its last complete line. If the task
//! panics, which would be a bug, every caller gets an error at once. The journal then ends with the
//! event that caused the panic, if the disk still accepts it.

mod admission;
mod admit_error;
mod clock;
mod expected_wait;
mod flow_counts;
mod flow_totals;
mod gate;
mod gate_status;
mod handoff;
mod journal;
mod journal_lines;
mod mailbox;
mod message;
mod permit;
mod pool_task;
pub mod private_files;
mod start;
mod state_file;
mod submitted_request;
mod sync;
mod task_loop;
mod validate;
mod waiting_owners;

pub use admit_error::{AdmitError, GateChangeError, GateClosedError};
pub use expected_wait::{FlowGrants, RecentGrants, expected_wait};
pub use flow_counts::{FlowCounts, PoolFlows};
pub use flow_totals::{FlowTotals, WAIT_BOUNDS, WaitCounts};
pub use gate::Gate;
pub use gate_status::{
    DrainResult, GateCounts, GateStatus, JournalHealth, JournalStatus, StateHealth,
};
pub use journal::JournalOptions;
pub use permit::Permit;
pub use pool_task::DecisionObserver;
pub use start::{GateOptions, GateStartError, start};
pub use state_file::{StateFileError, StateFileOptions};
pub use validate::MAX_SUBMIT_TEXT_BYTES;
pub use waiting_owners::RequestOwner;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
