//! The start of a gateway, in order.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use fairgate_config::Config;
use fairgate_control::control_plane::ControlPlane;
use fairgate_control::{admin, ledger_export, retention, webhooks};
use fairgate_fleet::{Fleet, SystemClock};
use fairgate_proxy::forward::DataPlane;
use fairgate_proxy::server::{GatewayServer, ListenerRoutes, bind};
use fairgate_proxy::tls::{self, TlsError};
use fairgate_proxy::{DataPlaneStartError, gateway_name};
use fairgate_store::{KeyHash, Store, StoreError};
use tokio::net::TcpListener;

use crate::declared::{self, GatewayDeclarationError, declarations};
use crate::fleet::{FleetOfRequests, fleet_options};
use crate::gateway::{Boxed, Gateway, keep_prices};

/// The inputs for starting a gateway.
pub struct GatewayOptions {
    /// Configuration, already checked; replaced by [`Gateway::reload`].
    pub config: Config,
    /// Store, already open, for the directory, the ledger and the fleet.
    pub store: Store,
    /// Hash of the admin token.
    pub admin_token: KeyHash,
    /// True to start also if more than half of the declared tenants and keys would be disabled, because the
    /// configuration no longer declares them.
    pub may_disable_most: bool,
}

/// Bound addresses of a gateway that does not serve yet. They are bound first, so a gateway that
/// cannot listen fails before it has changed anything.
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

/// A reason for which a gateway did not start.
#[derive(Debug, thiserror::Error)]
pub enum GatewayStartError {
    /// The gateway cannot listen on the address.
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
    /// The prices could not be stored in the database.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The configuration's groups, tenants and keys were not applied.
    #[error(transparent)]
    Declarations(#[from] GatewayDeclarationError),
    /// The data plane could not be started.
    #[error(transparent)]
    DataPlane(#[from] DataPlaneStartError),
}

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
        let GatewayOptions { config, store, admin_token, may_disable_most } = options;
        let tls = config.tls.as_ref().map(tls::for_clients).transpose()?;
        keep_prices(&store, &config.prices).await?;
        let name = gateway_name(listeners.clients.0.port());
        let declared = declarations(&config.declared, name);
        declared::apply(&store, &declared, may_disable_most).await?;
        let fleet = Fleet::new(store.clone(), Arc::new(SystemClock), fleet_options(&config.fleet));
        let fleet_calls = Arc::new(FleetOfRequests { fleet: fleet.clone(), store: store.clone() });
        let data = Arc::new(DataPlane::start(config, store, fleet_calls).await?);
        data.directory_sync.declarations.note_applied(&declared);
        let control = Arc::new(ControlPlane::new(data.clone(), fleet, admin_token));
        let mut tasks = data.spawn_background();
        tasks.push(tokio::spawn(control.fleet.run()));
        tasks.push(tokio::spawn(retention::prune_until_closing(control.clone())));
        tasks.push(tokio::spawn(ledger_export::export_until_closing(control.clone())));
        tasks.push(tokio::spawn(control.clone().keep_histories()));
        tasks.push(tokio::spawn(webhooks::deliver_until_draining(control.clone())));
        let server = Arc::new(GatewayServer::new(data.clone(), tls));
        let control_routes = admin::router(control.clone());
        let routes = |serves_clients, serves_admin| {
            Arc::new(ListenerRoutes {
                serves_clients,
                serves_admin,
                control: control_routes.clone(),
                is_for_clients: admin::is_for_clients,
                is_page: admin::is_page,
            })
        };
        let GatewayListeners { clients: (addr, clients), admin } = listeners;
        tasks.push(tokio::spawn(server.clone().listen(clients, routes(true, admin.is_none()))));
        let mut admin_addr = addr;
        if let Some((address, listener)) = admin {
            admin_addr = address;
            tasks.push(tokio::spawn(server.clone().listen(listener, routes(false, true))));
        }
        Ok(Self::new(data, control, server, (addr, admin_addr), tasks))
    }
}
