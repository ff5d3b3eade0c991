//! What tenants and keys used and hold, by day and by month: the numbers that budgets are measured against.
//!
//! Tokens belong to the periods in which they were **reserved**: a request that was granted on Monday and ends on Tuesday
//! settles into Monday, whose budget let it in. A request without a reservation belongs to the periods in which it started.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::calendar::Day;
use crate::directory::{Period, UnixMicros};
use crate::ledger::{BudgetLeft, Exhausted, Scope};

/// Which sum. The order is the one in which PostgreSQL's rows are locked, the same for everyone, so that nobody waits in a
/// circle.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SumKey<'a> {
    pub(crate) scope: Scope,
    pub(crate) owner: Cow<'a, str>,
    pub(crate) period: Period,
    pub(crate) first_day: Day,
}

/// What is added to a sum; negative where it is taken away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tokens {
    pub(crate) used: i64,
    pub(crate) reserved: i64,
}

/// Everything that a batch adds, so that each sum is written once.
#[derive(Debug, Default)]
pub(crate) struct Deltas<'a>(BTreeMap<SumKey<'a>, Tokens>);

impl<'a> Deltas<'a> {
    /// Adds to the four sums of a tenant and a key in the periods that `at` lies in.
    pub(crate) fn add(
        &mut self,
        tenant: impl Into<Cow<'a, str>>,
        key: impl Into<Cow<'a, str>>,
        at: UnixMicros,
        tokens: Tokens,
    ) {
        if tokens == Tokens::default() {
            return;
        }
        for sum in sums_of(tenant, key, at) {
            let entry = self.0.entry(sum).or_default();
            entry.used += tokens.used;
            entry.reserved += tokens.reserved;
        }
    }

    /// All of them, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&SumKey<'a>, &Tokens)> {
        self.0.iter()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

/// The four sums of a tenant and a key in the periods that `at` lies in.
pub(crate) fn sums_of<'a>(
    tenant: impl Into<Cow<'a, str>>,
    key: impl Into<Cow<'a, str>>,
    at: UnixMicros,
) -> impl Iterator<Item = SumKey<'a>> {
    let owners = [(Scope::Tenant, tenant.into()), (Scope::Key, key.into())];
    let days = Period::ALL.map(|period| (period, period.first_day(at)));
    owners.into_iter().flat_map(move |(scope, owner)| {
        days.map(|(period, first_day)| SumKey { scope, owner: owner.clone(), period, first_day })
    })
}

/// A request's tokens or microseconds as the database counts them: see [`crate::fit`] for why this cannot overflow.
pub(crate) fn signed(tokens: u64) -> i64 {
    i64::try_from(tokens).unwrap_or(i64::MAX)
}

/// The budget that cannot take `tokens` more. Of several, the one that starts anew last: before that, trying again is in vain.
pub(crate) fn refusal(budgets: &[BudgetLeft], tokens: u64) -> Option<Exhausted> {
    budgets
        .iter()
        .filter(|budget| {
            budget.used.saturating_add(budget.reserved).saturating_add(tokens) > budget.limit
        })
        // What is used stays used until then; what is reserved comes back as requests end.
        .max_by_key(|budget| (budget.used.saturating_add(tokens) > budget.limit, budget.resets_at))
        .map(|budget| Exhausted {
            scope: budget.scope,
            period: budget.period,
            limit: budget.limit,
            used: budget.used,
            reserved: budget.reserved,
            wanted: tokens,
            resets_at: budget.resets_at,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(period: Period, limit: u64, used: u64, reserved: u64) -> BudgetLeft {
        let resets_at = period.resets_at(UnixMicros(0));
        BudgetLeft { scope: Scope::Tenant, period, limit, used, reserved, resets_at }
    }

    #[test]
    fn a_budget_may_be_used_to_its_last_token() {
        let budgets = [left(Period::Day, 10, 4, 3)];
        assert_eq!(refusal(&budgets, 3), None);
        let refused = refusal(&budgets, 4).unwrap();
        assert_eq!((refused.limit, refused.used, refused.reserved), (10, 4, 3));
        assert_eq!(refused.wanted, 4);
    }

    #[test]
    fn the_refusal_names_the_budget_that_starts_anew_last() {
        let budgets = [left(Period::Day, 1, 1, 0), left(Period::Month, 1, 1, 0)];
        assert_eq!(refusal(&budgets, 1).unwrap().period, Period::Month);
        let budgets = [left(Period::Day, 1, 1, 0), left(Period::Month, 9, 1, 0)];
        assert_eq!(refusal(&budgets, 1).unwrap().period, Period::Day);
        // What is only reserved is the lesser evil.
        let budgets = [left(Period::Day, 1, 1, 0), left(Period::Month, 9, 0, 9)];
        assert_eq!(refusal(&budgets, 1).unwrap().period, Period::Day);
    }

    #[test]
    fn huge_numbers_are_refused_and_not_wrapped() {
        assert!(refusal(&[left(Period::Day, 10, u64::MAX, u64::MAX)], u64::MAX).is_some());
    }

    #[test]
    fn each_sum_is_written_once() {
        let mut deltas = Deltas::default();
        for used in [5, 6] {
            deltas.add("t", "k", UnixMicros(0), Tokens { used, reserved: -1 });
        }
        deltas.add("t", "other", UnixMicros(0), Tokens { used: 1, reserved: 0 });
        deltas.add("idle", "k", UnixMicros(0), Tokens::default());
        let sums: Vec<_> =
            deltas.iter().map(|(sum, tokens)| (sum.owner.as_ref(), tokens.used)).collect();
        assert_eq!(sums, [("t", 12), ("t", 12), ("k", 11), ("k", 11), ("other", 1), ("other", 1)]);
    }
}
