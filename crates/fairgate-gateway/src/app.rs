//! State that all handlers share.

use arc_swap::ArcSwap;
use fairgate_config::Config;
use fairgate_fleet::Fleet;
use fairgate_store::{InstallationSecret, KeyHash, LogThrottle, Store};

use crate::body_memory::BodyMemory;
use crate::control_plane::ControlPlane;
use crate::forward::LeaseTable;
use crate::identity::CallerDirectory;
use crate::limits::CallerLimits;
use crate::live_count::LiveCount;
use crate::metrics::Metrics;
use crate::phase::GatewayLifecycle;
use crate::pools::Pools;
use crate::request_id::RequestIdGenerator;
use crate::response_ids::ResponseIdOwners;

/// State of the running gateway. There is one per process, shared by all handlers in an `Arc`.
pub struct App {
    /// Configuration in force; replaced by a reload.
    pub config: ArcSwap<Config>,
    /// Database with the tenants, keys, ledger and budgets.
    pub store: Store,
    /// The fleet's projects, tasks and agents, in the store's database.
    pub fleet: Fleet,
    /// The directory in memory, which identifies callers.
    pub identity: CallerDirectory,
    /// Rates and queue limits of each tenant and key, checked before a request is submitted.
    pub limits: CallerLimits,
    /// Numbers that `/metrics` exposes to Prometheus.
    pub metrics: Metrics,
    /// Pools of workers and their upstreams.
    pub pools: Pools,
    /// Hash of the admin token; replaced by a reload.
    pub admin_token: ArcSwap<KeyHash>,
    /// State that the control plane keeps between requests, such as cached snapshots and the reloader.
    pub control: ControlPlane,
    /// Phase of the gateway: serving, draining or closing.
    pub phase: GatewayLifecycle,
    /// Generates the id of each new request.
    pub(crate) request_ids: RequestIdGenerator,
    /// Owner tenant of each stored response and conversation that a request may continue.
    pub(crate) response_ids: ResponseIdOwners,
    /// Leases of programs that call providers themselves.
    pub(crate) leases: LeaseTable,
    /// Count of the bytes that request bodies hold in memory.
    pub(crate) body_memory: BodyMemory,
    /// Limits how often log lines of one cause are written, for failures of the database and of providers.
    pub(crate) log_throttle: LogThrottle<&'static str>,
    /// Key of the salts that keep prompts apart in engines' caches; the same for all gateways on the database.
    pub(crate) salt_secret: InstallationSecret,
    /// Count of the row writes that no request waits for any more. A drain waits until the count is 0.
    pub(crate) detached_rows: LiveCount,
}
