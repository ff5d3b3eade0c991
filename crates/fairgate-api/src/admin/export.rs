//! Comparison of the ledger with its copy in ClickHouse.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::MoneyText;

/// Sums of the ledger and of its copy in ClickHouse, day by day.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = ExportCheck)]
pub struct ExportCheckBody {
    /// True if both sides are equal on every day.
    pub equal: bool,
    /// Upper bound of the number of rows that are not compared, because they were not sent yet or
    /// were sent less than a minute ago.
    pub rows_not_compared: u64,
    /// Compared days, in the order of time.
    pub days: Vec<ExportDayBody>,
}

/// Sums of the requests that arrived on one UTC day.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = ExportDay)]
pub struct ExportDayBody {
    /// The day, such as `2026-11-15`.
    pub day: String,
    /// True if both sides are equal.
    pub equal: bool,
    /// Sums over the ledger's rows.
    pub ledger: ExportSumsBody,
    /// Sums over the rows that ClickHouse has.
    pub clickhouse: ExportSumsBody,
}

/// Sums over the rows of a day.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = ExportSums)]
pub struct ExportSumsBody {
    /// Number of rows, without those that were removed.
    pub rows: u64,
    /// Input tokens, with the cached ones.
    pub input_tokens: u64,
    /// Input tokens that were in the upstream's cache.
    pub cached_tokens: u64,
    /// Output tokens of the responses.
    pub output_tokens: u64,
    /// Weighted tokens that were charged.
    pub charged: u64,
    /// Tokens as providers and token budgets count them.
    pub provider_tokens: u64,
    /// Money in the installation's currency.
    #[schema(value_type = String)]
    pub money: MoneyText,
}
