//! State that all requests share.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use fairgate_config::Config;
use fairgate_store::{InstallationSecret, LogThrottle, Store, StoreError};
use tokio::time::timeout;

use super::ended_rows::EndedRows;
use super::leases::LeaseTable;
use super::recent_refusals::RecentRefusals;
use super::response_id_owners::ResponseIdOwners;
use crate::body_memory::BodyMemory;
use crate::directory_sync::DirectorySync;
use crate::fleet_calls::FleetCalls;
use crate::identity::CallerDirectory;
use crate::limits::CallerLimits;
use crate::live_count::LiveCount;
use crate::metrics::Metrics;
use crate::phase::GatewayLifecycle;
use crate::pools::Pools;
use crate::price_set_audit::PriceSetAudit;
use crate::request_id::RequestIdGenerator;

/// State of the data plane, which carries requests. There is one per process, shared in an `Arc`.
pub struct DataPlane {
    /// Configuration in force; replaced by a reload.
    pub config: Arc<ArcSwap<Config>>,
    /// Database with the tenants, keys, ledger and budgets.
    pub store: Store,
    /// The calls to the fleet that requests need.
    pub(crate) fleet: Arc<dyn FleetCalls>,
    /// The directory in memory, which identifies callers.
    pub identity: Arc<CallerDirectory>,
    /// Rates and queue limits of each tenant and key, checked before a request is submitted.
    pub limits: Arc<CallerLimits>,
    /// Numbers that `/metrics` exposes to Prometheus.
    pub metrics: Metrics,
    /// Sends the row of each ended attempt to its subscribers.
    pub ended: EndedRows,
    /// Recent refusals, by pool and owner.
    pub refusals: Arc<RecentRefusals>,
    /// Pools of workers and their upstreams.
    pub pools: Arc<Pools>,
    /// Applies the directory to the keys, limits and pools.
    pub directory_sync: DirectorySync,
    /// Phase of the gateway: serving, draining or closing.
    pub phase: Arc<GatewayLifecycle>,
    /// Generates the id of each new request.
    pub(crate) request_ids: RequestIdGenerator,
    /// Owner tenant of each stored response and conversation that a request may continue.
    pub(crate) response_ids: ResponseIdOwners,
    /// Leases of programs that call providers themselves.
    pub(crate) leases: LeaseTable,
    /// Count of the bytes that request bodies hold in memory.
    pub(crate) body_memory: BodyMemory,
    /// Limits how often log lines of one cause are written, for failures of the database and of providers.
    pub(crate) log_throttle: Arc<LogThrottle<&'static str>>,
    /// Key of the salts that keep prompts apart in engines' caches; the same for all gateways on the database.
    pub(crate) salt_secret: InstallationSecret,
    /// Number of row writes that run without a request waiting for them. A drain waits until it is
    /// 0.
    pub(crate) detached_rows: LiveCount,
    /// Price sets of worker time that still have to be written to the audit trail.
    pub(crate) price_sets: Arc<PriceSetAudit>,
}

impl DataPlane {
    /// Waits until no lease is running, and then until the row writes that no request waits for are
    /// done. Each of the two waits takes at most `limit`.
    pub async fn wait_settled(&self, limit: Duration) {
        let _ = timeout(limit, self.leases.running.wait_none()).await;
        let _ = timeout(limit, self.detached_rows.wait_none()).await;
    }

    /// Writes the ids of responses that are not in the database yet.
    pub async fn write_response_ids(&self) -> Result<(), StoreError> {
        let most = self.config.load().limits.response_ids_per_tenant_max;
        self.response_ids.flush(&self.store, most).await
    }

    /// Writes the price sets of worker time that are not in the audit trail yet.
    pub async fn write_price_sets(&self) -> Result<(), StoreError> {
        self.price_sets.write(&self.pools, &self.store).await
    }

    /// Returns the number of other gateways on the database, as of the last query.
    pub fn other_gateways(&self) -> u64 {
        self.price_sets.other_gateways()
    }
}
