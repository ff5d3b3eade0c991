//! A gateway in this process, with one pool and many tenants.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Result, ensure};
use fairgate_config::Config;
use fairgate_gateway::{Gateway, GatewayDrainReport, GatewayOptions};
use fairgate_runtime::Gate;
use fairgate_store::{DirectoryChange, DirectoryLimits, KeyHash, Store, StoreOptions, UnixMicros};
use tempfile::TempDir;

/// Number of slots of the pool.
pub(super) const SLOTS: u64 = 64;
/// Number of tenants in each group.
const GROUP_SIZE: usize = 100;
pub(super) const ADMIN_TOKEN: &str = "the-token-of-the-benchmark";

/// A gateway whose requests are made at its gate, not over HTTP.
pub(super) struct WatchTestbed {
    gateway: Gateway,
    _folder: TempDir,
}

/// Returns the names of a tenant and of its group.
pub(super) fn names(number: usize) -> (String, String) {
    (format!("tenant-{number}"), format!("group-{}", number / GROUP_SIZE))
}

impl WatchTestbed {
    /// Starts a gateway with so many tenants.
    pub(super) async fn start(tenants: usize) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let nowhere = "http://127.0.0.1:9".parse()?;
        let mut config =
            Config::embedded(folder.path().to_owned(), ([127, 0, 0, 1], 0).into(), nowhere);
        config.upstreams[0].slots = Some(SLOTS);
        config.pools[0].capacity = SLOTS;
        config.pools[0].max_queue = 20_000;
        config.pools[0].queue_timeout = Duration::from_secs(3600);
        let (store, _) = Store::open("sqlite::memory:", StoreOptions::default()).await?;
        for number in 0..tenants {
            let (name, group) = names(number);
            if number % GROUP_SIZE == 0 {
                let (name, budgets) = (group.clone(), Vec::new());
                add(&store, DirectoryChange::AddGroup { name, weight: 100, budgets }).await?;
            }
            let (limits, requires) = (DirectoryLimits::default(), Vec::new());
            add(&store, DirectoryChange::AddTenant { name, group, weight: 100, limits, requires })
                .await?;
        }
        let admin_token = KeyHash::of(ADMIN_TOKEN.as_bytes());
        let options = GatewayOptions { config, store, admin_token, may_disable_most: false };
        Ok(Self { gateway: Gateway::start(options).await?, _folder: folder })
    }

    pub(super) fn addr(&self) -> SocketAddr {
        self.gateway.addr()
    }

    pub(super) fn gate(&self) -> Gate {
        self.gateway.data_plane().pools.all()[0].gate.clone()
    }

    pub(super) async fn end(self) -> Result<()> {
        let report = self.gateway.drain(Duration::from_secs(10)).await;
        ensure!(report == GatewayDrainReport::default(), "the gateway did not drain: {report:?}");
        Ok(())
    }
}

async fn add(store: &Store, change: DirectoryChange) -> Result<()> {
    store.change("bench", UnixMicros(0), change).await?;
    Ok(())
}
