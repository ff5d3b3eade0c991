//! The text form of events and decisions: JSON lines, as production writes them and a replay reads them.
//!
//! A journal's first line says how the pool starts, each further line is one event:
//!
//! ```
//! use fairgate_core::event::Event;
//! use fairgate_core::units::Micros;
//! use fairgate_journal::{Reader, Start};
//!
//! let journal = br#"{"fairgate_journal":1,"pool":{"capacity":2,"policy":{"share":{"by":"tenant"}}}}
//! {"at":0,"event":"submit","id":"r1","tenant":"chat","cost":700}
//! {"at":9,"event":"release","id":"r1","tokens":812}
//! "#;
//! let (start, mut reader) = Reader::open(&journal[..])?;
//! let Start::Fresh(config) = start;
//! assert_eq!(config.capacity, 2);
//! let mut events = 0;
//! while let Some((at, event)) = reader.next_event()? {
//!     assert!(at <= Micros(9));
//!     assert!(matches!(event, Event::Submit(_) | Event::Release { .. }));
//!     events += 1;
//! }
//! assert_eq!(events, 2);
//! # Ok::<(), fairgate_journal::JournalError>(())
//! ```
//!
//! Reading is strict. A field that is unknown, missing, given twice, of the wrong type or out of range makes
//! the line bad, and the error names the line and the field: nothing is guessed, nothing is skipped.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod error;
mod read;
pub mod schedule;
mod write;

pub use error::JournalError;
pub use read::cursor::MAX_NESTING;
pub use read::header::{Start, VERSION, parse_policy};
pub use read::reader::{MAX_EVENT_LINE_BYTES, MAX_FIRST_LINE_BYTES, Reader};
pub use write::policy::format_policy;
pub use write::writer::Writer;
