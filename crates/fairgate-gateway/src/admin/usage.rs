//! What was used, summed.

use std::fmt::Write as _;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use fairgate_store::{By, UnixMicros, UsageQuery, UsageRow};
use http::header::CONTENT_TYPE;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::api_error::ApiError;
use super::auth::Admin;
use super::moment::{self, Typed};
use super::money::{self, Money};
use super::query::{Filter, Params};
use crate::app::App;
use crate::forward::unix_now;

/// What usage is summed by.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum UsageBy {
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

impl From<UsageBy> for By {
    fn from(by: UsageBy) -> Self {
        match by {
            UsageBy::Group => Self::Group,
            UsageBy::Tenant => Self::Tenant,
            UsageBy::Key => Self::Key,
            UsageBy::Model => Self::Model,
            UsageBy::Pool => Self::Pool,
            UsageBy::Worker => Self::Worker,
            UsageBy::Outcome => Self::Outcome,
            UsageBy::Agent => Self::Agent,
            UsageBy::Day => Self::Day,
            UsageBy::Hour => Self::Hour,
            UsageBy::Tier => Self::Tier,
            UsageBy::Class => Self::Class,
            UsageBy::Project => Self::Project,
        }
    }
}

/// How it is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Format {
    #[default]
    Json,
    Csv,
}

/// Which rows to sum, and by what.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Query {
    /// By what (default `tenant`).
    #[param(required = false)]
    by: UsageBy,
    /// From when on: RFC 3339, seconds since 1970, or an age such as `24h` (default `24h`).
    #[param(value_type = Option<String>, nullable = false)]
    since: Option<Typed>,
    /// Until before when, in the same spellings (default now).
    #[param(value_type = Option<String>, nullable = false)]
    until: Option<Typed>,
    /// Of this tenant only.
    #[param(value_type = Option<String>, max_length = 512, nullable = false)]
    tenant: Option<Filter>,
    /// Of this model only.
    #[param(value_type = Option<String>, max_length = 512, nullable = false)]
    model: Option<Filter>,
    /// `json` or `csv` (default `json`).
    #[param(required = false)]
    format: Format,
}

/// Sums of the ledger's rows, the most charged first; days and hours in order.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = Usage)]
pub(super) struct Usage {
    /// By what.
    by: UsageBy,
    /// From when on.
    #[schema(format = DateTime)]
    since: String,
    /// Until before when.
    #[schema(format = DateTime)]
    until: String,
    /// The currency of the amounts of money, such as `USD`; null before there was a price.
    currency: Option<String>,
    /// The sums.
    rows: Vec<UsageRowBody>,
}

/// One sum.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = UsageRow)]
pub(super) struct UsageRowBody {
    /// The tenant, model or whatever was summed by; `-` where the rows have none. Of tiers, 0 is own workers and from 1 on
    /// hosted ones.
    name: String,
    /// How many requests.
    requests: u64,
    /// Of these, how many did not complete.
    failed: u64,
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
    /// What it cost, as a decimal text in `currency`.
    #[schema(value_type = String)]
    money: Money,
    /// The mean wait, in microseconds.
    waited_mean_us: u64,
    /// The longest wait, in microseconds.
    waited_max_us: u64,
    /// The mean time to the first token, in microseconds; null where no row has one.
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
            money: Money(row.money),
            waited_mean_us: row.waited_us_mean,
            waited_max_us: row.waited_us_max,
            first_token_mean_us: row.first_token_us_mean,
        }
    }
}

/// Sums what was used.
#[utoipa::path(
    get, path = "/api/v1/usage", tag = "usage", params(Query),
    responses((status = 200, description = "The sums", content((Usage = "application/json"), (String = "text/csv")))),
)]
pub(super) async fn usage(
    State(app): State<Arc<App>>,
    _: Admin,
    Params(query): Params<Query>,
) -> Result<Response, ApiError> {
    const DAY: i64 = 86_400_000_000;
    let now = unix_now();
    let since = query.since.map_or(UnixMicros(now.0 - DAY), |since| since.at(now));
    let until = query.until.map_or(now, |until| until.at(now));
    let (tenant, model) = (query.tenant.map(|name| name.0), query.model.map(|name| name.0));
    let asked = UsageQuery { by: query.by.into(), since, until: Some(until), tenant, model };
    let rows = app.store.usage(asked).await?.into_iter().map(UsageRowBody::from).collect();
    let currency = money::currency(&app).await?.map(String::from);
    if query.format == Format::Csv {
        let text = csv(rows, currency.as_deref().unwrap_or_default());
        return Ok(([(CONTENT_TYPE, "text/csv; charset=utf-8")], text).into_response());
    }
    let (since, until) = (moment::shown(since), moment::shown(until));
    Ok(Json(Usage { by: query.by, since, until, currency, rows }).into_response())
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
