//! Types of the ledger: attempts, reservations, sums of usage, and the audit trail.
//!
//! A reservation ends in the transaction that writes the last row of its request. If a process dies, its reservations
//! are charged, and rows with the outcome `lost` are written for them. With SQLite the next process does this, with
//! PostgreSQL any process that finds that the lease of the dead process ran out.

use serde::{Deserialize, Serialize};
use strum::VariantNames as _;

use fairgate_money::{MicroUnits, Price};
use fairgate_time::UnixMicros;
use fairgate_usage::{TaskClaim, UsageTerms};

use crate::budget::Budget;

/// One attempt of a request, which is one row of the ledger. A request that was tried on two
/// workers has two rows; `last` is true in the second.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptRow {
    /// Id of the request, as in the response header and the journal.
    pub request: String,
    /// Number of the attempt within its request, counted from 1.
    pub attempt: u32,
    /// True for the last attempt of the request. Every request has exactly one such row once it has ended.
    pub last: bool,
    /// Time at which the request arrived.
    pub started_at: UnixMicros,
    /// Name of the tenant's group.
    pub group: String,
    /// Name of the tenant that made the request.
    pub tenant: String,
    /// Id of the key with which the request was made.
    pub key: String,
    /// Agent name that the client sent; absent if it sent none.
    pub agent: Option<String>,
    /// Session name that the client sent; absent if it sent none.
    pub session: Option<String>,
    /// Path of the request, such as `/v1/chat/completions`.
    pub route: String,
    /// True if the response was streamed.
    pub stream: bool,
    /// Model name that the client sent.
    pub model: String,
    /// Name of the pool; absent if the request reached no pool.
    pub pool: Option<String>,
    /// Name of the worker; absent if the request reached no worker.
    pub worker: Option<String>,
    /// Estimated cost of the request before it ran, in weighted tokens.
    pub estimate: u64,
    /// Input tokens of the attempt, including cached tokens.
    pub input_tokens: u64,
    /// Input tokens that were in the upstream's cache, as the upstream reported; part of `input_tokens`.
    pub cached_tokens: u64,
    /// Output tokens of the attempt's response.
    pub output_tokens: u64,
    /// Weighted tokens that the request was charged. A pool that counts tokens shares by this
    /// number, except after a fault of the worker; see `occupied`. Pools with another unit share
    /// worker time or money. Token budgets count `provider_tokens`.
    pub charged: u64,
    /// Origin of the token counts.
    pub usage: UsageSource,
    /// Time that the attempt waited for its grant, in microseconds.
    pub waited_us: u64,
    /// Time from the request's arrival to the first byte of the response body, in microseconds; absent if there was
    /// none.
    pub first_token_us: Option<u64>,
    /// Time from the request's arrival to the end of this attempt, in microseconds.
    pub total_us: u64,
    /// HTTP status that the client got; 499 if the client had left.
    pub status: u16,
    /// Result of the attempt.
    pub outcome: AttemptOutcome,
    /// Stable error code of the refusal or failure; absent on success.
    pub code: Option<String>,
    /// True if the output was capped because the request had been queued for long.
    pub brownout: bool,
    /// Weighted tokens of an attempt that did not complete, at least the price of its time in the
    /// slot; 0 if the attempt completed. After a fault of the worker, this number is above
    /// `charged`: the scheduler counts the attempt for its flow, but the tenant is not charged.
    #[serde(default)]
    pub occupied: u64,
    /// Input and output tokens without weights, as providers and token budgets count them. For a
    /// lease, and for an attempt that did not complete, this may be the price of its time in the
    /// slot instead.
    #[serde(default = "missing_count")]
    pub provider_tokens: u64,
    /// Money that the attempt cost, in micro-units of the installation's currency; 0 if the model has no price.
    #[serde(default)]
    pub money: MicroUnits,
    /// Id of the price that applied; absent if the model has no price.
    #[serde(default)]
    pub price: Option<String>,
    /// Tier of the worker. 0 means an own worker, or that the request reached no worker; 1 and above mean a hosted
    /// worker.
    #[serde(default)]
    pub tier: u32,
    /// Policy class in which the request was queued; absent if the pool's policy has no classes, or the request reached
    /// no pool.
    #[serde(default)]
    pub class: Option<String>,
    /// Input tokens that the upstream wrote to its cache, as it reported; part of `input_tokens`, not of
    /// `cached_tokens`.
    #[serde(default)]
    pub cache_written_tokens: u64,
    /// Part of `cache_written_tokens` that the upstream keeps for an hour.
    #[serde(default)]
    pub cache_written_1h_tokens: u64,
    /// Estimated cost as if no part of the prompt were cached, in weighted tokens; 0 in rows of an
    /// earlier version. Tenants see this number instead of `estimate`, because `estimate` shows
    /// whether somebody sent the same prompt before.
    #[serde(default)]
    pub estimate_uncached: u64,
    /// Weighted tokens that would have been charged if no part of the prompt had been cached; 0 in
    /// rows of an earlier version.
    #[serde(default)]
    pub charged_uncached: u64,
    /// Time of an own worker that the attempt took, in microseconds of the full worker; 0 if the worker's time has no
    /// price, and in rows of an earlier version.
    #[serde(default)]
    pub worker_us: u64,
    /// Id of the price set from which `worker_us` was computed; absent if the pool does not count
    /// worker time, or if the worker has no prices of its own. The audit trail has the prices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price_set: Option<String>,
    /// Task and claim for which the request was made; absent if the request did not use a task key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<TaskClaim>,
}

/// Returns the value that marks a missing count of provider tokens in a row of an older version.
/// [`AttemptRow::upgrade`] replaces this value.
fn missing_count() -> u64 {
    u64::MAX
}

impl AttemptRow {
    /// Completes a row that was read from a spool. A row of an older version has no provider
    /// tokens. It gets its charged tokens instead, because budgets of that version counted them.
    pub(crate) fn upgrade(mut self) -> Self {
        if self.provider_tokens == missing_count() {
            self.provider_tokens = self.charged;
        }
        self
    }
}

/// Origin of the token counts in a row.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum UsageSource {
    /// The upstream reported the token counts.
    Reported,
    /// The gateway counted the tokens, because the upstream reported no numbers or invalid ones.
    Counted,
    /// No tokens were used.
    None,
    /// The usage is unknown, so the estimate was charged. This happens if the process died, or if the client left a
    /// stream after its last text and the upstream reported no usage.
    Assumed,
    /// The attempt did not complete, or was a lease. Its time in the slot was charged, because the price of that time
    /// was above the metered tokens.
    Occupied,
}

/// Result of an attempt.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum AttemptOutcome {
    /// The response ended normally.
    Completed,
    /// A limit, a budget or the pool refused the request.
    Refused,
    /// The upstream failed, or responded with an error.
    UpstreamError,
    /// The upstream exceeded a time limit.
    Timeout,
    /// The client left before the end of the response.
    ClientLeft,
    /// The attempt failed before the first byte, and another worker was tried.
    Retried,
    /// The process died while the request was in flight, and another process found its reservation.
    Lost,
}

/// Tokens and money that are reserved for a request. A reservation is made before the request is
/// queued. It ends when [`crate::Store::record`] gets the last row of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// Id of the request, which has at most one reservation.
    pub request: String,
    /// Name of the tenant's group.
    pub group: String,
    /// Name of the tenant that makes the request.
    pub tenant: String,
    /// Id of the key with which the request is made.
    pub key: String,
    /// Model name that the client sent.
    pub model: String,
    /// Weighted tokens that the request is charged in its row if the process dies. Budgets do not count this number.
    pub tokens: u64,
    /// Maximum provider tokens of the request on an own worker, or on a hosted worker if the pool
    /// has no own worker.
    pub provider_tokens: u64,
    /// Maximum cost of the request on an own worker, or on a hosted worker if the pool has no own
    /// worker, in micro-units of money; 0 without a price.
    pub money: MicroUnits,
    /// Maximum usage of the request on a hosted worker; `None` if the request must not or cannot go
    /// to a hosted worker.
    pub hosted: Option<HostedMaximum>,
    /// Budgets of the request's model on hosted workers, from the configuration. They are used for
    /// the decision and are not stored.
    pub model_budgets: Vec<Budget>,
    /// Task and claim for which the request is made; absent if it does not use a task key. The reservation is granted
    /// only while the claim is in force.
    pub claim: Option<TaskClaim>,
    /// True if the request has files, whose tokens can only be estimated. While a budget has less
    /// than twice the reserved amounts left, such requests run one at a time.
    pub has_files: bool,
    /// Usage window, and the budget of all projects together, from the configuration. They are used only to decide a
    /// request with a claim, and are not stored.
    pub terms: UsageTerms,
    /// Time of the reservation. The reservation counts in the day and the month that contain this time.
    pub at: UnixMicros,
}

/// Maximum usage of a request on a hosted worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostedMaximum {
    /// Maximum number of provider tokens, not weighted.
    pub provider_tokens: u64,
    /// Maximum cost, in micro-units of the installation's currency; 0 without a price.
    pub money: MicroUnits,
}

/// A price, with the time from which it was in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PriceVersion {
    /// The price. In JSON, its fields are fields of the [`PriceVersion`].
    #[serde(flatten)]
    pub price: Price,
    /// Time at which a process first had the price in its configuration.
    pub first_seen: UnixMicros,
}

/// Result of resolving the reservations of dead processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResolvedReservations {
    /// Number of reservations that were turned into rows with the outcome `lost`.
    pub reservations: u64,
    /// Weighted tokens that these rows were charged in total. This is the maximum that their
    /// requests may have used.
    pub tokens: u64,
}

/// Column by which usage is grouped. The API, the command line and the SQL all take the list of
/// columns from this type.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    strum::IntoStaticStr,
    strum::VariantNames,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
#[allow(missing_docs, reason = "the names say it")]
pub enum UsageGrouping {
    Group,
    #[default]
    Tenant,
    Key,
    Model,
    Pool,
    Worker,
    Outcome,
    Agent,
    Day,
    Hour,
    Tier,
    Class,
    Project,
}

impl UsageGrouping {
    /// Names of all columns, as the API and the command line spell them.
    pub const NAMES: &[&str] = Self::VARIANTS;
}

/// The column of charged tokens that a sum adds up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChargeColumn {
    /// Tokens that were charged (`charged`).
    #[default]
    Real,
    /// Tokens that would have been charged if no part of the prompt had been cached
    /// (`charged_uncached`). Tenants see these, because the real ones depend on the prompts of
    /// others.
    Uncached,
}

/// Selects the ledger rows to sum up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsageQuery {
    /// Column by which the rows are grouped.
    pub by: UsageGrouping,
    /// Second column by which the rows are grouped; `None` for one column only.
    pub split: Option<UsageGrouping>,
    /// The column of charged tokens that is summed up.
    pub charge: ChargeColumn,
    /// Restricts the rows to requests that arrived at this time or later.
    pub since: UnixMicros,
    /// Restricts the rows to requests that arrived before this time; no restriction if absent.
    pub until: Option<UnixMicros>,
    /// Restricts the rows to this tenant.
    pub tenant: Option<String>,
    /// Restricts the rows to this model.
    pub model: Option<String>,
    /// True to compute the quantiles of the waits as well. This sorts all rows.
    pub quantiles: bool,
}

/// Sums of ledger rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsageSums {
    /// The sums, at most 10 000.
    pub rows: Vec<UsageRow>,
    /// Number of further sums that are not in `rows`: those with the fewest charged tokens, or the
    /// latest ones if the rows are grouped by day or hour.
    pub omitted: u64,
    /// Charged tokens of all ledger rows that the query selects, including those whose sums are
    /// omitted.
    pub charged: u64,
    /// Time of own workers that these rows took, in microseconds of a full worker.
    pub worker_us: u64,
}

/// Usage of all rows that have the same values of the grouping columns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageRow {
    /// Value of the grouping column, such as the tenant's name; `-` if the column is empty.
    pub name: String,
    /// Value of the second grouping column; `None` if the query has only one.
    #[serde(default)]
    pub split: Option<String>,
    /// Number of requests, counted by their last rows.
    pub requests: u64,
    /// Number of requests that did not complete.
    pub failed: u64,
    /// Input tokens of all rows of the group, including cached tokens.
    pub input_tokens: u64,
    /// Cached input tokens, part of `input_tokens`.
    pub cached_tokens: u64,
    /// Output tokens of all rows of the group.
    pub output_tokens: u64,
    /// Weighted tokens that were charged for all rows of the group.
    pub charged: u64,
    /// Input and output tokens without weights, as providers and token budgets count them.
    pub provider_tokens: u64,
    /// Time of own workers that all rows of the group took, in microseconds of a full worker.
    #[serde(default)]
    pub worker_us: u64,
    /// Money that all rows of the group cost, in micro-units of the installation's currency.
    pub money: MicroUnits,
    /// Mean queue wait of the last attempts of the requests, in microseconds.
    pub waited_us_mean: u64,
    /// Queue wait that half of the last attempts did not exceed, in microseconds, by nearest rank; `None` if there is
    /// no last attempt.
    #[serde(default)]
    pub waited_us_p50: Option<u64>,
    /// Queue wait that 95 % of the last attempts did not exceed, in microseconds, by nearest rank; `None` if there is no
    /// last attempt.
    #[serde(default)]
    pub waited_us_p95: Option<u64>,
    /// Longest queue wait of an attempt, in microseconds.
    pub waited_us_max: u64,
    /// Mean time to the first token, over the rows that have one, in microseconds; `None` if no row has one.
    pub first_token_us_mean: Option<u64>,
}

/// Selects the ledger rows to list, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LedgerQuery {
    /// Restricts the rows to this request.
    pub request: Option<String>,
    /// Restricts the rows to this tenant.
    pub tenant: Option<String>,
    /// Restricts the rows to tasks of this project.
    pub project: Option<String>,
    /// Restricts the rows to this task.
    pub task: Option<String>,
    /// Restricts the rows to requests that arrived at this time or later.
    pub since: Option<UnixMicros>,
    /// Restricts the rows to requests that arrived before this time.
    pub until: Option<UnixMicros>,
    /// Maximum number of rows to return; 0 and values above 1 000 mean 1 000.
    pub limit: u32,
}

/// Entry of the audit trail, which describes one change and its actor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEntry {
    /// Sequence number of the entry. Newer entries have higher numbers.
    pub id: i64,
    /// Time at which the change was made.
    pub at: UnixMicros,
    /// Actor of the change, such as `admin`, `config` or `first-start`.
    pub actor: String,
    /// Name of the action, such as `tenant.patch`.
    pub action: String,
    /// Name of the changed object, such as `chat`.
    pub subject: String,
    /// State before the change, as JSON without hashes and secrets; absent if there was none, as for a new object.
    pub before: Option<serde_json::Value>,
    /// State after the change, as JSON without hashes and secrets; absent if the object was removed.
    pub after: Option<serde_json::Value>,
}

/// Selects the audit entries to list, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditQuery {
    /// Restricts the entries to those whose id is below this number.
    pub before: Option<i64>,
    /// Restricts the entries to those with this id.
    pub id: Option<i64>,
    /// Restricts the entries to this actor, such as `admin:oncall`. A name without `:` also selects the actors that
    /// begin with it and a colon, so `admin` selects `admin:oncall` too.
    pub actor: Option<String>,
    /// Restricts the entries to this action, such as `tenant.patch`. A name without `.` selects the actions that begin
    /// with it and a dot, so `tenant` selects `tenant.patch` too.
    pub action: Option<String>,
    /// Restricts the entries to this object.
    pub subject: Option<String>,
    /// Restricts the entries to those written at this time or later.
    pub since: Option<UnixMicros>,
    /// Restricts the entries to those written before this time.
    pub until: Option<UnixMicros>,
    /// Maximum number of entries to return; 0 and values above 1 000 mean 1 000.
    pub limit: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groupings_are_read_by_their_names() {
        for name in UsageGrouping::NAMES {
            let grouping: UsageGrouping = serde_json::from_value((*name).into()).unwrap();
            assert_eq!(serde_json::to_value(grouping).unwrap(), *name);
        }
        assert_eq!(serde_json::to_value(UsageGrouping::default()).unwrap(), "tenant");
    }
}
