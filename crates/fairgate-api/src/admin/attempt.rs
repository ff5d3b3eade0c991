//! Rows of the ledger.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::money::MoneyText;

/// One attempt of a request. A request that was tried on two workers has two attempts.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = Attempt)]
pub struct AttemptBody {
    /// Id of the request, as in the response header `x-fairgate-request-id`.
    pub request: String,
    /// Number of the attempt; the first is 1.
    pub attempt: u32,
    /// True for the last attempt of the request.
    pub last: bool,
    /// Time at which the request arrived, RFC 3339 in UTC.
    #[schema(format = DateTime)]
    pub started_at: String,
    /// Group of the client's tenant.
    pub group: String,
    /// Tenant of the client's key.
    pub tenant: String,
    /// Id of the client's key.
    pub key: String,
    /// Agent that the client named; null if the client named none.
    pub agent: Option<String>,
    /// Session that the client named; null if the client named none.
    pub session: Option<String>,
    /// Path of the request, such as `/v1/chat/completions`.
    pub route: String,
    /// True if the response was streamed.
    pub stream: bool,
    /// Name of the model, as the client sent it.
    pub model: String,
    /// Name of the pool; null if the request reached no pool.
    pub pool: Option<String>,
    /// Name of the worker; null if the request reached no worker. Also null for a tenant in a pool whose tenants share
    /// a cache, because the worker would show what others have cached.
    pub worker: Option<String>,
    /// Cost that was estimated before the request ran, in weighted tokens. A tenant sees
    /// `estimate_uncached_tokens` here.
    pub estimate_tokens: u64,
    /// Cost that was estimated as if no part of the prompt had been cached, in weighted tokens.
    pub estimate_uncached_tokens: u64,
    /// Input tokens, including cached ones.
    pub input_tokens: u64,
    /// Input tokens that the upstream had cached; included in `input_tokens`.
    pub cached_tokens: u64,
    /// Input tokens that the upstream wrote to its cache; included in `input_tokens`, not in `cached_tokens`.
    pub cache_written_tokens: u64,
    /// Tokens of `cache_written_tokens` that the upstream keeps for an hour.
    pub cache_written_1h_tokens: u64,
    /// Output tokens of the response.
    pub output_tokens: u64,
    /// Weighted tokens that the tenant was charged, even if the scheduler counts another unit. A
    /// tenant sees `charged_uncached_tokens` here.
    pub charged_tokens: u64,
    /// Weighted tokens that the tenant would have been charged if no part of the prompt had been
    /// cached.
    pub charged_uncached_tokens: u64,
    /// Input and output tokens, not weighted, as providers and token budgets count them.
    pub provider_tokens: u64,
    /// Time of the full worker that the attempt took, in microseconds. It is recorded even if the
    /// pool counts another unit. Null if the worker's time has no price, as at hosted workers. Also
    /// null for tenants, because it would show them the load of others.
    #[serde(default)]
    pub worker_us: Option<u64>,
    /// Id of the price set from which `worker_us` was computed. The audit trail has the prices of
    /// the set. Null if the pool does not count worker time, or if the worker has no prices of its
    /// own.
    #[serde(default)]
    pub price_set: Option<String>,
    /// Cost in money, as a decimal text in the installation's currency.
    #[schema(value_type = String)]
    pub money: MoneyText,
    /// Id of the price that applied; null if the model has no price.
    pub price: Option<String>,
    /// Tier of the worker: 0 for an own worker, 1 and above for a hosted one.
    pub tier: u32,
    /// Policy class in which the request was queued; null if the policy has no classes, or the request reached no pool.
    pub class: Option<String>,
    /// Project for which the request was made; null unless it came with a task key.
    pub project: Option<String>,
    /// Task for which the request was made; null unless it came with a task key.
    pub task: Option<String>,
    /// Epoch of the claim for which the request was made; null unless it came with a task key.
    pub epoch: Option<u64>,
    /// Source of the token counts: `reported` by the upstream; `counted` by the gateway; `none` if nothing was used;
    /// `assumed` if the counts are unknown and the estimate was charged; `occupied` if the attempt did not complete and
    /// its time in the slot was charged.
    pub usage: String,
    /// Time that the request waited for its grant, in microseconds.
    pub waited_us: u64,
    /// Time from the arrival to the first byte of the response body, in microseconds; null if no byte came.
    pub first_token_us: Option<u64>,
    /// Time from the arrival of the request to its end, in microseconds.
    pub total_us: u64,
    /// HTTP status that the client saw; 499 if the client had left.
    pub status: u16,
    /// Outcome of the attempt: `completed`, `refused`, `upstream_error`, `timeout`, `client_left`, `retried` or
    /// `lost`.
    pub outcome: String,
    /// Stable code of the error; null after a success.
    pub code: Option<String>,
    /// True if the output was capped because the request had waited long.
    pub brownout: bool,
    /// Cost of an attempt that did not complete, in weighted tokens even if the pool counts another
    /// unit; 0 if the attempt completed. After a fault of the worker, this is above
    /// `charged_tokens`, which is then 0.
    pub occupied: u64,
}

/// A page of ledger rows, newest first.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = AttemptList)]
pub struct AttemptList {
    /// The rows, one for each attempt.
    pub items: Vec<AttemptBody>,
    /// Value for `cursor` to get the next page, which has older rows; null if there are none in the time range.
    pub next: Option<String>,
    /// Point in the ledger at which the search stopped before the page was full; null if it did not
    /// stop early.
    pub stopped: Option<SearchStopBody>,
}

/// Point in the ledger at which a search stopped early. A search by anything but request, tenant
/// and time looks back one day at most, or over one million rows, whichever is less.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = SearchStop)]
pub struct SearchStopBody {
    /// Time down to which the search looked, RFC 3339 in UTC. The next page has older rows.
    #[schema(format = DateTime)]
    pub at: String,
    /// Bound that was reached: `day` or `rows`.
    pub because: String,
}
