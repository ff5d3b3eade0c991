//! Handler for current and former prices.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use fairgate_api::admin::{MoneyText, PriceBody, PriceList};
use fairgate_money::{MicroUnits, PerMillion};
use fairgate_store::PriceVersion;
use fairgate_time::UtcDay;

use super::api_error::ApiError;
use super::auth::AdminCaller;
use crate::control_plane::ControlPlane;

/// Returns a price as the API shows it.
fn price_body(version: PriceVersion, app: &ControlPlane) -> PriceBody {
    let PriceVersion { price, first_seen } = version;
    let per_million = |PerMillion(amount)| MoneyText(MicroUnits(amount));
    let configured = app.data.config.load().prices.all().any(|other| other.id == price.id);
    PriceBody {
        id: price.id,
        model: price.model,
        upstream: price.upstream,
        currency: price.currency.into(),
        input_per_million_tokens: per_million(price.rates.input),
        cached_input_per_million_tokens: per_million(price.rates.cached_input),
        cache_write_per_million_tokens: price.rates.cache_write.map(per_million),
        cache_write_1h_per_million_tokens: price.rates.cache_write_1h.map(per_million),
        output_per_million_tokens: per_million(price.rates.output),
        per_request: MoneyText(price.rates.request),
        from: price.from.map(UtcDay::name),
        first_seen: fairgate_time::to_rfc3339(first_seen),
        configured,
    }
}

/// Lists current and former prices.
#[utoipa::path(
    get, path = "/api/v1/prices", tag = "usage",
    responses((status = 200, description = "The prices", body = PriceList)),
)]
pub(super) async fn list(
    State(app): State<Arc<ControlPlane>>,
    _: AdminCaller,
) -> Result<Json<PriceList>, ApiError> {
    let versions = app.data.store.prices().await?;
    let items = versions.into_iter().map(|version| price_body(version, &app)).collect();
    Ok(Json(PriceList { items }))
}
