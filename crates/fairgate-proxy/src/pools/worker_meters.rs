//! The meters of worker time. Each address has one meter, whichever pools and upstreams send
//! requests to it.
//!
//! A meter learns from all that its worker does. Two pools may use one upstream, and two upstreams
//! may be one server with a part of its slots each. If each of them had a meter of its own, the
//! load of the others would look like a slow engine. Prices that one pool states for its workers
//! apply in all pools that state none. If a pool of the worker has `observe: false`, other gateways
//! may use the worker too, and nothing is learned of it.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use fairgate_config::{PoolConfig, UpstreamConfig};
use fairgate_price::worker_time::WorkerPrices;

use super::handle::{PoolHandle, PoolWorker};
use crate::upstream::Upstream;
use crate::worker_time::WorkerMeter;

/// Address of a worker. All requests to one address reach the same worker.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct WorkerAddress {
    url: String,
    connect_to: Option<SocketAddr>,
    /// Name of the worker of a pool of leases, which has no address.
    leased: Option<String>,
}

impl WorkerAddress {
    fn of(upstream: &UpstreamConfig) -> Self {
        Self {
            url: upstream.url.to_string(),
            connect_to: upstream.connect_to,
            leased: upstream.is_leased.then(|| upstream.name.clone()),
        }
    }
}

/// The slots of the worker at one address, from all upstreams with that address.
#[derive(Clone, Default)]
pub(crate) struct AddressSlots(Arc<Vec<SlotsOfUpstream>>);

#[derive(Clone)]
struct SlotsOfUpstream {
    upstream: Arc<Upstream>,
    /// Sum of the upstream's parts of its pools' capacities. It counts if the upstream has no limit
    /// of slots.
    of_capacities: u64,
}

impl AddressSlots {
    /// Returns the number of requests that all pools together may have in flight at the address.
    pub(crate) fn now(&self) -> u64 {
        let slots =
            |one: &SlotsOfUpstream| one.upstream.total_slots().unwrap_or(one.of_capacities).max(1);
        self.0.iter().map(slots).fold(0, u64::saturating_add)
    }
}

/// A worker whose time may have a price, with its meters.
#[derive(Default)]
struct MeteredAddress {
    /// True if the worker may get requests that this gateway does not see.
    is_unseen: bool,
    /// The first prices that a pool states for the worker.
    stated: Option<WorkerPrices>,
    slots: AddressSlots,
    /// One meter for each statement of prices, and one that learns prices.
    meters: Vec<Arc<WorkerMeter>>,
}

impl MeteredAddress {
    /// Returns the prices that apply in this pool without learning; `None` if prices must be
    /// learned.
    fn stated_in(&self, pool: &PoolConfig) -> Option<WorkerPrices> {
        pool.cost.prices.or(self.stated)
    }

    fn meter(&self, stated: Option<WorkerPrices>) -> Option<&Arc<WorkerMeter>> {
        self.meters.iter().find(|meter| meter.stated() == stated)
    }
}

/// The meters of a configuration.
#[derive(Default)]
pub(super) struct WorkerMeters(HashMap<WorkerAddress, MeteredAddress>);

impl WorkerMeters {
    /// Creates the meters for these pools. Meters of the currently served pools are kept.
    pub(super) fn of(
        pools: &[&PoolConfig],
        upstream: impl Fn(&str) -> Option<Arc<Upstream>>,
        before: &BTreeMap<Arc<str>, Arc<PoolHandle>>,
    ) -> Self {
        let used = || {
            let of = |pool: &PoolConfig| -> Vec<Arc<Upstream>> {
                pool.workers.iter().filter_map(|name| upstream(name)).collect()
            };
            let all = pools.iter().flat_map(move |pool| of(pool).into_iter().map(|it| (*pool, it)));
            all.filter(|(pool, upstream)| may_have_price(pool, &upstream.config))
        };
        let mut all: HashMap<WorkerAddress, MeteredAddress> = HashMap::new();
        for (pool, upstream) in used() {
            let known = all.entry(WorkerAddress::of(&upstream.config)).or_default();
            known.is_unseen |= !pool.observe || upstream.config.is_leased;
            known.stated = known.stated.or(pool.cost.prices);
            known.add_slots(pool, &upstream);
        }
        for (pool, upstream) in used() {
            let address = WorkerAddress::of(&upstream.config);
            let Some(known) = all.get_mut(&address) else { continue };
            let stated = known.stated_in(pool);
            if known.meter(stated).is_some() || (stated.is_none() && known.is_unseen) {
                continue;
            }
            let slots = known.slots.now();
            let meter = meter_before(before, &address, stated)
                .unwrap_or_else(|| Arc::new(WorkerMeter::new(slots, stated)));
            meter.set_slots(Instant::now(), slots);
            known.meters.push(meter);
        }
        Self(all)
    }

    /// Returns the meter of an upstream in a pool; `None` if the upstream's time has no price
    /// there.
    pub(super) fn meter(
        &self,
        pool: &PoolConfig,
        upstream: &UpstreamConfig,
    ) -> Option<Arc<WorkerMeter>> {
        if !may_have_price(pool, upstream) {
            return None;
        }
        let known = self.0.get(&WorkerAddress::of(upstream))?;
        known.meter(known.stated_in(pool)).cloned()
    }

    /// Returns the slots at the address of an upstream; empty if the upstream's time has no price.
    pub(super) fn slots(&self, upstream: &UpstreamConfig) -> AddressSlots {
        let known = self.0.get(&WorkerAddress::of(upstream));
        known.map(|known| known.slots.clone()).unwrap_or_default()
    }
}

impl MeteredAddress {
    fn add_slots(&mut self, pool: &PoolConfig, upstream: &Arc<Upstream>) {
        let workers = u64::try_from(pool.workers.len()).unwrap_or(u64::MAX).max(1);
        let part = pool.capacity.div_ceil(workers);
        let slots = Arc::make_mut(&mut self.slots.0);
        match slots.iter_mut().find(|known| known.upstream.name == upstream.name) {
            Some(known) => known.of_capacities = known.of_capacities.saturating_add(part),
            None => slots.push(SlotsOfUpstream { upstream: upstream.clone(), of_capacities: part }),
        }
    }
}

/// Returns true if the time of an upstream's worker may have a price in a pool. For a pool of
/// leases, the price must be stated: the client makes the calls itself, so the gateway has nothing
/// to learn from.
fn may_have_price(pool: &PoolConfig, upstream: &UpstreamConfig) -> bool {
    match upstream.is_leased {
        true => pool.cost.prices.is_some(),
        false => upstream.tier == 0 && !upstream.quota.is_hosted(),
    }
}

fn meter_before(
    before: &BTreeMap<Arc<str>, Arc<PoolHandle>>,
    address: &WorkerAddress,
    stated: Option<WorkerPrices>,
) -> Option<Arc<WorkerMeter>> {
    let is_it = |worker: &&Arc<PoolWorker>| WorkerAddress::of(&worker.upstream.config) == *address;
    before.values().find_map(|pool| {
        let setup = pool.setup();
        let meters = setup.workers.iter().filter(is_it).filter_map(|worker| worker.meter.clone());
        meters.into_iter().find(|meter| meter.stated() == stated)
    })
}
