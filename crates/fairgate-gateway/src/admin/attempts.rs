//! Handler for the rows of the ledger.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use fairgate_store::{AttemptRow, LedgerQuery, UsageSource};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::api_error::ApiError;
use super::auth::AdminCaller;
use super::moment::TypedTime;
use super::money::MoneyText;
use super::page::page_length;
use super::query::{NameFilter, QueryParams};
use crate::control_plane::ControlPlane;
use crate::forward::outcome_name;
use fairgate_time::wall_clock;

/// One attempt of a request. A request that was tried on two workers has two attempts.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = Attempt)]
pub(super) struct AttemptBody {
    /// Id of the request, as in the response header `x-fairgate-request-id`.
    request: String,
    /// Number of the attempt; the first is 1.
    attempt: u32,
    /// True for the last attempt of the request.
    last: bool,
    /// Time at which the request arrived, RFC 3339 in UTC.
    #[schema(format = DateTime)]
    started_at: String,
    /// Group of the client's tenant.
    group: String,
    /// Tenant of the client's key.
    tenant: String,
    /// Id of the client's key.
    key: String,
    /// Agent that the client named; null if the client named none.
    agent: Option<String>,
    /// Session that the client named; null if the client named none.
    session: Option<String>,
    /// Path of the request, such as `/v1/chat/completions`.
    route: String,
    /// True if the response was streamed.
    stream: bool,
    /// Name of the model, as the client sent it.
    model: String,
    /// Name of the pool; null if the request reached no pool.
    pool: Option<String>,
    /// Name of the worker; null if the request reached no worker.
    worker: Option<String>,
    /// Expected cost before the request ran, in charged tokens. A tenant sees `estimate_uncached_tokens` here.
    estimate_tokens: u64,
    /// Expected cost as if no part of the prompt had been cached, in charged tokens.
    estimate_uncached_tokens: u64,
    /// Input tokens, including cached ones.
    input_tokens: u64,
    /// Input tokens that the upstream had cached; included in `input_tokens`.
    cached_tokens: u64,
    /// Input tokens that the upstream wrote to its cache; included in `input_tokens`, not in `cached_tokens`.
    cache_written_tokens: u64,
    /// Tokens of `cache_written_tokens` that the upstream keeps for an hour.
    cache_written_1h_tokens: u64,
    /// Output tokens of the response.
    output_tokens: u64,
    /// Cost that the scheduler charged, in weighted tokens. A tenant sees `charged_uncached_tokens` here.
    charged_tokens: u64,
    /// Cost that the scheduler would have charged if no part of the prompt had been cached, in weighted tokens.
    charged_uncached_tokens: u64,
    /// Input and output tokens, not weighted, as providers and token budgets count them.
    provider_tokens: u64,
    /// Cost in money, as a decimal text in the installation's currency.
    #[schema(value_type = String)]
    money: MoneyText,
    /// Id of the price that applied; null if the model has no price.
    price: Option<String>,
    /// Tier of the worker: 0 for an own worker, 1 and above for a hosted one.
    tier: u32,
    /// Policy class in which the request was queued; null if the policy has no classes, or the request reached no pool.
    class: Option<String>,
    /// Project for which the request was made; null unless it came with a task key.
    project: Option<String>,
    /// Task for which the request was made; null unless it came with a task key.
    task: Option<String>,
    /// Epoch of the claim for which the request was made; null unless it came with a task key.
    epoch: Option<u64>,
    /// Source of the token counts: `reported` by the upstream; `counted` by the gateway; `none` if nothing was used;
    /// `assumed` if the counts are unknown and the estimate was charged; `occupied` if the attempt did not complete and
    /// its time in the slot was charged.
    usage: &'static str,
    /// Time that the request waited for its grant, in microseconds.
    waited_us: u64,
    /// Time from the arrival to the first byte of the response body, in microseconds; null if no byte came.
    first_token_us: Option<u64>,
    /// Time from the arrival of the request to its end, in microseconds.
    total_us: u64,
    /// HTTP status that the client saw; 499 if the client had left.
    status: u16,
    /// Outcome of the attempt: `completed`, `refused`, `upstream_error`, `timeout`, `client_left`, `retried` or
    /// `lost`.
    outcome: &'static str,
    /// Stable code of the error; null after a success.
    code: Option<String>,
    /// True if the output was capped because the request had waited long.
    brownout: bool,
    /// Tokens that the scheduler counted for an attempt that did not complete; 0 if the attempt completed.
    occupied: u64,
}

impl AttemptBody {
    /// Returns the row as its tenant may see it. The costs are those without the cache, because the real costs depend
    /// on what others have sent. A class is replaced by its family, because what is cached decides which class of its
    /// family a request is in.
    pub(super) fn for_tenant(self, family: impl FnOnce(&str, &str) -> Option<String>) -> Self {
        let of_pool = self.pool.as_deref().zip(self.class.as_deref());
        let family = of_pool.and_then(|(pool, class)| family(pool, class));
        Self {
            estimate_tokens: self.estimate_uncached_tokens,
            charged_tokens: self.charged_uncached_tokens,
            class: family.or(self.class),
            ..self
        }
    }
}

/// Returns the cost without the cache. Rows of an earlier version have 0 there; for them, returns the cost with the
/// cache.
fn or_cached(uncached: u64, cached: u64) -> u64 {
    if uncached == 0 { cached } else { uncached }
}

impl From<AttemptRow> for AttemptBody {
    fn from(row: AttemptRow) -> Self {
        let claim = row.claim;
        let epoch = claim.as_ref().map(|claim| claim.epoch);
        let (project, task) = claim.map(|claim| (claim.project, claim.task)).unzip();
        Self {
            project,
            task,
            epoch,
            request: row.request,
            attempt: row.attempt,
            last: row.last,
            started_at: fairgate_time::to_rfc3339(row.started_at),
            group: row.group,
            tenant: row.tenant,
            key: row.key,
            agent: row.agent,
            session: row.session,
            route: row.route,
            stream: row.stream,
            model: row.model,
            pool: row.pool,
            worker: row.worker,
            estimate_tokens: row.estimate,
            estimate_uncached_tokens: or_cached(row.estimate_uncached, row.estimate),
            input_tokens: row.input_tokens,
            cached_tokens: row.cached_tokens,
            cache_written_tokens: row.cache_written_tokens,
            cache_written_1h_tokens: row.cache_written_1h_tokens,
            output_tokens: row.output_tokens,
            charged_tokens: row.charged,
            charged_uncached_tokens: or_cached(row.charged_uncached, row.charged),
            provider_tokens: row.provider_tokens,
            money: MoneyText(row.money),
            price: row.price,
            tier: row.tier,
            class: row.class,
            usage: usage_name(row.usage),
            waited_us: row.waited_us,
            first_token_us: row.first_token_us,
            total_us: row.total_us,
            status: row.status,
            outcome: outcome_name(row.outcome),
            code: row.code,
            brownout: row.brownout,
            occupied: row.occupied,
        }
    }
}

fn usage_name(source: UsageSource) -> &'static str {
    match source {
        UsageSource::Reported => "reported",
        UsageSource::Counted => "counted",
        UsageSource::None => "none",
        UsageSource::Assumed => "assumed",
        UsageSource::Occupied => "occupied",
    }
}

/// A page of ledger rows, newest first.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = AttemptList)]
pub(super) struct AttemptList {
    /// The rows, one for each attempt.
    items: Vec<AttemptBody>,
}

/// Filter for the rows of the ledger.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(default, deny_unknown_fields)]
pub(super) struct AttemptsQuery {
    /// Returns only the attempts of this request.
    #[param(value_type = Option<String>, max_length = 512, nullable = false)]
    request: Option<NameFilter>,
    /// Returns only the attempts of this tenant.
    #[param(value_type = Option<String>, max_length = 512, nullable = false)]
    tenant: Option<NameFilter>,
    /// Returns only attempts that were made for tasks of this project.
    #[param(value_type = Option<String>, max_length = 512, nullable = false)]
    project: Option<NameFilter>,
    /// Returns only attempts that were made for this task.
    #[param(value_type = Option<String>, max_length = 512, nullable = false)]
    task: Option<NameFilter>,
    /// Earliest arrival, inclusive: RFC 3339, seconds since 1970, or an age such as `24h`.
    #[param(value_type = Option<String>, nullable = false)]
    since: Option<TypedTime>,
    /// Latest arrival, exclusive, in the same formats as `since`. Pass the oldest `started_at` of a page to get the
    /// next page, which has older rows.
    #[param(value_type = Option<String>, nullable = false)]
    until: Option<TypedTime>,
    /// Maximum number of rows, 1 to 1000 (default 100).
    #[param(minimum = 1, maximum = 1000, nullable = false)]
    limit: Option<u32>,
}

/// Lists the rows of the ledger, newest first.
#[utoipa::path(
    get, path = "/api/v1/attempts", tag = "usage", params(AttemptsQuery),
    responses((status = 200, description = "The rows", body = AttemptList)),
)]
pub(super) async fn list(
    State(app): State<Arc<ControlPlane>>,
    _: AdminCaller,
    QueryParams(query): QueryParams<AttemptsQuery>,
) -> Result<Json<AttemptList>, ApiError> {
    let now = wall_clock::now();
    let rows = app.data.store.attempts(LedgerQuery {
        request: query.request.map(|request| request.0),
        tenant: query.tenant.map(|tenant| tenant.0),
        project: query.project.map(|project| project.0),
        task: query.task.map(|task| task.0),
        since: query.since.map(|since| since.at(now)),
        until: query.until.map(|until| until.at(now)),
        limit: page_length(query.limit)?,
    });
    Ok(Json(AttemptList { items: rows.await?.into_iter().map(AttemptBody::from).collect() }))
}
