//! Snapshots of pools. Taking one copies the pool, so that all who ask within a fifth of a second share one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex as StdMutex, OnceLock, PoisonError};
use std::time::Duration;

use fairgate_core::fairness::NodeFairness;
use fairgate_core::snapshot::{RequestSnapshot, Snapshot};
use fairgate_core::units::Micros;
use fairgate_store::Directory;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use super::view::PoolView;
use crate::pools::PoolHandle;

/// How old a sight may be.
const FRESH: Duration = Duration::from_millis(200);
/// How long a pool may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// A pool at one moment.
#[derive(Debug)]
pub(crate) struct Sight {
    pub(crate) snapshot: Snapshot,
    pub(crate) fairness: Vec<NodeFairness>,
    /// The pool's time when it was taken.
    pub(crate) now: Micros,
    taken: Instant,
    view: OnceLock<PoolView>,
}

/// The last sight of each pool.
#[derive(Debug, Default)]
pub(crate) struct Sights {
    pools: StdMutex<HashMap<Arc<str>, Arc<Mutex<Seen>>>>,
}

#[derive(Debug, Default)]
struct Seen {
    sight: Option<Arc<Sight>>,
    /// An instant, and the pool's time then, at least.
    clock: Option<(Instant, Micros)>,
}

/// A pool that does not answer, because it is closing, gone or overwhelmed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("pool {0:?} does not answer")]
pub(crate) struct Unavailable(pub(crate) Arc<str>);

impl Sights {
    /// A sight of the pool that is at most a fifth of a second old.
    pub(crate) async fn of(&self, pool: &PoolHandle) -> Result<Arc<Sight>, Unavailable> {
        let now = Instant::now();
        self.newer_than(pool, now.checked_sub(FRESH).unwrap_or(now)).await
    }

    /// A sight of the pool that was taken after that instant.
    pub(crate) async fn newer_than(
        &self,
        pool: &PoolHandle,
        oldest: Instant,
    ) -> Result<Arc<Sight>, Unavailable> {
        let slot = {
            let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
            pools.entry(pool.name.clone()).or_default().clone()
        };
        // Whoever comes while one is taken waits for it, and then has it.
        let mut seen = slot.lock().await;
        if let Some(sight) = seen.sight.as_ref().filter(|sight| sight.taken >= oldest) {
            return Ok(sight.clone());
        }
        let taken = Instant::now();
        let asked = async { Ok((pool.gate.snapshot().await?, pool.gate.fairness().await?)) };
        let unavailable = || Unavailable(pool.name.clone());
        let answer = timeout(PATIENCE, asked).await.map_err(|_| unavailable())?;
        let (snapshot, fairness) = answer.map_err(|_: fairgate_runtime::Closed| unavailable())?;
        let now = seen.time(snapshot.now);
        let sight = Arc::new(Sight { snapshot, fairness, now, taken, view: OnceLock::new() });
        seen.sight = Some(sight.clone());
        Ok(sight)
    }

    /// Forgets pools that are not there any more.
    pub(crate) fn keep_only(&self, pools: &[Arc<PoolHandle>]) {
        let mut seen = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        seen.retain(|name, _| pools.iter().any(|pool| pool.name == *name));
    }
}

impl Seen {
    /// The pool's time now. A snapshot tells that of the pool's last event, which may be long ago; but its clock runs as
    /// fast as ours, so the sight that puts it furthest ahead is the one that is nearest to the truth.
    fn time(&mut self, last_event: Micros) -> Micros {
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

impl Sight {
    /// What it shows; worked out once for all who look.
    pub(crate) fn view(&self, pool: &str, directory: &Directory) -> &PoolView {
        self.view.get_or_init(|| PoolView::new(pool, self, directory))
    }

    /// How long ago a moment of the pool was.
    pub(crate) fn since(&self, moment: Micros) -> Duration {
        Duration::from_micros(self.now.0.saturating_sub(moment.0))
    }

    /// What waits or is in flight under that id.
    pub(crate) fn request(&self, id: &str) -> Option<&RequestSnapshot> {
        self.snapshot.requests.iter().find(|request| *request.id == *id)
    }
}
