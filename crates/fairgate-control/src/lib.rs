//! The control plane of the gateway, which shows and changes the data plane: the admin API with its OpenAPI document, the
//! live view, the metrics, the fleet's API for agents and its webhooks, the export of the ledger, and the
//! removal of old rows.
//!
//! [`control_plane`] holds what the control plane keeps between requests. No request to a model
//! passes through this crate, so a fault here does not delay such a request.

pub mod admin;
pub mod control_plane;
mod event_hub;
mod export_setup;
mod lag_in_tokens;
pub mod ledger_export;
pub mod live;
mod login_tries;
pub mod metrics;
mod projects_cache;
pub mod retention;
mod revoked_sessions;
pub mod webhooks;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
