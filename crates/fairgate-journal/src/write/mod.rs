//! Writes the core's types as compact text, with one line per event or decision and without fields that have their
//! default. Reading the text gives back equal values.

mod decision;
pub(crate) mod event;
pub(crate) mod explain;
pub(crate) mod header;
pub(crate) mod json;
pub(crate) mod policy;
mod snapshot;
pub(crate) mod writer;
