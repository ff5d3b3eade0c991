//! Requests, answers and their properties, from outside.
#![allow(clippy::unwrap_used)]

mod ask;
mod ask_properties;
mod corpus;
mod meter;
mod meter_properties;
mod recorded;
