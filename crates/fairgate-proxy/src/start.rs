//! Starts the data plane, with the tasks that run beside requests.

use std::sync::Arc;

use arc_swap::ArcSwap;
use fairgate_config::Config;
use fairgate_store::{GATEWAY_TENANT, LogThrottle, Store, StoreError};
use tokio::task::JoinHandle;

use crate::body_memory::BodyMemory;
use crate::directory_sync::{DeclarationWatch, DirectorySync, PoolSync};
use crate::fleet_calls::FleetCalls;
use crate::forward::{self, DataPlane, EndedRows, LeaseTable, ResponseIdOwners, SALT_SECRET_NAME};
use crate::identity::CallerDirectory;
use crate::limits::CallerLimits;
use crate::live_count::LiveCount;
use crate::metrics::Metrics;
use crate::phase::GatewayLifecycle;
use crate::pools::{self, Pools, PoolsError};
use crate::price_set_audit::PriceSetWriter;
use crate::provider_probe;
use crate::request_id::RequestIdGenerator;

/// Reason why the data plane did not start.
#[derive(Debug, thiserror::Error)]
pub enum DataPlaneStartError {
    /// A pool or an upstream could not be started.
    #[error(transparent)]
    Pools(#[from] PoolsError),
    /// The database could not be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The system provides no random numbers.
    #[error("the system gives no random numbers: {0}")]
    Random(getrandom::Error),
}

impl DataPlane {
    /// Reads the directory and starts the pools, on this tokio runtime. When this returns, the
    /// pools have the directory's weights and caps. Nothing listens yet, and the tasks of
    /// [`spawn_background`](Self::spawn_background) do not run yet.
    pub async fn start(
        config: Config,
        store: Store,
        fleet: Arc<dyn FleetCalls>,
    ) -> Result<Self, DataPlaneStartError> {
        let identity = Arc::new(CallerDirectory::load(&store).await?);
        warn_of_reserved_name(&identity);
        let limits = Arc::new(CallerLimits::new());
        let pools = Arc::new(Pools::start(&config).await?);
        let directory_sync = DirectorySync {
            store: store.clone(),
            fleet: fleet.clone(),
            identity: identity.clone(),
            limits: limits.clone(),
            pools: pools.clone(),
            last_sent: PoolSync::default(),
            declarations: DeclarationWatch::default(),
        };
        directory_sync.refresh().await?;
        Ok(Self {
            fleet,
            identity,
            limits,
            metrics: Metrics::new(config.metrics.tenants_max),
            ended: EndedRows::default(),
            refusals: Arc::default(),
            pools,
            directory_sync,
            phase: Arc::new(GatewayLifecycle::default()),
            request_ids: RequestIdGenerator::new().map_err(DataPlaneStartError::Random)?,
            response_ids: ResponseIdOwners::default(),
            leases: LeaseTable::default(),
            body_memory: BodyMemory::default(),
            salt_secret: store.installation_secret(SALT_SECRET_NAME).await?,
            log_throttle: Arc::new(LogThrottle::default()),
            detached_rows: LiveCount::default(),
            price_sets: Arc::default(),
            config: Arc::new(ArcSwap::from_pointee(config)),
            store,
        })
    }

    /// Starts the tasks that run beside requests. They follow the directory, write the ids of
    /// responses, keep learned rates, follow the DNS names of workers, probe providers' accounts,
    /// and write price sets of workers.
    pub fn spawn_background(self: &Arc<Self>) -> Vec<JoinHandle<()>> {
        let app = self.clone();
        let following = async move { app.directory_sync.refresh_until_closed(&app.phase).await };
        let learned = pools::keep_learned(
            self.pools.clone(),
            self.config.clone(),
            self.phase.clone(),
            self.log_throttle.clone(),
        );
        let names = pools::follow_names(self.pools.clone(), self.log_throttle.clone());
        let price_sets = PriceSetWriter {
            audit: self.price_sets.clone(),
            pools: self.pools.clone(),
            store: self.store.clone(),
            phase: self.phase.clone(),
            log_throttle: self.log_throttle.clone(),
        };
        vec![
            tokio::spawn(following),
            tokio::spawn(forward::store_ids(self.clone())),
            tokio::spawn(learned),
            tokio::spawn(names),
            tokio::spawn(provider_probe::run_probes(self.clone())),
            tokio::spawn(price_sets.run()),
        ]
    }
}

/// Warns if a tenant or group has the name that the ledger uses for the gateway's own requests.
/// Such a name may come from an earlier version.
fn warn_of_reserved_name(identity: &CallerDirectory) {
    let directory = identity.directory();
    let is_taken = directory.tenants.iter().any(|tenant| tenant.name == GATEWAY_TENANT)
        || directory.groups.iter().any(|group| group.name == GATEWAY_TENANT);
    if is_taken {
        tracing::warn!(
            name = GATEWAY_TENANT,
            "a tenant or group is called as the gateway's own requests are in the ledger: its usage and budgets count these \
             too. Move its keys to a tenant with another name"
        );
    }
}
