//! The ledger's rows.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use fairgate_store::{Attempt, LedgerQuery, UsageSource};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::api_error::ApiError;
use super::auth::Admin;
use super::moment::{self, Typed};
use super::money::Money;
use super::page::page_length;
use super::query::{Filter, Params};
use crate::app::App;
use crate::forward::outcome_name;
use crate::forward::unix_now;

/// One attempt: a request that was tried on two workers has two.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = Attempt)]
pub(super) struct AttemptBody {
    /// The request's id.
    request: String,
    /// 1 for the first attempt.
    attempt: u32,
    /// Whether it was the request's last attempt.
    last: bool,
    /// When the request came in.
    #[schema(format = DateTime)]
    started_at: String,
    /// The caller's group.
    group: String,
    /// The caller's tenant.
    tenant: String,
    /// The caller's key id.
    key: String,
    /// The agent that the caller named.
    agent: Option<String>,
    /// The session that the caller named.
    session: Option<String>,
    /// The path.
    route: String,
    /// Whether the answer was streamed.
    stream: bool,
    /// The model, as the caller named it.
    model: String,
    /// The pool; null where it got to none.
    pool: Option<String>,
    /// The worker; null where it got to none.
    worker: Option<String>,
    /// What it was expected to use, in charged tokens.
    estimate_tokens: u64,
    /// Input tokens, cached ones included.
    input_tokens: u64,
    /// Of these, cached ones.
    cached_tokens: u64,
    /// Output tokens.
    output_tokens: u64,
    /// What the scheduler was charged, in weighted tokens: what is shared.
    charged_tokens: u64,
    /// What providers and token budgets count: input and output tokens, not weighted.
    provider_tokens: u64,
    /// What it cost, as a decimal text in the installation's currency.
    #[schema(value_type = String)]
    money: Money,
    /// The id of the price that applied; null where the model has none.
    price: Option<String>,
    /// The tier of its worker: 0 is an own one, from 1 on a hosted one.
    tier: u32,
    /// The policy class that it was queued in; null where the policy has no classes, or it got to no pool.
    class: Option<String>,
    /// The project that it was made for; null where it came with no task's key.
    project: Option<String>,
    /// The task that it was made for.
    task: Option<String>,
    /// Which claim of the task.
    epoch: Option<u64>,
    /// Where the numbers are from: `reported` by the upstream, `counted` as they passed, `none`, or `assumed` after a
    /// crash.
    usage: &'static str,
    /// How long it waited for its grant, in microseconds.
    waited_us: u64,
    /// From its arrival to the first byte of the answer's body, in microseconds.
    first_token_us: Option<u64>,
    /// From its arrival to its end, in microseconds.
    total_us: u64,
    /// The HTTP status that the caller saw; 499 where it had left.
    status: u16,
    /// How it ended: `completed`, `refused`, `upstream_error`, `timeout`, `client_left`, `retried` or `lost`.
    outcome: &'static str,
    /// The stable error code, where it was no success.
    code: Option<String>,
    /// Whether its output was capped because it had waited long.
    brownout: bool,
    /// What the scheduler counted for an attempt that did not complete, in tokens; 0 where it completed.
    occupied: u64,
}

impl From<Attempt> for AttemptBody {
    fn from(row: Attempt) -> Self {
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
            started_at: moment::shown(row.started_at),
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
            input_tokens: row.input_tokens,
            cached_tokens: row.cached_tokens,
            output_tokens: row.output_tokens,
            charged_tokens: row.charged,
            provider_tokens: row.provider_tokens,
            money: Money(row.money),
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

/// Rows, newest first.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = AttemptList)]
pub(super) struct AttemptList {
    /// The rows.
    items: Vec<AttemptBody>,
}

/// Which rows.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Query {
    /// Of this request only.
    #[param(value_type = Option<String>, max_length = 512, nullable = false)]
    request: Option<Filter>,
    /// Of this tenant only.
    #[param(value_type = Option<String>, max_length = 512, nullable = false)]
    tenant: Option<Filter>,
    /// Of this project's tasks only.
    #[param(value_type = Option<String>, max_length = 512, nullable = false)]
    project: Option<Filter>,
    /// Of this task only.
    #[param(value_type = Option<String>, max_length = 512, nullable = false)]
    task: Option<Filter>,
    /// From when on: RFC 3339, seconds since 1970, or an age such as `24h`.
    #[param(value_type = Option<String>, nullable = false)]
    since: Option<Typed>,
    /// Until before when, in the same spellings. Give the oldest `started_at` of a page to see what came before it.
    #[param(value_type = Option<String>, nullable = false)]
    until: Option<Typed>,
    /// At most this many (default 100).
    #[param(minimum = 1, maximum = 1000, nullable = false)]
    limit: Option<u32>,
}

/// Lists the ledger's rows, newest first.
#[utoipa::path(
    get, path = "/api/v1/attempts", tag = "usage", params(Query),
    responses((status = 200, description = "The rows", body = AttemptList)),
)]
pub(super) async fn list(
    State(app): State<Arc<App>>,
    _: Admin,
    Params(query): Params<Query>,
) -> Result<Json<AttemptList>, ApiError> {
    let now = unix_now();
    let rows = app.store.attempts(LedgerQuery {
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
