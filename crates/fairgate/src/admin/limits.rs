//! The limits of a tenant or key, on the command line.

use std::str::FromStr;

use clap::Args;
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
    /// Tokens a calendar day (UTC), as charged.
    #[arg(long, value_name = "TOKENS")]
    tokens_per_day: Option<Limit>,
    /// Tokens a calendar month (UTC), as charged.
    #[arg(long, value_name = "TOKENS")]
    tokens_per_month: Option<Limit>,
}

/// A number, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Limit(Option<u64>);

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

impl LimitArgs {
    /// What was given, by the API's names.
    fn given(&self) -> impl Iterator<Item = (&'static str, Limit)> {
        [
            ("in_flight", self.in_flight),
            ("queued_requests", self.queued_requests),
            ("queued_bytes", self.queued_bytes),
            ("requests_per_minute", self.requests_per_minute),
            ("tokens_per_minute", self.tokens_per_minute),
            ("tokens_per_day", self.tokens_per_day),
            ("tokens_per_month", self.tokens_per_month),
        ]
        .into_iter()
        .filter_map(|(name, limit)| limit.map(|limit| (name, limit)))
    }

    /// Whether any was given.
    pub(super) fn is_given(&self) -> bool {
        self.given().next().is_some()
    }

    /// These over what there was: the API replaces all limits at once.
    pub(super) fn over(&self, before: Option<&Value>) -> Value {
        let before = before.and_then(Value::as_object).cloned();
        let mut limits: Map<String, Value> = before.unwrap_or_default();
        for (name, Limit(limit)) in self.given() {
            limits.insert(name.to_owned(), limit.into());
        }
        Value::Object(limits)
    }
}

/// All limits that are set, in one cell.
pub(super) fn told(item: &Value) -> String {
    let limits = item.get("limits").and_then(Value::as_object).into_iter().flatten();
    let set = limits.filter(|(_, limit)| !limit.is_null());
    let told: Vec<String> = set.map(|(name, limit)| format!("{name}={limit}")).collect();
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
            tokens_per_day: Limit::from_str("1_000").ok(),
            ..LimitArgs::default()
        };
        let before = json!({"in_flight": 4, "queued_requests": 7});
        let after = json!({"in_flight": null, "queued_requests": 7, "tokens_per_day": 1000});
        assert_eq!(args.over(Some(&before)), after);
        assert!(Limit::from_str("-1").is_err());
    }
}
