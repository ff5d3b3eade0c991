//! Sums of used and reserved amounts, by day and by month. There are sums of groups, tenants, keys, models on the
//! hosted tier, and the hosted tier itself. Budgets are checked against these sums.
//!
//! An amount counts in the periods in which it was **reserved**. If a request is granted on Monday
//! and ends on Tuesday, its usage counts on Monday, whose budget admitted the request. The usage of
//! a request without a reservation counts in the periods in which the request arrived.

use std::borrow::Cow;
use std::collections::BTreeMap;

use fairgate_time::{UnixMicros, UtcDay};
use fairgate_usage::{ClaimUsage, TaskClaim};

use crate::budget::{BudgetPeriod, BudgetScope, BudgetTier, BudgetUnit, HOSTED_OWNER};
use crate::ledger::{AttemptOutcome, AttemptRow, Reservation};

/// Identifies a sum. In PostgreSQL, all transactions lock the rows of sums in the order of these
/// keys, which prevents deadlocks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SumKey<'a> {
    pub(crate) scope: BudgetScope,
    pub(crate) owner: Cow<'a, str>,
    pub(crate) period: BudgetPeriod,
    pub(crate) first_day: UtcDay,
}

/// The owners to whose sums the amounts of a request are added.
#[derive(Clone, Debug)]
pub(crate) struct SumOwners<'a> {
    pub(crate) group: Cow<'a, str>,
    pub(crate) tenant: Cow<'a, str>,
    pub(crate) key: Cow<'a, str>,
    pub(crate) model: Cow<'a, str>,
}

impl<'a> From<&'a AttemptRow> for SumOwners<'a> {
    fn from(row: &'a AttemptRow) -> Self {
        let AttemptRow { group, tenant, key, model, .. } = row;
        let (group, tenant) = (group.into(), tenant.into());
        Self { group, tenant, key: key.into(), model: model.into() }
    }
}

impl<'a> From<&'a Reservation> for SumOwners<'a> {
    fn from(held: &'a Reservation) -> Self {
        let Reservation { group, tenant, key, model, .. } = held;
        let (group, tenant) = (group.into(), tenant.into());
        Self { group, tenant, key: key.into(), model: model.into() }
    }
}

/// An amount of provider tokens, and an amount of money in micro-units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SumAmount {
    pub(crate) tokens: i64,
    pub(crate) money: i64,
}

impl SumAmount {
    fn add(&mut self, other: Self) {
        self.tokens += other.tokens;
        self.money += other.money;
    }

    fn max(self, other: Self) -> Self {
        Self { tokens: self.tokens.max(other.tokens), money: self.money.max(other.money) }
    }

    fn in_unit(self, unit: BudgetUnit) -> i64 {
        match unit {
            BudgetUnit::Tokens => self.tokens,
            BudgetUnit::Money => self.money,
        }
    }
}

/// Sum of used and reserved amounts, or a change of such a sum. Negative amounts subtract.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct UsageSum {
    /// Used amounts on own and hosted workers.
    pub(crate) used: SumAmount,
    pub(crate) reserved: SumAmount,
    /// Part of `used` on hosted workers.
    pub(crate) hosted_used: SumAmount,
    pub(crate) hosted_reserved: SumAmount,
}

impl UsageSum {
    /// Returns the usage of a row as a sum. A `tier` above 0 counts as hosted.
    pub(crate) fn of_row(tokens: i64, money: i64, tier: i64) -> Self {
        let used = SumAmount { tokens, money };
        let hosted_used = if tier > 0 { used } else { SumAmount::default() };
        Self { used, hosted_used, ..Self::default() }
    }

    /// Returns the sum with all signs inverted.
    pub(crate) fn negative(self) -> Self {
        let negative = |SumAmount { tokens, money }| SumAmount { tokens: -tokens, money: -money };
        Self {
            used: negative(self.used),
            reserved: negative(self.reserved),
            hosted_used: negative(self.hosted_used),
            hosted_reserved: negative(self.hosted_reserved),
        }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.used.add(other.used);
        self.reserved.add(other.reserved);
        self.hosted_used.add(other.hosted_used);
        self.hosted_reserved.add(other.hosted_reserved);
    }

    /// Returns the part of the sum that is on hosted workers.
    fn hosted(&self) -> Self {
        Self { used: SumAmount::default(), reserved: SumAmount::default(), ..*self }
    }

    /// Returns the used and the reserved amount in the given unit, on the workers of the given tier.
    pub(crate) fn used_and_reserved(&self, unit: BudgetUnit, tier: BudgetTier) -> (i64, i64) {
        let (used, reserved) = match tier {
            BudgetTier::Any => (self.used, self.reserved),
            BudgetTier::Hosted => (self.hosted_used, self.hosted_reserved),
        };
        (used.in_unit(unit), reserved.in_unit(unit))
    }

    /// Returns the amounts in the order of [`crate::sql::sum_columns`].
    pub(crate) fn columns(&self) -> [i64; 8] {
        let Self { used, reserved, hosted_used, hosted_reserved } = self;
        [
            used.tokens,
            reserved.tokens,
            used.money,
            reserved.money,
            hosted_used.tokens,
            hosted_reserved.tokens,
            hosted_used.money,
            hosted_reserved.money,
        ]
    }

    /// Creates a sum from amounts in the order of [`crate::sql::sum_columns`].
    pub(crate) fn from_columns(columns: [i64; 8]) -> Self {
        let amount =
            |tokens: usize| SumAmount { tokens: columns[tokens], money: columns[tokens + 2] };
        Self {
            used: amount(0),
            reserved: amount(1),
            hosted_used: amount(4),
            hosted_reserved: amount(5),
        }
    }
}

impl AttemptRow {
    /// Returns the usage that this row adds to its task and project. A refused request uses nothing and is not counted.
    /// A request with several attempts is counted once.
    pub(crate) fn charge(&self) -> Option<(&TaskClaim, ClaimUsage)> {
        let calls = i64::from(self.last && self.outcome != AttemptOutcome::Refused);
        let (tokens, money) = (signed(self.provider_tokens), signed(self.money.0));
        let is_answered = self.outcome == AttemptOutcome::Completed;
        let ended_at = self.started_at.0.saturating_add(signed(self.total_us));
        let answered_at = if is_answered { ended_at } else { 0 };
        let used = ClaimUsage { tokens, calls, money, answered_at };
        self.claim.as_ref().filter(|_| used != ClaimUsage::default()).map(|claim| (claim, used))
    }

    /// Returns the usage that the row adds to the sums of its owners.
    pub(crate) fn usage_sum(&self) -> UsageSum {
        UsageSum::of_row(signed(self.provider_tokens), signed(self.money.0), self.tier.into())
    }
}

impl Reservation {
    /// Returns the reserved amounts. If `hosted` is true, the amount on any worker is the maximum of the amounts on own
    /// and on hosted workers; otherwise the amounts on hosted workers are 0.
    pub(crate) fn held_amounts(&self, hosted: bool) -> UsageSum {
        let own = SumAmount { tokens: signed(self.provider_tokens), money: signed(self.money.0) };
        let there = self.hosted.filter(|_| hosted).map(|most| SumAmount {
            tokens: signed(most.provider_tokens),
            money: signed(most.money.0),
        });
        let there = there.unwrap_or_default();
        UsageSum { reserved: own.max(there), hosted_reserved: there, ..UsageSum::default() }
    }
}

/// All changes of sums in a batch. They are added up so that each sum is written once.
#[derive(Debug, Default)]
pub(crate) struct SumDeltas<'a>(BTreeMap<SumKey<'a>, UsageSum>);

impl<'a> SumDeltas<'a> {
    /// Adds `delta` to the sums of a request's owners in the periods that contain `at`.
    pub(crate) fn add(
        &mut self,
        payers: impl Into<SumOwners<'a>>,
        at: UnixMicros,
        delta: UsageSum,
    ) {
        if delta == UsageSum::default() {
            return;
        }
        let hosted = delta.hosted();
        for sum in sums_of(payers, at, hosted != UsageSum::default()) {
            let is_hosted = matches!(sum.scope, BudgetScope::Hosted | BudgetScope::HostedModel);
            let delta = if is_hosted { &hosted } else { &delta };
            self.0.entry(sum).or_default().add(delta);
        }
    }

    /// Iterates over all changed sums, in the order of their keys.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&SumKey<'a>, &UsageSum)> {
        self.0.iter()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

/// Returns the keys of the sums of a request's owners in the periods that contain `at`. If `hosted`
/// is true, the keys include the sums of the hosted tier and of the request's model on the hosted
/// tier.
pub(crate) fn sums_of<'a>(
    payers: impl Into<SumOwners<'a>>,
    at: UnixMicros,
    hosted: bool,
) -> impl Iterator<Item = SumKey<'a>> {
    let SumOwners { group, tenant, key, model } = payers.into();
    let hosted = hosted.then_some([
        (BudgetScope::Hosted, Cow::Borrowed(HOSTED_OWNER)),
        (BudgetScope::HostedModel, model),
    ]);
    let owners =
        [(BudgetScope::Tenant, tenant), (BudgetScope::Key, key), (BudgetScope::Group, group)];
    let days = BudgetPeriod::ALL.map(|period| (period, period.first_day(at)));
    owners.into_iter().chain(hosted.into_iter().flatten()).flat_map(move |(scope, owner)| {
        days.map(|(period, first_day)| SumKey { scope, owner: owner.clone(), period, first_day })
    })
}

/// Converts tokens, micro-units or microseconds of a request to the database's integer type. The
/// conversion cannot overflow; see [`crate::clamp`].
pub(crate) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payers(group: &'static str, tenant: &'static str, key: &'static str) -> SumOwners<'static> {
        SumOwners { group: group.into(), tenant: tenant.into(), key: key.into(), model: "m".into() }
    }

    fn used(tokens: i64, money: i64, tier: i64) -> UsageSum {
        UsageSum::of_row(tokens, money, tier)
    }

    #[test]
    fn each_sum_is_written_once_and_in_the_order_of_the_locks() {
        let mut deltas = SumDeltas::default();
        for tokens in [5, 6] {
            deltas.add(payers("g", "t", "k"), UnixMicros(0), used(tokens, 3, 0));
        }
        deltas.add(payers("g", "t", "other"), UnixMicros(0), used(1, 0, 2));
        deltas.add(payers("g", "idle", "k"), UnixMicros(0), UsageSum::default());
        let sums: Vec<_> = deltas
            .iter()
            .filter(|(sum, _)| sum.period == BudgetPeriod::Day)
            .map(|(sum, it)| (sum.owner.as_ref(), it.used, it.hosted_used.tokens))
            .collect();
        let amount = |tokens, money| SumAmount { tokens, money };
        let expected = [
            ("t", amount(12, 6), 1),
            ("k", amount(11, 6), 0),
            ("other", amount(1, 0), 1),
            ("m", amount(0, 0), 1),
            ("*", amount(0, 0), 1),
            ("g", amount(12, 6), 1),
        ];
        assert_eq!(sums, expected);
    }

    #[test]
    fn columns_read_and_write() {
        let columns = [1, 2, 3, 4, 5, 6, 7, 8];
        let sum = UsageSum::from_columns(columns);
        assert_eq!(sum.columns(), columns);
        assert_eq!(sum.used_and_reserved(BudgetUnit::Money, BudgetTier::Any), (3, 4));
        assert_eq!(sum.used_and_reserved(BudgetUnit::Tokens, BudgetTier::Hosted), (5, 6));
    }

    #[test]
    fn on_any_worker_the_most_of_own_and_hosted_is_held() {
        use fairgate_money::MicroUnits;

        let hosted = crate::ledger::HostedMaximum { provider_tokens: 80, money: MicroUnits(7_000) };
        let held = Reservation {
            request: "r".into(),
            group: "g".into(),
            tenant: "t".into(),
            key: "k".into(),
            model: "m".into(),
            tokens: 0,
            provider_tokens: 100,
            money: MicroUnits(0),
            hosted: Some(hosted),
            model_budgets: Vec::new(),
            claim: None,
            has_files: false,
            terms: Default::default(),
            at: UnixMicros(0),
        };
        let with = held.held_amounts(true);
        assert_eq!(with.reserved, SumAmount { tokens: 100, money: 7_000 });
        assert_eq!(with.hosted_reserved, SumAmount { tokens: 80, money: 7_000 });
        let without = held.held_amounts(false);
        assert_eq!(without.reserved, SumAmount { tokens: 100, money: 0 });
        assert_eq!(without.hosted_reserved, SumAmount::default());
    }
}
