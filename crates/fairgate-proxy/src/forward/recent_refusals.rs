//! Counts the refusals of clients' requests by group, tenant, key, project and class, and remembers
//! the last refusal of each. Requests that are served cost nothing here.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fairgate_core::attribute::Attribute;
use fairgate_store::UnixMicros;
use fairgate_time::wall_clock;

use crate::refusal::RefusalCode;

/// Number of owners that are remembered for each pool. At this number, owners without a refusal in
/// the last hour are forgotten. If none can be forgotten, refusals of further owners count only in
/// the pool's total.
const OWNERS_MAX: usize = 20_000;
const HOUR_US: i64 = 3_600_000_000;
const MINUTE_US: i64 = 60_000_000;
const TEN_SECONDS_US: i64 = 10_000_000;
/// Number of pieces of ten seconds that make up the last minute.
const PIECES: i64 = 6;
/// Pool name for refusals whose pool is not known yet, such as those of a limit per minute.
const NO_POOL: &str = "-";

/// Refusals since the gateway started, by pool and owner.
#[derive(Debug, Default)]
pub struct RecentRefusals(Mutex<HashMap<Box<str>, PoolRefusals>>);

#[derive(Debug, Default)]
struct PoolRefusals {
    total: u64,
    owners: HashMap<(Attribute, Arc<str>), OwnerRefusals>,
}

#[derive(Clone, Copy, Debug)]
struct OwnerRefusals {
    total: u64,
    last: LastRefusalOf,
    /// Number of refusals in each of the last pieces of ten seconds, with the number of the piece
    /// since 1970.
    pieces: [(i64, u64); 6],
}

/// The last refusal of an owner.
#[derive(Clone, Copy, Debug)]
pub struct LastRefusalOf {
    /// Stable code of the refusal.
    pub code: &'static str,
    /// Time of the refusal.
    pub at: UnixMicros,
    kind: RefusalKind,
}

/// Cause of a refusal, grouped by what the caller can do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalKind {
    /// A budget is used up.
    Budget,
    /// A limit per minute is reached.
    Rate,
    /// Any other cause.
    Other,
}

impl RefusalKind {
    fn of(code: RefusalCode) -> Self {
        match code {
            RefusalCode::BudgetExhausted | RefusalCode::ProjectBudgetExhausted => Self::Budget,
            RefusalCode::RateLimitedRequests | RefusalCode::RateLimitedTokens => Self::Rate,
            _ => Self::Other,
        }
    }
}

impl LastRefusalOf {
    /// Returns the kind of the refusal, if it was in the last minute.
    pub fn recent_kind(&self) -> Option<RefusalKind> {
        (wall_clock::now().0 - self.at.0 < MINUTE_US).then_some(self.kind)
    }
}

impl RecentRefusals {
    /// Counts a refusal for each of its owners. `pool` is `-` if it is not known.
    pub fn count<'a>(
        &self,
        pool: &str,
        code: RefusalCode,
        owners: impl Iterator<Item = (Attribute, &'a str)>,
    ) {
        let at = wall_clock::now();
        let last = LastRefusalOf { code: code.as_str(), at, kind: RefusalKind::of(code) };
        let mut pools = self.lock();
        if !pools.contains_key(pool) {
            pools.insert(pool.into(), PoolRefusals::default());
        }
        let Some(pool) = pools.get_mut(pool) else { return };
        pool.total += 1;
        for (by, name) in owners {
            pool.count(by, name, last);
        }
    }

    /// Returns the refusals of a pool since the start, in total and by owner.
    pub fn of_pool(&self, pool: &str) -> (u64, HashMap<(Attribute, Arc<str>), u64>) {
        let pools = self.lock();
        let Some(pool) = pools.get(pool) else { return (0, HashMap::new()) };
        let owners = pool.owners.iter().map(|(owner, refusals)| (owner.clone(), refusals.total));
        (pool.total, owners.collect())
    }

    /// Returns the owner's last refusal in this pool, or before its pool was known.
    pub fn last(&self, pool: &str, by: Attribute, name: &str) -> Option<LastRefusalOf> {
        let found = self.owner(pool, by, name).map(|owner| owner.last);
        let before = self.owner(NO_POOL, by, name).map(|owner| owner.last);
        found.into_iter().chain(before).max_by_key(|last| last.at)
    }

    /// Returns the number of the owner's refusals in the last minute, in this pool or before its pool was known.
    pub fn in_last_minute(&self, pool: &str, by: Attribute, name: &str) -> u64 {
        let piece = wall_clock::now().0 / TEN_SECONDS_US;
        let owners = [pool, NO_POOL].into_iter().filter_map(|pool| self.owner(pool, by, name));
        let pieces = owners.flat_map(|owner| owner.pieces);
        pieces.filter(|(number, _)| piece - number < PIECES).map(|(_, count)| count).sum()
    }

    /// Returns the names of the owners, by this attribute, that had a request refused in this pool
    /// in the last minute.
    pub fn refused_lately(&self, pool: &str, by: Attribute) -> Vec<Arc<str>> {
        let pools = self.lock();
        let owners = pools.get(pool).into_iter().flat_map(|pool| &pool.owners);
        let lately = owners
            .filter(|(owner, refusals)| owner.0 == by && refusals.last.recent_kind().is_some());
        lately.map(|(owner, _)| owner.1.clone()).collect()
    }

    fn owner(&self, pool: &str, by: Attribute, name: &str) -> Option<OwnerRefusals> {
        self.lock().get(pool)?.owners.get(&(by, Arc::from(name))).copied()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Box<str>, PoolRefusals>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PoolRefusals {
    fn count(&mut self, by: Attribute, name: &str, last: LastRefusalOf) {
        if self.owners.len() >= OWNERS_MAX {
            self.owners.retain(|_, owner| last.at.0 - owner.last.at.0 < HOUR_US);
        }
        let is_full = self.owners.len() >= OWNERS_MAX;
        let owner = (by, Arc::from(name));
        if is_full && !self.owners.contains_key(&owner) {
            return;
        }
        let fresh = OwnerRefusals { total: 0, last, pieces: [(0, 0); 6] };
        let refusals = self.owners.entry(owner).or_insert(fresh);
        refusals.total += 1;
        refusals.last = last;
        let piece = last.at.0 / TEN_SECONDS_US;
        // A remainder modulo 6 fits any index.
        let place = usize::try_from(piece.rem_euclid(PIECES)).unwrap_or_default();
        let counted = &mut refusals.pieces[place];
        if counted.0 != piece {
            *counted = (piece, 0);
        }
        counted.1 += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_counted_by_owner_and_the_last_one_is_remembered() {
        let refusals = RecentRefusals::default();
        let owners = || [(Attribute::Tenant, "chat"), (Attribute::Group, "prod")].into_iter();
        refusals.count("llama", RefusalCode::QueueFull, owners());
        refusals.count("llama", RefusalCode::BudgetExhausted, owners());
        refusals.count(NO_POOL, RefusalCode::RateLimitedRequests, owners());
        let (total, by_owner) = refusals.of_pool("llama");
        assert_eq!((total, by_owner[&(Attribute::Tenant, "chat".into())]), (2, 2));
        assert_eq!(refusals.in_last_minute("llama", Attribute::Group, "prod"), 3);
        let last = refusals.last("llama", Attribute::Tenant, "chat").unwrap();
        assert_eq!(last.recent_kind(), Some(RefusalKind::Rate));
        let elsewhere = refusals.last("gpt", Attribute::Tenant, "chat").unwrap();
        assert_eq!(elsewhere.code, "rate_limited_requests", "it had no pool yet");
        assert!(refusals.last("llama", Attribute::Tenant, "search").is_none());
        assert_eq!(refusals.refused_lately("llama", Attribute::Tenant), ["chat".into()]);
        assert!(refusals.refused_lately("gpt", Attribute::Tenant).is_empty());
    }

    #[test]
    fn made_up_names_do_not_fill_the_memory() {
        let refusals = RecentRefusals::default();
        for number in 0..OWNERS_MAX + 10 {
            let name = format!("session-{number}");
            let owner = [(Attribute::Class, &*name)].into_iter();
            refusals.count("llama", RefusalCode::QueueFull, owner);
        }
        let (total, owners) = refusals.of_pool("llama");
        assert_eq!((total, owners.len()), (OWNERS_MAX as u64 + 10, OWNERS_MAX));
    }
}
