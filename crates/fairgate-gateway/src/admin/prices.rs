//! The prices that are, or were, in force.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use fairgate_money::{Day, MicroUnits, PerMillion};
use fairgate_store::PriceVersion;
use serde::Serialize;
use utoipa::ToSchema;

use super::api_error::ApiError;
use super::auth::Admin;
use super::moment;
use super::money::Money;
use crate::app::App;

/// A price that is, or was, in force. It never changes; another number is another price. Amounts are decimal texts.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = Price)]
pub(super) struct PriceBody {
    /// Names it in the rows of the ledger.
    id: String,
    /// The model, as clients name it.
    model: String,
    /// The upstream that it is for; null is every upstream.
    upstream: Option<String>,
    /// The currency of its amounts, such as `USD`.
    currency: String,
    /// What a million input tokens cost.
    #[schema(value_type = String)]
    input_per_million_tokens: Money,
    /// What a million input tokens cost that the upstream had cached.
    #[schema(value_type = String)]
    cached_input_per_million_tokens: Money,
    /// What a million output tokens cost.
    #[schema(value_type = String)]
    output_per_million_tokens: Money,
    /// What a request costs beside its tokens.
    #[schema(value_type = String)]
    per_request: Money,
    /// The first day (UTC) that it is for; null is always.
    #[schema(format = Date)]
    from: Option<String>,
    /// When it was first in the configuration of a gateway.
    #[schema(format = DateTime)]
    first_seen: String,
    /// Whether it is in the configuration of this gateway now.
    configured: bool,
}

/// All prices, the oldest first.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = PriceList)]
pub(super) struct PriceList {
    /// The prices.
    items: Vec<PriceBody>,
}

impl PriceBody {
    fn new(version: PriceVersion, app: &App) -> Self {
        let PriceVersion { price, first_seen } = version;
        let per_million = |PerMillion(amount)| Money(MicroUnits(amount));
        let configured = app.config.load().prices.all().any(|other| other.id == price.id);
        Self {
            id: price.id,
            model: price.model,
            upstream: price.upstream,
            currency: price.currency.into(),
            input_per_million_tokens: per_million(price.rates.input),
            cached_input_per_million_tokens: per_million(price.rates.cached_input),
            output_per_million_tokens: per_million(price.rates.output),
            per_request: Money(price.rates.request),
            from: price.from.map(Day::name),
            first_seen: moment::shown(first_seen),
            configured,
        }
    }
}

/// Lists the prices that are, or were, in force.
#[utoipa::path(
    get, path = "/api/v1/prices", tag = "usage",
    responses((status = 200, description = "The prices", body = PriceList)),
)]
pub(super) async fn list(
    State(app): State<Arc<App>>,
    _: Admin,
) -> Result<Json<PriceList>, ApiError> {
    let versions = app.store.prices().await?;
    let items = versions.into_iter().map(|version| PriceBody::new(version, &app)).collect();
    Ok(Json(PriceList { items }))
}
