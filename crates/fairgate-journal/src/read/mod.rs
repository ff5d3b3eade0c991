//! From text to the core's types.
//!
//! A journal's line is walked twice, without building a tree. The first walk checks the JSON itself, its nesting
//! included, and picks up what says how to read the rest (the event's name, the header's version); the second
//! reads each field straight into the core's types. Numbers are taken from their text, so that a decimal is
//! exact and never a float.

pub(crate) mod cursor;
mod event;
pub(crate) mod fault;
pub(crate) mod header;
mod lines;
pub(crate) mod number;
mod policy;
pub(crate) mod reader;
mod snapshot;
mod worker;
