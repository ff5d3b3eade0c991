//! The limits of a group, tenant or key, on the command line.

use std::str::FromStr;

use clap::{Args, ValueEnum};
use serde_json::{Map, Value};

/// What a tenant or a key may use. `none` lifts a limit.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Limits (a number, or `none`)")]
pub(super) struct LimitArgs {
    /// Requests that may be in flight at once, in each pool.
    #[arg(long, value_name = "REQUESTS")]
    in_flight: Option<Limit>,
    /// Requests that may wait at once.
    #[arg(long, value_name = "REQUESTS")]
    queued_requests: Option<Limit>,
    /// Bytes of request bodies that may wait at once.
    #[arg(long, value_name = "BYTES")]
    queued_bytes: Option<Limit>,
    /// Requests a minute.
    #[arg(long, value_name = "REQUESTS")]
    requests_per_minute: Option<Limit>,
    /// Tokens a minute, as charged.
    #[arg(long, value_name = "TOKENS")]
    tokens_per_minute: Option<Limit>,
    #[command(flatten)]
    budgets: BudgetArgs,
    #[command(flatten)]
    hosted_budgets: HostedBudgetArgs,
    /// Whether it may use hosted workers at all.
    #[arg(long, value_enum)]
    hosted: Option<HostedUse>,
}

/// Budgets on any worker.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct BudgetArgs {
    /// Provider tokens (input and output, not weighted) a calendar day (UTC).
    #[arg(long, value_name = "TOKENS")]
    tokens_per_day: Option<Limit>,
    /// Provider tokens a calendar month (UTC).
    #[arg(long, value_name = "TOKENS")]
    tokens_per_month: Option<Limit>,
    /// Money a calendar day (UTC), in the currency of the prices, such as 50 or 0.25.
    #[arg(long, value_name = "MONEY")]
    money_per_day: Option<MoneyLimit>,
    /// Money a calendar month (UTC), in the currency of the prices.
    #[arg(long, value_name = "MONEY")]
    money_per_month: Option<MoneyLimit>,
}

/// Budgets on hosted workers.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct HostedBudgetArgs {
    /// Provider tokens a calendar day (UTC) on hosted workers.
    #[arg(long, value_name = "TOKENS")]
    hosted_tokens_per_day: Option<Limit>,
    /// Provider tokens a calendar month (UTC) on hosted workers.
    #[arg(long, value_name = "TOKENS")]
    hosted_tokens_per_month: Option<Limit>,
    /// Money a calendar day (UTC) on hosted workers.
    #[arg(long, value_name = "MONEY")]
    hosted_money_per_day: Option<MoneyLimit>,
    /// Money a calendar month (UTC) on hosted workers.
    #[arg(long, value_name = "MONEY")]
    hosted_money_per_month: Option<MoneyLimit>,
}

/// What all tenants of a group together may use. `none` lifts a limit.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Limits of all its tenants together (a number, or `none`)")]
pub(super) struct GroupLimitArgs {
    #[command(flatten)]
    budgets: BudgetArgs,
    #[command(flatten)]
    hosted_budgets: HostedBudgetArgs,
}

/// A number, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limit(pub(super) Option<u64>);

impl FromStr for Limit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self(None));
        }
        let number = text.replace('_', "").parse();
        number.map(|number| Self(Some(number))).map_err(|_| "a whole number, or `none`".to_owned())
    }
}

/// An amount of money, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MoneyLimit(Option<fairgate_store::MicroUnits>);

impl FromStr for MoneyLimit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self(None));
        }
        let amount = fairgate_store::MicroUnits::parse(text);
        let wrong = || "an amount such as 50 or 0.25 with at most six places, or `none`".to_owned();
        amount.map(|amount| Self(Some(amount))).ok_or_else(wrong)
    }
}

/// Whether hosted workers may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum HostedUse {
    /// Yes, within the budgets.
    Allowed,
    /// No: its requests go to own workers only.
    Never,
}

/// What was given, by the API's names.
type Given = Vec<(&'static str, Value)>;

fn numbers<const N: usize>(limits: [(&'static str, Option<Limit>); N]) -> Given {
    let given = limits.into_iter().filter_map(|(name, limit)| Some((name, limit?.0.into())));
    given.collect()
}

fn amounts<const N: usize>(limits: [(&'static str, Option<MoneyLimit>); N]) -> Given {
    let text = |MoneyLimit(limit): MoneyLimit| limit.map(|amount| amount.to_string()).into();
    limits.into_iter().filter_map(|(name, limit)| Some((name, text(limit?)))).collect()
}

impl BudgetArgs {
    fn given(&self) -> Given {
        let mut given = numbers([
            ("tokens_per_day", self.tokens_per_day),
            ("tokens_per_month", self.tokens_per_month),
        ]);
        given.extend(amounts([
            ("money_per_day", self.money_per_day),
            ("money_per_month", self.money_per_month),
        ]));
        given
    }
}

impl HostedBudgetArgs {
    /// What was given, by the API's names.
    pub(super) fn given(&self) -> Given {
        let mut given = numbers([
            ("hosted_tokens_per_day", self.hosted_tokens_per_day),
            ("hosted_tokens_per_month", self.hosted_tokens_per_month),
        ]);
        given.extend(amounts([
            ("hosted_money_per_day", self.hosted_money_per_day),
            ("hosted_money_per_month", self.hosted_money_per_month),
        ]));
        given
    }
}

impl GroupLimitArgs {
    /// What was given, by the API's names.
    pub(super) fn given(&self) -> Given {
        self.budgets.given().into_iter().chain(self.hosted_budgets.given()).collect()
    }
}

impl LimitArgs {
    /// What was given, by the API's names.
    pub(super) fn given(&self) -> Given {
        let mut given = numbers([
            ("in_flight", self.in_flight),
            ("queued_requests", self.queued_requests),
            ("queued_bytes", self.queued_bytes),
            ("requests_per_minute", self.requests_per_minute),
            ("tokens_per_minute", self.tokens_per_minute),
        ]);
        given.extend(self.budgets.given());
        given.extend(self.hosted_budgets.given());
        given.extend(self.hosted.map(|hosted| match hosted {
            HostedUse::Allowed => ("hosted", Value::Null),
            HostedUse::Never => ("hosted", "never".into()),
        }));
        given
    }
}

/// These limits over what there was: the API replaces all limits at once.
pub(super) fn over(given: Given, before: Option<&Value>) -> Value {
    let before = before.and_then(Value::as_object).cloned();
    let mut limits: Map<String, Value> = before.unwrap_or_default();
    limits.extend(given.into_iter().map(|(name, limit)| (name.to_owned(), limit)));
    Value::Object(limits)
}

/// All limits that are set, in one cell.
pub(super) fn told(item: &Value) -> String {
    let limits = item.get("limits").and_then(Value::as_object).into_iter().flatten();
    let set = limits.filter(|(_, limit)| !limit.is_null());
    let shown = |limit: &Value| limit.as_str().map_or_else(|| limit.to_string(), str::to_owned);
    let told: Vec<String> = set.map(|(name, limit)| format!("{name}={}", shown(limit))).collect();
    if told.is_empty() { "-".to_owned() } else { told.join(" ") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_given_goes_over_what_was() {
        let args = LimitArgs {
            in_flight: Limit::from_str("none").ok(),
            budgets: BudgetArgs {
                tokens_per_day: Limit::from_str("1_000").ok(),
                money_per_day: MoneyLimit::from_str("2.5").ok(),
                ..BudgetArgs::default()
            },
            hosted: Some(HostedUse::Never),
            ..LimitArgs::default()
        };
        let before = json!({"in_flight": 4, "queued_requests": 7});
        let after = json!({
            "in_flight": null, "queued_requests": 7, "tokens_per_day": 1000, "money_per_day": "2.50", "hosted": "never",
        });
        assert_eq!(over(args.given(), Some(&before)), after);
        assert!(Limit::from_str("-1").is_err());
        assert!(MoneyLimit::from_str("0.0000001").is_err());
        let item = json!({"limits": after});
        assert_eq!(
            told(&item),
            "hosted=never money_per_day=2.50 queued_requests=7 tokens_per_day=1000"
        );
    }
}
