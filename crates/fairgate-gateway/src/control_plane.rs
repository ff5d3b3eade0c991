//! State that the control plane keeps between requests.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use fairgate_config::{ConfigErrors, ReloadPlan};
use fairgate_fleet::Fleet;
use fairgate_store::KeyHash;
use tokio::sync::Semaphore;

use crate::forward::DataPlane;
use crate::live::PoolSnapshotCache;
use crate::projects_cache::ProjectsCache;

/// Maximum number of concurrent streams of the live view.
const WATCHERS_MAX: usize = 64;
/// Maximum number of concurrent searches for a request by its id. Each search may copy a pool.
const SEARCHES_MAX: usize = 8;

/// Maximum number of agents that wait for a task at once.
const CLAIMS_MAX: usize = 4096;

/// Future of a reload. Returns the plan that was applied, or all errors of the configuration; after an error nothing
/// has changed.
pub type ReloadFuture<'a> =
    Pin<Box<dyn Future<Output = Result<ReloadPlan, ConfigErrors>> + Send + 'a>>;

/// Reads the configuration again and applies it. The binary implements this if it was started with a file.
pub trait ConfigReloader: Send + std::marker::Sync {
    /// Reads and checks the configuration, then applies it. The audit trail names `actor` as the author.
    fn reload<'a>(&'a self, actor: &'a str) -> ReloadFuture<'a>;
}

/// State of the control plane: the admin API, the live view and the metrics.
pub struct ControlPlane {
    /// The data plane, which the control plane shows and changes.
    pub data: Arc<DataPlane>,
    /// The fleet's projects, tasks and agents, in the store's database.
    pub fleet: Fleet,
    /// Hash of the admin token; replaced by a reload.
    pub(crate) admin_token: ArcSwap<KeyHash>,
    pub(crate) snapshots: PoolSnapshotCache,
    pub(crate) watchers: Arc<Semaphore>,
    pub(crate) searches: Semaphore,
    pub(crate) claims: Semaphore,
    pub(crate) projects: ProjectsCache,
    reloader: OnceLock<Box<dyn ConfigReloader>>,
}

impl ControlPlane {
    /// Creates a control plane without a reloader. Reloads are refused until [`ControlPlane::set_reloader`] sets one.
    pub fn new(data: Arc<DataPlane>, fleet: Fleet, admin_token: KeyHash) -> Self {
        Self {
            data,
            fleet,
            admin_token: ArcSwap::from_pointee(admin_token),
            snapshots: PoolSnapshotCache::default(),
            watchers: Arc::new(Semaphore::new(WATCHERS_MAX)),
            searches: Semaphore::new(SEARCHES_MAX),
            claims: Semaphore::new(CLAIMS_MAX),
            projects: ProjectsCache::default(),
            reloader: OnceLock::new(),
        }
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
