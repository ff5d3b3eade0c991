//! From the directory to the pools: weights and in-flight caps become events, and so are in the journal.
//!
//! Groups, tenants and keys are flows by name (keys by id), in every share node that shares by them. The directory's
//! weight always holds, whatever the policy's `weights` say for that name; where all nodes that share by it list their
//! classes, theirs hold. A cap of the directory replaces the policy's and counts all that the tenant or key has in
//! flight in the pool; where the directory has none, the policy's holds. Projects are flows by name too, with their weights.

mod wishes;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use fairgate_core::attribute::Attribute;
use fairgate_core::policy::{DEFAULT_WEIGHT, Policy};
use fairgate_core::units::Weight;
use fairgate_runtime::ChangeError;
use fairgate_store::{Directory, Store, StoreError, fleet};
use tokio::sync::Mutex;

use self::wishes::{ProjectWeight, Wish, unheld, wishes};
use crate::app::App;
use crate::phase::Stage;
use crate::pools::{PoolHandle, shares_by};

/// How often the directory is asked whether another gateway has changed it.
const EVERY: Duration = Duration::from_secs(2);

/// What each pool was told.
#[derive(Debug, Default)]
pub(crate) struct Sync {
    pools: Mutex<HashMap<Arc<str>, Told>>,
}

/// What one pool was told. Learned from the pool itself when it is first met, and anew when its policy is another, for
/// a new policy forgets what events have said.
#[derive(Debug)]
struct Told {
    pool: Weak<PoolHandle>,
    policy: Policy,
    weights: HashMap<Flow, Weight>,
    caps: HashMap<Flow, Option<u64>>,
    /// Whose in-flight caps it was said of that this policy does not hold them.
    warned: HashSet<Attribute>,
}

type Flow = (Attribute, Box<str>);

/// Brings everything that follows the directory up to date: who is known, what is counted, what the pools know. Says
/// whether the directory had changed. Called after every change, after a reload, and by [`follow`].
pub async fn refresh(app: &App) -> Result<bool, StoreError> {
    let changed = app.identity.refresh(&app.store).await?;
    let directory = app.identity.directory();
    if changed {
        app.limits.keep_only(&directory);
    }
    let pools = app.pools.all();
    app.control.sights.keep_only(&pools);
    let by_project = pools.iter().any(|pool| shares_by(&pool.config().policy, Attribute::Project));
    let projects = if by_project { project_weights(&app.store).await? } else { Vec::new() };
    app.control.sync.apply(&directory, &projects, &pools).await;
    Ok(changed)
}

/// The projects' weights, of which 1 is a weight of [`DEFAULT_WEIGHT`].
async fn project_weights(store: &Store) -> Result<Vec<ProjectWeight>, StoreError> {
    let weights = store.inspect(|transaction| fleet::project_weights(transaction)).await?;
    let weigh = |(id, thousandths): (String, u64)| {
        let weight = thousandths.saturating_mul(DEFAULT_WEIGHT).div_ceil(1000).max(1);
        ProjectWeight { id, weight }
    };
    Ok(weights.into_iter().map(weigh).collect())
}

/// Refreshes every two seconds, until the gateway closes: several gateways on one database follow each other.
pub async fn follow(app: Arc<App>) {
    let mut phase = app.phase.watch();
    let closing = async move { phase.wait_for(|stage| *stage >= Stage::Closing).await.map(drop) };
    let following = async {
        let mut failing = false;
        loop {
            match refresh(&app).await {
                Ok(_) => failing = false,
                Err(error) if !failing => {
                    tracing::warn!(%error, "the directory could not be read; the last one holds");
                    failing = true;
                }
                Err(_) => {}
            }
            tokio::time::sleep(EVERY).await;
        }
    };
    tokio::select! {
        _ = closing => {}
        () = following => {}
    }
}

impl Sync {
    /// Tells each pool what it does not know yet.
    pub(crate) async fn apply(
        &self,
        directory: &Directory,
        projects: &[ProjectWeight],
        pools: &[Arc<PoolHandle>],
    ) {
        let mut told = self.pools.lock().await;
        told.retain(|name, _| pools.iter().any(|pool| pool.name == *name));
        for pool in pools {
            // A pool that is closing, or gone, need not know.
            if let Err(error) = tell(&mut told, directory, projects, pool).await {
                tracing::debug!(pool = &*pool.name, %error, "weights and caps were not applied");
            }
        }
    }
}

async fn tell(
    all: &mut HashMap<Arc<str>, Told>,
    directory: &Directory,
    projects: &[ProjectWeight],
    pool: &Arc<PoolHandle>,
) -> Result<(), ChangeError> {
    let known = all.get(&pool.name).is_some_and(|told| told.is_about(pool));
    if !known {
        all.insert(pool.name.clone(), Told::learned_from(pool).await?);
    }
    let Some(told) = all.get_mut(&pool.name) else { return Ok(()) };
    told.warn(pool, directory);
    for wish in wishes(directory, projects, &told.policy) {
        told.fulfil(pool, &wish).await?;
    }
    Ok(())
}

impl Told {
    fn is_about(&self, pool: &Arc<PoolHandle>) -> bool {
        self.pool.as_ptr() == Arc::as_ptr(pool) && self.policy == pool.config().policy
    }

    async fn learned_from(pool: &Arc<PoolHandle>) -> Result<Self, ChangeError> {
        let snapshot = pool.gate.snapshot().await?;
        let weights = snapshot.weights.into_iter().map(|(by, flow, weight)| ((by, flow), weight));
        let caps = snapshot.caps.into_iter().map(|cap| ((cap.by, cap.flow), cap.slots));
        Ok(Self {
            pool: Arc::downgrade(pool),
            policy: snapshot.policy,
            weights: weights.collect(),
            caps: caps.collect(),
            warned: HashSet::new(),
        })
    }

    /// Says once, of tenants and of keys, that a cap of theirs is not held by this pool's policy.
    fn warn(&mut self, pool: &PoolHandle, directory: &Directory) {
        for (by, flow) in unheld(directory, &self.policy) {
            if self.warned.insert(by) {
                tracing::warn!(
                    pool = &*pool.name,
                    by = by.name(),
                    name = flow,
                    "in_flight is set, and this pool's policy does not hold it: every request must pass a share node by \
                     this attribute in which this name is a flow of its own"
                );
            }
        }
    }

    async fn fulfil(&mut self, pool: &PoolHandle, wish: &Wish<'_>) -> Result<(), ChangeError> {
        let flow: Flow = (wish.by, wish.flow.into());
        let weight = self.weights.get(&flow).copied().or(wish.policy_weight);
        if let Some(wanted) = wish.weight.filter(|wanted| weight != Some(*wanted)) {
            pool.gate.weight(wish.by, wish.flow, wanted).await?;
            self.weights.insert(flow.clone(), wanted);
        }
        let cap = self.caps.get(&flow).copied().unwrap_or(wish.policy_cap);
        let wanted = wish.cap.or(wish.policy_cap);
        if cap != wanted {
            pool.gate.cap(wish.by, wish.flow, wanted).await?;
            self.caps.insert(flow, wanted);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
