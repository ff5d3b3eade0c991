//! The HTTP gateway, which carries requests between clients, the pools that schedule them, and the upstreams.
//!
//! The gateway itself refuses requests only *before* they are submitted, because of their identity, their body, a rate
//! limit, an exhausted budget, or a tenant's own limits on its queue. Every decision about queued and in-flight
//! requests, evictions and in-flight caps included, is made by the core behind each pool's
//! [`Gate`](fairgate_runtime::Gate), and is in the journal.
//!
//! Path of a request: [`identity`] → `forward` (reads the body, checks [`limits`] and the budgets, reserves, waits at
//! the pool's gate, calls the upstream, streams the answer through a meter, settles once) → the ledger.

pub mod admin;
mod body_memory;
pub mod control_plane;
pub mod directory_sync;
mod fleet_calls;
mod fleet_options;
pub mod forward;
mod gateway;
pub mod identity;
mod lag_in_tokens;
pub mod limits;
pub mod live;
mod live_count;
mod maybe_tls_stream;
pub mod metrics;
pub mod open_files;
mod phase;
pub mod pools;
mod projects_cache;
mod provider_probe;
mod refusal;
mod reply;
mod request_id;
mod retention;
mod rounding;
mod server;
mod slot_time_price;
mod tls;
mod upstream;
mod upstream_failure;
mod webhooks;
mod worker_reporter;

pub use gateway::{
    Gateway, GatewayDrainReport, GatewayListeners, GatewayOptions, GatewayReloadError,
    GatewayStartError,
};
pub use phase::{GatewayLifecycle, GatewayPhase};
pub use tls::TlsError;
pub use upstream::UpstreamError;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
