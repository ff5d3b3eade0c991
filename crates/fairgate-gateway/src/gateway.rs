//! Starts and reloads the whole gateway. The module `shutdown` ends it.

mod fleet_of_callers;
mod shutdown;

pub use shutdown::GatewayDrainReport;

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use arc_swap::ArcSwap;
use fairgate_config::{Config, ConfigErrors, ConfigReload, ReloadPlan};
use fairgate_fleet::{Fleet, SystemClock};
use fairgate_money::ModelPrices;
use fairgate_store::{DirectoryChange, GATEWAY_TENANT, KeyHash, LogThrottle, Store, StoreError};
use tokio::net::TcpListener;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

use crate::admin;
use crate::body_memory::BodyMemory;
use crate::control_plane::ControlPlane;
use crate::directory_sync::{DirectorySync, PoolSync};
use crate::fleet_options::fleet_options;
use fairgate_time::wall_clock;

use crate::forward::{self, DataPlane, LeaseTable, ResponseIdOwners, SALT_SECRET_NAME};
use crate::gateway::fleet_of_callers::FleetOfCallers;
use crate::identity::CallerDirectory;
use crate::limits::CallerLimits;
use crate::live_count::LiveCount;
use crate::metrics::Metrics;
use crate::phase::{GatewayLifecycle, GatewayPhase};
use crate::pools::{self, Pools, PoolsError};
use crate::provider_probe;
use crate::request_id::RequestIdGenerator;
use crate::retention;
use crate::server::{GatewayServer, ListenerRoutes, bind};
use crate::tls::{self, TlsError};
use crate::webhooks;

/// The inputs for starting a gateway.
pub struct GatewayOptions {
    /// Configuration, already checked; replaced by [`Gateway::reload`].
    pub config: Config,
    /// Store, already open, for the directory, the ledger and the fleet.
    pub store: Store,
    /// Hash of the admin token.
    pub admin_token: KeyHash,
}

/// Addresses of a gateway that are bound and not served yet. They are bound first, so that a gateway that cannot listen
/// fails before it has changed anything.
#[derive(Debug)]
pub struct GatewayListeners {
    clients: (SocketAddr, TcpListener),
    admin: Option<(SocketAddr, TcpListener)>,
}

impl GatewayListeners {
    /// Binds the configured addresses, on this tokio runtime. Port 0 binds any free port.
    pub fn bind(config: &Config) -> Result<Self, GatewayStartError> {
        let listen = |address| {
            let bound = bind(address).and_then(|bound| Ok((bound.local_addr()?, bound)));
            bound.map_err(|source| GatewayStartError::Listen { address, source })
        };
        let clients = listen(config.listen)?;
        let admin = config.admin.listen.map(listen).transpose()?;
        Ok(Self { clients, admin })
    }
}

/// A running gateway. If it is dropped without [`drain`](Self::drain), it stops listening and cuts its connections.
pub struct Gateway {
    data: Arc<DataPlane>,
    control: Arc<ControlPlane>,
    server: Arc<GatewayServer>,
    addr: SocketAddr,
    admin_addr: SocketAddr,
    listening: Vec<JoinHandle<()>>,
    /// Allows one reload at a time.
    reloading: Mutex<()>,
}

/// A reason for which a gateway did not start.
#[derive(Debug, thiserror::Error)]
pub enum GatewayStartError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// Address in the configuration that could not be bound.
        address: SocketAddr,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The certificate or its key cannot be used.
    #[error("tls: {0}")]
    Tls(#[from] TlsError),
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

/// Reason why a new configuration was not put in force. After such an error nothing has changed.
#[derive(Debug, thiserror::Error)]
pub enum GatewayReloadError {
    /// The configuration changes fields that are fixed while the gateway runs.
    #[error(transparent)]
    Config(#[from] ConfigErrors),
    /// The certificate or its key cannot be used.
    #[error("tls: {0}")]
    Tls(#[from] TlsError),
    /// A pool or an upstream could not be prepared.
    #[error(transparent)]
    Pools(#[from] PoolsError),
    /// The prices could not be stored in the database, where each row that names a price needs them.
    #[error("the prices cannot be kept: {0}")]
    Store(#[from] StoreError),
}

/// Stores the prices in force in the database, for the rows that will name them. Prices that the database does not have
/// yet are audited as a change that the configuration file made.
async fn keep_prices(store: &Store, prices: &ModelPrices) -> Result<(), StoreError> {
    if prices.is_empty() {
        return Ok(());
    }
    let keep = DirectoryChange::KeepPrices { prices: prices.all().cloned().collect() };
    store.change("config", wall_clock::now(), keep).await.map(drop)
}

/// Warns if a tenant or group has the name under which the ledger keeps the gateway's own requests. Such a name may
/// come from an earlier version.
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

/// A boxed future. The box makes the compiler compile the whole gateway in this crate, and not again in every crate
/// that awaits the future.
type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

impl Gateway {
    /// Starts a gateway on this tokio runtime: binds its addresses, starts its pools, and begins to serve. Port 0 binds
    /// any free port.
    pub async fn start(options: GatewayOptions) -> Result<Self, GatewayStartError> {
        let listeners = GatewayListeners::bind(&options.config)?;
        Self::start_on(listeners, options).await
    }

    /// Starts a gateway on addresses that are already bound.
    pub fn start_on(
        listeners: GatewayListeners,
        options: GatewayOptions,
    ) -> Boxed<'static, Result<Self, GatewayStartError>> {
        Box::pin(Self::start_unboxed(listeners, options))
    }

    async fn start_unboxed(
        listeners: GatewayListeners,
        options: GatewayOptions,
    ) -> Result<Self, GatewayStartError> {
        let GatewayOptions { config, store, admin_token } = options;
        let tls = config.tls.as_ref().map(tls::for_clients).transpose()?;
        keep_prices(&store, &config.prices).await?;
        let identity = CallerDirectory::load(&store).await?;
        warn_of_reserved_name(&identity);
        let GatewayListeners { clients: (addr, clients), admin } = listeners;
        let pools = Arc::new(Pools::start(&config).await?);
        let fleet = Fleet::new(store.clone(), Arc::new(SystemClock), fleet_options(&config.fleet));
        let fleet_calls = Arc::new(FleetOfCallers { fleet: fleet.clone(), store: store.clone() });
        let (identity, limits) = (Arc::new(identity), Arc::new(CallerLimits::new()));
        let directory_sync = DirectorySync {
            store: store.clone(),
            fleet: fleet_calls.clone(),
            identity: identity.clone(),
            limits: limits.clone(),
            pools: pools.clone(),
            last_sent: PoolSync::default(),
        };
        let data = Arc::new(DataPlane {
            fleet: fleet_calls,
            identity,
            limits,
            metrics: Metrics::new(),
            pools,
            directory_sync,
            phase: Arc::new(GatewayLifecycle::new()),
            request_ids: RequestIdGenerator::new().map_err(GatewayStartError::Random)?,
            response_ids: ResponseIdOwners::default(),
            leases: LeaseTable::default(),
            body_memory: BodyMemory::default(),
            salt_secret: store.installation_secret(SALT_SECRET_NAME).await?,
            log_throttle: Arc::new(LogThrottle::default()),
            detached_rows: LiveCount::default(),
            config: Arc::new(ArcSwap::from_pointee(config)),
            store,
        });
        let control = Arc::new(ControlPlane::new(data.clone(), fleet, admin_token));
        let server = Arc::new(GatewayServer::new(data.clone(), tls));
        // Weights and caps are in place before any request is accepted.
        data.directory_sync.refresh().await?;
        let routes = admin::router(control.clone());
        let door = |serves_clients, serves_admin| {
            Arc::new(ListenerRoutes { serves_clients, serves_admin, control: routes.clone() })
        };
        let mut listening =
            vec![tokio::spawn(server.clone().listen(clients, door(true, admin.is_none())))];
        let syncing = data.clone();
        listening.push(tokio::spawn(async move {
            syncing.directory_sync.refresh_until_closed(&syncing.phase).await;
        }));
        listening.push(tokio::spawn(retention::prune_until_closing(control.clone())));
        listening.push(tokio::spawn(forward::store_ids(data.clone())));
        listening.push(tokio::spawn(pools::keep_learned(
            data.pools.clone(),
            data.config.clone(),
            data.phase.clone(),
            data.log_throttle.clone(),
        )));
        let names = pools::follow_names(data.pools.clone(), data.log_throttle.clone());
        listening.push(tokio::spawn(names));
        listening.push(tokio::spawn(provider_probe::run_probes(data.clone())));
        listening.push(tokio::spawn(control.fleet.run()));
        listening.push(tokio::spawn(webhooks::deliver_until_draining(control.clone())));
        let mut admin_addr = addr;
        if let Some((address, listener)) = admin {
            admin_addr = address;
            listening.push(tokio::spawn(server.clone().listen(listener, door(false, true))));
        }
        Ok(Self { data, control, server, addr, admin_addr, listening, reloading: Mutex::new(()) })
    }

    /// Returns the address that clients connect to, with the bound port.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Returns the address of the admin API; equal to [`addr`](Self::addr) if the admin API has no address of its own.
    pub fn admin_addr(&self) -> SocketAddr {
        self.admin_addr
    }

    /// Returns the data plane, which carries requests.
    pub fn data_plane(&self) -> &Arc<DataPlane> {
        &self.data
    }

    /// Returns the control plane, which shows and changes the data plane.
    pub fn control_plane(&self) -> &Arc<ControlPlane> {
        &self.control
    }

    /// Puts another configuration in force. Everything that can fail is tried before anything is changed, so that a bad
    /// configuration changes nothing. Returns the changes.
    pub fn reload(&self, next: Config) -> Boxed<'_, Result<ReloadPlan, GatewayReloadError>> {
        Box::pin(self.reload_unboxed(next))
    }

    async fn reload_unboxed(&self, next: Config) -> Result<ReloadPlan, GatewayReloadError> {
        let _one = self.reloading.lock().await;
        let plan = ConfigReload::plan(&self.data.config.load(), &next)?;
        let tls = next.tls.as_ref().map(tls::for_clients).transpose()?;
        let prepared = self.data.pools.prepare(&next).await?;
        if self.data.config.load().prices != next.prices {
            keep_prices(&self.data.store, &next.prices).await?;
        }
        // From here on nothing can fail.
        self.data.pools.switch(prepared, next.drain_grace).await;
        self.server.tls.store(tls);
        if let Some(token) = &next.admin.token {
            self.control.admin_token.store(Arc::new(KeyHash::of(token.expose().as_bytes())));
        }
        self.control.fleet.set_webhooks(webhooks::subscriptions(&next.fleet.webhooks));
        self.data.config.store(Arc::new(next));
        // A new policy does not have the directory's weights and caps yet.
        if let Err(error) = self.data.directory_sync.refresh().await {
            tracing::warn!(%error, "the directory could not be read; weights and caps follow soon");
        }
        for change in &plan.changes {
            tracing::info!(%change, "reloaded");
        }
        Ok(plan)
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.data.phase.advance(GatewayPhase::Closing);
        for task in &self.listening {
            task.abort();
        }
    }
}
