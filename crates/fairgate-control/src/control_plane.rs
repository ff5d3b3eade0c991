//! State that the control plane keeps between requests.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use fairgate_config::{ConfigErrors, ReloadPlan};
use fairgate_export::LedgerExport;
use fairgate_fleet::Fleet;
use fairgate_store::{DeclarationPlan, InstallationSecret, KeyHash, UnixMicros};
use tokio::sync::{Mutex, OnceCell, Semaphore};

use crate::event_hub::EventHub;
use crate::export_setup::export_to;
use crate::live::{PoolHistories, PoolSnapshotCache, RecentFlowsCache, sample_until_closing};
use crate::login_tries::LoginTries;
use crate::projects_cache::ProjectsCache;
use crate::revoked_sessions::RevokedSessions;
use fairgate_proxy::forward::DataPlane;

/// Maximum number of concurrent streams of the live view.
const WATCHERS_MAX: usize = 64;
/// Maximum number of concurrent searches for a request by its id. Each search may copy a pool.
const SEARCHES_MAX: usize = 8;
/// Greatest number of lines that one look into a journal reads.
const JOURNAL_LINES_MAX: u64 = 5_000_000;

/// Maximum number of agents that wait for a task at once.
const CLAIMS_MAX: usize = 4096;

/// Changes of a reload that was applied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AppliedReload {
    /// Changes of the settings, in order.
    pub plan: ReloadPlan,
    /// Changes of groups, tenants and keys, in words.
    pub directory: Vec<String>,
}

/// Changes that a reload of some text would make.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigPreview {
    /// Changes of the settings, in order.
    pub plan: ReloadPlan,
    /// Changes of groups, tenants and keys.
    pub directory: DeclarationPlan,
}

/// Future of a reload. Returns the changes that were made, or all errors of the configuration; after an error nothing
/// has changed.
pub type ReloadFuture<'a> =
    Pin<Box<dyn Future<Output = Result<AppliedReload, ConfigErrors>> + Send + 'a>>;

/// Future of a check. Returns the changes that a reload would make, or all errors of the text.
pub type CheckFuture<'a> =
    Pin<Box<dyn Future<Output = Result<ConfigPreview, ConfigErrors>> + Send + 'a>>;

/// Reads the configuration again and applies it. The binary implements this if it was started with a file.
pub trait ConfigReloader: Send + std::marker::Sync {
    /// Reads and checks the configuration, then applies it. The audit trail names `actor` as the author. Refuses to
    /// disable more than half of the declared tenants and keys, unless `may_disable_most`.
    fn reload<'a>(&'a self, actor: &'a str, may_disable_most: bool) -> ReloadFuture<'a>;

    /// Checks a text as if it were the configuration, and changes nothing.
    fn check(&self, text: String) -> CheckFuture<'_>;
}

/// State of the control plane: the admin API, the live view and the metrics.
pub struct ControlPlane {
    /// The data plane, which the control plane shows and changes.
    pub data: Arc<DataPlane>,
    /// The fleet's projects, tasks and agents, in the store's database.
    pub fleet: Fleet,
    /// Hash of the admin token; replaced by a reload.
    pub admin_token: ArcSwap<KeyHash>,
    /// Export of the ledger; `None` if the configuration asks for none.
    pub(crate) export: Option<Arc<LedgerExport>>,
    pub(crate) snapshots: PoolSnapshotCache,
    pub(crate) flows: RecentFlowsCache,
    pub(crate) histories: Arc<PoolHistories>,
    pub(crate) watchers: Arc<Semaphore>,
    pub(crate) searches: Semaphore,
    /// Permit to read a journal. There is only one permit, so one journal is read at a time.
    pub(crate) journal_looks: Arc<Semaphore>,
    journal_lines_max: AtomicU64,
    pub(crate) claims: Semaphore,
    pub(crate) event_hub: Arc<EventHub>,
    pub(crate) login_tries: LoginTries,
    pub(crate) revoked_sessions: RevokedSessions,
    /// Secret that seals the sessions, once it has been read from the store.
    pub(crate) session_secret: OnceCell<InstallationSecret>,
    pub(crate) projects: ProjectsCache,
    /// Held while an operator changes a pool, so that the audit trail gets the state right before
    /// this change.
    pub(crate) pool_changes: Mutex<()>,
    reloader: OnceLock<Box<dyn ConfigReloader>>,
}

impl ControlPlane {
    /// Creates a control plane without a reloader. Reloads are refused until [`ControlPlane::set_reloader`] sets one.
    pub fn new(data: Arc<DataPlane>, fleet: Fleet, admin_token: KeyHash) -> Self {
        let clickhouse = data.config.load().store.clickhouse.clone();
        let export = clickhouse.map(|clickhouse| export_to(&clickhouse, &data.store));
        Self {
            export,
            data,
            fleet,
            admin_token: ArcSwap::from_pointee(admin_token),
            snapshots: PoolSnapshotCache::default(),
            flows: RecentFlowsCache::default(),
            histories: Arc::default(),
            watchers: Arc::new(Semaphore::new(WATCHERS_MAX)),
            searches: Semaphore::new(SEARCHES_MAX),
            journal_looks: Arc::new(Semaphore::new(1)),
            journal_lines_max: AtomicU64::new(JOURNAL_LINES_MAX),
            claims: Semaphore::new(CLAIMS_MAX),
            event_hub: Arc::default(),
            login_tries: LoginTries::default(),
            revoked_sessions: RevokedSessions::default(),
            session_secret: OnceCell::new(),
            projects: ProjectsCache::default(),
            pool_changes: Mutex::new(()),
            reloader: OnceLock::new(),
        }
    }

    /// Takes a sample of each pool for its history every five seconds, until the gateway stops serving.
    pub async fn keep_histories(self: Arc<Self>) {
        sample_until_closing(self.histories.clone(), self.data.clone()).await;
    }

    /// Sets the time of the histories, and takes a sample of each pool at that time. For tests that
    /// control the time.
    pub async fn sample_pools_at(&self, time: UnixMicros) {
        self.histories.set_time(time);
        self.histories.sample(&self.data.pools.all(), &self.data.refusals).await;
    }

    /// Sets the greatest number of lines that one look into a journal reads. For tests, whose journals are short.
    pub fn set_journal_lines_max(&self, lines: u64) {
        self.journal_lines_max.store(lines, Ordering::Relaxed);
    }

    pub(crate) fn journal_lines_max(&self) -> u64 {
        self.journal_lines_max.load(Ordering::Relaxed)
    }

    /// Sets the reloader behind `POST /api/v1/config/reload`. Later calls have no effect.
    pub fn set_reloader(&self, reloader: impl ConfigReloader + 'static) {
        let _ = self.reloader.set(Box::new(reloader));
    }

    pub(crate) fn reloader(&self) -> Option<&dyn ConfigReloader> {
        self.reloader.get().map(|reloader| &**reloader)
    }
}

impl fmt::Debug for ControlPlane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control").field("reloads", &self.reloader.get().is_some()).finish()
    }
}
