//! Writes the price sets by which attempts were counted to the audit trail.
//!
//! Rows of the ledger name a price set by its id; the entry of the audit trail has the prices.
//! While a worker's prices are learned, it gets a new set every few seconds at most, and later
//! seldom. Sets that cannot be written now are written later, because rows of the ledger wait for
//! the database too.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fairgate_store::{AuditQuery, DirectoryChange, LogThrottle, Store, StoreError};
use fairgate_time::wall_clock;
use serde_json::Value as Json;
use tokio::sync::Mutex;
use tokio::time::{MissedTickBehavior, interval};

use crate::phase::GatewayLifecycle;
use crate::pools::Pools;
use crate::worker_time::{PriceSetRecord, WorkerMeter};

/// Name of the action in the audit trail.
const ACTION: &str = "worker_prices.set";
/// Actor in the audit trail: the gateway itself learns prices or reads them from the configuration.
const ACTOR: &str = "gateway";
/// Interval at which new sets are written.
const WRITE_EVERY: Duration = Duration::from_secs(1);
/// Number of such intervals between two queries for other gateways.
const LOOK_EVERY: u64 = 30;
/// Maximum number of sets that wait for the database.
const WAITING_MAX: usize = 4096;

/// The price sets that are not in the audit trail yet.
#[derive(Default)]
pub(crate) struct PriceSetAudit {
    state: Mutex<AuditState>,
    /// Number of other gateways on the database, as of the last query.
    other_gateways: AtomicU64,
}

#[derive(Default)]
struct AuditState {
    /// The meters at the last write. A reload may since have removed a meter whose sets still have
    /// to be written.
    meters: Vec<Arc<WorkerMeter>>,
    waiting: VecDeque<PriceSetRecord>,
    /// The last set of each worker in the audit trail; `None` if it has none.
    written: BTreeMap<Arc<str>, Option<Json>>,
}

impl PriceSetAudit {
    /// Returns the number of other gateways on the database, as of the last query.
    pub(crate) fn other_gateways(&self) -> u64 {
        self.other_gateways.load(Ordering::Relaxed)
    }

    /// Writes all sets by which attempts have been counted so far.
    pub(crate) async fn write(&self, pools: &Pools, store: &Store) -> Result<(), StoreError> {
        let mut state = self.state.lock().await;
        let now = pools.worker_meters();
        let before = std::mem::replace(&mut state.meters, now.clone());
        for meter in before.iter().chain(&now) {
            state.waiting.extend(meter.take_used_sets());
        }
        let too_many = state.waiting.len().saturating_sub(WAITING_MAX);
        if too_many > 0 {
            tracing::warn!(
                too_many,
                "price sets of workers are missing in the audit trail, because the database is away"
            );
            state.waiting.drain(..too_many);
        }
        while let Some(record) = state.waiting.front().cloned() {
            state.write_one(store, &record).await?;
            state.waiting.pop_front();
        }
        Ok(())
    }

    /// Queries the number of other gateways on the database; this gateway cannot see their load on
    /// the workers. Returns the number if there were none before.
    async fn look_for_others(&self, store: &Store) -> Result<Option<u64>, StoreError> {
        let others = store.other_gateways().await?;
        let before = self.other_gateways.swap(others, Ordering::Relaxed);
        Ok((before == 0 && others > 0).then_some(others))
    }
}

impl AuditState {
    async fn write_one(
        &mut self,
        store: &Store,
        record: &PriceSetRecord,
    ) -> Result<(), StoreError> {
        let after = record.audit_json();
        let before = match self.written.get(&record.worker) {
            Some(known) => known.clone(),
            None => last_entry(store, &record.worker).await?,
        };
        let is_same = before.as_ref().is_some_and(|before| before["id"] == after["id"]);
        if !is_same {
            let subject = record.worker.to_string();
            let note =
                DirectoryChange::Note { action: ACTION, subject, before, after: after.clone() };
            store.change(ACTOR, wall_clock::now(), note).await?;
        }
        self.written.insert(record.worker.clone(), Some(after));
        Ok(())
    }
}

/// Returns the last set of a worker in the audit trail.
async fn last_entry(store: &Store, worker: &str) -> Result<Option<Json>, StoreError> {
    let (action, subject) = (Some(ACTION.to_owned()), Some(worker.to_owned()));
    let query = AuditQuery { action, subject, limit: 1, ..AuditQuery::default() };
    Ok(store.audit(query).await?.into_iter().next().and_then(|entry| entry.after))
}

/// Writes price sets at intervals.
pub(crate) struct PriceSetWriter {
    pub(crate) audit: Arc<PriceSetAudit>,
    pub(crate) pools: Arc<Pools>,
    pub(crate) store: Store,
    pub(crate) phase: Arc<GatewayLifecycle>,
    pub(crate) log_throttle: Arc<LogThrottle<&'static str>>,
}

impl PriceSetWriter {
    /// Writes price sets and looks for other gateways until the gateway drains.
    pub(crate) async fn run(self) {
        let mut ticks = interval(WRITE_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for tick in 0_u64.. {
            ticks.tick().await;
            if !self.phase.is_serving() {
                return;
            }
            if let Err(error) = self.audit.write(&self.pools, &self.store).await {
                self.log(&error);
            }
            if tick % LOOK_EVERY == 0 {
                self.look_for_others().await;
            }
        }
    }

    async fn look_for_others(&self) {
        match self.audit.look_for_others(&self.store).await {
            Ok(Some(others)) if self.pools.all().iter().any(|pool| pool.learns_prices()) => {
                tracing::warn!(
                    others,
                    "other gateways are on this database: if they use the same workers, prices of worker time are learned \
                     from a part of the load and are wrong; state cost.prices, see docs/currency.md#several-gateways"
                );
            }
            Ok(_) => {}
            Err(error) => self.log(&error),
        }
    }

    fn log(&self, error: &StoreError) {
        let now = tokio::time::Instant::now();
        if let Some(left_out) = self.log_throttle.admit("price sets", now) {
            tracing::warn!(%error, left_out, "price sets of workers could not be written to the audit trail yet");
        }
    }
}
