//! Reads the budget of a model for hosted workers.

use fairgate_money::MicroUnits;

use crate::config::HostedBudget;
use crate::field::{ConfigField, ConfigSection};

const BUDGET: &[&str] = &["tokens_per_day", "tokens_per_month", "money_per_day", "money_per_month"];

/// Largest budget of a model for hosted workers, in tokens.
const TOKENS_MAX: u64 = 1_000_000_000_000_000;
const MONEY_MAX: MicroUnits = MicroUnits(999_999_999_999_999);

/// Reads the budget of a model for hosted workers. An amount of money is an error if the file has no prices
/// (`has_prices` is false).
pub(super) fn hosted_budget(field: ConfigField<'_>, has_prices: bool) -> Option<HostedBudget> {
    let section = field.section(BUDGET)?;
    let tokens = |name: &str| section.optional(name, |field| field.integer(0..=TOKENS_MAX));
    let tokens_per_day = tokens("tokens_per_day");
    let tokens_per_month = tokens("tokens_per_month");
    let money_per_day = money(&section, "money_per_day", has_prices);
    let money_per_month = money(&section, "money_per_month", has_prices);
    Some(HostedBudget {
        tokens_per_day: tokens_per_day?,
        tokens_per_month: tokens_per_month?,
        money_per_day: money_per_day?,
        money_per_month: money_per_month?,
    })
}

pub(super) fn money(
    section: &ConfigSection<'_>,
    name: &str,
    has_prices: bool,
) -> Option<Option<MicroUnits>> {
    section.optional(name, |field| {
        if !has_prices {
            return field.wrong(
                "money is counted by prices, and there are none: add prices, or state tokens",
            );
        }
        let found = field.plain().and_then(MicroUnits::parse).filter(|amount| *amount <= MONEY_MAX);
        found.or_else(|| field.expected("a decimal from 0 to 999999999.999999 of at most 6 places"))
    })
}
