//! Cache of whole snapshots, for calls that need single requests. Taking a snapshot copies the pool
//! with its queues, so all readers within 200 ms share one. Views of flows are made from
//! [`RecentFlows`] instead.
//!
//! [`RecentFlows`]: super::RecentFlows

use std::collections::HashMap;
use std::sync::{Arc, Mutex as StdMutex, PoisonError};
use std::time::Duration;

use fairgate_core::fairness::NodeFairness;
use fairgate_core::snapshot::{RequestSnapshot, Snapshot};
use fairgate_core::units::Micros;
use fairgate_proxy::pools::PoolHandle;
use fairgate_runtime::{FlowGrants, expected_wait};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use super::activity::FlowActivity;

/// Maximum age of a cached snapshot.
const SNAPSHOT_AGE_MAX: Duration = Duration::from_millis(200);
/// Time limit for a pool's answer with a snapshot.
pub(super) const POOL_TIMEOUT: Duration = Duration::from_secs(2);

/// Snapshot of a pool with its fairness and recent grants.
#[derive(Debug)]
pub(crate) struct PoolSnapshot {
    pub(crate) snapshot: Snapshot,
    pub(crate) fairness: Vec<NodeFairness>,
    /// Grants of the flows in the last minute; the entry with an empty path is the whole pool.
    pub(crate) grants: Vec<FlowGrants>,
    /// Time on the pool's clock at which the snapshot was taken.
    pub(crate) now: Micros,
    taken: Instant,
}

/// The last snapshot of each pool.
#[derive(Debug, Default)]
pub(crate) struct PoolSnapshotCache {
    pools: StdMutex<HashMap<Arc<str>, Arc<Mutex<CachedPoolSnapshot>>>>,
}

#[derive(Debug, Default)]
struct CachedPoolSnapshot {
    last: Option<Arc<PoolSnapshot>>,
    /// A time on the clock of this process, and the pool's estimated time at that moment. The pool's real time was at
    /// least as late. `None` before the first snapshot.
    clock: Option<(Instant, Micros)>,
}

/// Error for a pool that does not answer, because it is closing, removed or overloaded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("pool {0:?} does not answer")]
pub(crate) struct PoolUnavailableError(pub(crate) Arc<str>);

impl PoolSnapshotCache {
    /// Returns a snapshot of the pool that is at most 200 ms old.
    pub(crate) async fn recent(
        &self,
        pool: &PoolHandle,
    ) -> Result<Arc<PoolSnapshot>, PoolUnavailableError> {
        let now = Instant::now();
        self.newer_than(pool, now.checked_sub(SNAPSHOT_AGE_MAX).unwrap_or(now)).await
    }

    /// Returns a snapshot of the pool that was taken at or after `oldest`.
    pub(crate) async fn newer_than(
        &self,
        pool: &PoolHandle,
        oldest: Instant,
    ) -> Result<Arc<PoolSnapshot>, PoolUnavailableError> {
        let slot = {
            let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
            pools.entry(pool.name.clone()).or_default().clone()
        };
        // A reader that comes while a snapshot is being taken waits here, and then gets that one.
        let mut seen = slot.lock().await;
        if let Some(recent) = seen.last.as_ref().filter(|recent| recent.taken >= oldest) {
            return Ok(recent.clone());
        }
        let taken = Instant::now();
        let gate = &pool.gate;
        let asked = async {
            Ok((gate.snapshot().await?, gate.fairness().await?, gate.recent_grants().await?))
        };
        let unavailable = || PoolUnavailableError(pool.name.clone());
        let answer = timeout(POOL_TIMEOUT, asked).await.map_err(|_| unavailable())?;
        let (snapshot, fairness, grants) =
            answer.map_err(|_: fairgate_runtime::GateClosedError| unavailable())?;
        let now = seen.estimated_pool_time(snapshot.now);
        let recent = Arc::new(PoolSnapshot { snapshot, fairness, grants, now, taken });
        seen.last = Some(recent.clone());
        Ok(recent)
    }

    /// Drops the snapshots of pools that no longer exist.
    pub(crate) fn keep_only(&self, pools: &[Arc<PoolHandle>]) {
        let mut seen = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        seen.retain(|name, _| pools.iter().any(|pool| pool.name == *name));
    }
}

impl CachedPoolSnapshot {
    /// Returns an estimate of the pool's current time. A snapshot holds the time of the pool's last event, which may be
    /// long ago. The pool's clock runs as fast as the clock of this process, so the previous estimate plus the time
    /// that has passed since then is also a lower bound. The estimate is the later of the two times.
    fn estimated_pool_time(&mut self, last_event: Micros) -> Micros {
        let now = Instant::now();
        let by_clock = self.clock.map_or(Micros(0), |(then, time)| {
            let passed = u64::try_from((now - then).as_micros()).unwrap_or(u64::MAX);
            Micros(time.0.saturating_add(passed))
        });
        let time = by_clock.max(last_event);
        self.clock = Some((now, time));
        time
    }
}

impl PoolSnapshot {
    /// Returns the expected wait of each request in the order of the snapshot, in milliseconds. The wait is the number
    /// of queued requests in the request's flow ÷ the flow's grants per second in the last minute. `None` for a request
    /// in flight, or if the flow had no grant in that minute.
    pub(crate) fn expected_waits_ms(&self) -> Vec<Option<u64>> {
        let policy = &self.snapshot.policy;
        let requests = &self.snapshot.requests;
        let activity = FlowActivity::of(policy, requests, &self.fairness, &self.grants);
        let of = |request: &RequestSnapshot| {
            let path = policy.path_of(|by| request.attributes.get(by)).map(|(_, flow)| flow);
            let flow = activity.find(path)?;
            flow.rate().expected_wait_ms(flow.waiting)
        };
        let waiting = |request: &RequestSnapshot| request.flight.is_none().then(|| of(request));
        self.snapshot.requests.iter().map(|request| waiting(request).flatten()).collect()
    }

    /// Returns the time in which the pool makes `ahead` grants at the rate of the last minute, in
    /// milliseconds. `None` if the pool granted nothing in that minute.
    pub(crate) fn expected_wait_ms(&self, ahead: u64) -> Option<u64> {
        let pool = self.grants.iter().find(|flow| flow.path.is_empty())?;
        let wait = expected_wait(ahead, pool.grants, pool.observed)?;
        Some(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX))
    }

    /// Returns the time since `moment` on the pool's clock; zero for a moment in the future.
    pub(crate) fn since(&self, moment: Micros) -> Duration {
        Duration::from_micros(self.now.0.saturating_sub(moment.0))
    }

    /// Returns the request with that id, if it is queued or in flight.
    pub(crate) fn request(&self, id: &str) -> Option<&RequestSnapshot> {
        self.snapshot.requests.iter().find(|request| *request.id == *id)
    }
}
