//! The HTTP gateway: what carries requests between clients, the pools that decide, and the upstreams.
//!
//! Who decides what: what is refused *before* it is submitted (identity, body checks, rate limits, exhausted budgets, a
//! tenant's own limits on what it has waiting) is decided here. Everything about what waits, is in flight or is pushed out,
//! in-flight caps included, is decided by the core behind each pool's [`Gate`](fairgate_runtime::Gate), and is in the
//! journal.
//!
//! A request's way: [`identity`] → `forward` (reads the body, asks [`limits`] and the budgets, waits at the pool's gate,
//! reserves, calls the upstream, streams the answer through a meter, settles once) → the ledger.

pub mod admin;
pub mod app;
pub mod control;
mod fleet_options;
mod fleet_sight;
mod forward;
mod gateway;
mod held;
pub mod identity;
mod in_flight;
mod lag;
pub mod limits;
pub mod live;
pub mod metrics;
mod numbers;
mod occupation;
pub mod open_files;
mod phase;
pub mod pools;
mod recording;
mod refusal;
mod reply;
mod request_id;
mod response_ids;
mod retention;
mod server;
mod stream;
pub mod sync;
mod tls;
mod tree;
mod upstream;

pub use gateway::{Drained, Gateway, GatewayOptions, Listeners, ReloadError, StartError};
pub use phase::{Phase, Stage};
pub use tls::TlsError;
pub use upstream::UpstreamError;
