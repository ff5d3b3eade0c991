//! Handler for sums of the ledger's rows.

use std::fmt::Write as _;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use fairgate_api::admin::{MoneyText, UsageReportBody, UsageRowBody};
use fairgate_store::{ChargeColumn, UnixMicros, UsageGrouping, UsageQuery, UsageRow};
use fairgate_time::wall_clock;
use http::header::CONTENT_TYPE;
use serde::{Deserialize, Serialize};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::{IntoParams, PartialSchema, ToSchema};

use super::api_error::ApiError;
use super::auth::AdminCaller;
use super::moment::TypedTime;
use super::money;
use super::query::{NameFilter, QueryParams};
use crate::control_plane::ControlPlane;

/// Attribute by which usage is summed.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct UsageBy(pub(super) UsageGrouping);

impl UsageBy {
    /// Returns the name of the attribute, as the API spells it.
    fn name(self) -> &'static str {
        self.0.into()
    }
}

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
    /// Second attribute, by which the rows of each value of `by` are divided further. It must
    /// differ from `by`.
    #[param(nullable = false)]
    split: Option<UsageBy>,
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
    /// True to compute `waited_p50_us` and `waited_p95_us` as well, which takes longer (default `false`).
    #[param(required = false)]
    quantiles: bool,
}

/// Totals over all sums of a report.
#[derive(Clone, Copy)]
struct UsageReportTotals {
    charged: u64,
    /// Worker time; `None` if the reader may not see it.
    worker_us: Option<u64>,
}

/// Returns a part of a total, from 0 to 1, cut to six places: a share below a millionth is shown as 0. `None` if the
/// total is 0.
fn share(part: u64, of: u64) -> Option<f64> {
    let millionths = (u128::from(part) * 1_000_000).checked_div(u128::from(of))?;
    Some(millionths as f64 / 1e6)
}

/// Returns a sum as the API shows it.
fn row_body(row: UsageRow, totals: UsageReportTotals) -> UsageRowBody {
    let got_share = share(row.charged, totals.charged);
    UsageRowBody {
        worker_us: totals.worker_us.map(|_| row.worker_us),
        share_of_worker_time: totals.worker_us.and_then(|total| share(row.worker_us, total)),
        name: row.name,
        split: row.split,
        requests: row.requests,
        failed: row.failed,
        input_tokens: row.input_tokens,
        cached_tokens: row.cached_tokens,
        output_tokens: row.output_tokens,
        charged_tokens: row.charged,
        got_share,
        provider_tokens: row.provider_tokens,
        money: MoneyText(row.money),
        waited_mean_us: row.waited_us_mean,
        waited_p50_us: row.waited_us_p50,
        waited_p95_us: row.waited_us_p95,
        waited_max_us: row.waited_us_max,
        first_token_mean_us: row.first_token_us_mean,
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
    let asked = UsageRequest {
        by: query.by,
        split: query.split,
        since: query.since,
        until: query.until,
        format: query.format,
        tenant: query.tenant.map(|name| name.0),
        model: query.model.map(|name| name.0),
        charge: ChargeColumn::Real,
        quantiles: query.quantiles,
    };
    report(&app, asked).await
}

/// Checked parameters of a usage query.
pub(super) struct UsageRequest {
    pub(super) by: UsageBy,
    pub(super) split: Option<UsageBy>,
    pub(super) since: Option<TypedTime>,
    pub(super) until: Option<TypedTime>,
    pub(super) format: UsageFormat,
    pub(super) tenant: Option<String>,
    pub(super) model: Option<String>,
    pub(super) charge: ChargeColumn,
    pub(super) quantiles: bool,
}

/// Sums usage, and writes the response in the requested format.
pub(super) async fn report(app: &ControlPlane, asked: UsageRequest) -> Result<Response, ApiError> {
    const DAY: i64 = 86_400_000_000;
    let UsageRequest { by, split, format, tenant, model, charge, quantiles, .. } = asked;
    if split.is_some_and(|split| split.0 == by.0) {
        let message = "split must be another attribute than by";
        return Err(ApiError::bad_request("invalid_query", message).in_field("split"));
    }
    let now = wall_clock::now();
    let since = asked.since.map_or(UnixMicros(now.0 - DAY), |since| since.at(now));
    let until = asked.until.map_or(now, |until| until.at(now));
    let split_by = split.map(|split| split.0);
    let query = UsageQuery {
        by: by.0,
        split: split_by,
        charge,
        since,
        until: Some(until),
        tenant,
        model,
        quantiles,
    };
    let sums = app.data.store.usage(query).await?;
    // Worker time, like the cost with the cache, would show a tenant what others have sent.
    let worker_us = (charge == ChargeColumn::Real).then_some(sums.worker_us);
    let totals = UsageReportTotals { charged: sums.charged, worker_us };
    let row = |row| row_body(row, totals);
    let rows: Vec<UsageRowBody> = sums.rows.into_iter().map(row).collect();
    let currency = money::currency(app).await?.map(String::from);
    if format == UsageFormat::Csv {
        let text = csv(rows, currency.as_deref().unwrap_or_default());
        return Ok(([(CONTENT_TYPE, "text/csv; charset=utf-8")], text).into_response());
    }
    let (since, until) = (fairgate_time::to_rfc3339(since), fairgate_time::to_rfc3339(until));
    let omitted = sums.omitted;
    let (by, split) = (by.name().to_owned(), split.map(|split| split.name().to_owned()));
    Ok(Json(UsageReportBody { by, split, since, until, currency, omitted, rows }).into_response())
}

fn csv(rows: Vec<UsageRowBody>, currency: &str) -> String {
    let mut text = String::from(
        "name,requests,failed,input_tokens,cached_tokens,output_tokens,charged_tokens,waited_mean_us,waited_max_us,first_token_mean_us,provider_tokens,money,currency,split,got_share,waited_p50_us,waited_p95_us,worker_us,share_of_worker_time\r\n",
    );
    let number = |number: Option<u64>| number.map(|it| it.to_string()).unwrap_or_default();
    let part = |part: Option<f64>| part.map(|it| it.to_string()).unwrap_or_default();
    for row in rows {
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "{},{},{},{},{},{},{},{},{},{},{},{},{currency},{},{},{},{},{},{}\r\n",
            quoted(&row.name),
            row.requests,
            row.failed,
            row.input_tokens,
            row.cached_tokens,
            row.output_tokens,
            row.charged_tokens,
            row.waited_mean_us,
            row.waited_max_us,
            number(row.first_token_mean_us),
            row.provider_tokens,
            row.money.0,
            quoted(row.split.as_deref().unwrap_or_default()),
            part(row.got_share),
            number(row.waited_p50_us),
            number(row.waited_p95_us),
            number(row.worker_us),
            part(row.share_of_worker_time),
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
