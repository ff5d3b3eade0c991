//! What a pool's requests came to since the process started: by tenant, on own and on hosted workers.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fairgate_money::MicroUnits;

/// Of more tenants than this nothing is counted one by one. A directory has fewer.
const TENANTS_MAX: usize = 100_000;

/// What requests came to on one kind of workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TierUse {
    /// Attempts that used anything.
    pub(crate) requests: u64,
    /// Input and output tokens as a provider counts them, not weighted.
    pub(crate) provider_tokens: u64,
    pub(crate) money: MicroUnits,
}

/// What requests came to on own workers (tier 0) and on hosted ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spent {
    pub(crate) own: TierUse,
    pub(crate) hosted: TierUse,
}

/// The tenants of a pool with what they spent.
#[derive(Debug, Default)]
pub(crate) struct Spending(Mutex<Spenders>);

#[derive(Clone, Debug, Default)]
struct Spenders {
    all: Spent,
    tenants: HashMap<Arc<str>, Spent>,
}

impl TierUse {
    fn add(&mut self, provider_tokens: u64, money: MicroUnits) {
        self.requests += 1;
        self.provider_tokens = self.provider_tokens.saturating_add(provider_tokens);
        self.money = MicroUnits(self.money.0.saturating_add(money.0));
    }
}

impl Spent {
    fn on(&mut self, tier: u32) -> &mut TierUse {
        if tier == 0 { &mut self.own } else { &mut self.hosted }
    }
}

impl Spending {
    /// Counts an attempt of a tenant's on a worker of that tier.
    pub(crate) fn count(
        &self,
        tenant: &Arc<str>,
        tier: u32,
        provider_tokens: u64,
        money: MicroUnits,
    ) {
        let mut spenders = self.lock();
        spenders.all.on(tier).add(provider_tokens, money);
        if !spenders.tenants.contains_key(tenant) {
            if spenders.tenants.len() >= TENANTS_MAX {
                return;
            }
            spenders.tenants.insert(tenant.clone(), Spent::default());
        }
        if let Some(spent) = spenders.tenants.get_mut(tenant) {
            spent.on(tier).add(provider_tokens, money);
        }
    }

    /// What all tenants spent together.
    pub(crate) fn all(&self) -> Spent {
        self.lock().all
    }

    /// What each of these tenants spent.
    pub(crate) fn of<'a>(&self, tenants: impl Iterator<Item = &'a str>) -> Vec<Spent> {
        let spenders = self.lock();
        tenants.map(|tenant| spenders.tenants.get(tenant).copied().unwrap_or_default()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Spenders> {
        // Every change is a few additions.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiers_and_tenants_are_kept_apart() {
        let spending = Spending::default();
        let [a, b]: [Arc<str>; 2] = ["a".into(), "b".into()];
        spending.count(&a, 0, 100, MicroUnits::ZERO);
        spending.count(&a, 1, 10, MicroUnits(7));
        spending.count(&b, 2, 5, MicroUnits(3));
        let used = |requests, provider_tokens, money| TierUse {
            requests,
            provider_tokens,
            money: MicroUnits(money),
        };
        let none = TierUse::default();
        assert_eq!(
            spending.of(["a", "b", "c"].into_iter()),
            [
                Spent { own: used(1, 100, 0), hosted: used(1, 10, 7) },
                Spent { own: none, hosted: used(1, 5, 3) },
                Spent::default(),
            ]
        );
        assert_eq!(spending.all(), Spent { own: used(1, 100, 0), hosted: used(2, 15, 10) });
    }
}
