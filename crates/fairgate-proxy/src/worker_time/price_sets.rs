//! Ids of price sets, and the used price sets that are not in the audit trail yet.

use std::collections::VecDeque;
use std::sync::Arc;

use fairgate_price::worker_time::WorkerPriceSet;
use serde_json::{Value as Json, json};

use super::{CostTerms, WorkerTimeTerms};

/// Maximum number of sets of a worker that wait for the audit trail. A worker has a new set at most
/// every second.
const WAITING_MAX: usize = 1024;
/// Number of bytes of the hash in an id.
const ID_BYTES: usize = 8;

/// The terms by which one attempt is counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AttemptTerms {
    pub(crate) cost: CostTerms,
    /// Prices of the worker's time, whatever the pool counts; `None` if the worker's time has no
    /// price.
    pub(crate) worker: Option<WorkerTimeTerms>,
    /// Id of the price set; `None` unless the pool counts worker time and the worker has prices of its own.
    pub(crate) price_set: Option<Arc<str>>,
}

impl AttemptTerms {
    /// Returns the terms for a worker whose time has no price.
    pub(crate) fn of(cost: CostTerms) -> Self {
        Self { cost, worker: None, price_set: None }
    }

    /// Returns true if nothing was learned yet about the worker, or about one of the workers in the
    /// mean of the prices.
    pub(crate) fn is_guess(&self) -> bool {
        let of_cost = match self.cost {
            CostTerms::WorkerTime(terms) => Some(terms),
            CostTerms::Tokens | CostTerms::Money => None,
        };
        [of_cost, self.worker].into_iter().flatten().any(|terms| terms.is_guess)
    }
}

/// A price set by which attempts were counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PriceSetRecord {
    pub(crate) id: Arc<str>,
    pub(crate) worker: Arc<str>,
    /// Pool of the first attempt that was counted by the set.
    pool: Box<str>,
    set: WorkerPriceSet,
    is_stated: bool,
}

impl PriceSetRecord {
    /// Returns the set as the audit trail shows it.
    pub(crate) fn audit_json(&self) -> Json {
        let prices = &self.set.prices;
        json!({
            "id": *self.id,
            "pool": self.pool,
            "source": if self.is_stated { "stated" } else { "learned" },
            "full_batch": self.set.batch.thousandths() as f64 / 1e3,
            "request_ps": prices.request,
            "input_ps": prices.input,
            "input_input_ps": prices.input_input,
            "cached_ps": prices.cached,
            "output_ps": prices.output,
            "context_output_ps": prices.context_output,
        })
    }
}

/// The price sets of one meter by which attempts were counted.
#[derive(Default)]
pub(super) struct UsedPriceSets {
    last: Option<(WorkerPriceSet, Arc<str>)>,
    waiting: VecDeque<PriceSetRecord>,
}

impl UsedPriceSets {
    /// Returns the id of a set by which an attempt is counted. A set that differs from the last one
    /// is kept for the audit trail.
    pub(super) fn id_of(
        &mut self,
        set: WorkerPriceSet,
        (pool, worker): (&str, &Arc<str>),
        is_stated: bool,
    ) -> Arc<str> {
        if let Some((_, id)) = self.last.as_ref().filter(|(last, _)| *last == set) {
            return id.clone();
        }
        let id = set_id(&set);
        self.last = Some((set, id.clone()));
        if self.waiting.len() >= WAITING_MAX {
            self.waiting.pop_front();
        }
        let (worker, pool) = (worker.clone(), pool.into());
        self.waiting.push_back(PriceSetRecord { id: id.clone(), worker, pool, set, is_stated });
        id
    }

    pub(super) fn take(&mut self) -> Vec<PriceSetRecord> {
        self.waiting.drain(..).collect()
    }
}

/// Returns the id of a set. Sets with the same prices and batch have the same id, also after a
/// restart.
fn set_id(set: &WorkerPriceSet) -> Arc<str> {
    let mut hasher = blake3::Hasher::new();
    for number in super::in_order(&set.prices).into_iter().chain([set.batch.thousandths()]) {
        hasher.update(&number.to_le_bytes());
    }
    let digits = hasher.finalize().to_hex();
    format!("wt-{}", &digits[..2 * ID_BYTES]).into()
}

#[cfg(test)]
mod tests {
    use fairgate_price::worker_time::{FullBatch, WorkerPrices};

    use super::*;

    fn set(number: u64, output: u64) -> WorkerPriceSet {
        let prices = WorkerPrices { request: 7, output, ..WorkerPrices::default() };
        let batch = FullBatch::from_thousandths(15_700);
        WorkerPriceSet { number, prices, batch, is_guess: false }
    }

    #[test]
    fn a_set_waits_for_the_audit_trail_once_and_its_id_follows_from_its_prices() {
        let mut used = UsedPriceSets::default();
        let worker: Arc<str> = "gpu".into();
        let first = used.id_of(set(0, 5), ("pool", &worker), false);
        assert_eq!(used.id_of(set(0, 5), ("other", &worker), false), first);
        let second = used.id_of(set(1, 6), ("pool", &worker), false);
        assert_ne!(first, second);
        let taken = used.take();
        assert_eq!(
            taken.iter().map(|it| it.id.clone()).collect::<Vec<_>>(),
            [first.clone(), second]
        );
        let told = taken[0].audit_json();
        assert_eq!((&told["output_ps"], &told["full_batch"]), (&5.into(), &15.7.into()));
        assert_eq!((&told["pool"], &told["source"]), (&"pool".into(), &"learned".into()));
        assert!(used.take().is_empty());
        // As after a restart.
        let again = UsedPriceSets::default().id_of(set(9, 5), ("pool", &worker), true);
        assert_eq!(again, first);
    }

    #[test]
    fn what_waits_is_bounded() {
        let (mut used, worker) = (UsedPriceSets::default(), "gpu".into());
        for number in 0..3000 {
            used.id_of(set(number, number), ("pool", &worker), false);
        }
        assert_eq!(used.take().len(), WAITING_MAX);
    }
}
