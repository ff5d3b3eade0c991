//! Prices of models, current and former ones.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::money::MoneyText;

/// A current or former price. A price never changes; a changed amount is a new price. Amounts are
/// decimal texts.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = Price)]
pub struct PriceBody {
    /// Id of the price in the rows of the ledger.
    pub id: String,
    /// Name of the model, as clients send it.
    pub model: String,
    /// Upstream to which the price applies; null means every upstream.
    pub upstream: Option<String>,
    /// Currency of the amounts, such as `USD`.
    pub currency: String,
    /// Price of one million input tokens.
    #[schema(value_type = String)]
    pub input_per_million_tokens: MoneyText,
    /// Price of one million input tokens that the upstream had cached.
    #[schema(value_type = String)]
    pub cached_input_per_million_tokens: MoneyText,
    /// Price of one million input tokens that are written to the upstream's cache; null means the price of input.
    #[schema(value_type = Option<String>)]
    pub cache_write_per_million_tokens: Option<MoneyText>,
    /// Price of one million input tokens that are written to the upstream's cache for an hour; null means the price of
    /// other cache writes.
    #[schema(value_type = Option<String>)]
    pub cache_write_1h_per_million_tokens: Option<MoneyText>,
    /// Price of one million output tokens.
    #[schema(value_type = String)]
    pub output_per_million_tokens: MoneyText,
    /// Price of one request, added to the price of its tokens.
    #[schema(value_type = String)]
    pub per_request: MoneyText,
    /// First day (UTC) on which the price applies; null means always.
    #[schema(format = Date)]
    pub from: Option<String>,
    /// Time at which the price first was in the configuration of a gateway, RFC 3339 in UTC.
    #[schema(format = DateTime)]
    pub first_seen: String,
    /// True if the price is in the current configuration of this gateway.
    pub configured: bool,
}

/// All prices, the oldest first.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = PriceList)]
pub struct PriceList {
    /// The prices, current and former ones.
    pub items: Vec<PriceBody>,
}
