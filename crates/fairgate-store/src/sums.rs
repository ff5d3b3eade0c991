//! What groups, tenants, keys, models on the hosted tier and the hosted tier used and hold, by day and by month: the numbers that budgets are measured
//! against.
//!
//! An amount belongs to the periods in which it was **reserved**: a request that was granted on Monday and ends on Tuesday
//! settles into Monday, whose budget let it in. A request without a reservation belongs to the periods in which it started.

use std::borrow::Cow;
use std::collections::BTreeMap;

use fairgate_money::{Day, UnixMicros};

use crate::budget::{BudgetTier, HOSTED_OWNER, Period, Scope, Unit};
use crate::ledger::{Attempt, Reservation};

/// Which sum. The order is the one in which PostgreSQL's rows are locked, the same for everyone, so that nobody waits in a
/// circle.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SumKey<'a> {
    pub(crate) scope: Scope,
    pub(crate) owner: Cow<'a, str>,
    pub(crate) period: Period,
    pub(crate) first_day: Day,
}

/// Whose request it is.
#[derive(Clone, Debug)]
pub(crate) struct Payers<'a> {
    pub(crate) group: Cow<'a, str>,
    pub(crate) tenant: Cow<'a, str>,
    pub(crate) key: Cow<'a, str>,
    pub(crate) model: Cow<'a, str>,
}

impl<'a> From<&'a Attempt> for Payers<'a> {
    fn from(row: &'a Attempt) -> Self {
        let Attempt { group, tenant, key, model, .. } = row;
        let (group, tenant) = (group.into(), tenant.into());
        Self { group, tenant, key: key.into(), model: model.into() }
    }
}

impl<'a> From<&'a Reservation> for Payers<'a> {
    fn from(held: &'a Reservation) -> Self {
        let Reservation { group, tenant, key, model, .. } = held;
        let (group, tenant) = (group.into(), tenant.into());
        Self { group, tenant, key: key.into(), model: model.into() }
    }
}

/// Provider tokens and micro-units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Amount {
    pub(crate) tokens: i64,
    pub(crate) money: i64,
}

impl Amount {
    fn add(&mut self, other: Self) {
        self.tokens += other.tokens;
        self.money += other.money;
    }

    fn max(self, other: Self) -> Self {
        Self { tokens: self.tokens.max(other.tokens), money: self.money.max(other.money) }
    }

    fn in_unit(self, unit: Unit) -> i64 {
        match unit {
            Unit::Tokens => self.tokens,
            Unit::Money => self.money,
        }
    }
}

/// A sum, or what is added to one; negative where it is taken away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sum {
    /// On any worker.
    pub(crate) used: Amount,
    pub(crate) reserved: Amount,
    /// Of that, on hosted workers.
    pub(crate) hosted_used: Amount,
    pub(crate) hosted_reserved: Amount,
}

impl Sum {
    /// What a row uses.
    pub(crate) fn of_row(tokens: i64, money: i64, tier: i64) -> Self {
        let used = Amount { tokens, money };
        let hosted_used = if tier > 0 { used } else { Amount::default() };
        Self { used, hosted_used, ..Self::default() }
    }

    /// The same, taken away.
    pub(crate) fn negative(self) -> Self {
        let negative = |Amount { tokens, money }| Amount { tokens: -tokens, money: -money };
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

    /// The part of it that is on hosted workers.
    fn hosted(&self) -> Self {
        Self { used: Amount::default(), reserved: Amount::default(), ..*self }
    }

    /// What is used and what is reserved, in a unit and on a tier.
    pub(crate) fn standing(&self, unit: Unit, tier: BudgetTier) -> (i64, i64) {
        let (used, reserved) = match tier {
            BudgetTier::Any => (self.used, self.reserved),
            BudgetTier::Hosted => (self.hosted_used, self.hosted_reserved),
        };
        (used.in_unit(unit), reserved.in_unit(unit))
    }

    /// In the order of [`crate::sql::sum_columns`].
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

    /// From the order of [`crate::sql::sum_columns`].
    pub(crate) fn from_columns(columns: [i64; 8]) -> Self {
        let amount = |tokens: usize| Amount { tokens: columns[tokens], money: columns[tokens + 2] };
        Self {
            used: amount(0),
            reserved: amount(1),
            hosted_used: amount(4),
            hosted_reserved: amount(5),
        }
    }
}

impl Attempt {
    /// What it adds to the sums of its owners.
    pub(crate) fn uses(&self) -> Sum {
        Sum::of_row(signed(self.provider_tokens), signed(self.money.0), self.tier.into())
    }
}

impl Reservation {
    /// What it holds, with or without its part on hosted workers: on any worker the most of both.
    pub(crate) fn holds(&self, hosted: bool) -> Sum {
        let own = Amount { tokens: signed(self.provider_tokens), money: signed(self.money.0) };
        let there = self.hosted.filter(|_| hosted).map(|most| Amount {
            tokens: signed(most.provider_tokens),
            money: signed(most.money.0),
        });
        let there = there.unwrap_or_default();
        Sum { reserved: own.max(there), hosted_reserved: there, ..Sum::default() }
    }
}

/// Everything that a batch adds, so that each sum is written once.
#[derive(Debug, Default)]
pub(crate) struct Deltas<'a>(BTreeMap<SumKey<'a>, Sum>);

impl<'a> Deltas<'a> {
    /// Adds to the sums of a request's owners in the periods that `at` lies in.
    pub(crate) fn add(&mut self, payers: impl Into<Payers<'a>>, at: UnixMicros, delta: Sum) {
        if delta == Sum::default() {
            return;
        }
        let hosted = delta.hosted();
        for sum in sums_of(payers, at, hosted != Sum::default()) {
            let is_hosted = matches!(sum.scope, Scope::Hosted | Scope::HostedModel);
            let delta = if is_hosted { &hosted } else { &delta };
            self.0.entry(sum).or_default().add(delta);
        }
    }

    /// All of them, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&SumKey<'a>, &Sum)> {
        self.0.iter()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

/// The sums of a request's owners in the periods that `at` lies in, those of the hosted tier and of its model there where it
/// is `hosted`.
pub(crate) fn sums_of<'a>(
    payers: impl Into<Payers<'a>>,
    at: UnixMicros,
    hosted: bool,
) -> impl Iterator<Item = SumKey<'a>> {
    let Payers { group, tenant, key, model } = payers.into();
    let hosted = hosted
        .then_some([(Scope::Hosted, Cow::Borrowed(HOSTED_OWNER)), (Scope::HostedModel, model)]);
    let owners = [(Scope::Tenant, tenant), (Scope::Key, key), (Scope::Group, group)];
    let days = Period::ALL.map(|period| (period, period.first_day(at)));
    owners.into_iter().chain(hosted.into_iter().flatten()).flat_map(move |(scope, owner)| {
        days.map(|(period, first_day)| SumKey { scope, owner: owner.clone(), period, first_day })
    })
}

/// A request's tokens, micro-units or microseconds as the database counts them: see [`crate::fit`] for why this cannot
/// overflow.
pub(crate) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payers(group: &'static str, tenant: &'static str, key: &'static str) -> Payers<'static> {
        Payers { group: group.into(), tenant: tenant.into(), key: key.into(), model: "m".into() }
    }

    fn used(tokens: i64, money: i64, tier: i64) -> Sum {
        Sum::of_row(tokens, money, tier)
    }

    #[test]
    fn each_sum_is_written_once_and_in_the_order_of_the_locks() {
        let mut deltas = Deltas::default();
        for tokens in [5, 6] {
            deltas.add(payers("g", "t", "k"), UnixMicros(0), used(tokens, 3, 0));
        }
        deltas.add(payers("g", "t", "other"), UnixMicros(0), used(1, 0, 2));
        deltas.add(payers("g", "idle", "k"), UnixMicros(0), Sum::default());
        let sums: Vec<_> = deltas
            .iter()
            .filter(|(sum, _)| sum.period == Period::Day)
            .map(|(sum, it)| (sum.owner.as_ref(), it.used, it.hosted_used.tokens))
            .collect();
        let amount = |tokens, money| Amount { tokens, money };
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
        let sum = Sum::from_columns(columns);
        assert_eq!(sum.columns(), columns);
        assert_eq!(sum.standing(Unit::Money, BudgetTier::Any), (3, 4));
        assert_eq!(sum.standing(Unit::Tokens, BudgetTier::Hosted), (5, 6));
    }

    #[test]
    fn on_any_worker_the_most_of_own_and_hosted_is_held() {
        use fairgate_money::MicroUnits;

        let hosted = crate::ledger::HostedMost { provider_tokens: 80, money: MicroUnits(7_000) };
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
            fleet: Default::default(),
            at: UnixMicros(0),
        };
        let with = held.holds(true);
        assert_eq!(with.reserved, Amount { tokens: 100, money: 7_000 });
        assert_eq!(with.hosted_reserved, Amount { tokens: 80, money: 7_000 });
        let without = held.holds(false);
        assert_eq!(without.reserved, Amount { tokens: 100, money: 0 });
        assert_eq!(without.hosted_reserved, Amount::default());
    }
}
