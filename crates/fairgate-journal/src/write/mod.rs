//! From the core's types to text: compact, one line per event or decision, what has its default left out.
//! Reading what was written gives back the same values.

mod decision;
mod event;
pub(crate) mod explain;
mod header;
pub(crate) mod json;
pub(crate) mod policy;
mod snapshot;
pub(crate) mod writer;
