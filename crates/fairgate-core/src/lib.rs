//! The scheduler of Fairgate: a deterministic state machine, (state, now, event) → decisions.
//!
//! Nothing in this crate reads a clock, draws a random number, uses a float, waits, logs or talks to the
//! outside; time comes in with each event. The same events give the same decisions on every machine.

pub mod attribute;
pub mod decision;
pub mod event;
pub mod explain;
pub mod policy;
pub mod proportional;
pub mod units;
