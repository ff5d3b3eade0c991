//! A running gateway: its two planes, its server and its background tasks.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use fairgate_control::control_plane::ControlPlane;
use fairgate_money::ModelPrices;
use fairgate_proxy::forward::DataPlane;
use fairgate_proxy::phase::GatewayPhase;
use fairgate_proxy::server::GatewayServer;
use fairgate_store::{DirectoryChange, Store, StoreError};
use fairgate_time::wall_clock;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

/// A running gateway. If it is dropped without [`drain`](Self::drain), it stops listening and cuts its connections.
pub struct Gateway {
    pub(crate) data: Arc<DataPlane>,
    pub(crate) control: Arc<ControlPlane>,
    pub(crate) server: Arc<GatewayServer>,
    addr: SocketAddr,
    admin_addr: SocketAddr,
    /// Async tasks of the gateway: the listeners, and the background tasks.
    tasks: Vec<JoinHandle<()>>,
    /// Allows one reload at a time.
    pub(crate) reloading: Mutex<()>,
}

/// A boxed future. The box makes the compiler compile the whole gateway in this crate, and not again in every crate
/// that awaits the future.
pub(crate) type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

impl Gateway {
    pub(crate) fn new(
        data: Arc<DataPlane>,
        control: Arc<ControlPlane>,
        server: Arc<GatewayServer>,
        (addr, admin_addr): (SocketAddr, SocketAddr),
        tasks: Vec<JoinHandle<()>>,
    ) -> Self {
        Self { data, control, server, addr, admin_addr, tasks, reloading: Mutex::new(()) }
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
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.data.phase.advance(GatewayPhase::Closing);
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// Stores the current prices in the database, because rows of the ledger will name them. Prices
/// that are new to the database are audited as changes by the configuration file.
pub(crate) async fn keep_prices(store: &Store, prices: &ModelPrices) -> Result<(), StoreError> {
    if prices.is_empty() {
        return Ok(());
    }
    let keep = DirectoryChange::KeepPrices { prices: prices.all().cloned().collect() };
    store.change("config", wall_clock::now(), keep).await.map(drop)
}
