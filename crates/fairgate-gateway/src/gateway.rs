//! Starts and reloads the whole gateway. The module `shutdown` ends it.

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
use crate::app::App;
use crate::body_memory::BodyMemory;
use crate::control_plane::ControlPlane;
use crate::directory_sync;
use crate::fleet_options::fleet_options;
use fairgate_time::wall_clock;

use crate::forward::{LeaseTable, SALT_SECRET_NAME};
use crate::identity::CallerDirectory;
use crate::limits::CallerLimits;
use crate::live_count::LiveCount;
use crate::metrics::Metrics;
use crate::phase::{GatewayLifecycle, GatewayPhase};
use crate::pools::{self, Pools, PoolsError};
use crate::provider_probe;
use crate::request_id::RequestIdGenerator;
use crate::response_ids::{self, ResponseIdOwners};
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
    app: Arc<App>,
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
        let pools = Pools::start(&config).await?;
        let fleet = Fleet::new(store.clone(), Arc::new(SystemClock), fleet_options(&config.fleet));
        let app = Arc::new(App {
            fleet,
            identity,
            limits: CallerLimits::new(),
            metrics: Metrics::new(),
            pools,
            admin_token: ArcSwap::from_pointee(admin_token),
            control: ControlPlane::new(),
            phase: GatewayLifecycle::new(),
            request_ids: RequestIdGenerator::new().map_err(GatewayStartError::Random)?,
            response_ids: ResponseIdOwners::default(),
            leases: LeaseTable::default(),
            body_memory: BodyMemory::default(),
            salt_secret: store.installation_secret(SALT_SECRET_NAME).await?,
            log_throttle: LogThrottle::default(),
            detached_rows: LiveCount::default(),
            config: ArcSwap::from_pointee(config),
            store,
        });
        let server = Arc::new(GatewayServer::new(app.clone(), tls));
        // Weights and caps are in place before any request is accepted.
        directory_sync::refresh(&app).await?;
        let control = admin::router(app.clone());
        let door = |serves_clients, serves_admin| {
            Arc::new(ListenerRoutes { serves_clients, serves_admin, control: control.clone() })
        };
        let mut listening =
            vec![tokio::spawn(server.clone().listen(clients, door(true, admin.is_none())))];
        listening.push(tokio::spawn(directory_sync::refresh_until_closed(app.clone())));
        listening.push(tokio::spawn(retention::prune_until_closing(app.clone())));
        listening.push(tokio::spawn(response_ids::store_ids(app.clone())));
        listening.push(tokio::spawn(pools::keep_learned(app.clone())));
        listening.push(tokio::spawn(pools::follow_names(app.clone())));
        listening.push(tokio::spawn(provider_probe::run_probes(app.clone())));
        listening.push(tokio::spawn(app.fleet.run()));
        listening.push(tokio::spawn(webhooks::deliver_until_draining(app.clone())));
        let mut admin_addr = addr;
        if let Some((address, listener)) = admin {
            admin_addr = address;
            listening.push(tokio::spawn(server.clone().listen(listener, door(false, true))));
        }
        Ok(Self { app, server, addr, admin_addr, listening, reloading: Mutex::new(()) })
    }

    /// Returns the address that clients connect to, with the bound port.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Returns the address of the admin API; equal to [`addr`](Self::addr) if the admin API has no address of its own.
    pub fn admin_addr(&self) -> SocketAddr {
        self.admin_addr
    }

    /// Returns the state that all handlers share.
    pub fn app(&self) -> &Arc<App> {
        &self.app
    }

    /// Puts another configuration in force. Everything that can fail is tried before anything is changed, so that a bad
    /// configuration changes nothing. Returns the changes.
    pub fn reload(&self, next: Config) -> Boxed<'_, Result<ReloadPlan, GatewayReloadError>> {
        Box::pin(self.reload_unboxed(next))
    }

    async fn reload_unboxed(&self, next: Config) -> Result<ReloadPlan, GatewayReloadError> {
        let _one = self.reloading.lock().await;
        let plan = ConfigReload::plan(&self.app.config.load(), &next)?;
        let tls = next.tls.as_ref().map(tls::for_clients).transpose()?;
        let prepared = self.app.pools.prepare(&next).await?;
        if self.app.config.load().prices != next.prices {
            keep_prices(&self.app.store, &next.prices).await?;
        }
        // From here on nothing can fail.
        self.app.pools.switch(prepared, next.drain_grace).await;
        self.server.tls.store(tls);
        if let Some(token) = &next.admin.token {
            self.app.admin_token.store(Arc::new(KeyHash::of(token.expose().as_bytes())));
        }
        self.app.fleet.set_webhooks(webhooks::subscriptions(&next.fleet.webhooks));
        self.app.config.store(Arc::new(next));
        // A new policy does not have the directory's weights and caps yet.
        if let Err(error) = directory_sync::refresh(&self.app).await {
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
        self.app.phase.advance(GatewayPhase::Closing);
        for task in &self.listening {
            task.abort();
        }
    }
}
