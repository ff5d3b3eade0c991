//! Handler for the rows of the ledger.

use std::ops::RangeInclusive;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use fairgate_api::admin::{AttemptBody, AttemptList, MoneyText, SearchStopBody};
use fairgate_proxy::forward::outcome_name;
use fairgate_store::{
    AttemptCursor, AttemptFilter, AttemptOutcome, AttemptPage, AttemptRow, AttemptSearch,
    SearchBound, UsageSource,
};
use fairgate_time::wall_clock;
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use utoipa::{IntoParams, ToSchema};

use super::api_error::ApiError;
use super::auth::AdminCaller;
use super::moment::TypedTime;
use super::page::page_length;
use super::query::{NameFilter, QueryParams};
use crate::control_plane::ControlPlane;

/// Returns a row as its tenant may see it. The row gets the costs without the cache, because the
/// real costs depend on the prompts of others. For the same reason, a class is replaced by its
/// family. In a pool whose tenants share cached prompts, the worker is left out as well.
///
/// `cached_tokens` and the money stay, because the engine itself reports the cached tokens to the
/// client.
pub(super) fn for_tenant(app: &ControlPlane, row: AttemptBody) -> AttemptBody {
    let pool = row.pool.as_deref().and_then(|pool| app.data.pools.named(pool));
    let setup = pool.as_ref().map(|pool| pool.setup());
    let family = setup.as_ref().zip(row.class.as_deref());
    let family = family.and_then(|(setup, class)| setup.family(class).map(str::to_owned));
    // A pool that no longer exists is treated as one with a shared cache.
    let shares = setup.is_none_or(|setup| setup.shares_cached_prompts());
    AttemptBody {
        estimate_tokens: row.estimate_uncached_tokens,
        charged_tokens: row.charged_uncached_tokens,
        worker_us: None,
        price_set: None,
        class: family.or(row.class),
        worker: row.worker.filter(|_| !shares),
        ..row
    }
}

/// Returns the cost without the cache. Rows of an earlier version have 0 there; for them, returns the cost with the
/// cache.
fn or_cached(uncached: u64, cached: u64) -> u64 {
    if uncached == 0 { cached } else { uncached }
}

/// Returns a row as the API shows it to operators.
pub(super) fn attempt_body(row: AttemptRow) -> AttemptBody {
    let claim = row.claim;
    let epoch = claim.as_ref().map(|claim| claim.epoch);
    let (project, task) = claim.map(|claim| (claim.project, claim.task)).unzip();
    AttemptBody {
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
        worker_us: (row.worker_us > 0).then_some(row.worker_us),
        price_set: row.price_set,
        money: MoneyText(row.money),
        price: row.price,
        tier: row.tier,
        class: row.class,
        usage: usage_name(row.usage).to_owned(),
        waited_us: row.waited_us,
        first_token_us: row.first_token_us,
        total_us: row.total_us,
        status: row.status,
        outcome: outcome_name(row.outcome).to_owned(),
        code: row.code,
        brownout: row.brownout,
        occupied: row.occupied,
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

/// Returns a page as the API shows it. `shown` converts each row to the form that the viewer may
/// see.
pub(super) fn attempt_list(
    page: AttemptPage,
    shown: impl FnMut(AttemptRow) -> AttemptBody,
) -> AttemptList {
    let stopped = page.stopped.map(|stop| SearchStopBody {
        at: fairgate_time::to_rfc3339(stop.at),
        because: match stop.because {
            SearchBound::Day => "day",
            SearchBound::Rows => "rows",
        }
        .to_owned(),
    });
    let next = page.next.map(|cursor| cursor.to_string());
    AttemptList { items: page.rows.into_iter().map(shown).collect(), next, stopped }
}

/// An HTTP status in a query string, such as `429`, or all statuses of a class, such as `4xx`.
#[derive(Clone, Debug)]
pub(super) struct StatusFilter(pub(super) RangeInclusive<u16>);

impl<'de> Deserialize<'de> for StatusFilter {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let class = text.strip_suffix("xx").and_then(|digit| digit.parse::<u16>().ok());
        let range = match class {
            Some(class @ 1..=5) if text.len() == 3 => Some(class * 100..=class * 100 + 99),
            Some(_) => None,
            None => {
                text.parse().ok().filter(|status| (100..=599).contains(status)).map(|it| it..=it)
            }
        };
        let wrong = "must be an HTTP status such as 429, or a class of them such as 4xx";
        range.filter(|_| text.len() == 3).map(Self).ok_or_else(|| D::Error::custom(wrong))
    }
}

/// The `next` of the previous page in a query string.
#[derive(Clone, Debug)]
pub(super) struct CursorText(pub(super) AttemptCursor);

impl<'de> Deserialize<'de> for CursorText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let wrong = |()| D::Error::custom("is no place in the ledger: pass the `next` of a page");
        text.parse().map(Self).map_err(wrong)
    }
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
    /// Returns only attempts that were made with the key of this id.
    #[param(value_type = Option<String>, max_length = 512, nullable = false)]
    key: Option<NameFilter>,
    /// Returns only attempts whose client named this agent.
    #[param(value_type = Option<String>, max_length = 512, nullable = false)]
    agent: Option<NameFilter>,
    /// Returns only attempts in this pool.
    #[param(value_type = Option<String>, max_length = 512, nullable = false)]
    pool: Option<NameFilter>,
    /// Returns only attempts on this worker.
    #[param(value_type = Option<String>, max_length = 512, nullable = false)]
    worker: Option<NameFilter>,
    /// Returns only attempts for this model, as the client named it.
    #[param(value_type = Option<String>, max_length = 512, nullable = false)]
    model: Option<NameFilter>,
    /// Returns only attempts that were queued in this policy class.
    #[param(value_type = Option<String>, max_length = 512, nullable = false)]
    class: Option<NameFilter>,
    /// Returns only attempts with this HTTP status, such as `429`, or of this class, such as `4xx`.
    #[param(value_type = Option<String>, pattern = "^([1-5][0-9][0-9]|[1-5]xx)$", nullable = false)]
    status: Option<StatusFilter>,
    /// Returns only attempts with this error code, such as `queue_full`.
    #[param(value_type = Option<String>, max_length = 512, nullable = false)]
    code: Option<NameFilter>,
    /// Returns only attempts with this outcome.
    #[param(value_type = Option<OutcomeNameSchema>, nullable = false)]
    outcome: Option<AttemptOutcome>,
    /// Returns only attempts that waited at least this long for their grant, in milliseconds.
    #[param(minimum = 0, maximum = 86_400_000, nullable = false)]
    #[serde(default, deserialize_with = "wait_up_to_a_day")]
    waited_min_ms: Option<u64>,
    /// True for the last attempt of each request only.
    #[param(required = false)]
    last: bool,
    /// Earliest arrival, inclusive: RFC 3339, seconds since 1970, or an age such as `24h`.
    #[param(value_type = Option<String>, nullable = false)]
    since: Option<TypedTime>,
    /// Latest arrival, exclusive, in the same formats as `since`.
    #[param(value_type = Option<String>, nullable = false)]
    until: Option<TypedTime>,
    /// Returns the rows after a page; pass the `next` of that page, with the same filters.
    #[param(value_type = Option<String>, max_length = 600, pattern = "^-?[0-9]{1,18}\\.[0-9]{1,9}\\.[!-~]*$", nullable = false)]
    cursor: Option<CursorText>,
    /// Maximum number of rows, 1 to 1000 (default 100).
    #[param(minimum = 1, maximum = 1000, nullable = false)]
    limit: Option<u32>,
}

/// Longest wait that can be searched for, in milliseconds.
const WAIT_MS_MAX: u64 = 86_400_000;

/// Reads a minimum wait in milliseconds. Refuses a wait of more than a day.
pub(super) fn wait_up_to_a_day<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<u64>, D::Error> {
    let wait = Option::<u64>::deserialize(deserializer)?;
    if wait.is_some_and(|ms| ms > WAIT_MS_MAX) {
        return Err(D::Error::custom(format!("must be at most {WAIT_MS_MAX} milliseconds, a day")));
    }
    Ok(wait)
}

/// Outcome of an attempt.
#[derive(ToSchema)]
#[schema(as = AttemptOutcome, value_type = String, pattern = "^(completed|refused|upstream_error|timeout|client_left|retried|lost)$")]
#[allow(dead_code, reason = "only its schema is used")]
pub(super) struct OutcomeNameSchema(String);

/// Lists the rows of the ledger, newest first.
///
/// A search by anything but request, tenant and time looks back one day at most, or over one
/// million rows. The response then says where the search stopped, and `next` continues from there.
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
    let name = |filter: Option<NameFilter>| filter.map(|name| name.0);
    let filter = AttemptFilter {
        request: name(query.request),
        tenant: name(query.tenant),
        key: name(query.key),
        agent: name(query.agent),
        pool: name(query.pool),
        worker: name(query.worker),
        model: name(query.model),
        class: name(query.class),
        project: name(query.project),
        task: name(query.task),
        code: name(query.code),
        outcome: query.outcome,
        status: query.status.map(|status| status.0),
        waited_us_min: query.waited_min_ms.map(|ms| ms.saturating_mul(1000)),
        last_only: query.last,
    };
    let page = app.data.store.search_attempts(AttemptSearch {
        filter,
        since: query.since.map(|since| since.at(now)),
        until: query.until.map(|until| until.at(now)),
        cursor: query.cursor.map(|cursor| cursor.0),
        limit: page_length(query.limit)?,
    });
    Ok(Json(attempt_list(page.await?, attempt_body)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_one_or_a_class() {
        let read = |text: &str| {
            serde_json::from_value::<StatusFilter>(text.into()).ok().map(|filter| filter.0)
        };
        assert_eq!(read("429"), Some(429..=429));
        assert_eq!(read("4xx"), Some(400..=499));
        for text in ["", "4", "0429", "+42", "6xx", "0xx", "xx", "099", "600", "4Xx", "44xx"] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
