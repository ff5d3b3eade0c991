//! The text form of events, decisions and snapshots.

pub mod schedule;
