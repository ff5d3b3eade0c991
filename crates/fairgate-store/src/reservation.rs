//! Decides whether budgets have room for a reservation, with the same code for both databases.

use std::cmp::Reverse;

use fairgate_usage::UsageBalances;

use crate::budget::{
    BudgetBalance, BudgetExhausted, BudgetScope, BudgetTier, ReservationGrant, ReservationRefused,
};
use crate::ledger::Reservation;
use crate::sums::UsageSum;

/// Grants a reservation if all budgets have room and its claim, if any, is in force. If only budgets for hosted workers
/// have no room, the reservation is granted without hosted workers, and the result names the budget.
pub(crate) fn decide(
    budgets: &[BudgetBalance],
    books: &UsageBalances,
    files: &FileRequestsInFlight<'_>,
    asked: &Reservation,
) -> std::result::Result<ReservationGrant, ReservationRefused> {
    if let Some(claim) = &asked.claim {
        books.check_in_force(claim, asked.at)?;
    }
    let granted = check_budgets(budgets, files, asked)?;
    if let Some(claim) = &asked.claim {
        let most = asked.as_granted(granted.hosted);
        let tokens = most.provider_tokens;
        books.check_caps(claim, tokens, most.money.0)?;
        books.check_room(claim, tokens, asked.terms, asked.at)?;
    }
    Ok(granted)
}

/// Checks the budgets of the group, tenant and key and of the hosted tier.
fn check_budgets(
    budgets: &[BudgetBalance],
    files: &FileRequestsInFlight<'_>,
    asked: &Reservation,
) -> std::result::Result<ReservationGrant, BudgetExhausted> {
    let why = match asked.hosted {
        Some(_) => match exhausted_budget(budgets, files, &asked.held_amounts(true)) {
            None => return Ok(ReservationGrant { hosted: true, hosted_exhausted: None }),
            Some(exhausted) => Some(exhausted),
        },
        None => None,
    };
    match exhausted_budget(budgets, files, &asked.held_amounts(false)) {
        None => Ok(ReservationGrant { hosted: false, hosted_exhausted: why }),
        Some(exhausted) => Err(exhausted),
    }
}

/// Other requests with files that are in flight when a request with files is decided. The tokens of
/// a file are an estimate. If several such requests ran at once and all estimates were too low, a
/// budget that is nearly used up could be exceeded by a large amount.
#[derive(Default)]
pub(crate) struct FileRequestsInFlight<'a>(Vec<&'a Reservation>);

impl<'a> FileRequestsInFlight<'a> {
    /// Selects the other requests with files among the requests with a reservation. Selects none if
    /// the request to decide has no files.
    pub(crate) fn of(asked: &Reservation, held: impl Iterator<Item = &'a Reservation>) -> Self {
        let others =
            held.filter(|held| asked.has_files && held.has_files && held.request != asked.request);
        Self(others.collect())
    }

    /// Returns true if one of the requests counts in this budget.
    fn count_in(&self, budget: &BudgetBalance) -> bool {
        let owner = &budget.owner;
        self.0.iter().any(|held| match budget.scope {
            BudgetScope::Group => held.group == *owner,
            BudgetScope::Tenant => held.tenant == *owner,
            BudgetScope::Key => held.key == *owner,
            BudgetScope::HostedModel => held.hosted.is_some() && held.model == *owner,
            BudgetScope::Hosted => held.hosted.is_some(),
        })
    }
}

/// Returns true if at least one of the budgets counts the usage of this reservation. Otherwise nothing needs to be
/// reserved.
pub(crate) fn has_counting_budget(budgets: &[BudgetBalance], hosted: bool) -> bool {
    budgets.iter().any(|budget| hosted || budget.tier == BudgetTier::Any)
}

/// Returns a budget that has no room for `wanted`; `None` if all have room. Of several such
/// budgets, prefers those whose used amount alone leaves no room, because reserved amounts are
/// released when requests end. Among these, returns the one that resets last, because a retry
/// before that would fail. A budget to which the request adds nothing does not refuse the request,
/// even if the budget is exceeded.
fn exhausted_budget(
    budgets: &[BudgetBalance],
    files: &FileRequestsInFlight<'_>,
    wanted: &UsageSum,
) -> Option<BudgetExhausted> {
    let asked = |budget: &BudgetBalance| {
        let (_, reserved) = wanted.used_and_reserved(budget.unit, budget.tier);
        u64::try_from(reserved).unwrap_or(0)
    };
    let lacks = |budget: &BudgetBalance, times: u64| {
        let taken = budget.used.saturating_add(budget.reserved);
        taken.saturating_add(asked(budget).saturating_mul(times)) > budget.limit
    };
    let waits_for_files =
        |budget: &BudgetBalance| !lacks(budget, 1) && lacks(budget, 2) && files.count_in(budget);
    budgets
        .iter()
        .filter(|budget| asked(budget) > 0 && (lacks(budget, 1) || waits_for_files(budget)))
        .max_by_key(|budget| {
            // Used amounts stay until the reset; reserved amounts are released when requests end.
            let is_spent = budget.used.saturating_add(asked(budget)) > budget.limit;
            (is_spent, budget.resets_at, Reverse((budget.scope, budget.tier, budget.unit)))
        })
        .map(|budget| BudgetExhausted {
            scope: budget.scope,
            owner: budget.owner.clone(),
            period: budget.period,
            unit: budget.unit,
            tier: budget.tier,
            limit: budget.limit,
            used: budget.used,
            reserved: budget.reserved,
            wanted: asked(budget),
            waits_for_files: waits_for_files(budget),
            resets_at: budget.resets_at,
        })
}

#[cfg(test)]
mod tests {
    use fairgate_money::MicroUnits;
    use fairgate_time::UnixMicros;

    use super::*;
    use crate::budget::{BudgetPeriod, BudgetUnit};
    use crate::ledger::HostedMaximum;

    const NO_FILES: FileRequestsInFlight<'_> = FileRequestsInFlight(Vec::new());

    fn left(period: BudgetPeriod, limit: u64, used: u64, reserved: u64) -> BudgetBalance {
        BudgetBalance {
            scope: BudgetScope::Tenant,
            owner: "t".to_owned(),
            period,
            unit: BudgetUnit::Tokens,
            tier: BudgetTier::Any,
            limit,
            used,
            reserved,
            resets_at: period.resets_at(UnixMicros(0)),
        }
    }

    fn asked(tokens: u64, money: u64, hosted: Option<(u64, u64)>) -> Reservation {
        let hosted = hosted.map(|(provider_tokens, money)| HostedMaximum {
            provider_tokens,
            money: MicroUnits(money),
        });
        Reservation {
            request: "r".to_owned(),
            group: "g".to_owned(),
            tenant: "t".to_owned(),
            key: "k".to_owned(),
            model: "m".to_owned(),
            tokens,
            provider_tokens: tokens,
            money: MicroUnits(money),
            hosted,
            model_budgets: Vec::new(),
            claim: None,
            has_files: false,
            terms: Default::default(),
            at: UnixMicros(0),
        }
    }

    fn refused(budgets: &[BudgetBalance], tokens: u64) -> Option<BudgetExhausted> {
        check_budgets(budgets, &NO_FILES, &asked(tokens, 0, None)).err()
    }

    #[test]
    fn a_budget_may_be_used_to_its_last_token() {
        let budgets = [left(BudgetPeriod::Day, 10, 4, 3)];
        assert_eq!(refused(&budgets, 3), None);
        let refused = refused(&budgets, 4).unwrap();
        assert_eq!((refused.limit, refused.used, refused.reserved), (10, 4, 3));
        assert_eq!((refused.wanted, refused.owner.as_str()), (4, "t"));
    }

    #[test]
    fn the_refusal_names_the_budget_that_starts_anew_last() {
        let budgets = [left(BudgetPeriod::Day, 1, 1, 0), left(BudgetPeriod::Month, 1, 1, 0)];
        assert_eq!(refused(&budgets, 1).unwrap().period, BudgetPeriod::Month);
        let budgets = [left(BudgetPeriod::Day, 1, 1, 0), left(BudgetPeriod::Month, 9, 1, 0)];
        assert_eq!(refused(&budgets, 1).unwrap().period, BudgetPeriod::Day);
        // What is only reserved is the lesser evil.
        let budgets = [left(BudgetPeriod::Day, 1, 1, 0), left(BudgetPeriod::Month, 9, 0, 9)];
        assert_eq!(refused(&budgets, 1).unwrap().period, BudgetPeriod::Day);
    }

    #[test]
    fn huge_numbers_are_refused_and_not_wrapped() {
        assert!(refused(&[left(BudgetPeriod::Day, 10, u64::MAX, u64::MAX)], u64::MAX).is_some());
    }

    #[test]
    fn what_costs_nothing_is_not_refused_by_a_spent_budget() {
        let spent = BudgetBalance { unit: BudgetUnit::Money, ..left(BudgetPeriod::Day, 10, 12, 0) };
        assert_eq!(refused(std::slice::from_ref(&spent), 5), None);
        let costs = check_budgets(&[spent], &NO_FILES, &asked(5, 1, None)).unwrap_err();
        assert_eq!((costs.unit, costs.wanted), (BudgetUnit::Money, 1));
    }

    #[test]
    fn without_room_in_a_hosted_budget_it_is_for_own_workers_only() {
        let hosted =
            BudgetBalance { tier: BudgetTier::Hosted, ..left(BudgetPeriod::Day, 10, 0, 0) };
        let budgets = [left(BudgetPeriod::Day, 100, 0, 0), hosted];
        let there = check_budgets(&budgets, &NO_FILES, &asked(50, 0, Some((10, 0)))).unwrap();
        assert_eq!(there, ReservationGrant { hosted: true, hosted_exhausted: None });
        let without = check_budgets(&budgets, &NO_FILES, &asked(50, 0, Some((11, 0)))).unwrap();
        let why = without.hosted_exhausted.unwrap();
        assert!(!without.hosted);
        assert_eq!((why.tier, why.wanted, why.limit), (BudgetTier::Hosted, 11, 10));
        // A hosted budget says nothing about what stays at home.
        let home = check_budgets(&budgets, &NO_FILES, &asked(50, 0, None)).unwrap();
        assert_eq!(home, ReservationGrant { hosted: false, hosted_exhausted: None });
    }

    #[test]
    fn a_general_budget_that_only_the_hosted_price_exceeds_leaves_the_own_workers() {
        let money =
            BudgetBalance { unit: BudgetUnit::Money, ..left(BudgetPeriod::Month, 100, 0, 0) };
        let budgets = [money];
        let free_at_home =
            check_budgets(&budgets, &NO_FILES, &asked(5, 0, Some((5, 101)))).unwrap();
        assert!(!free_at_home.hosted);
        assert_eq!(free_at_home.hosted_exhausted.unwrap().wanted, 101);
        let dear_at_home =
            check_budgets(&budgets, &NO_FILES, &asked(5, 101, Some((5, 200)))).unwrap_err();
        assert_eq!((dear_at_home.wanted, dear_at_home.tier), (101, BudgetTier::Any));
    }

    #[test]
    fn with_less_than_twice_as_much_left_files_go_one_at_a_time() {
        let file = |request: &str, tokens| Reservation {
            request: request.to_owned(),
            has_files: true,
            ..asked(tokens, 0, None)
        };
        let (first, text) = (file("first", 3), asked(3, 0, None));
        let refused = |taken: u64, asked: &Reservation, held: &Reservation| {
            let files = FileRequestsInFlight::of(asked, std::iter::once(held));
            check_budgets(&[left(BudgetPeriod::Day, 10, 0, taken)], &files, asked).err()
        };
        let second = file("second", 4);
        assert!(refused(3, &second, &first).unwrap().waits_for_files);
        assert_eq!(refused(2, &second, &first), None, "eight are left");
        assert_eq!(refused(6, &second, &text), None, "a request without files does not stop it");
        let short = Reservation { has_files: false, ..second.clone() };
        assert_eq!(refused(6, &short, &first), None, "files do not stop a request without");
        assert_eq!(refused(6, &second, &second), None, "it does not wait for itself");
        let others = Reservation { tenant: "other".to_owned(), ..first.clone() };
        assert_eq!(refused(6, &second, &others), None, "nor for files of another tenant");
        assert!(!refused(7, &second, &first).unwrap().waits_for_files, "there is no room at all");
    }
}
