//! `fairgate agent run` against a gateway of the test's own, which speaks the agents' API and can be broken at will.

mod ends;
mod fake;
mod lease;
mod output;
mod signals;
mod started;
