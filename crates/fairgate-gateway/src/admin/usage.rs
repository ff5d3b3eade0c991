//! Handler for sums of the ledger's rows.

use std::fmt::Write as _;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use fairgate_store::{UnixMicros, UsageGrouping, UsageQuery, UsageRow};
use http::header::CONTENT_TYPE;
use serde::{Deserialize, Serialize};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::{IntoParams, PartialSchema, ToSchema};

use super::api_error::ApiError;
use super::auth::AdminCaller;
use super::moment::TypedTime;
use super::money::{self, MoneyText};
use super::query::{NameFilter, QueryParams};
use crate::control_plane::ControlPlane;
use fairgate_time::wall_clock;

/// Attribute by which usage is summed.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct UsageBy(UsageGrouping);

impl PartialSchema for UsageBy {
    fn schema() -> RefOr<Schema> {
        let schema = ObjectBuilder::new()
            .schema_type(Type::String)
            .description(Some("Attribute by which usage is summed."))
            .enum_values(Some(UsageGrouping::NAMES.iter().copied()));
        schema.build().into()
    }
}

impl ToSchema for UsageBy {}

/// Format of the response to a usage query.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum UsageFormat {
    #[default]
    Json,
    Csv,
}

/// Selects the rows to sum, and the attribute by which they are summed.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(default, deny_unknown_fields)]
pub(super) struct UsageReportQuery {
    /// Attribute by which the rows are summed (default `tenant`).
    #[param(required = false)]
    by: UsageBy,
    /// Earliest arrival, inclusive: RFC 3339, seconds since 1970, or an age such as `24h` (default `24h`).
    #[param(value_type = Option<String>, nullable = false)]
    since: Option<TypedTime>,
    /// Latest arrival, exclusive, in the same formats as `since` (default now).
    #[param(value_type = Option<String>, nullable = false)]
    until: Option<TypedTime>,
    /// Sums only the rows of this tenant.
    #[param(value_type = Option<String>, max_length = 512, nullable = false)]
    tenant: Option<NameFilter>,
    /// Sums only the rows of this model.
    #[param(value_type = Option<String>, max_length = 512, nullable = false)]
    model: Option<NameFilter>,
    /// Format of the response: `json` or `csv` (default `json`).
    #[param(required = false)]
    format: UsageFormat,
}

/// Sums of the ledger's rows. The sum with the highest charge comes first, but days and hours are in order of time.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = Usage)]
pub(super) struct UsageReportBody {
    /// Attribute by which the rows were summed.
    by: UsageBy,
    /// Earliest arrival, inclusive, RFC 3339 in UTC.
    #[schema(format = DateTime)]
    since: String,
    /// Latest arrival, exclusive, RFC 3339 in UTC.
    #[schema(format = DateTime)]
    until: String,
    /// Currency of the amounts of money, such as `USD`; null before the first price.
    currency: Option<String>,
    /// The sums, one for each value of the attribute.
    rows: Vec<UsageRowBody>,
}

/// Sums over all rows with one value of the attribute.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = UsageRow)]
pub(super) struct UsageRowBody {
    /// Value of the attribute, such as a tenant or model; `-` for rows that have no value. If the attribute is the
    /// tier, 0 means own workers, and 1 and above hosted workers.
    name: String,
    /// Number of requests. Only the last attempt of each request is counted.
    requests: u64,
    /// Number of these requests that did not complete.
    failed: u64,
    /// Input tokens, including cached ones.
    input_tokens: u64,
    /// Input tokens that the upstream had cached; included in `input_tokens`.
    cached_tokens: u64,
    /// Output tokens of the responses.
    output_tokens: u64,
    /// Cost that the scheduler charged, in weighted tokens.
    charged_tokens: u64,
    /// Input and output tokens, not weighted, as providers and token budgets count them.
    provider_tokens: u64,
    /// Cost in money, as a decimal text in `currency`.
    #[schema(value_type = String)]
    money: MoneyText,
    /// Mean time in the queue, in microseconds.
    waited_mean_us: u64,
    /// Longest time in the queue, in microseconds.
    waited_max_us: u64,
    /// Mean time to the first token, in microseconds; null if no row has a first token.
    first_token_mean_us: Option<u64>,
}

impl From<UsageRow> for UsageRowBody {
    fn from(row: UsageRow) -> Self {
        Self {
            name: row.name,
            requests: row.requests,
            failed: row.failed,
            input_tokens: row.input_tokens,
            cached_tokens: row.cached_tokens,
            output_tokens: row.output_tokens,
            charged_tokens: row.charged,
            provider_tokens: row.provider_tokens,
            money: MoneyText(row.money),
            waited_mean_us: row.waited_us_mean,
            waited_max_us: row.waited_us_max,
            first_token_mean_us: row.first_token_us_mean,
        }
    }
}

/// Sums usage over the rows of the ledger.
#[utoipa::path(
    get, path = "/api/v1/usage", tag = "usage", params(UsageReportQuery),
    responses((status = 200, description = "The sums", content((UsageReportBody = "application/json"), (String = "text/csv")))),
)]
pub(super) async fn usage(
    State(app): State<Arc<ControlPlane>>,
    _: AdminCaller,
    QueryParams(query): QueryParams<UsageReportQuery>,
) -> Result<Response, ApiError> {
    const DAY: i64 = 86_400_000_000;
    let now = wall_clock::now();
    let since = query.since.map_or(UnixMicros(now.0 - DAY), |since| since.at(now));
    let until = query.until.map_or(now, |until| until.at(now));
    let (tenant, model) = (query.tenant.map(|name| name.0), query.model.map(|name| name.0));
    let asked = UsageQuery { by: query.by.0, since, until: Some(until), tenant, model };
    let rows = app.data.store.usage(asked).await?.into_iter().map(UsageRowBody::from).collect();
    let currency = money::currency(&app).await?.map(String::from);
    if query.format == UsageFormat::Csv {
        let text = csv(rows, currency.as_deref().unwrap_or_default());
        return Ok(([(CONTENT_TYPE, "text/csv; charset=utf-8")], text).into_response());
    }
    let (since, until) = (fairgate_time::to_rfc3339(since), fairgate_time::to_rfc3339(until));
    Ok(Json(UsageReportBody { by: query.by, since, until, currency, rows }).into_response())
}

fn csv(rows: Vec<UsageRowBody>, currency: &str) -> String {
    let mut text = String::from(
        "name,requests,failed,input_tokens,cached_tokens,output_tokens,charged_tokens,waited_mean_us,waited_max_us,first_token_mean_us,provider_tokens,money,currency\r\n",
    );
    for row in rows {
        let first = row.first_token_mean_us.map(|us| us.to_string()).unwrap_or_default();
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "{},{},{},{},{},{},{},{},{},{first},{},{},{currency}\r\n",
            quoted(&row.name),
            row.requests,
            row.failed,
            row.input_tokens,
            row.cached_tokens,
            row.output_tokens,
            row.charged_tokens,
            row.waited_mean_us,
            row.waited_max_us,
            row.provider_tokens,
            row.money.0,
        );
    }
    text
}

fn quoted(text: &str) -> String {
    match text.contains([',', '"', '\r', '\n']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}
