//! The currency of the installation.

use fairgate_money::Currency;

use super::api_error::ApiError;
use crate::control_plane::ControlPlane;

/// Returns the currency of the current prices, or that of earlier prices if there are no current ones. `None` if there
/// never was a price.
pub(super) async fn currency(app: &ControlPlane) -> Result<Option<Currency>, ApiError> {
    match app.data.config.load().prices.currency() {
        Some(currency) => Ok(Some(currency)),
        None => Ok(app.data.store.currency().await?),
    }
}
