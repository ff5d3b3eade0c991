//! Handler for current and former prices.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use fairgate_money::{MicroUnits, PerMillion};
use fairgate_store::PriceVersion;
use fairgate_time::UtcDay;
use serde::Serialize;
use utoipa::ToSchema;

use super::api_error::ApiError;
use super::auth::AdminCaller;
use super::money::MoneyText;
use crate::control_plane::ControlPlane;

/// A price that is or was in force. A price never changes; a changed amount is a new price. Amounts are decimal texts.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = Price)]
pub(super) struct PriceBody {
    /// Id of the price in the rows of the ledger.
    id: String,
    /// Name of the model, as clients send it.
    model: String,
    /// Upstream to which the price applies; null means every upstream.
    upstream: Option<String>,
    /// Currency of the amounts, such as `USD`.
    currency: String,
    /// Price of one million input tokens.
    #[schema(value_type = String)]
    input_per_million_tokens: MoneyText,
    /// Price of one million input tokens that the upstream had cached.
    #[schema(value_type = String)]
    cached_input_per_million_tokens: MoneyText,
    /// Price of one million input tokens that are written to the upstream's cache; null means the price of input.
    #[schema(value_type = Option<String>)]
    cache_write_per_million_tokens: Option<MoneyText>,
    /// Price of one million input tokens that are written to the upstream's cache for an hour; null means the price of
    /// other cache writes.
    #[schema(value_type = Option<String>)]
    cache_write_1h_per_million_tokens: Option<MoneyText>,
    /// Price of one million output tokens.
    #[schema(value_type = String)]
    output_per_million_tokens: MoneyText,
    /// Price of one request, added to the price of its tokens.
    #[schema(value_type = String)]
    per_request: MoneyText,
    /// First day (UTC) on which the price applies; null means always.
    #[schema(format = Date)]
    from: Option<String>,
    /// Time at which the price first was in the configuration of a gateway, RFC 3339 in UTC.
    #[schema(format = DateTime)]
    first_seen: String,
    /// True if the price is in the current configuration of this gateway.
    configured: bool,
}

/// All prices, the oldest first.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = PriceList)]
pub(super) struct PriceList {
    /// The prices, current and former ones.
    items: Vec<PriceBody>,
}

impl PriceBody {
    fn new(version: PriceVersion, app: &ControlPlane) -> Self {
        let PriceVersion { price, first_seen } = version;
        let per_million = |PerMillion(amount)| MoneyText(MicroUnits(amount));
        let configured = app.data.config.load().prices.all().any(|other| other.id == price.id);
        Self {
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
}

/// Lists the prices that are or were in force.
#[utoipa::path(
    get, path = "/api/v1/prices", tag = "usage",
    responses((status = 200, description = "The prices", body = PriceList)),
)]
pub(super) async fn list(
    State(app): State<Arc<ControlPlane>>,
    _: AdminCaller,
) -> Result<Json<PriceList>, ApiError> {
    let versions = app.data.store.prices().await?;
    let items = versions.into_iter().map(|version| PriceBody::new(version, &app)).collect();
    Ok(Json(PriceList { items }))
}
