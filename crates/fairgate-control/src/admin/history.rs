//! Handlers for the history of a pool, and of a tenant's own flows.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use fairgate_api::admin::FlowAttribute;
use fairgate_config::CostUnit;
use fairgate_core::attribute::Attribute;
use fairgate_history::{HistoryResolution, HistoryView, PoolSeries, RowSeries, STEP_SECONDS};
use fairgate_proxy::pools::{PoolHandle, shares_by};
use fairgate_store::UnixMicros;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::api_error::ApiError;
use super::auth::{AdminCaller, Viewer};
use super::moment::TypedTime;
use super::own_usage::tenant_only;
use super::path::PathName;
use super::pools::pool_by_name;
use super::query::{NameFilter, QueryParams};
use crate::control_plane::ControlPlane;

const SECOND_US: i64 = 1_000_000;
const HOUR_US: i64 = 3600 * SECOND_US;

/// Selects the flows and the time of a history.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(default, deny_unknown_fields)]
pub(super) struct HistoryQuery {
    /// Attribute by which flows are shown: `tenant`, `group`, `class`, `project`, `key`, `agent` or
    /// `session`. The pool's policy must divide by this attribute. The default is the first
    /// attribute in this order by which it divides.
    #[param(nullable = false)]
    by: Option<FlowAttribute>,
    /// Returns only the flow of this name.
    #[param(value_type = Option<String>, max_length = 512, nullable = false)]
    flow: Option<NameFilter>,
    /// Beginning of the history: a moment, seconds since 1970, or an age such as `15m`. The default is one hour ago.
    #[param(value_type = Option<String>, nullable = false)]
    since: Option<TypedTime>,
    /// Length of a point in seconds: 5, for at most an hour, or 60, for at most a day. The default is 5 if `since` is
    /// within the last hour, else 60.
    #[param(nullable = false)]
    step: Option<u64>,
}

/// Selects the time of a tenant's own history.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(default, deny_unknown_fields)]
pub(super) struct MyHistoryQuery {
    /// Beginning of the history: a moment, seconds since 1970, or an age such as `15m`. The default is one hour ago.
    #[param(value_type = Option<String>, nullable = false)]
    since: Option<TypedTime>,
    /// Length of a point in seconds: 5, for at most an hour, or 60, for at most a day. The default is 5 if `since` is
    /// within the last hour, else 60.
    #[param(nullable = false)]
    step: Option<u64>,
}

/// History of a pool and its flows. All lists have `points` entries; null in a list is a gap, in which the gateway did
/// not run, the pool did not answer, or the flow was not kept by name.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = History)]
pub(super) struct HistoryBody {
    /// Name of the pool.
    pool: String,
    /// Unit in which the pool's scheduler counts: `tokens`, `worker_time` or `money`. Points from before a change of the
    /// unit are in the unit of their time.
    unit: &'static str,
    /// Attribute by which the flows are named.
    by: &'static str,
    /// Length of a point in seconds.
    step_s: u64,
    /// Beginning of the first point, RFC 3339 in UTC.
    #[schema(format = DateTime)]
    start: String,
    /// Number of points. Point `i` begins `i` × `step_s` seconds after `start`.
    points: usize,
    /// Time since which this gateway has samples, RFC 3339 in UTC; null before the first. A restart empties the history.
    #[schema(format = DateTime)]
    kept_since: Option<String>,
    /// The pool as a whole.
    all: PoolSeriesBody,
    /// The flows that are kept by name, the largest of the last hour first. A pool keeps 100 flows by name.
    flows: Vec<FlowHistoryBody>,
    /// All other flows of the attribute together; null if there are none, or if `flow` selects a
    /// single flow.
    others: Option<OthersBody>,
}

/// History of one flow.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = FlowHistory)]
pub(super) struct FlowHistoryBody {
    /// Name of the flow.
    flow: String,
    /// Points of the flow.
    #[serde(flatten)]
    series: FlowSeriesBody,
}

/// History of all flows that are not kept by name.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = OtherFlows)]
pub(super) struct OthersBody {
    /// Number of these flows that asked for service lately.
    flows: usize,
    /// Sums over these flows. Where flows joined the sum later, a wait is the longest of their
    /// waits.
    #[serde(flatten)]
    series: FlowSeriesBody,
}

/// Points of a pool as a whole.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = PoolSeries)]
pub(super) struct PoolSeriesBody {
    /// Maximum number of requests in flight, at the end of each point.
    slots: Vec<Option<u64>>,
    /// Number of requests in flight, at the end of each point.
    in_flight: Vec<Option<u64>>,
    /// Number of requests that waited, at the end of each point.
    waiting: Vec<Option<u64>>,
    /// Number of grants of each point.
    granted: Vec<Option<u64>>,
    /// Number of refusals of each point.
    refused: Vec<Option<u64>>,
    /// Median wait of each point's grants, in milliseconds.
    wait_p50_ms: Vec<Option<u64>>,
    /// Wait in milliseconds that 95 % of each point's grants did not exceed.
    wait_p95_ms: Vec<Option<u64>>,
}

/// Points of a flow. The lists of service are in the unit of the pool. For a tenant they are null
/// if the tenants of the pool share cached prompts. Lists whose names end in `_tokens` are null if
/// the pool does not count tokens.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = FlowSeries)]
pub(super) struct FlowSeriesBody {
    /// True if the policy promises the flow its share of the tokens.
    promised: bool,
    /// Service that the flow got in each point. Below 0 if refunds of estimates were more than new grants.
    got: Option<Vec<Option<i64>>>,
    /// Service that the flow was due in each point; null entries also where the policy has no due service.
    due: Option<Vec<Option<i64>>>,
    /// Service got minus service due since the pool first saw the flow, at the end of each point.
    difference: Option<Vec<Option<i64>>>,
    /// Greatest absolute value that is expected for `difference`.
    bound: Option<Vec<Option<u64>>>,
    /// Estimated cost of the requests that the flow submitted in each point.
    asked: Option<Vec<Option<u64>>>,
    /// The same as `got`; null if the pool does not count tokens.
    got_tokens: Option<Vec<Option<i64>>>,
    /// The same as `due`; null if the pool does not count tokens.
    due_tokens: Option<Vec<Option<i64>>>,
    /// The same as `difference`; null if the pool does not count tokens.
    difference_tokens: Option<Vec<Option<i64>>>,
    /// The same as `bound`; null if the pool does not count tokens.
    bound_tokens: Option<Vec<Option<u64>>>,
    /// The same as `asked`; null if the pool does not count tokens.
    asked_tokens: Option<Vec<Option<u64>>>,
    /// Number of requests that waited, at the end of each point.
    waiting: Vec<Option<u64>>,
    /// Number of requests in flight, at the end of each point.
    in_flight: Vec<Option<u64>>,
    /// Number of refusals of each point.
    refused: Vec<Option<u64>>,
    /// Median wait of each point's grants, in milliseconds.
    wait_p50_ms: Vec<Option<u64>>,
    /// Wait in milliseconds that 95 % of each point's grants did not exceed.
    wait_p95_ms: Vec<Option<u64>>,
}

/// History of a tenant's own flows.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = MyHistory)]
pub(super) struct MyHistoryBody {
    /// Name of the tenant.
    tenant: String,
    /// Length of a point in seconds.
    step_s: u64,
    /// Beginning of the first point, RFC 3339 in UTC.
    #[schema(format = DateTime)]
    start: String,
    /// Number of points in each list.
    points: usize,
    /// The pools whose policy divides by tenants and that keep the tenant by name.
    pools: Vec<MyPoolHistoryBody>,
}

/// History of a tenant in one pool.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = MyPoolHistory)]
pub(super) struct MyPoolHistoryBody {
    /// Name of the pool.
    pool: String,
    /// Unit in which the pool's scheduler counts: `tokens`, `worker_time` or `money`.
    unit: &'static str,
    /// Time since which this gateway has samples of the pool, RFC 3339 in UTC.
    #[schema(format = DateTime)]
    kept_since: Option<String>,
    /// Points of the tenant's flows.
    #[serde(flatten)]
    series: FlowSeriesBody,
}

impl From<PoolSeries> for PoolSeriesBody {
    fn from(series: PoolSeries) -> Self {
        let PoolSeries { slots, in_flight, waiting, granted, refused, wait_p50_ms, wait_p95_ms } =
            series;
        Self { slots, in_flight, waiting, granted, refused, wait_p50_ms, wait_p95_ms }
    }
}

impl FlowSeriesBody {
    fn of(series: RowSeries, unit: CostUnit) -> Self {
        let is_tokens = unit == CostUnit::Tokens;
        Self {
            promised: series.promised,
            got_tokens: is_tokens.then(|| series.got.clone()),
            due_tokens: is_tokens.then(|| series.due.clone()),
            difference_tokens: is_tokens.then(|| series.difference.clone()),
            bound_tokens: is_tokens.then(|| series.bound.clone()),
            asked_tokens: is_tokens.then(|| series.asked.clone()),
            got: Some(series.got),
            due: Some(series.due),
            difference: Some(series.difference),
            bound: Some(series.bound),
            asked: Some(series.asked),
            waiting: series.waiting,
            in_flight: series.in_flight,
            refused: series.refused,
            wait_p50_ms: series.wait_p50_ms,
            wait_p95_ms: series.wait_p95_ms,
        }
    }

    /// Returns the points without the service, because the service depends on what is cached.
    fn without_tokens(self) -> Self {
        Self {
            got: None,
            due: None,
            difference: None,
            bound: None,
            asked: None,
            got_tokens: None,
            due_tokens: None,
            difference_tokens: None,
            bound_tokens: None,
            asked_tokens: None,
            ..self
        }
    }
}

/// Range of points that a query asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PointRange {
    resolution: HistoryResolution,
    first: u64,
    last: u64,
}

impl PointRange {
    /// Reads the range of a query. Returns an error if points of that length are no longer kept
    /// from `since` on.
    fn of(since: Option<&TypedTime>, step: Option<u64>, now: UnixMicros) -> Result<Self, ApiError> {
        let since = since.map_or(UnixMicros(now.0 - HOUR_US), |since| since.at(now));
        let is_recent = now.0 - since.0 <= HOUR_US;
        let resolution = match step {
            Some(5) => HistoryResolution::Steps,
            Some(60) => HistoryResolution::Minutes,
            None if is_recent => HistoryResolution::Steps,
            None => HistoryResolution::Minutes,
            Some(other) => {
                let message = format!("step must be 5 or 60 seconds and is {other}");
                return Err(ApiError::bad_request("invalid_query", message).in_field("step"));
            }
        };
        let length = point_us(resolution);
        // Only ended points are shown. The first point is the one that contains `since`.
        let number = |at: i64| u64::try_from(at.div_euclid(length)).unwrap_or_default();
        let (first, end) = (number(since.0), number(now.0));
        let kept = resolution.length() as u64;
        let oldest = end.saturating_sub(kept);
        // One point is tolerated, for an age that was rounded or typed a moment ago.
        if first + 1 < oldest {
            let oldest = fairgate_time::to_rfc3339(moment(resolution, oldest));
            let message = format!(
                "points of {} s are kept since {oldest}; ask for that or a later time, or for step=60, which is kept for a \
                 day",
                length / SECOND_US
            );
            return Err(
                ApiError::new(StatusCode::BAD_REQUEST, "not_kept", message).in_field("since")
            );
        }
        let first = first.clamp(oldest, end);
        Ok(Self { resolution, first, last: end })
    }

    /// Returns the first and the last number of the points in the history's own count. The history
    /// numbers a step by its end, so these numbers of steps are higher by 1.
    fn numbers(self) -> (u64, u64) {
        match self.resolution {
            HistoryResolution::Steps => (self.first + 1, self.last),
            HistoryResolution::Minutes => (self.first, self.last.saturating_sub(1)),
        }
    }

    fn step_s(self) -> u64 {
        self.resolution.steps() * STEP_SECONDS
    }

    fn start(self) -> String {
        fairgate_time::to_rfc3339(moment(self.resolution, self.first))
    }
}

fn point_us(resolution: HistoryResolution) -> i64 {
    i64::try_from(resolution.steps() * STEP_SECONDS).unwrap_or(1) * SECOND_US
}

/// Returns the time at which a point begins.
fn moment(resolution: HistoryResolution, number: u64) -> UnixMicros {
    UnixMicros(i64::try_from(number).unwrap_or_default() * point_us(resolution))
}

fn kept_since(view: &HistoryView) -> Option<String> {
    let first = view.since?.saturating_sub(1);
    Some(fairgate_time::to_rfc3339(moment(HistoryResolution::Steps, first)))
}

/// Shows what a pool's flows got, were due and asked for over time, and how long they waited.
///
/// Points of 5 s are kept for an hour and points of 60 s for a day, in memory. Got, due, asked,
/// granted and refused are sums over a point. Waits are those of the grants in a point. All other
/// numbers are the values at the end of a point.
#[utoipa::path(
    get, path = "/api/v1/pools/{pool}/history", tag = "operation",
    params(("pool" = String, Path, description = "Name of the pool"), HistoryQuery),
    responses(
        (status = 200, description = "The history", body = HistoryBody),
        (status = 400, description = "The query is wrong, or `since` is further back than points are kept (`not_kept`)", body = super::ErrorBody),
        (status = 404, description = "There is no such pool", body = super::ErrorBody),
        (status = 422, description = "The pool's policy does not divide by this attribute", body = super::ErrorBody),
    ),
)]
pub(super) async fn of_pool(
    State(app): State<Arc<ControlPlane>>,
    _: AdminCaller,
    PathName(pool): PathName,
    QueryParams(query): QueryParams<HistoryQuery>,
) -> Result<Json<HistoryBody>, ApiError> {
    let pool = pool_by_name(&app, &pool)?;
    let range = PointRange::of(query.since.as_ref(), query.step, app.histories.now())?;
    let by = attribute(&pool, query.by)?;
    let unit = pool.setup().unit();
    let flow = query.flow.as_ref().map(|flow| flow.0.as_str());
    let view = app
        .histories
        .with(&pool.name, |history| history.view(range.resolution, range.numbers(), by, flow));
    let flows = view.rows.iter().map(|(flow, series)| FlowHistoryBody {
        flow: flow.clone(),
        series: FlowSeriesBody::of(series.clone(), unit),
    });
    Ok(Json(HistoryBody {
        pool: pool.name.to_string(),
        unit: unit.name(),
        by: by.name(),
        step_s: range.step_s(),
        start: range.start(),
        points: view.points,
        kept_since: kept_since(&view),
        flows: flows.collect(),
        others: (view.others.clone())
            .map(|series| (view.others_count, FlowSeriesBody::of(series, unit)))
            .map(|(flows, series)| OthersBody { flows, series }),
        all: view.pool.into(),
    }))
}

/// Returns the attribute that was asked for, or the first by which the pool's policy divides.
fn attribute(pool: &PoolHandle, asked: Option<FlowAttribute>) -> Result<Attribute, ApiError> {
    const ORDER: [Attribute; 7] = [
        Attribute::Tenant,
        Attribute::Group,
        Attribute::Class,
        Attribute::Project,
        Attribute::Key,
        Attribute::Agent,
        Attribute::Session,
    ];
    let policy = pool.config().policy;
    let divides = |by: &Attribute| shares_by(&policy, *by);
    let of_policy: Vec<Attribute> = ORDER.into_iter().filter(divides).collect();
    let Some(by) = asked.map(Attribute::from) else {
        return Ok(of_policy.first().copied().unwrap_or(Attribute::Tenant));
    };
    if of_policy.contains(&by) {
        return Ok(by);
    }
    let names: Vec<&str> = of_policy.iter().map(|by| by.name()).collect();
    let problem = format!(
        "the policy of pool {:?} does not divide by {}; it divides by {}",
        &*pool.name,
        by.name(),
        names.join(", ")
    );
    Err(ApiError::invalid("by", problem))
}

/// Shows what the caller's tenant got, was due and asked for over time, in each pool.
#[utoipa::path(
    get, path = "/api/v1/me/history", tag = "tenants", security(("tenant" = [])), params(MyHistoryQuery),
    responses(
        (status = 200, description = "The tenant's history", body = MyHistoryBody),
        (status = 400, description = "The query is wrong, or `since` is further back than points are kept (`not_kept`)", body = super::ErrorBody),
    ),
)]
pub(super) async fn mine(
    State(app): State<Arc<ControlPlane>>,
    viewer: Viewer,
    QueryParams(query): QueryParams<MyHistoryQuery>,
) -> Result<Json<MyHistoryBody>, ApiError> {
    let caller = tenant_only(viewer, "/api/v1/pools/{pool}/history")?;
    let range = PointRange::of(query.since.as_ref(), query.step, app.histories.now())?;
    let mut points = 0;
    let mut pools = Vec::new();
    for pool in app.data.pools.all() {
        if !shares_by(&pool.config().policy, Attribute::Tenant) {
            continue;
        }
        let view = app.histories.with(&pool.name, |history| {
            let name = Some(&*caller.tenant);
            history.view(range.resolution, range.numbers(), Attribute::Tenant, name)
        });
        points = view.points;
        let kept_since = kept_since(&view);
        for (_, series) in view.rows {
            let series = FlowSeriesBody::of(series, pool.setup().unit());
            let series = match pool.setup().shares_cached_prompts() {
                true => series.without_tokens(),
                false => series,
            };
            let (name, unit) = (pool.name.to_string(), pool.setup().unit().name());
            let kept_since = kept_since.clone();
            pools.push(MyPoolHistoryBody { pool: name, unit, kept_since, series });
        }
    }
    Ok(Json(MyHistoryBody {
        tenant: caller.tenant.to_string(),
        step_s: range.step_s(),
        start: range.start(),
        points,
        pools,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: UnixMicros = UnixMicros(1_800_000_003 * SECOND_US);

    fn range(since: &str, step: Option<u64>) -> Result<PointRange, ApiError> {
        let since: TypedTime = serde_json::from_value(since.into()).expect("a time");
        PointRange::of(Some(&since), step, NOW)
    }

    #[test]
    fn the_length_of_points_follows_from_the_time() {
        let hour = range("1h", None).unwrap();
        assert_eq!((hour.step_s(), hour.last - hour.first), (5, 720));
        assert_eq!(hour.numbers(), (hour.first + 1, hour.last));
        let day = range("24h", None).unwrap();
        assert_eq!((day.step_s(), day.last - day.first), (60, 1440));
        assert_eq!(range("10m", Some(60)).unwrap().step_s(), 60);
        let later = range("2100-01-01T00:00:00Z", None).unwrap();
        assert_eq!(later.first, later.last, "nothing has happened there yet");
    }

    #[test]
    fn what_is_not_kept_is_refused() {
        assert!(range("2h", Some(5)).is_err());
        assert!(range("25h", None).is_err());
        assert!(range("1h", Some(7)).is_err());
    }
}
