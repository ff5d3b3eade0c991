//! The instruments of one pool. Each is looked up in its family once, because a look-up hashes all labels under a lock.
//!
//! An instrument is created when it first counts, so a scrape shows no series that has not counted anything.

use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::histogram::Histogram;

use super::instruments::{
    ClassLabels, MetricInstruments, PoolLabel, PoolTier, RequestLabels, WorkerOutcome,
};
use super::label_names::{LabelNames, MOST_NAMES, OTHER};
use crate::fast_map::FastMap;

/// Greatest number of instruments that a [`FoundList`] keeps. It is searched from its beginning, so a longer one would
/// cost more than the look-up in the family.
const FOUND_MAX: usize = 32;

/// The instruments of the pools that have counted something.
#[derive(Debug, Default)]
pub(super) struct PoolInstrumentTable {
    pools: RwLock<FastMap<Arc<str>, Arc<PoolInstruments>>>,
}

impl PoolInstrumentTable {
    /// Returns the instruments of a pool: its own, or those of `other` beyond the maximum number of names.
    pub(super) fn of(&self, pool: &str) -> Arc<PoolInstruments> {
        let known = self.pools.read().unwrap_or_else(PoisonError::into_inner).get(pool).cloned();
        known.unwrap_or_else(|| self.add(pool))
    }

    fn add(&self, pool: &str) -> Arc<PoolInstruments> {
        let mut pools = self.pools.write().unwrap_or_else(PoisonError::into_inner);
        let name = if pools.len() < MOST_NAMES { pool } else { OTHER };
        if let Some(known) = pools.get(name) {
            return known.clone();
        }
        let name: Arc<str> = name.into();
        let instruments = Arc::new(PoolInstruments::of(name.clone()));
        pools.insert(name, instruments.clone());
        instruments
    }
}

/// The instruments of one pool that were found so far.
#[derive(Debug)]
pub(super) struct PoolInstruments {
    labels: PoolLabel,
    pub(super) wait: OnceLock<Histogram>,
    pub(super) first_token: OnceLock<Histogram>,
    pub(super) total: OnceLock<Histogram>,
    pub(super) estimate_ratio: OnceLock<Histogram>,
    pub(super) estimated: OnceLock<Counter>,
    pub(super) charged: OnceLock<Counter>,
    pub(super) worker_time: OnceLock<Counter>,
    /// Counters of tier 0, then those of all higher tiers.
    tiers: [OnceLock<TierCounters>; 2],
    /// Requests by route, outcome and status.
    requests: FoundList<[&'static str; 3], Counter>,
    /// Attempts by worker and outcome.
    attempts: FoundList<(Box<str>, &'static str), Counter>,
    class_wait: FoundList<Box<str>, Histogram>,
    class_charged: FoundList<Box<str>, Counter>,
}

/// Counters of the attempts of one pool on own workers, or on hosted ones.
#[derive(Debug)]
pub(super) struct TierCounters {
    pub(super) requests: Counter,
    pub(super) tokens: Counter,
    pub(super) money: Counter,
}

impl PoolInstruments {
    fn of(pool: Arc<str>) -> Self {
        Self {
            labels: PoolLabel { pool },
            wait: OnceLock::new(),
            first_token: OnceLock::new(),
            total: OnceLock::new(),
            estimate_ratio: OnceLock::new(),
            estimated: OnceLock::new(),
            charged: OnceLock::new(),
            worker_time: OnceLock::new(),
            tiers: [const { OnceLock::new() }; 2],
            requests: FoundList::default(),
            attempts: FoundList::default(),
            class_wait: FoundList::default(),
            class_charged: FoundList::default(),
        }
    }

    /// Returns the pool's label value.
    pub(super) fn name(&self) -> Arc<str> {
        self.labels.pool.clone()
    }

    /// Returns the instrument of the pool in a family. `found` is the field that keeps it.
    pub(super) fn find<'a, M: Clone, C: MetricConstructor<M>>(
        &self,
        found: &'a OnceLock<M>,
        family: &Family<PoolLabel, M, C>,
    ) -> &'a M {
        found.get_or_init(|| family.get_or_create_owned(&self.labels))
    }

    /// Returns the counter of requests with these labels.
    pub(super) fn requests(
        &self,
        to: &MetricInstruments,
        [route, outcome, status]: [&'static str; 3],
    ) -> Counter {
        let labels = [route, outcome, status];
        self.requests.get(
            |known| *known == labels,
            || {
                let labels = RequestLabels { pool: self.name(), route, outcome, status };
                ([route, outcome, status], to.requests.get_or_create_owned(&labels))
            },
        )
    }

    /// Returns the counter of attempts on a worker with an outcome.
    pub(super) fn attempts(
        &self,
        to: &MetricInstruments,
        names: &LabelNames,
        worker: &str,
        outcome: &'static str,
    ) -> Counter {
        let is_it = |(name, known): &(Box<str>, &str)| **name == *worker && *known == outcome;
        self.attempts.get(is_it, || {
            let (pool, label) = (self.name(), names.label(worker));
            let labels = WorkerOutcome { pool, worker: label, outcome };
            ((worker.into(), outcome), to.attempts.get_or_create_owned(&labels))
        })
    }

    /// Returns the counters of the tier 0, or of all higher tiers.
    pub(super) fn tier(&self, to: &MetricInstruments, tier: u32) -> &TierCounters {
        let (found, tier) = match tier {
            0 => (&self.tiers[0], "own"),
            _ => (&self.tiers[1], "hosted"),
        };
        found.get_or_init(|| {
            let labels = PoolTier { pool: self.name(), tier };
            TierCounters {
                requests: to.tier_requests.get_or_create_owned(&labels),
                tokens: to.tier_tokens.get_or_create_owned(&labels),
                money: to.tier_money.get_or_create_owned(&labels),
            }
        })
    }

    /// Returns the histogram of the waits of a policy class.
    pub(super) fn class_wait(
        &self,
        to: &MetricInstruments,
        names: &LabelNames,
        class: &str,
    ) -> Histogram {
        self.class_wait.get(
            |known| **known == *class,
            || {
                let labels = ClassLabels { pool: self.name(), class: names.label(class) };
                (class.into(), to.class_wait.get_or_create_owned(&labels))
            },
        )
    }

    /// Returns the counter of what requests of a policy class were charged.
    pub(super) fn class_charged(
        &self,
        to: &MetricInstruments,
        names: &LabelNames,
        class: &str,
    ) -> Counter {
        self.class_charged.get(
            |known| **known == *class,
            || {
                let labels = ClassLabels { pool: self.name(), class: names.label(class) };
                (class.into(), to.class_charged.get_or_create_owned(&labels))
            },
        )
    }
}

/// The first instruments of a pool with labels beside the pool, at most [`FOUND_MAX`].
#[derive(Debug)]
struct FoundList<K, M>(RwLock<Vec<(K, M)>>);

impl<K, M> Default for FoundList<K, M> {
    fn default() -> Self {
        Self(RwLock::default())
    }
}

impl<K, M: Clone> FoundList<K, M> {
    /// Returns the instrument whose key passes `is_it`. `find` looks it up in its family if it is not in the list.
    fn get(&self, is_it: impl Fn(&K) -> bool, find: impl FnOnce() -> (K, M)) -> M {
        let list = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, known)) = list.iter().find(|(key, _)| is_it(key)) {
            return known.clone();
        }
        drop(list);
        let (key, instrument) = find();
        let mut list = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if list.len() < FOUND_MAX && !list.iter().any(|(key, _)| is_it(key)) {
            list.push((key, instrument.clone()));
        }
        instrument
    }
}
