//! Handlers for a tenant's own rows of the ledger, and for their sums. A tenant sees the costs
//! without the cache, because the real costs depend on what others have sent. For the same reason,
//! a tenant cannot select or group by class.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use fairgate_api::admin::{AttemptList, UsageReportBody};
use fairgate_store::{
    AttemptFilter, AttemptOutcome, AttemptRow, AttemptSearch, ChargeColumn, UsageGrouping,
};
use http::StatusCode;
use serde::de::value::Error as ValueError;
use serde::de::{Error, IntoDeserializer};
use serde::{Deserialize, Deserializer};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::{IntoParams, PartialSchema, ToSchema};

use super::api_error::ApiError;
use super::attempts::{
    CursorText, OutcomeNameSchema, StatusFilter, attempt_body, attempt_list, for_tenant,
};
use super::auth::Viewer;
use super::moment::TypedTime;
use super::page::page_length;
use super::query::{NameFilter, QueryParams};
use super::usage::{self, UsageBy, UsageFormat, UsageRequest};
use crate::control_plane::ControlPlane;
use fairgate_proxy::identity::Caller;
use fairgate_time::wall_clock;

/// Filter for a tenant's own rows of the ledger.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(default, deny_unknown_fields)]
pub(super) struct OwnAttemptsQuery {
    /// Returns only the attempts of this request.
    #[param(value_type = Option<String>, max_length = 512, nullable = false)]
    request: Option<NameFilter>,
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
    /// Returns only attempts for this model, as the client named it.
    #[param(value_type = Option<String>, max_length = 512, nullable = false)]
    model: Option<NameFilter>,
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
    #[serde(default, deserialize_with = "super::attempts::wait_up_to_a_day")]
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

/// Lists the tenant's own rows of the ledger, newest first.
///
/// A search by anything but request and time looks back one day at most, or over one million rows.
/// The response then says where the search stopped, and `next` continues from there.
#[utoipa::path(
    get, path = "/api/v1/me/attempts", tag = "tenants", security(("tenant" = [])), params(OwnAttemptsQuery),
    responses((status = 200, description = "The rows", body = AttemptList)),
)]
pub(super) async fn attempts(
    State(app): State<Arc<ControlPlane>>,
    viewer: Viewer,
    QueryParams(query): QueryParams<OwnAttemptsQuery>,
) -> Result<Json<AttemptList>, ApiError> {
    let caller = tenant_only(viewer, "/api/v1/attempts")?;
    let now = wall_clock::now();
    let name = |filter: Option<NameFilter>| filter.map(|name| name.0);
    let filter = AttemptFilter {
        tenant: Some(caller.tenant.to_string()),
        request: name(query.request),
        key: name(query.key),
        agent: name(query.agent),
        pool: name(query.pool),
        model: name(query.model),
        project: name(query.project),
        task: name(query.task),
        code: name(query.code),
        outcome: query.outcome,
        status: query.status.map(|status| status.0),
        waited_us_min: query.waited_min_ms.map(|ms| ms.saturating_mul(1000)),
        last_only: query.last,
        ..AttemptFilter::default()
    };
    let page = app.data.store.search_attempts(AttemptSearch {
        filter,
        since: query.since.map(|since| since.at(now)),
        until: query.until.map(|until| until.at(now)),
        cursor: query.cursor.map(|cursor| cursor.0),
        limit: page_length(query.limit)?,
    });
    let shown = |row: AttemptRow| for_tenant(&app, attempt_body(row));
    Ok(Json(attempt_list(page.await?, shown)))
}

/// Attributes by which a tenant's usage cannot be summed. A tenant has only one group and one name.
/// Classes and workers depend on what is cached, and so on the prompts of others.
const NOT_FOR_TENANTS: [&str; 4] = ["group", "tenant", "class", "worker"];

/// Attribute by which a tenant's own usage is summed.
#[derive(Clone, Copy, Debug)]
pub(super) struct OwnUsageBy(UsageBy);

impl Default for OwnUsageBy {
    fn default() -> Self {
        Self(UsageBy(UsageGrouping::Day))
    }
}

impl<'de> Deserialize<'de> for OwnUsageBy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        let names: Vec<&str> = own_groupings().collect();
        let wrong = || D::Error::custom(format!("{name:?} must be one of {}", names.join(", ")));
        if !names.contains(&name.as_str()) {
            return Err(wrong());
        }
        let grouping = UsageGrouping::deserialize(name.as_str().into_deserializer());
        grouping.map(|by| Self(UsageBy(by))).map_err(|_: ValueError| wrong())
    }
}

fn own_groupings() -> impl Iterator<Item = &'static str> {
    UsageGrouping::NAMES.iter().copied().filter(|name| !NOT_FOR_TENANTS.contains(name))
}

impl PartialSchema for OwnUsageBy {
    fn schema() -> RefOr<Schema> {
        let schema = ObjectBuilder::new()
            .schema_type(Type::String)
            .description(Some("Attribute by which a tenant's own usage is summed."))
            .enum_values(Some(own_groupings()));
        schema.build().into()
    }
}

impl ToSchema for OwnUsageBy {}

/// Selects the tenant's own rows to sum, and the attributes by which they are summed.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(default, deny_unknown_fields)]
pub(super) struct OwnUsageQuery {
    /// Attribute by which the rows are summed (default `day`).
    #[param(required = false)]
    by: OwnUsageBy,
    /// Second attribute, by which the rows of each value of `by` are divided further. It must
    /// differ from `by`.
    #[param(nullable = false)]
    split: Option<OwnUsageBy>,
    /// Earliest arrival, inclusive: RFC 3339, seconds since 1970, or an age such as `24h` (default `24h`).
    #[param(value_type = Option<String>, nullable = false)]
    since: Option<TypedTime>,
    /// Latest arrival, exclusive, in the same formats as `since` (default now).
    #[param(value_type = Option<String>, nullable = false)]
    until: Option<TypedTime>,
    /// Sums only the rows of this model.
    #[param(value_type = Option<String>, max_length = 512, nullable = false)]
    model: Option<NameFilter>,
    /// Format of the response: `json` or `csv` (default `json`).
    #[param(required = false)]
    format: UsageFormat,
    /// True to compute `waited_p50_us` and `waited_p95_us` as well, which takes longer (default `false`).
    #[param(required = false)]
    quantiles: bool,
}

/// Sums the tenant's own usage over the rows of the ledger. The fields `got_share` and `share_of_worker_time`
/// are parts of the tenant's own usage.
#[utoipa::path(
    get, path = "/api/v1/me/usage", tag = "tenants", security(("tenant" = [])), params(OwnUsageQuery),
    responses((status = 200, description = "The sums", content((UsageReportBody = "application/json"), (String = "text/csv")))),
)]
pub(super) async fn usage(
    State(app): State<Arc<ControlPlane>>,
    viewer: Viewer,
    QueryParams(query): QueryParams<OwnUsageQuery>,
) -> Result<Response, ApiError> {
    let caller = tenant_only(viewer, "/api/v1/usage")?;
    let asked = UsageRequest {
        by: query.by.0,
        split: query.split.map(|split| split.0),
        since: query.since,
        until: query.until,
        format: query.format,
        tenant: Some(caller.tenant.to_string()),
        model: query.model.map(|name| name.0),
        charge: ChargeColumn::Uncached,
        quantiles: query.quantiles,
    };
    usage::report(&app, asked).await
}

/// Returns the tenant that sent the request. For the admin, returns an error that names the admin's
/// path for the same data.
pub(super) fn tenant_only(viewer: Viewer, path_of_admin: &str) -> Result<Arc<Caller>, ApiError> {
    match viewer {
        Viewer::Tenant(caller) => Ok(caller),
        Viewer::Admin => {
            let message =
                format!("this is for tenants: send a tenant's key; the admin sees {path_of_admin}");
            Err(ApiError::new(StatusCode::FORBIDDEN, "tenant_only", message))
        }
    }
}
