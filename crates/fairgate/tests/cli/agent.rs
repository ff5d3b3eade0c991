//! Tests of `fairgate agent run` with a fake gateway, which serves the agents' API and can fail at
//! will.

mod ends;
mod fake;
mod lease;
mod output;
mod signals;
mod started;
