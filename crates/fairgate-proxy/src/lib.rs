//! The data plane of the gateway, which carries requests between clients, the pools that schedule them, and the
//! upstreams.
//!
//! The data plane itself refuses requests only *before* they are submitted: because of their
//! identity, their body, a rate limit, an exhausted budget, or a tenant's own limits on its queue.
//! The core behind each pool's [`Gate`](fairgate_runtime::Gate) makes every decision about queued
//! and in-flight requests, including evictions and in-flight caps. All these decisions are in the
//! journal.
//!
//! Path of a request: [`server`] → [`identity`] → [`forward`] (reads the body, checks [`limits`]
//! and the budgets, reserves, waits at the pool's gate, calls the upstream, streams the answer
//! through a meter, settles once) → the ledger. No module here uses the control plane. The fleet is
//! used only through the calls of [`fleet_calls`].

mod body_memory;
pub mod directory_sync;
mod fast_map;
pub mod fleet_calls;
pub mod forward;
mod gateway_name;
pub mod identity;
pub mod limits;
mod live_count;
pub mod maybe_tls_stream;
pub mod metrics;
pub mod open_files;
pub mod phase;
pub mod pools;
mod price_set_audit;
mod provider_probe;
pub mod refusal;
mod reply;
mod request_id;
pub mod rounding;
pub mod server;
mod slot_time_books;
mod start;
pub mod tls;
mod upstream;
mod upstream_failure;
mod worker_reporter;
mod worker_time;

pub use gateway_name::gateway_name;
pub use start::DataPlaneStartError;
pub use upstream::{UpstreamError, UpstreamProbe, probe_upstream};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
