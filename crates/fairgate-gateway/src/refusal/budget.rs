//! A budget that has no room for a request.

use std::time::Duration;

use fairgate_money::{Currency, MicroUnits};
use fairgate_store::{BudgetTier, Exhausted, Period, Scope, Unit, UnixMicros};
use http::StatusCode;

use super::Refusal;

/// When to come back where what is missing is only held by requests that are in flight. They end when they end; nobody knows.
const RESERVED_RETRY: Duration = Duration::from_secs(2);

/// A budget has too little left for a request: until it starts anew, or only until what is in flight has ended, or for ever.
pub(crate) fn budget_exhausted(
    exhausted: &Exhausted,
    currency: Option<Currency>,
    now: UnixMicros,
) -> Refusal {
    let Exhausted { limit, used, wanted, resets_at, .. } = exhausted;
    let stand = standing(exhausted, currency);
    let refused = |code, advice: &str, after| {
        Refusal::new(StatusCode::TOO_MANY_REQUESTS, code, format!("{stand} {advice}")).after(after)
    };
    if wanted > limit {
        let advice = "It never fits: send a smaller max_tokens or a shorter prompt, or ask for a larger budget.";
        return Refusal { hopeless: true, ..refused("budget_exhausted", advice, None) };
    }
    if used.saturating_add(*wanted) <= *limit {
        let advice = "Try again when some of those have ended, or send a smaller max_tokens.";
        return refused("budget_reserved", advice, Some(RESERVED_RETRY));
    }
    let micros = u64::try_from(resets_at.0.saturating_sub(now.0)).unwrap_or(0);
    let advice = "Wait until it starts anew, or send a smaller max_tokens if some are left.";
    let after = Some(Duration::from_micros(micros));
    Refusal { hopeless: true, ..refused("budget_exhausted", advice, after) }
}

/// Whose budget it is and how it stands, with units.
fn standing(exhausted: &Exhausted, currency: Option<Currency>) -> String {
    let Exhausted { scope, period, unit, tier, limit, used, reserved, wanted, .. } = exhausted;
    let whose = match scope {
        Scope::Tenant => "this tenant".to_owned(),
        Scope::Key => "this key".to_owned(),
        Scope::Group => "this tenant's group".to_owned(),
        Scope::HostedModel => format!("the model {:?}", exhausted.owner),
        Scope::Hosted => "all tenants".to_owned(),
    };
    let period = match period {
        Period::Day => "day",
        Period::Month => "month",
    };
    let tier = match tier {
        BudgetTier::Any => "",
        BudgetTier::Hosted => " on hosted workers",
    };
    // The unit is named once for tokens, and with each amount of money.
    let unit_of = |first| match (unit, first) {
        (Unit::Tokens, true) => " tokens".to_owned(),
        (Unit::Tokens, false) => String::new(),
        (Unit::Money, _) => {
            currency.map_or(" (money)".to_owned(), |currency| format!(" {currency}"))
        }
    };
    let amount = |amount: u64| match unit {
        Unit::Tokens => amount.to_string(),
        Unit::Money => MicroUnits(amount).to_string(),
    };
    let shown = |number: &u64, first: bool| format!("{}{}", amount(*number), unit_of(first));
    format!(
        "The budget of {whose} is {} a {period}{tier}; {} are used, {} are set aside for requests in flight, and this one \
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

    fn exhausted(used: u64, reserved: u64, wanted: u64) -> Exhausted {
        Exhausted {
            scope: Scope::Key,
            owner: "key-1".to_owned(),
            period: Period::Day,
            unit: Unit::Tokens,
            tier: BudgetTier::Any,
            limit: 10,
            used,
            reserved,
            wanted,
            resets_at: UnixMicros(2_500_000),
        }
    }

    #[test]
    fn a_spent_budget_is_hopeless_until_it_starts_anew_and_a_reserved_one_is_not() {
        let refused = |used, reserved, wanted| {
            let refusal = budget_exhausted(&exhausted(used, reserved, wanted), None, UnixMicros(0));
            (refusal.problem.code, refusal.hopeless, refusal.retry_after)
        };
        let reset = Some(Duration::from_micros(2_500_000));
        assert_eq!(refused(10, 0, 1), ("budget_exhausted", true, reset));
        assert_eq!(refused(5, 5, 6), ("budget_exhausted", true, reset));
        assert_eq!(refused(5, 5, 5), ("budget_reserved", false, Some(RESERVED_RETRY)));
        assert_eq!(refused(0, 0, 11), ("budget_exhausted", true, None));
    }

    #[test]
    fn amounts_are_told_with_their_units() {
        let tokens = standing(&exhausted(5, 4, 3), None);
        let told = "The budget of this key is 10 tokens a day; 5 are used, 4 are set aside for requests in flight, and this \
                    one may take up to 3.";
        assert_eq!(tokens, told);
        let money = Exhausted {
            scope: Scope::Hosted,
            unit: Unit::Money,
            tier: BudgetTier::Hosted,
            limit: 50_000_000,
            ..exhausted(12_340_000, 0, 40_000_001)
        };
        let told = "The budget of all tenants is 50.00 USD a day on hosted workers; 12.34 USD are used, 0.00 USD are set \
                    aside for requests in flight, and this one may take up to 40.000001 USD.";
        assert_eq!(standing(&money, Currency::parse("USD")), told);
        let model = Exhausted { scope: Scope::HostedModel, owner: "gpt-4o".to_owned(), ..money };
        let told = standing(&model, Currency::parse("USD"));
        assert!(
            told.starts_with("The budget of the model \"gpt-4o\" is 50.00 USD a day"),
            "{told}"
        );
    }
}
