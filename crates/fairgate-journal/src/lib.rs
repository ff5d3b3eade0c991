//! The text form of events and decisions: JSON lines, as production writes them and a replay reads them.
//!
//! A journal's first line says how the pool starts, each further line is one event:
//!
//! ```
//! use fairgate_journal::{Reader, Start};
//!
//! let journal = br#"{"fairgate_journal":1,"pool":{"capacity":2,"policy":{"share":{"by":"tenant"}}}}
//! {"at":0,"event":"submit","id":"r1","tenant":"chat","cost":700}
//! {"at":9,"event":"release","id":"r1","tokens":812}
//! "#;
//! let (start, mut reader) = Reader::open(&journal[..])?;
//! assert!(matches!(&start, Start::Fresh(config) if config.capacity == 2));
//! let mut pool = start.into_pool()?;
//! let mut decisions = Vec::new();
//! while let Some((at, event)) = reader.next_event()? {
//!     pool.apply(at, event, &mut decisions)?;
//! }
//! assert_eq!(decisions.len(), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A journal that goes on from where another was cut starts with the pool's whole state then, so that it
//! replays by itself: see [`Writer::write_snapshot`].
//!
//! Reading is strict. A field that is unknown, missing, given twice, of the wrong type or out of range makes
//! the line bad, and the error names the line and the field: nothing is guessed, nothing is skipped.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod clock;
mod error;
mod read;
pub mod schedule;
mod start;
mod write;

pub use clock::Clock;
pub use error::JournalError;
pub use read::cursor::MAX_NESTING;
pub use read::header::{VERSION, parse_policy};
pub use read::reader::{MAX_EVENT_LINE_BYTES, MAX_FIRST_LINE_BYTES, Reader};
pub use start::Start;
pub use write::explain::{write_fairness, write_whereabouts};
pub use write::policy::format_policy;
pub use write::writer::Writer;
