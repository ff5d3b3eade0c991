//! The wire types of Fairgate's APIs: what a client sends and what the gateway answers.
//!
//! | module | API |
//! |---|---|
//! | [`admin`] | the directory, budgets, pools, the live view, requests and the ledger, for operators |
//! | [`fleet`] | projects, tasks, agents and workspaces, for operators and tenants |
//! | [`agents`] | claims, heartbeats and reports, for agents |
//! | [`leases`] | slots for programs that call a provider themselves |
//! | [`prompt_fields`] | fields of a task's prompt, such as `{{results.schema}}` |
//! | [`error`] | error responses of all of them |
//! | `client` | an HTTP client for them, with the feature `client` |
//! | [`event_stream`] | events that a response sends as they happen |
//!
//! Each type is defined only here. The gateway writes it, the command line, agents and tests read
//! it, and the OpenAPI document is generated from it. If a field is renamed, every user of the
//! field fails to compile. This crate depends on neither the store nor the fleet; both may use its
//! types.
//!
//! Fields that clients send are read strictly: an unknown field is an error. Fields that the gateway answers are read
//! leniently, so that an older client works with a newer gateway.

pub mod admin;
pub mod agents;
#[cfg(feature = "client")]
pub mod client;
pub mod error;
pub mod event_stream;
pub mod fleet;
mod json_field;
pub mod leases;
pub mod prompt_fields;
pub mod rights;
pub mod weight_number;
mod whole_number;

pub use rights::{RightsBody, RightsPatchBody};
pub use weight_number::WeightNumber;
pub use whole_number::JsonWholeNumber;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
