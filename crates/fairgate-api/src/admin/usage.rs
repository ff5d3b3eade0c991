//! Sums of the ledger.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa::openapi::schema::{Object, ObjectBuilder, Type};

use super::money::MoneyText;

/// Attributes by which usage can be summed.
pub const USAGE_ATTRIBUTES: &[&str] = &[
    "group", "tenant", "key", "model", "pool", "worker", "outcome", "agent", "day", "hour", "tier",
    "class", "project",
];

fn usage_attribute() -> Object {
    let attributes = ObjectBuilder::new().schema_type(Type::String);
    attributes.enum_values(Some(USAGE_ATTRIBUTES.iter().copied())).build()
}

/// Sums of the ledger's rows. The sum with the highest charge comes first, but days and hours are in order of time.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = Usage)]
pub struct UsageReportBody {
    /// Attribute by which the rows were summed.
    #[schema(schema_with = usage_attribute)]
    pub by: String,
    /// Second attribute by which the rows were summed; null if there is none.
    pub split: Option<String>,
    /// Earliest arrival, inclusive, RFC 3339 in UTC.
    #[schema(format = DateTime)]
    pub since: String,
    /// Latest arrival, exclusive, RFC 3339 in UTC.
    #[schema(format = DateTime)]
    pub until: String,
    /// Currency of the amounts of money, such as `USD`; null before the first price.
    pub currency: Option<String>,
    /// Number of sums that are not in `rows`, because there are more than 10 000.
    pub omitted: u64,
    /// The sums, one for each value of the attribute, or for each pair of values with a second attribute.
    pub rows: Vec<UsageRowBody>,
}

/// Sums over all rows with one value of the attribute.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = UsageRow)]
pub struct UsageRowBody {
    /// Value of the attribute, such as a tenant or model; `-` for rows that have no value. If the attribute is the
    /// tier, 0 means own workers, and 1 and above hosted workers.
    pub name: String,
    /// Value of the second attribute; null if there is none.
    pub split: Option<String>,
    /// Number of requests. Only the last attempt of each request is counted.
    pub requests: u64,
    /// Number of these requests that did not complete.
    pub failed: u64,
    /// Input tokens, including cached ones.
    pub input_tokens: u64,
    /// Input tokens that the upstream had cached; included in `input_tokens`.
    pub cached_tokens: u64,
    /// Output tokens of the responses.
    pub output_tokens: u64,
    /// Weighted tokens that were charged.
    pub charged_tokens: u64,
    /// Part of the charged tokens of all rows that the query selects, from 0 to 1; null if nothing was charged.
    pub got_share: Option<f64>,
    /// Input and output tokens, not weighted, as providers and token budgets count them.
    pub provider_tokens: u64,
    /// Time of own workers that was used, in microseconds of a full worker. It is recorded even if
    /// the pools count another unit. Null for tenants, because it would show them the load of
    /// others.
    #[serde(default)]
    pub worker_us: Option<u64>,
    /// This row's part of the worker time of all rows that the query selects, from 0 to 1; null if they have none.
    #[serde(default)]
    pub share_of_worker_time: Option<f64>,
    /// Cost in money, as a decimal text in `currency`.
    #[schema(value_type = String)]
    pub money: MoneyText,
    /// Mean time in the queue, in microseconds.
    pub waited_mean_us: u64,
    /// Median time in the queue, in microseconds, exact (nearest rank). Null if there is no
    /// request, or if the query does not ask for `quantiles`.
    pub waited_p50_us: Option<u64>,
    /// 95th percentile of the time in the queue, in microseconds, exact (nearest rank). Null if
    /// there is no request, or if the query does not ask for `quantiles`.
    pub waited_p95_us: Option<u64>,
    /// Longest time in the queue, in microseconds.
    pub waited_max_us: u64,
    /// Mean time to the first token, in microseconds; null if no row has a first token.
    pub first_token_mean_us: Option<u64>,
}
