//! Tests of the crate's public interface, with requests and answers.
#![allow(clippy::unwrap_used)]

mod ask;
mod ask_properties;
mod corpus;
mod limits;
mod limits_properties;
mod limits_refusals;
mod meter;
mod meter_properties;
mod prompt;
mod recorded;
