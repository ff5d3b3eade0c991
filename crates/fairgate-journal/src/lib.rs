//! The text form of events and decisions, as JSON lines that the gateway writes and a replay reads.
//!
//! The first line of a journal describes the pool at its start; each further line is one event:
//!
//! ```
//! use fairgate_journal::{JournalReader, JournalStart};
//!
//! let journal = br#"{"fairgate_journal":1,"pool":{"capacity":2,"policy":{"share":{"by":"tenant"}}}}
//! {"at":0,"event":"submit","id":"r1","tenant":"chat","cost":700}
//! {"at":9,"event":"release","id":"r1","tokens":812}
//! "#;
//! let (start, mut reader) = JournalReader::open(&journal[..])?;
//! assert!(matches!(&start, JournalStart::Fresh(config) if config.capacity == 2));
//! let mut pool = start.into_pool()?;
//! let mut decisions = Vec::new();
//! while let Some((at, event)) = reader.next_event()? {
//!     pool.apply(at, event, &mut decisions)?;
//! }
//! assert_eq!(decisions.len(), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A journal that continues another one starts with the pool's whole state at that time, so that it can be replayed
//! without the earlier one; see [`JournalWriter::write_snapshot`].
//!
//! Reading is strict. A field that is unknown, missing, given twice, of the wrong type or out of range makes the line
//! bad, and the error names the line and the field. Nothing is guessed and nothing is skipped.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod clock;
mod error;
pub mod explain_text;
mod journal_text_error;
mod log_line;
mod read;
pub mod schedule;
mod start;
mod write;

pub use clock::JournalClock;
pub use error::JournalError;
pub use log_line::{LogFieldValue, read_log_line, write_log_line};
pub use read::cursor::MAX_NESTING;
pub use read::header::{EDITION, VERSION, parse_policy, parse_pool_config};
pub use read::reader::{JournalReader, MAX_EVENT_LINE_BYTES, MAX_FIRST_LINE_BYTES};
pub use start::JournalStart;
pub use write::explain::{write_fairness, write_request_location};
pub use write::header::format_pool_config;
pub use write::policy::format_policy;
pub use write::writer::JournalWriter;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
