//! Whether budgets have room for a reservation: decided here, once, for both databases.

use std::cmp::Reverse;

use crate::budget::{BudgetLeft, BudgetTier, Exhausted, Granted, Refused};
use crate::claims::Books;
use crate::ledger::Reservation;
use crate::sums::Sum;

/// Grants a reservation where all budgets have room, and its claim, if it has one, is in force. Where only its part on hosted
/// workers finds none, it is granted without that part, and told why.
pub(crate) fn decide(
    budgets: &[BudgetLeft],
    books: &Books,
    asked: &Reservation,
) -> std::result::Result<Granted, Refused> {
    if let Some(claim) = &asked.claim {
        books.in_force(claim, asked.at)?;
    }
    let granted = fits(budgets, asked)?;
    if let Some(claim) = &asked.claim {
        let tokens = asked.granted(granted.hosted).provider_tokens;
        books.room(claim, tokens, asked.fleet, asked.at)?;
    }
    Ok(granted)
}

/// Whether the budgets of its group, tenant and key and of the hosted tier have room.
fn fits(budgets: &[BudgetLeft], asked: &Reservation) -> std::result::Result<Granted, Exhausted> {
    let why = match asked.hosted {
        Some(_) => match refusal(budgets, &asked.holds(true)) {
            None => return Ok(Granted { hosted: true, why: None }),
            Some(exhausted) => Some(exhausted),
        },
        None => None,
    };
    match refusal(budgets, &asked.holds(false)) {
        None => Ok(Granted { hosted: false, why }),
        Some(exhausted) => Err(exhausted),
    }
}

/// Whether any of the budgets counts what a reservation would hold. Where none does, nothing need be held.
pub(crate) fn concerns(budgets: &[BudgetLeft], hosted: bool) -> bool {
    budgets.iter().any(|budget| hosted || budget.tier == BudgetTier::Any)
}

/// The budget that cannot take so much more. Of several, the one that starts anew last: before that, trying again is in
/// vain. What takes nothing of a budget is not refused by it, even where more was used than it had.
fn refusal(budgets: &[BudgetLeft], wanted: &Sum) -> Option<Exhausted> {
    let asked = |budget: &BudgetLeft| {
        let (_, reserved) = wanted.standing(budget.unit, budget.tier);
        u64::try_from(reserved).unwrap_or(0)
    };
    budgets
        .iter()
        .filter(|budget| {
            let taken = budget.used.saturating_add(budget.reserved);
            asked(budget) > 0 && taken.saturating_add(asked(budget)) > budget.limit
        })
        .max_by_key(|budget| {
            // What is used stays used until then; what is reserved comes back as requests end.
            let is_spent = budget.used.saturating_add(asked(budget)) > budget.limit;
            (is_spent, budget.resets_at, Reverse((budget.scope, budget.tier, budget.unit)))
        })
        .map(|budget| Exhausted {
            scope: budget.scope,
            owner: budget.owner.clone(),
            period: budget.period,
            unit: budget.unit,
            tier: budget.tier,
            limit: budget.limit,
            used: budget.used,
            reserved: budget.reserved,
            wanted: asked(budget),
            resets_at: budget.resets_at,
        })
}

#[cfg(test)]
mod tests {
    use fairgate_money::{MicroUnits, UnixMicros};

    use super::*;
    use crate::budget::{Period, Scope, Unit};
    use crate::ledger::HostedMost;

    fn left(period: Period, limit: u64, used: u64, reserved: u64) -> BudgetLeft {
        BudgetLeft {
            scope: Scope::Tenant,
            owner: "t".to_owned(),
            period,
            unit: Unit::Tokens,
            tier: BudgetTier::Any,
            limit,
            used,
            reserved,
            resets_at: period.resets_at(UnixMicros(0)),
        }
    }

    fn asked(tokens: u64, money: u64, hosted: Option<(u64, u64)>) -> Reservation {
        let hosted = hosted.map(|(provider_tokens, money)| HostedMost {
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
            fleet: Default::default(),
            at: UnixMicros(0),
        }
    }

    fn refused(budgets: &[BudgetLeft], tokens: u64) -> Option<Exhausted> {
        fits(budgets, &asked(tokens, 0, None)).err()
    }

    #[test]
    fn a_budget_may_be_used_to_its_last_token() {
        let budgets = [left(Period::Day, 10, 4, 3)];
        assert_eq!(refused(&budgets, 3), None);
        let refused = refused(&budgets, 4).unwrap();
        assert_eq!((refused.limit, refused.used, refused.reserved), (10, 4, 3));
        assert_eq!((refused.wanted, refused.owner.as_str()), (4, "t"));
    }

    #[test]
    fn the_refusal_names_the_budget_that_starts_anew_last() {
        let budgets = [left(Period::Day, 1, 1, 0), left(Period::Month, 1, 1, 0)];
        assert_eq!(refused(&budgets, 1).unwrap().period, Period::Month);
        let budgets = [left(Period::Day, 1, 1, 0), left(Period::Month, 9, 1, 0)];
        assert_eq!(refused(&budgets, 1).unwrap().period, Period::Day);
        // What is only reserved is the lesser evil.
        let budgets = [left(Period::Day, 1, 1, 0), left(Period::Month, 9, 0, 9)];
        assert_eq!(refused(&budgets, 1).unwrap().period, Period::Day);
    }

    #[test]
    fn huge_numbers_are_refused_and_not_wrapped() {
        assert!(refused(&[left(Period::Day, 10, u64::MAX, u64::MAX)], u64::MAX).is_some());
    }

    #[test]
    fn what_costs_nothing_is_not_refused_by_a_spent_budget() {
        let spent = BudgetLeft { unit: Unit::Money, ..left(Period::Day, 10, 12, 0) };
        assert_eq!(refused(std::slice::from_ref(&spent), 5), None);
        let costs = fits(&[spent], &asked(5, 1, None)).unwrap_err();
        assert_eq!((costs.unit, costs.wanted), (Unit::Money, 1));
    }

    #[test]
    fn without_room_in_a_hosted_budget_it_is_for_own_workers_only() {
        let hosted = BudgetLeft { tier: BudgetTier::Hosted, ..left(Period::Day, 10, 0, 0) };
        let budgets = [left(Period::Day, 100, 0, 0), hosted];
        let there = fits(&budgets, &asked(50, 0, Some((10, 0)))).unwrap();
        assert_eq!(there, Granted { hosted: true, why: None });
        let without = fits(&budgets, &asked(50, 0, Some((11, 0)))).unwrap();
        let why = without.why.unwrap();
        assert!(!without.hosted);
        assert_eq!((why.tier, why.wanted, why.limit), (BudgetTier::Hosted, 11, 10));
        // A hosted budget says nothing about what stays at home.
        let home = fits(&budgets, &asked(50, 0, None)).unwrap();
        assert_eq!(home, Granted { hosted: false, why: None });
    }

    #[test]
    fn a_general_budget_that_only_the_hosted_price_exceeds_leaves_the_own_workers() {
        let money = BudgetLeft { unit: Unit::Money, ..left(Period::Month, 100, 0, 0) };
        let budgets = [money];
        let free_at_home = fits(&budgets, &asked(5, 0, Some((5, 101)))).unwrap();
        assert!(!free_at_home.hosted);
        assert_eq!(free_at_home.why.unwrap().wanted, 101);
        let dear_at_home = fits(&budgets, &asked(5, 101, Some((5, 200)))).unwrap_err();
        assert_eq!((dear_at_home.wanted, dear_at_home.tier), (101, BudgetTier::Any));
    }
}
