//! Applies the directory's weights and in-flight caps to the pools, as events, so that they are in the journal.
//!
//! In a share node by group, tenant or project, a flow has the name of its group, tenant or
//! project. In a share node by key, a flow has the id of its key. Caps also apply in `bands` nodes.
//!
//! A weight in the directory overrides the policy's `weights` for the flow of that name. But if every share node by the
//! attribute lists its classes, the weights of these classes apply instead. A cap in the directory replaces the
//! policy's cap, and counts all requests that the tenant or key has in flight in the pool. Without a cap in the
//! directory, the policy's cap applies.
//!
//! The events are sent to every pool when the directory changes, before the change is acknowledged. A new policy drops
//! the weights and caps that events have set, so the events are sent again after a reload.

mod declaration_watch;
mod directory_settings;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use fairgate_core::attribute::Attribute;
use fairgate_core::policy::{DEFAULT_WEIGHT, Policy};
use fairgate_core::units::Weight;
use fairgate_runtime::GateChangeError;
use fairgate_store::{Directory, Store, StoreError};
use tokio::sync::Mutex;

pub use self::declaration_watch::DeclarationWatch;
use self::directory_settings::{
    DirectorySettings, ProjectWeight, directory_settings, unenforced_caps,
};
use crate::fleet_calls::FleetCalls;
use crate::identity::CallerDirectory;
use crate::limits::CallerLimits;
use crate::phase::{GatewayLifecycle, GatewayPhase};
use crate::pools::{PoolHandle, Pools, shares_by};

/// Interval at which the gateway looks for changes that other gateways have made to the directory.
const REFRESH_INTERVAL: Duration = Duration::from_secs(2);

/// Remembers which weights and caps each pool has, so that only changed ones are sent to the pool.
#[derive(Debug, Default)]
pub(crate) struct PoolSync {
    pools: Mutex<HashMap<Arc<str>, LastSent>>,
}

/// Weights and caps that one pool has. They are read from the pool's snapshot when the pool is new, and again when its
/// policy changes, because a new policy drops the weights and caps that events have set.
#[derive(Debug)]
struct LastSent {
    pool: Weak<PoolHandle>,
    policy: Policy,
    /// Value of `PoolHandle::books_begun` when the weights and caps were read.
    books_begun: u64,
    weights: HashMap<Flow, Weight>,
    caps: HashMap<Flow, Option<u64>>,
    /// Attributes for which the log already warned that this policy cannot enforce an in-flight cap.
    warned: HashSet<Attribute>,
}

type Flow = (Attribute, Box<str>);

/// Keeps the known keys, the limits, and the weights and caps of the pools equal to the directory.
pub struct DirectorySync {
    pub(crate) store: Store,
    pub(crate) fleet: Arc<dyn FleetCalls>,
    pub(crate) identity: Arc<CallerDirectory>,
    pub(crate) limits: Arc<CallerLimits>,
    pub(crate) pools: Arc<Pools>,
    pub(crate) last_sent: PoolSync,
    /// Warns if another gateway applies declarations that differ from those in this gateway's file.
    pub declarations: DeclarationWatch,
}

impl DirectorySync {
    /// Reads the directory and applies it. Returns true if the directory had changed. Called after every change, after a
    /// reload, and by [`refresh_until_closed`](Self::refresh_until_closed).
    pub async fn refresh(&self) -> Result<bool, StoreError> {
        let changed = self.identity.refresh(&self.store).await?;
        let directory = self.identity.directory();
        if changed {
            self.limits.keep_only(&directory);
        }
        self.declarations.look(&directory);
        let pools = self.pools.all();
        let by_project =
            pools.iter().any(|pool| shares_by(&pool.config().policy, Attribute::Project));
        let projects = if by_project { self.project_weights().await? } else { Vec::new() };
        self.last_sent.apply(&directory, &projects, &pools).await;
        Ok(changed)
    }

    /// Returns the weight of each project, converted to the unit of the policies: a project's weight of 1 becomes
    /// [`DEFAULT_WEIGHT`].
    async fn project_weights(&self) -> Result<Vec<ProjectWeight>, StoreError> {
        let weigh = |(id, thousandths): (String, u64)| {
            let weight = thousandths.saturating_mul(DEFAULT_WEIGHT).div_ceil(1000).max(1);
            ProjectWeight { id, weight }
        };
        Ok(self.fleet.project_weights().await?.into_iter().map(weigh).collect())
    }

    /// Calls [`refresh`](Self::refresh) every two seconds until the gateway closes, so that each of several gateways on
    /// one database takes over the changes of the others.
    pub async fn refresh_until_closed(&self, lifecycle: &GatewayLifecycle) {
        let mut phase = lifecycle.watch();
        let closing =
            async move { phase.wait_for(|stage| *stage >= GatewayPhase::Closing).await.map(drop) };
        let following = async {
            let mut failing = false;
            loop {
                match self.refresh().await {
                    Ok(_) => failing = false,
                    Err(error) if !failing => {
                        tracing::warn!(%error, "the directory could not be read; the last one holds");
                        failing = true;
                    }
                    Err(_) => {}
                }
                tokio::time::sleep(REFRESH_INTERVAL).await;
            }
        };
        tokio::select! {
            _ = closing => {}
            () = following => {}
        }
    }
}

impl PoolSync {
    /// Sends each pool the weights and caps that differ from the pool's present ones.
    pub(crate) async fn apply(
        &self,
        directory: &Directory,
        projects: &[ProjectWeight],
        pools: &[Arc<PoolHandle>],
    ) {
        let mut told = self.pools.lock().await;
        told.retain(|name, _| pools.iter().any(|pool| pool.name == *name));
        for pool in pools {
            // A pool that is closing or gone does not need the change.
            if let Err(error) = sync_pool(&mut told, directory, projects, pool).await {
                tracing::debug!(pool = &*pool.name, %error, "weights and caps were not applied");
            }
        }
    }
}

async fn sync_pool(
    all: &mut HashMap<Arc<str>, LastSent>,
    directory: &Directory,
    projects: &[ProjectWeight],
    pool: &Arc<PoolHandle>,
) -> Result<(), GateChangeError> {
    let known = all.get(&pool.name).is_some_and(|told| told.is_current_for(pool));
    if !known {
        all.insert(pool.name.clone(), LastSent::read_from(pool).await?);
    }
    let Some(told) = all.get_mut(&pool.name) else { return Ok(()) };
    told.warn_of_unenforced_caps(pool, directory);
    for wanted_settings in directory_settings(directory, projects, &told.policy) {
        told.send_differences(pool, &wanted_settings).await?;
    }
    Ok(())
}

impl LastSent {
    fn is_current_for(&self, pool: &Arc<PoolHandle>) -> bool {
        self.pool.as_ptr() == Arc::as_ptr(pool)
            && self.policy == pool.config().policy
            && self.books_begun == pool.books_begun()
    }

    async fn read_from(pool: &Arc<PoolHandle>) -> Result<Self, GateChangeError> {
        // Read before the snapshot: if the scores start again meanwhile, the next call reads the
        // snapshot again.
        let books_begun = pool.books_begun();
        let snapshot = pool.gate.snapshot().await?;
        let weights = snapshot.weights.into_iter().map(|(by, flow, weight)| ((by, flow), weight));
        let caps = snapshot.caps.into_iter().map(|cap| ((cap.by, cap.flow), cap.slots));
        Ok(Self {
            pool: Arc::downgrade(pool),
            policy: snapshot.policy,
            books_begun,
            weights: weights.collect(),
            caps: caps.collect(),
            warned: HashSet::new(),
        })
    }

    /// Logs a warning, once for tenants and once for keys, if a pool's policy cannot enforce an in-flight cap.
    fn warn_of_unenforced_caps(&mut self, pool: &PoolHandle, directory: &Directory) {
        for (by, flow) in unenforced_caps(directory, &self.policy) {
            if self.warned.insert(by) {
                tracing::warn!(
                    pool = &*pool.name,
                    by = by.name(),
                    name = flow,
                    "in_flight is set, and this pool's policy does not hold it: every request must pass a share or bands \
                     node by this attribute in which this name is a flow of its own"
                );
            }
        }
    }

    async fn send_differences(
        &mut self,
        pool: &PoolHandle,
        wanted_settings: &DirectorySettings<'_>,
    ) -> Result<(), GateChangeError> {
        let flow: Flow = (wanted_settings.by, wanted_settings.flow.into());
        let weight = self.weights.get(&flow).copied().or(wanted_settings.policy_weight);
        if let Some(wanted) = wanted_settings.weight.filter(|wanted| weight != Some(*wanted)) {
            pool.gate.set_weight(wanted_settings.by, wanted_settings.flow, wanted).await?;
            self.weights.insert(flow.clone(), wanted);
        }
        // The directory has no caps of projects: an operator sets them for each pool.
        if wanted_settings.by == Attribute::Project {
            return Ok(());
        }
        let cap = self.caps.get(&flow).copied().unwrap_or(wanted_settings.policy_cap);
        let wanted = wanted_settings.cap.or(wanted_settings.policy_cap);
        if cap != wanted {
            pool.gate.set_cap(wanted_settings.by, wanted_settings.flow, wanted).await?;
            self.caps.insert(flow, wanted);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
