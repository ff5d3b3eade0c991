//! What the control plane keeps between requests.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};

use fairgate_config::{ConfigErrors, Plan};
use tokio::sync::Semaphore;

use crate::fleet_sight::FleetSight;
use crate::live::Sights;
use crate::sync::Sync;

/// How many may watch the live view at once.
const WATCHERS_MAX: usize = 64;
/// How many may ask where a request is at once; each may copy a pool.
const SEARCHES_MAX: usize = 8;

/// How many agents may wait for a task at once.
const CLAIMS_MAX: usize = 4096;

/// What a reload comes to: what it changed, or all that was wrong; then nothing was changed.
pub type Reloading<'a> = Pin<Box<dyn Future<Output = Result<Plan, ConfigErrors>> + Send + 'a>>;

/// Who can read the configuration again, and put it in force. The binary does, where it was started with a file.
pub trait Reloader: Send + std::marker::Sync {
    /// Reads, checks, and only then applies. The audit trail says that `actor` did.
    fn reload<'a>(&'a self, actor: &'a str) -> Reloading<'a>;
}

/// The control plane's part of the [`App`](crate::app::App).
pub struct Control {
    pub(crate) sync: Sync,
    pub(crate) sights: Sights,
    pub(crate) watchers: Arc<Semaphore>,
    pub(crate) searches: Semaphore,
    pub(crate) claims: Semaphore,
    pub(crate) fleet: FleetSight,
    reloader: OnceLock<Box<dyn Reloader>>,
}

impl Default for Control {
    fn default() -> Self {
        Self::new()
    }
}

impl Control {
    /// A control plane that can do everything but reload.
    pub fn new() -> Self {
        Self {
            sync: Sync::default(),
            sights: Sights::default(),
            watchers: Arc::new(Semaphore::new(WATCHERS_MAX)),
            searches: Semaphore::new(SEARCHES_MAX),
            claims: Semaphore::new(CLAIMS_MAX),
            fleet: FleetSight::default(),
            reloader: OnceLock::new(),
        }
    }

    /// Lets `POST /api/v1/config/reload` work. The first reloader stays.
    pub fn reloads_with(&self, reloader: impl Reloader + 'static) {
        let _ = self.reloader.set(Box::new(reloader));
    }

    pub(crate) fn reloader(&self) -> Option<&dyn Reloader> {
        self.reloader.get().map(|reloader| &**reloader)
    }
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control").field("reloads", &self.reloader.get().is_some()).finish()
    }
}
