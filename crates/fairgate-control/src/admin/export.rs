//! Handler that compares the ledger with its copy in ClickHouse.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use fairgate_api::admin::{ExportCheckBody, ExportDayBody, ExportSumsBody, MoneyText};
use fairgate_export::{DayComparison, ExportError};
use fairgate_money::MicroUnits;
use fairgate_store::LedgerDaySums;
use fairgate_time::{UtcDay, wall_clock};
use http::StatusCode;
use serde::Deserialize;
use utoipa::IntoParams;

use super::api_error::ApiError;
use super::auth::AdminCaller;
use super::query::QueryParams;
use crate::control_plane::ControlPlane;

/// Default number of days to compare.
const DAYS: u32 = 7;
/// Maximum number of days in one comparison.
const DAYS_MAX: u32 = 366;

/// Selects the days to compare.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ExportCheckQuery {
    /// Number of UTC days, up to today (default 7). Days of which the ledger has removed rows are left out.
    #[param(minimum = 1, maximum = 366, nullable = false)]
    days: Option<u32>,
}

/// Compares the ledger with its copy in ClickHouse.
///
/// Counts, tokens and money of each day are compared. Rows that may still be in transit are left
/// out on both sides. A difference is checked again for some seconds before it is shown.
#[utoipa::path(
    get, path = "/api/v1/export/check", tag = "usage", params(ExportCheckQuery),
    responses(
        (status = 200, description = "The sums of both", body = ExportCheckBody),
        (status = 409, description = "The configuration has no store.clickhouse", body = super::ErrorBody),
        (status = 503, description = "ClickHouse does not answer, or its table does not fit", body = super::ErrorBody),
    ),
)]
pub(super) async fn check(
    State(app): State<Arc<ControlPlane>>,
    _: AdminCaller,
    QueryParams(query): QueryParams<ExportCheckQuery>,
) -> Result<Json<ExportCheckBody>, ApiError> {
    let days = query.days.unwrap_or(DAYS);
    if !(1..=DAYS_MAX).contains(&days) {
        let message = format!("days must be 1 to {DAYS_MAX} and is {days}");
        return Err(ApiError::bad_request("invalid_query", message).in_field("days"));
    }
    let Some(export) = &app.export else {
        let message = "the ledger is not exported: the configuration has no store.clickhouse";
        return Err(ApiError::new(StatusCode::CONFLICT, "no_export", message));
    };
    let today = UtcDay::of(wall_clock::now());
    let keep_days = app.data.config.load().store.keep_days;
    let first = first_day(today, days, keep_days);
    let compared = export.check(first, today).await?;
    Ok(Json(ExportCheckBody {
        equal: compared.is_equal(),
        rows_not_compared: compared.rows_not_compared,
        days: compared.days.into_iter().map(day_body).collect(),
    }))
}

/// Returns the first day to compare. The range is `days` days up to today, without days from which
/// the ledger may have removed rows.
fn first_day(today: UtcDay, days: u32, keep_days: Option<u32>) -> UtcDay {
    // Rows are removed hour by hour, so the oldest day with rows may be incomplete.
    let whole = keep_days.map_or(days, |keep| days.min(keep));
    UtcDay(today.0 - i64::from(whole) + 1)
}

fn day_body(compared: DayComparison) -> ExportDayBody {
    ExportDayBody {
        day: compared.day.name(),
        equal: compared.is_equal(),
        ledger: sums_body(compared.ledger),
        clickhouse: sums_body(compared.clickhouse),
    }
}

fn sums_body(sums: LedgerDaySums) -> ExportSumsBody {
    ExportSumsBody {
        rows: sums.rows,
        input_tokens: sums.input_tokens,
        cached_tokens: sums.cached_tokens,
        output_tokens: sums.output_tokens,
        charged: sums.charged,
        provider_tokens: sums.provider_tokens,
        money: MoneyText(MicroUnits(sums.money)),
    }
}

impl From<ExportError> for ApiError {
    fn from(error: ExportError) -> Self {
        match error {
            ExportError::Ledger(error) => error.into(),
            error => Self::unavailable("export_unavailable", error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_that_the_ledger_has_in_part_is_not_compared() {
        let today = UtcDay(20_000);
        assert_eq!(first_day(today, 1, None), today);
        assert_eq!(first_day(today, 7, None), UtcDay(19_994));
        assert_eq!(first_day(today, 7, Some(90)), UtcDay(19_994));
        // With keep_days: 2, the rows of the day before yesterday leave from its first hour on.
        assert_eq!(first_day(today, 7, Some(2)), UtcDay(19_999));
    }
}
