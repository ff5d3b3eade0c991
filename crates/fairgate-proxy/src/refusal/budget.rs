//! Refusals by a budget that has no room for a request.

use std::time::Duration;

use fairgate_money::{Currency, MicroUnits};
use fairgate_store::{
    BudgetExhausted, BudgetPeriod, BudgetScope, BudgetTier, BudgetUnit, UnixMicros,
};

use super::{Refusal, RefusalCode};

/// Refuses with 429 because a budget has too little left for a request. The message says when the request will fit:
/// after the budget's next period begins, after requests in flight have ended, or never.
pub(crate) fn budget_exhausted(
    exhausted: &BudgetExhausted,
    currency: Option<Currency>,
    now: UnixMicros,
) -> Refusal {
    let BudgetExhausted { limit, used, wanted, resets_at, .. } = exhausted;
    let stand = standing(exhausted, currency);
    let refused = |code, advice: &str| Refusal::new(code, format!("{stand} {advice}"));
    if wanted > limit {
        let advice = "The request is larger than the whole budget: send a smaller max_tokens or a shorter prompt, or ask for a \
                      larger budget.";
        return refused(RefusalCode::BudgetExhausted, advice);
    }
    if exhausted.waits_for_files {
        let advice = "Less than twice that is left, so requests with files are served one at a time: try again when the \
                      other one has ended.";
        return refused(RefusalCode::BudgetReserved, advice);
    }
    if used.saturating_add(*wanted) <= *limit {
        let advice = "Try again when some of those have ended, or send a smaller max_tokens.";
        return refused(RefusalCode::BudgetReserved, advice);
    }
    let micros = u64::try_from(resets_at.0.saturating_sub(now.0)).unwrap_or(0);
    let advice =
        "Wait until its next period begins, or send a smaller max_tokens if some are left.";
    refused(RefusalCode::BudgetExhausted, advice)
        .with_retry_after(Some(Duration::from_micros(micros)))
}

/// Describes the budget for the message: its owner, its limit and its use, with units.
fn standing(exhausted: &BudgetExhausted, currency: Option<Currency>) -> String {
    let BudgetExhausted { scope, period, unit, tier, limit, used, reserved, wanted, .. } =
        exhausted;
    let whose = match scope {
        BudgetScope::Tenant => "this tenant".to_owned(),
        BudgetScope::Key => "this key".to_owned(),
        BudgetScope::Group => "this tenant's group".to_owned(),
        BudgetScope::HostedModel => format!("the model {:?}", exhausted.owner),
        BudgetScope::Hosted => "all tenants".to_owned(),
    };
    let period = match period {
        BudgetPeriod::Day => "day",
        BudgetPeriod::Month => "month",
    };
    let tier = match tier {
        BudgetTier::Any => "",
        BudgetTier::Hosted => " on hosted workers",
    };
    // An amount of tokens has its unit only at the first number; an amount of money has it at each
    // number.
    let unit_of = |first| match (unit, first) {
        (BudgetUnit::Tokens, true) => " tokens".to_owned(),
        (BudgetUnit::Tokens, false) => String::new(),
        (BudgetUnit::Money, _) => {
            currency.map_or(" (money)".to_owned(), |currency| format!(" {currency}"))
        }
    };
    let amount = |amount: u64| match unit {
        BudgetUnit::Tokens => amount.to_string(),
        BudgetUnit::Money => MicroUnits(amount).to_string(),
    };
    let shown = |number: &u64, first: bool| format!("{}{}", amount(*number), unit_of(first));
    format!(
        "The budget of {whose} is {} a {period}{tier}; {} are used, {} are reserved for requests in flight, and this one \
         may take up to {}.",
        shown(limit, true),
        shown(used, false),
        shown(reserved, false),
        shown(wanted, false),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exhausted(used: u64, reserved: u64, wanted: u64) -> BudgetExhausted {
        BudgetExhausted {
            scope: BudgetScope::Key,
            owner: "key-1".to_owned(),
            period: BudgetPeriod::Day,
            unit: BudgetUnit::Tokens,
            tier: BudgetTier::Any,
            limit: 10,
            used,
            reserved,
            wanted,
            waits_for_files: false,
            resets_at: UnixMicros(2_500_000),
        }
    }

    #[test]
    fn a_spent_budget_is_hopeless_until_it_starts_anew_and_a_reserved_one_is_not() {
        let refused = |used, reserved, wanted| {
            let refusal = budget_exhausted(&exhausted(used, reserved, wanted), None, UnixMicros(0));
            (refusal.code.as_str(), refusal.code.is_retry_pointless(), refusal.retry_after)
        };
        let reset = Some(Duration::from_micros(2_500_000));
        assert_eq!(refused(10, 0, 1), ("budget_exhausted", true, reset));
        assert_eq!(refused(5, 5, 6), ("budget_exhausted", true, reset));
        assert_eq!(refused(5, 5, 5), ("budget_reserved", false, Some(Duration::from_secs(2))));
        assert_eq!(refused(0, 0, 11), ("budget_exhausted", true, None));
    }

    #[test]
    fn amounts_are_told_with_their_units() {
        let tokens = standing(&exhausted(5, 4, 3), None);
        let expected = "The budget of this key is 10 tokens a day; 5 are used, 4 are reserved for requests in flight, and \
                        this one may take up to 3.";
        assert_eq!(tokens, expected);
        let money = BudgetExhausted {
            scope: BudgetScope::Hosted,
            unit: BudgetUnit::Money,
            tier: BudgetTier::Hosted,
            limit: 50_000_000,
            ..exhausted(12_340_000, 0, 40_000_001)
        };
        let expected = "The budget of all tenants is 50.00 USD a day on hosted workers; 12.34 USD are used, 0.00 USD are \
                        reserved for requests in flight, and this one may take up to 40.000001 USD.";
        assert_eq!(standing(&money, Currency::parse("USD")), expected);
        let model = BudgetExhausted {
            scope: BudgetScope::HostedModel,
            owner: "gpt-4o".to_owned(),
            ..money
        };
        let text = standing(&model, Currency::parse("USD"));
        assert!(
            text.starts_with("The budget of the model \"gpt-4o\" is 50.00 USD a day"),
            "{text}"
        );
    }
}
