//! Starts gateways with backends on loopback, each with its own store.

pub mod breaking;
pub mod client;
pub mod log;
pub mod scripted;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use fairgate_config::{
    Config, HealthConfig, LeasesConfig, PoolConfig, QuotaConfig, UpstreamConfig,
};
use fairgate_gateway::{Gateway, GatewayDrainReport, GatewayOptions};
use fairgate_sim::{Sim, SimOptions};
use fairgate_store::{
    AttemptRow, DirectoryChange, DirectoryChangeResult, DirectoryLimits, KeyHash, KeyRights,
    LedgerQuery, Store, StoreOptions, UnixMicros,
};

/// Longest wait for an event that must happen.
pub const SOON: Duration = Duration::from_secs(20);

/// A folder that is removed at the end of the test.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path =
            std::env::temp_dir().join(format!("fairgate-it-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A running gateway, with one tenant and one key.
pub struct House {
    pub gateway: Gateway,
    pub store: Store,
    pub key: String,
    pub folder: Folder,
}

/// Starts a backend that answers at once.
pub fn sim() -> Sim {
    let options = SimOptions {
        steering: true,
        slots: 64,
        output_tokens: fairgate_sim::OutputLength::exactly(8),
        ..SimOptions::instant()
    };
    Sim::start(([127, 0, 0, 1], 0).into(), options).unwrap()
}

/// Returns the configuration of a gateway with one backend at this address.
pub fn config(folder: &Folder, url: &str) -> Config {
    let mut config =
        Config::embedded(folder.0.clone(), ([127, 0, 0, 1], 0).into(), url.parse().unwrap());
    config.drain_grace = SOON;
    config.upstreams[0].dialects.anthropic = true;
    config
}

/// Returns another upstream with the same settings.
pub fn beside(config: &Config, name: &str, url: &str) -> UpstreamConfig {
    UpstreamConfig { name: name.into(), url: url.parse().unwrap(), ..config.upstreams[0].clone() }
}

/// Path of the lease API.
pub const LEASES: &str = "/v1/leases";

/// The quota of a provider whose limits the file does not state.
pub const UNSTATED_QUOTA: QuotaConfig = QuotaConfig {
    account: None,
    requests_per_minute: None,
    tokens_per_minute: None,
    burst_seconds: 1,
    probe: true,
    shared_limits: false,
};

/// Adds a pool of leases. By its name, it comes before the other pool.
pub fn lease_pool(
    config: &mut Config,
    capacity: u64,
    ttl: Duration,
    quota: QuotaConfig,
) -> &mut PoolConfig {
    let pool = PoolConfig {
        name: "gpt".into(),
        capacity,
        models: Vec::new(),
        workers: Vec::new(),
        leases: Some(LeasesConfig { ttl, quota }),
        ..config.pools[0].clone()
    };
    config.pools.push(pool);
    config.pools.last_mut().unwrap()
}

/// Returns a health check that runs once at the start, and then only after failed requests.
pub fn asked_when_suspect() -> Option<HealthConfig> {
    Some(HealthConfig {
        path: "/health".into(),
        every: Duration::from_secs(3600),
        timeout: Duration::from_secs(5),
        unhealthy_after: 1000,
        healthy_after: 1,
    })
}

/// Starts a gateway with one backend at this address.
pub async fn house(url: &str) -> House {
    house_with(url, |_| {}).await
}

/// Starts a gateway with one backend at this address, and a changed configuration.
pub async fn house_with(url: &str, change: impl FnOnce(&mut Config)) -> House {
    let folder = Folder::new();
    let mut config = config(&folder, url);
    change(&mut config);
    house_in(folder, config, DirectoryLimits::default()).await
}

/// Starts a gateway with this configuration. Its tenant has these limits.
pub async fn house_in(folder: Folder, config: Config, limits: DirectoryLimits) -> House {
    let options = StoreOptions {
        spool: Some(config.store.spool.clone()),
        spool_bytes_max: config.store.spool_bytes_max,
        ..StoreOptions::default()
    };
    let (store, _) = Store::open(config.store.url.expose(), options).await.unwrap();
    let key = tenant(&store, "acme", limits).await;
    let options = GatewayOptions {
        config,
        store: store.clone(),
        admin_token: KeyHash::of(b"admin"),
        may_disable_most: false,
    };
    let gateway = Gateway::start(options).await.unwrap();
    House { gateway, store, key, folder }
}

/// Returns the rights of a key of an early version: all classes, leases and foreign ids.
pub fn open_rights() -> KeyRights {
    KeyRights { classes: None, may_lease: true, may_use_foreign_ids: true, ..KeyRights::default() }
}

/// Creates a tenant with one key that has [`open_rights`], in a group of its own, and returns the
/// key.
pub async fn tenant(store: &Store, name: &str, limits: DirectoryLimits) -> String {
    let at = UnixMicros(0);
    let group = DirectoryChange::AddGroup {
        name: format!("group-{name}"),
        weight: 100,
        budgets: Vec::new(),
    };
    store.change("test", at, group).await.unwrap();
    let added = DirectoryChange::AddTenant {
        requires: Vec::new(),
        name: name.into(),
        group: format!("group-{name}"),
        weight: 100,
        limits,
    };
    store.change("test", at, added).await.unwrap();
    let key = DirectoryChange::CreateKey {
        tenant: name.into(),
        name: "first".into(),
        weight: 100,
        limits: DirectoryLimits::default(),
        rights: open_rights(),
        expires_at: None,
    };
    let made = store.change("test", at, key).await.unwrap();
    made.secret.unwrap().expose().to_owned()
}

impl House {
    /// Changes the directory, and makes the gateway apply the change.
    pub async fn change(&self, change: DirectoryChange) -> DirectoryChangeResult {
        let changed = self.store.change("test", UnixMicros(0), change).await.unwrap();
        self.gateway.data_plane().directory_sync.refresh().await.unwrap();
        changed
    }

    /// Creates another tenant in a group of its own, and returns its key.
    pub async fn tenant(&self, name: &str, limits: DirectoryLimits) -> String {
        let key = tenant(&self.store, name, limits).await;
        self.gateway.data_plane().directory_sync.refresh().await.unwrap();
        key
    }

    /// Creates another key of a tenant.
    pub async fn key(&self, tenant: &str, limits: DirectoryLimits, classes: &[&str]) -> String {
        let classes = Some(classes.iter().map(|&class| class.into()).collect());
        self.key_with(tenant, limits, KeyRights { classes, ..KeyRights::default() }).await
    }

    /// Creates another key of a tenant, with these rights.
    pub async fn key_with(
        &self,
        tenant: &str,
        limits: DirectoryLimits,
        rights: KeyRights,
    ) -> String {
        let key = DirectoryChange::CreateKey {
            tenant: tenant.into(),
            name: "another".into(),
            weight: 100,
            limits,
            rights,
            expires_at: None,
        };
        self.change(key).await.secret.unwrap().expose().to_owned()
    }

    /// Returns all rows of the ledger, oldest first.
    pub async fn rows(&self) -> Vec<AttemptRow> {
        rows(&self.store).await
    }

    /// Waits until the ledger has this number of rows, and returns them.
    pub async fn rows_soon(&self, count: usize) -> Vec<AttemptRow> {
        let found = async {
            loop {
                let rows = self.rows().await;
                if rows.len() >= count {
                    return rows;
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(SOON, found).await.expect("the rows come")
    }

    /// Waits until no request waits or is in flight in the first pool.
    pub async fn quiet(&self) {
        let quiet = async {
            loop {
                let live = self.gateway.data_plane().pools.all()[0].gate.status().await.unwrap();
                if live.in_flight == 0 && live.waiting == 0 {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(SOON, quiet).await.expect("nothing is left behind");
    }

    /// Waits until the first pool's status meets the condition.
    pub async fn until(&self, is: impl Fn(&fairgate_runtime::GateStatus) -> bool) {
        let seen = async {
            loop {
                let live = self.gateway.data_plane().pools.all()[0].gate.status().await.unwrap();
                if is(&live) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(SOON, seen).await.expect("the pool comes to look so");
    }

    /// Checks that no request or reservation is left, and stops the gateway.
    pub async fn close(self) {
        self.quiet().await;
        let drained = self.gateway.drain(Duration::from_secs(5)).await;
        assert_eq!(drained, GatewayDrainReport::default());
    }
}

/// Returns all rows of a ledger, oldest first.
pub async fn rows(store: &Store) -> Vec<AttemptRow> {
    let query = LedgerQuery { limit: 1000, ..LedgerQuery::default() };
    let mut rows = store.attempts(query).await.unwrap();
    rows.reverse();
    rows
}
