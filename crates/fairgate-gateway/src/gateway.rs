//! The gateway as a whole: started, reloaded, drained.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use fairgate_config::{Config, ConfigErrors, Plan, Reload};
use fairgate_fleet::{Fleet, SystemClock};
use fairgate_money::Prices;
use fairgate_store::{Change, KeyHash, Store, StoreError, Throttle};
use futures_util::future::join_all;
use tokio::net::TcpListener;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};

use crate::admin;
use crate::app::App;
use crate::control::Control;
use crate::fleet_options::fleet_options;
use crate::forward::{Leases, unix_now};
use crate::held::HeldBytes;
use crate::identity::Identity;
use crate::in_flight::InFlight;
use crate::limits::Limits;
use crate::metrics::Metrics;
use crate::phase::{Phase, Stage};
use crate::pools::{self, Pools, PoolsError};
use crate::request_id::RequestIds;
use crate::response_ids::ResponseIds;
use crate::retention;
use crate::server::{Door, Server, bind};
use crate::sync;
use crate::tls::{self, TlsError};

/// How long what was cut off may take to be settled.
const LAST_WAIT: Duration = Duration::from_secs(5);

/// What a gateway is made of.
pub struct GatewayOptions {
    /// The configuration.
    pub config: Config,
    /// The database, open.
    pub store: Store,
    /// The hash of the admin token.
    pub admin_token: KeyHash,
}

/// The addresses of a gateway, taken and not answered yet. Who takes them first knows that it can listen before it leaves
/// anything behind.
#[derive(Debug)]
pub struct Listeners {
    clients: (SocketAddr, TcpListener),
    admin: Option<(SocketAddr, TcpListener)>,
}

impl Listeners {
    /// Takes the configuration's addresses, on this tokio runtime. Port 0 takes any free port.
    pub fn bind(config: &Config) -> Result<Self, StartError> {
        let listen = |address| {
            let bound = bind(address).and_then(|bound| Ok((bound.local_addr()?, bound)));
            bound.map_err(|source| StartError::Listen { address, source })
        };
        let clients = listen(config.listen)?;
        let admin = config.admin.listen.map(listen).transpose()?;
        Ok(Self { clients, admin })
    }
}

/// A gateway at work. Dropped without [`drain`](Self::drain), it stops listening and cuts its connections.
pub struct Gateway {
    app: Arc<App>,
    server: Arc<Server>,
    addr: SocketAddr,
    admin_addr: SocketAddr,
    listening: Vec<JoinHandle<()>>,
    /// One reload at a time.
    reloading: Mutex<()>,
}

/// Why a gateway did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The certificate or its key.
    #[error("tls: {0}")]
    Tls(#[from] TlsError),
    /// A pool or an upstream.
    #[error(transparent)]
    Pools(#[from] PoolsError),
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The system gives no random numbers.
    #[error("the system gives no random numbers: {0}")]
    Random(getrandom::Error),
}

/// A configuration that was not put in place. Nothing has changed.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// Fields are new that are fixed while the gateway runs.
    #[error(transparent)]
    Config(#[from] ConfigErrors),
    /// The certificate or its key.
    #[error("tls: {0}")]
    Tls(#[from] TlsError),
    /// A pool or an upstream.
    #[error(transparent)]
    Pools(#[from] PoolsError),
    /// The prices could not be kept in the database, which each row that names one needs.
    #[error("the prices cannot be kept: {0}")]
    Store(#[from] StoreError),
}

/// How a gateway ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    /// How many connections were cut off at the deadline.
    pub connections_cut: u64,
    /// How many requests had not ended even then, over all pools.
    pub still_in_flight: u64,
    /// What could not be saved or closed.
    pub problems: Vec<String>,
}

/// Has the database keep the prices in force, for the rows that will name them. Those that it has not seen yet are audited as a
/// change by the configuration file.
async fn keep_prices(store: &Store, prices: &Prices) -> Result<(), StoreError> {
    if prices.is_empty() {
        return Ok(());
    }
    let keep = Change::KeepPrices { prices: prices.all().cloned().collect() };
    store.change("config", unix_now(), keep).await.map(drop)
}

/// A future in a box, so that the whole gateway inside it is compiled in this crate and not again in every crate that
/// awaits it.
type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

impl Gateway {
    /// Starts a gateway on this tokio runtime: its pools, then its listeners. Port 0 takes any free port.
    pub async fn start(options: GatewayOptions) -> Result<Self, StartError> {
        let listeners = Listeners::bind(&options.config)?;
        Self::start_on(listeners, options).await
    }

    /// Starts a gateway on addresses that were taken before.
    pub fn start_on(
        listeners: Listeners,
        options: GatewayOptions,
    ) -> Boxed<'static, Result<Self, StartError>> {
        Box::pin(Self::start_unboxed(listeners, options))
    }

    async fn start_unboxed(
        listeners: Listeners,
        options: GatewayOptions,
    ) -> Result<Self, StartError> {
        let GatewayOptions { config, store, admin_token } = options;
        let tls = config.tls.as_ref().map(tls::for_clients).transpose()?;
        keep_prices(&store, &config.prices).await?;
        let identity = Identity::load(&store).await?;
        let Listeners { clients: (addr, clients), admin } = listeners;
        let pools = Pools::start(&config).await?;
        let fleet = Fleet::new(store.clone(), Arc::new(SystemClock), fleet_options(&config.fleet));
        let app = Arc::new(App {
            fleet,
            identity,
            limits: Limits::new(),
            metrics: Metrics::new(),
            pools,
            admin_token: ArcSwap::from_pointee(admin_token),
            control: Control::new(),
            phase: Phase::new(),
            ids: RequestIds::new().map_err(StartError::Random)?,
            response_ids: ResponseIds::default(),
            leases: Leases::default(),
            held: HeldBytes::default(),
            complaints: Throttle::default(),
            rows_adrift: InFlight::default(),
            config: ArcSwap::from_pointee(config),
            store,
        });
        let server = Arc::new(Server::new(app.clone(), tls));
        // Weights and caps are in place before anybody is let in.
        sync::refresh(&app).await?;
        let control = admin::router(app.clone());
        let door = |serves_clients, serves_admin| {
            Arc::new(Door { serves_clients, serves_admin, control: control.clone() })
        };
        let mut listening =
            vec![tokio::spawn(server.clone().listen(clients, door(true, admin.is_none())))];
        listening.push(tokio::spawn(sync::follow(app.clone())));
        listening.push(tokio::spawn(retention::keep(app.clone())));
        listening.push(tokio::spawn(pools::keep_learned(app.clone())));
        listening.push(tokio::spawn(pools::follow_names(app.clone())));
        listening.push(tokio::spawn(app.fleet.run()));
        let mut admin_addr = addr;
        if let Some((address, listener)) = admin {
            admin_addr = address;
            listening.push(tokio::spawn(server.clone().listen(listener, door(false, true))));
        }
        Ok(Self { app, server, addr, admin_addr, listening, reloading: Mutex::new(()) })
    }

    /// Where clients connect.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Where the admin API is.
    pub fn admin_addr(&self) -> SocketAddr {
        self.admin_addr
    }

    /// What its handlers share.
    pub fn app(&self) -> &Arc<App> {
        &self.app
    }

    /// Puts another configuration in place, in two phases: everything that can fail is tried first, so that a bad
    /// configuration changes nothing. Says what has changed.
    pub fn reload(&self, next: Config) -> Boxed<'_, Result<Plan, ReloadError>> {
        Box::pin(self.reload_unboxed(next))
    }

    async fn reload_unboxed(&self, next: Config) -> Result<Plan, ReloadError> {
        let _one = self.reloading.lock().await;
        let plan = Reload::plan(&self.app.config.load(), &next)?;
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
        self.app.config.store(Arc::new(next));
        // A new policy has forgotten what the directory says.
        if let Err(error) = sync::refresh(&self.app).await {
            tracing::warn!(%error, "the directory could not be read; weights and caps follow soon");
        }
        for change in &plan.changes {
            tracing::info!(%change, "reloaded");
        }
        Ok(plan)
    }

    /// Ends the grace of a [`drain`](Self::drain) that is under way: what is in flight is cut off, and everything is settled and
    /// saved as at its end.
    pub fn cut_short(&self) {
        self.app.phase.advance(Stage::Closing);
    }

    /// Ends the gateway: it listens no more, `/readyz` says 503, what waits is refused with 503, what is in flight may finish
    /// within `grace`; then connections are cut, scores are saved, and the store is closed.
    pub fn drain(&self, grace: Duration) -> Boxed<'_, Drained> {
        Box::pin(self.drain_unboxed(grace))
    }

    async fn drain_unboxed(&self, grace: Duration) -> Drained {
        let deadline = Instant::now() + grace;
        self.app.phase.advance(Stage::Draining);
        // Nobody is given a task by a gateway that is about to be gone.
        self.app.fleet.stop();
        let pools = self.app.pools.all();
        // What is cut off at the deadline must still reach its gate.
        let gates = join_all(pools.iter().map(|pool| pool.gate.drain(grace + LAST_WAIT)));
        let mut phase = self.app.phase.watch();
        let cut = async {
            let finished = async {
                let left = self.server.empty(grace).await;
                if left > 0 {
                    sleep_until(deadline).await;
                }
                left
            };
            let hurried = async {
                let _ = phase.wait_for(|stage| *stage >= Stage::Closing).await;
            };
            let left = tokio::select! {
                left = finished => left,
                () = hurried => self.server.empty(Duration::ZERO).await,
            };
            self.app.phase.advance(Stage::Closing);
            self.server.empty(LAST_WAIT).await;
            let _ = timeout(LAST_WAIT, self.app.leases.running.none()).await;
            let _ = timeout(LAST_WAIT, self.app.rows_adrift.none()).await;
            left
        };
        let (gates, connections_cut) = tokio::join!(gates, cut);
        let mut drained = Drained { connections_cut, ..Drained::default() };
        for (pool, gate) in pools.iter().zip(gates) {
            match gate {
                Ok(gate) => {
                    drained.still_in_flight += gate.still_in_flight;
                    let problem =
                        gate.state.error.map(|error| format!("pool {}: {error}", pool.name));
                    drained.problems.extend(problem);
                }
                Err(closed) => drained.problems.push(format!("pool {}: {closed}", pool.name)),
            }
        }
        if let Err(error) = self.app.store.close().await {
            drained.problems.push(format!("store: {error}"));
        }
        drained
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.app.phase.advance(Stage::Closing);
        for task in &self.listening {
            task.abort();
        }
    }
}
