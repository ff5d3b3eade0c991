//! Command-line options for the limits of a group, tenant or key.

use std::str::FromStr;

use anyhow::Result;
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::understood;

/// Limits of a tenant or a key. `none` removes a limit.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Limits (a number, or `none`)")]
pub(super) struct LimitArgs {
    /// Greatest number of requests in flight at once, counted for each pool separately.
    #[arg(long, value_name = "REQUESTS")]
    in_flight: Option<LimitArg>,
    /// Greatest number of waiting requests.
    #[arg(long, value_name = "REQUESTS")]
    queued_requests: Option<LimitArg>,
    /// Greatest number of bytes in the bodies of all waiting requests together.
    #[arg(long, value_name = "BYTES")]
    queued_bytes: Option<LimitArg>,
    /// Greatest number of requests per minute.
    #[arg(long, value_name = "REQUESTS")]
    requests_per_minute: Option<LimitArg>,
    /// Greatest number of tokens per minute, as the pool's policy charges them.
    #[arg(long, value_name = "TOKENS")]
    tokens_per_minute: Option<LimitArg>,
    #[command(flatten)]
    budgets: BudgetArgs,
    #[command(flatten)]
    hosted_budgets: HostedBudgetArgs,
    /// Permission to use hosted workers.
    #[arg(long, value_enum)]
    hosted: Option<HostedUseArg>,
}

/// Budgets for requests on any worker. `none` removes a budget.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct BudgetArgs {
    /// Input and output tokens per calendar day (UTC), not weighted.
    #[arg(long, value_name = "TOKENS")]
    tokens_per_day: Option<LimitArg>,
    /// Input and output tokens per calendar month (UTC), not weighted.
    #[arg(long, value_name = "TOKENS")]
    tokens_per_month: Option<LimitArg>,
    /// Money per calendar day (UTC), in the currency of the prices, such as 50 or 0.25.
    #[arg(long, value_name = "MONEY")]
    money_per_day: Option<MoneyLimitArg>,
    /// Money per calendar month (UTC), in the currency of the prices.
    #[arg(long, value_name = "MONEY")]
    money_per_month: Option<MoneyLimitArg>,
}

/// Budgets for requests on hosted workers. `none` removes a budget.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct HostedBudgetArgs {
    /// Input and output tokens per calendar day (UTC) on hosted workers, not weighted.
    #[arg(long, value_name = "TOKENS")]
    hosted_tokens_per_day: Option<LimitArg>,
    /// Input and output tokens per calendar month (UTC) on hosted workers, not weighted.
    #[arg(long, value_name = "TOKENS")]
    hosted_tokens_per_month: Option<LimitArg>,
    /// Money per calendar day (UTC) on hosted workers, in the currency of the prices.
    #[arg(long, value_name = "MONEY")]
    hosted_money_per_day: Option<MoneyLimitArg>,
    /// Money per calendar month (UTC) on hosted workers, in the currency of the prices.
    #[arg(long, value_name = "MONEY")]
    hosted_money_per_month: Option<MoneyLimitArg>,
}

/// Limits of all tenants of a group together. `none` removes a limit.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Limits of all its tenants together (a number, or `none`)")]
pub(super) struct GroupLimitArgs {
    #[command(flatten)]
    budgets: BudgetArgs,
    #[command(flatten)]
    hosted_budgets: HostedBudgetArgs,
}

/// A command-line value that is a number, or `none` to remove a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LimitArg(pub(super) Option<u64>);

impl FromStr for LimitArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self(None));
        }
        let number = text.replace('_', "").parse();
        number.map(|number| Self(Some(number))).map_err(|_| "a whole number, or `none`".to_owned())
    }
}

/// A command-line value that is an amount of money, or `none` to remove a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MoneyLimitArg(Option<fairgate_store::MicroUnits>);

impl FromStr for MoneyLimitArg {
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

/// Permission of a tenant or key to use hosted workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum HostedUseArg {
    /// Requests may use hosted workers, within the budgets.
    Allowed,
    /// Requests use own workers only.
    Never,
}

/// Options that were given, as pairs of the API's field name and the value.
type GivenLimits = Vec<(&'static str, Value)>;

fn numbers<const N: usize>(limits: [(&'static str, Option<LimitArg>); N]) -> GivenLimits {
    let given = limits.into_iter().filter_map(|(name, limit)| Some((name, limit?.0.into())));
    given.collect()
}

fn amounts<const N: usize>(limits: [(&'static str, Option<MoneyLimitArg>); N]) -> GivenLimits {
    let text = |MoneyLimitArg(limit): MoneyLimitArg| limit.map(|amount| amount.to_string()).into();
    limits.into_iter().filter_map(|(name, limit)| Some((name, text(limit?)))).collect()
}

impl BudgetArgs {
    fn given(&self) -> GivenLimits {
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
    /// Returns the options that were given, under the names of the API's fields.
    pub(super) fn given(&self) -> GivenLimits {
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
    /// Returns the options that were given, under the names of the API's fields.
    pub(super) fn given(&self) -> GivenLimits {
        self.budgets.given().into_iter().chain(self.hosted_budgets.given()).collect()
    }
}

impl LimitArgs {
    /// Returns the options that were given, under the names of the API's fields.
    pub(super) fn given(&self) -> GivenLimits {
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
            HostedUseArg::Allowed => ("hosted", Value::Null),
            HostedUseArg::Never => ("hosted", "never".into()),
        }));
        given
    }
}

/// The limits in the view of a group, tenant, key or the hosted tier. They are kept as JSON, so
/// that limits that this program does not know are preserved.
#[derive(Deserialize)]
struct ViewOfLimits {
    limits: Map<String, Value>,
}

/// Returns the limits of a new group, tenant or key.
pub(super) fn new_limits(given: GivenLimits) -> Value {
    merged(given, Map::new())
}

/// Returns the limits of the view `before` with the given ones replaced, because the API replaces all limits at once.
pub(super) fn changed_limits(given: GivenLimits, before: &Value) -> Result<Value> {
    Ok(merged(given, understood::<ViewOfLimits>(before)?.limits))
}

fn merged(given: GivenLimits, mut limits: Map<String, Value>) -> Value {
    limits.extend(given.into_iter().map(|(name, limit)| (name.to_owned(), limit)));
    Value::Object(limits)
}

/// Lists all limits that are set, in one cell.
pub(super) fn format_limits(limits: &impl Serialize) -> String {
    let limits = serde_json::to_value(limits).unwrap_or_default();
    let set = limits.as_object().into_iter().flatten().filter(|(_, limit)| !limit.is_null());
    let shown = |limit: &Value| limit.as_str().map_or_else(|| limit.to_string(), str::to_owned);
    let limits_set: Vec<String> =
        set.map(|(name, limit)| format!("{name}={}", shown(limit))).collect();
    if limits_set.is_empty() { "-".to_owned() } else { limits_set.join(" ") }
}

#[cfg(test)]
mod tests {
    use fairgate_api::admin::LimitsBody;
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_given_goes_over_what_was() {
        let args = LimitArgs {
            in_flight: LimitArg::from_str("none").ok(),
            budgets: BudgetArgs {
                tokens_per_day: LimitArg::from_str("1_000").ok(),
                money_per_day: MoneyLimitArg::from_str("2.5").ok(),
                ..BudgetArgs::default()
            },
            hosted: Some(HostedUseArg::Never),
            ..LimitArgs::default()
        };
        let before = json!({"in_flight": 4, "queued_requests": 7});
        let after = json!({
            "in_flight": null, "queued_requests": 7, "tokens_per_day": 1000, "money_per_day": "2.50", "hosted": "never",
        });
        let before = json!({"name": "chat", "limits": before});
        assert_eq!(changed_limits(args.given(), &before).unwrap(), after);
        assert!(LimitArg::from_str("-1").is_err());
        assert!(MoneyLimitArg::from_str("0.0000001").is_err());
        let limits: LimitsBody = serde_json::from_value(after).unwrap();
        assert_eq!(
            format_limits(&limits),
            "hosted=never money_per_day=2.50 queued_requests=7 tokens_per_day=1000"
        );
    }
}
