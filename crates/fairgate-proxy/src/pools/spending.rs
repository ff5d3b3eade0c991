//! Usage of a pool's requests since the process started, by tenant, on own and on hosted workers.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fairgate_money::MicroUnits;

use crate::fast_map::FastMap;

/// Greatest number of tenants that are counted individually. The usage of further tenants is counted only in the total.
/// Directories have fewer tenants than this.
const TENANTS_MAX: usize = 100_000;

/// Usage on own workers, or on hosted workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TierUse {
    /// Number of attempts that used any tokens or money.
    pub requests: u64,
    /// Input and output tokens as a provider counts them, not weighted.
    pub provider_tokens: u64,
    /// Cost in money, at the prices in force when the attempts ended.
    pub money: MicroUnits,
}

/// Usage on own workers (tier 0) and on hosted ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpentByTier {
    /// Usage on own workers.
    pub own: TierUse,
    /// Usage on hosted workers.
    pub hosted: TierUse,
    /// Time that attempts took of own workers, in microseconds of a full worker.
    pub worker_us: u64,
}

/// Usage of the tenants of a pool, by tier.
#[derive(Debug, Default)]
pub struct TenantSpending(Mutex<SpendingTable>);

#[derive(Clone, Debug, Default)]
struct SpendingTable {
    all: SpentByTier,
    tenants: FastMap<Arc<str>, SpentByTier>,
}

impl TierUse {
    fn add(&mut self, provider_tokens: u64, money: MicroUnits) {
        self.requests += 1;
        self.provider_tokens = self.provider_tokens.saturating_add(provider_tokens);
        self.money = MicroUnits(self.money.0.saturating_add(money.0));
    }
}

impl SpentByTier {
    fn on(&mut self, tier: u32) -> &mut TierUse {
        if tier == 0 { &mut self.own } else { &mut self.hosted }
    }
}

impl TenantSpending {
    /// Counts an attempt of a tenant on a worker of this tier.
    pub(crate) fn count(
        &self,
        tenant: &Arc<str>,
        tier: u32,
        provider_tokens: u64,
        money: MicroUnits,
    ) {
        self.add(tenant, |spent| spent.on(tier).add(provider_tokens, money));
    }

    /// Counts the time that an attempt of a tenant took of its worker, in microseconds of the full worker.
    pub(crate) fn count_worker_time(&self, tenant: &Arc<str>, worker_us: u64) {
        if worker_us > 0 {
            self.add(tenant, |spent| spent.worker_us = spent.worker_us.saturating_add(worker_us));
        }
    }

    fn add(&self, tenant: &Arc<str>, add: impl Fn(&mut SpentByTier)) {
        let mut spenders = self.lock();
        add(&mut spenders.all);
        if let Some(spent) = spenders.tenants.get_mut(tenant) {
            add(spent);
        } else if spenders.tenants.len() < TENANTS_MAX {
            add(spenders.tenants.entry(tenant.clone()).or_default());
        }
    }

    /// Returns the total usage of all tenants.
    pub fn all(&self) -> SpentByTier {
        self.lock().all
    }

    /// Returns the usage of each of these tenants; 0 for unknown tenants.
    pub fn of<'a>(&self, tenants: impl Iterator<Item = &'a str>) -> Vec<SpentByTier> {
        let spenders = self.lock();
        tenants.map(|tenant| spenders.tenants.get(tenant).copied().unwrap_or_default()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, SpendingTable> {
        // Every change is a few additions, so poison is harmless.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiers_and_tenants_are_kept_apart() {
        let spending = TenantSpending::default();
        let [a, b]: [Arc<str>; 2] = ["a".into(), "b".into()];
        spending.count(&a, 0, 100, MicroUnits::ZERO);
        spending.count(&a, 1, 10, MicroUnits(7));
        spending.count(&b, 2, 5, MicroUnits(3));
        spending.count_worker_time(&a, 0);
        spending.count_worker_time(&b, 40);
        let used = |requests, provider_tokens, money| TierUse {
            requests,
            provider_tokens,
            money: MicroUnits(money),
        };
        let none = TierUse::default();
        assert_eq!(
            spending.of(["a", "b", "c"].into_iter()),
            [
                SpentByTier { own: used(1, 100, 0), hosted: used(1, 10, 7), worker_us: 0 },
                SpentByTier { own: none, hosted: used(1, 5, 3), worker_us: 40 },
                SpentByTier::default(),
            ]
        );
        let (own, hosted) = (used(1, 100, 0), used(2, 15, 10));
        assert_eq!(spending.all(), SpentByTier { own, hosted, worker_us: 40 });
    }
}
