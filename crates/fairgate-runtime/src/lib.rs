//! The async shell around one deterministic pool: one tokio task owns one [`Pool`](fairgate_core::Pool), and
//! everything that happens to it reaches it through a [`Gate`].
//!
//! ```
//! # use fairgate_core::event::{PoolConfig, Submit};
//! # use fairgate_core::units::Tokens;
//! # use fairgate_runtime::{Options, start};
//! # use std::time::Duration;
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
//! # runtime.block_on(async {
//! let policy = fairgate_journal::parse_policy(r#"{"share":{"by":"tenant"}}"#)?;
//! let config = PoolConfig { max_queue: Some(100), ..PoolConfig::new(2, policy) };
//! let gate = start(config, Options::default())?;
//! let permit = gate.admit(Submit::new("r1")).await?;
//! // …the work, and then what it really used:
//! permit.settle(Tokens(812));
//! assert_eq!(gate.drain(Duration::from_secs(10)).await?.still_in_flight, 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The pool decides, the task carries. A [`Permit`] gives its slot back exactly once, whatever happens to whoever
//! holds it. Where a caller leaves while its grant is on the way, one lock decides who learns of it and gives the
//! slot back (`handoff.rs`).
//!
//! # Bounds
//! Nothing grows with what clients do beyond these:
//! - What waits in the pool: `max_queue`, without which no gate starts. What is in flight: the pool's capacity.
//! - Submits and operators' wishes that the task has not read: [`Options::turns`]. Who finds none free waits in its
//!   own future, first come, first served; nothing is kept for it elsewhere.
//! - Letters that say that something has ended never wait for a turn, so that a `Drop` can send them. There are at
//!   most two for each permit (first token, end) and one for each admission that was left, and an admission had a
//!   turn. Letters are read in order, so what an unread one is about was live, or had a turn, when the oldest unread
//!   one was sent: at most 3 × (`max_queue` + capacity + turns) are unread at once.
//! - Flows: one for each value of an attribute that the policy shares by. The pool forgets an idle flow once nothing of it
//!   matters any more; a `share` flow that is ahead of virtual time is kept until virtual time has passed it. So a caller
//!   that lets clients choose such values must bound how many there can be at once.
//! - The text of one submit: [`MAX_SUBMIT_TEXT_BYTES`].
//! - Copies of the pool for [`Gate::whereabouts`]: one at a time.
//! - The journal: [`JournalOptions::buffer_bytes_max`] of lines or one batch, whichever is more, and at most one
//!   snapshot in the buffer and one being written; on disk [`JournalOptions::files_max`] files. The state file: one
//!   snapshot being written.
//!
//! # Time
//! The pool's time is microseconds on tokio's clock since the pool first started. It never goes back: a restart goes
//! on from the latest of the state file and the newest journal.
//!
//! # What survives what
//! A drain saves everything. A killed process loses what had not been passed to the system: the journal's last
//! moments (each file still replays, to its last whole line), and scores since the state file was last written. If the
//! task panics, which would be a bug, every caller has an error at once, and the journal ends with the event that did
//! it, as far as the disk takes it.

mod admission;
mod carrier;
mod check;
mod clock;
mod desk;
mod gate;
mod handoff;
mod journal;
mod live;
mod mailbox;
mod message;
mod pace;
mod permit;
mod refused;
mod start;
mod state;
mod sync;
mod tape;

pub use check::MAX_SUBMIT_TEXT_BYTES;
pub use desk::Watch;
pub use gate::Gate;
pub use journal::JournalOptions;
pub use live::{Counts, Drained, JournalHealth, JournalStatus, Live, StateHealth};
pub use permit::Permit;
pub use refused::{ChangeError, Closed, Refused};
pub use start::{Options, StartError, start};
pub use state::{StateError, StateOptions};
