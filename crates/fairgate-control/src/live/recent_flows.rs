//! Cache of the pools' flows, from which all views are made. A reading copies the flows and the
//! requests in flight, but not the waiting requests. Readers within 200 ms share one reading. If a
//! reading kept the pool's task busy for long, it is shared for 100 times that long.

use std::collections::HashMap;
use std::sync::{Arc, Mutex as StdMutex, OnceLock, PoisonError};
use std::time::Duration;

use fairgate_api::admin::PoolView;
use fairgate_core::snapshot::Snapshot;
use fairgate_proxy::pools::PoolHandle;
use fairgate_runtime::PoolFlows;
use fairgate_store::Directory;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use super::pool_snapshots::{POOL_TIMEOUT, PoolUnavailableError};
use super::view::pool_view;

/// Time for which readers share a reading.
const READING_AGE_MAX: Duration = Duration::from_millis(200);
/// A reading is shared for this many times as long as it kept the pool's task busy.
const BUSY_FACTOR: u32 = 100;

/// The flows of a pool at one moment, with the view that is made from them.
#[derive(Debug)]
pub(crate) struct RecentFlows {
    flows: PoolFlows,
    taken: Instant,
    view: OnceLock<PoolView>,
}

/// The last reading of a pool, which its readers share.
type SharedFlows = Arc<Mutex<Option<Arc<RecentFlows>>>>;

/// The last reading of each pool.
#[derive(Debug, Default)]
pub(crate) struct RecentFlowsCache {
    pools: StdMutex<HashMap<Arc<str>, SharedFlows>>,
}

impl RecentFlowsCache {
    /// Returns a reading of the pool that is at most 200 ms old, or older if a reading takes long.
    pub(crate) async fn recent(
        &self,
        pool: &PoolHandle,
    ) -> Result<Arc<RecentFlows>, PoolUnavailableError> {
        let place = {
            let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
            pools.entry(pool.name.clone()).or_default().clone()
        };
        // A reader that comes while the flows are being read waits here, and then gets that reading.
        let mut last = place.lock().await;
        if let Some(recent) = last.as_ref().filter(|recent| recent.is_fresh()) {
            return Ok(recent.clone());
        }
        let unavailable = || PoolUnavailableError(pool.name.clone());
        let taken = Instant::now();
        let answer = timeout(POOL_TIMEOUT, pool.gate.flows()).await.map_err(|_| unavailable())?;
        let flows = answer.map_err(|_| unavailable())?;
        let recent = Arc::new(RecentFlows { flows, taken, view: OnceLock::new() });
        *last = Some(recent.clone());
        Ok(recent)
    }

    /// Drops the readings of pools that no longer exist.
    pub(crate) fn keep_only(&self, pools: &[Arc<PoolHandle>]) {
        let mut seen = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        seen.retain(|name, _| pools.iter().any(|pool| pool.name == *name));
    }
}

impl RecentFlows {
    fn is_fresh(&self) -> bool {
        let shared = READING_AGE_MAX.max(self.flows.counts.took * BUSY_FACTOR);
        self.taken.elapsed() <= shared
    }

    /// Returns the state of the pool without the requests that wait.
    pub(crate) fn state(&self) -> &Snapshot {
        &self.flows.state
    }

    /// Returns the view of the flows with the data of the scheduler only. The view is computed once
    /// and shared by all readers.
    pub(crate) fn view(&self, pool: &str, directory: &Directory) -> &PoolView {
        self.view.get_or_init(|| pool_view(pool, &self.flows, directory))
    }
}
