//! Tests of the text form of events, decisions and snapshots: every form, every error, and random
//! journals.

#![allow(clippy::unwrap_used, reason = "a test that fails here should stop here")]

mod seeds;

mod bad_lines;
mod continued;
mod editions;
mod explained;
mod hostile;
mod round_trip;
mod snapshots;
mod tampered;
mod vectors;
