//! Reads a journal's text into the core's types.
//!
//! A journal's line is read in two passes, without building a tree. The first pass checks the JSON itself, including
//! its nesting, and reads the fields that decide how the rest is read (the event's name, the header's version). The
//! second reads each field directly into the core's types. Numbers are read from their text, so that a decimal is exact
//! and never a float.

pub(crate) mod cursor;
pub(crate) mod event;
pub(crate) mod header;
mod lines;
pub(crate) mod number;
mod policy;
pub(crate) mod reader;
mod snapshot;
mod worker;
