//! Check for weights that would have no effect.

use fairgate_api::JsonWholeNumber;
use fairgate_core::attribute::Attribute;
use fairgate_proxy::pools::{is_band, takes_weights};

use super::api_error::ApiError;
use crate::control_plane::ControlPlane;

/// Refuses a weight for a class of a bands node. Such classes have an order and no weights, so the
/// weight would silently have no effect. Accepts the weight if some pool has a share node by the
/// same attribute that uses it.
pub(super) fn check_weight(
    app: &ControlPlane,
    by: Attribute,
    name: &str,
    stated: Option<JsonWholeNumber>,
) -> Result<(), ApiError> {
    if stated.is_none() {
        return Ok(());
    }
    let pools = app.data.pools.all();
    if pools.iter().any(|pool| takes_weights(&pool.setup().config.policy, by)) {
        return Ok(());
    }
    let strict = pools.iter().find(|pool| is_band(&pool.setup().config.policy, by, name));
    let Some(pool) = strict else { return Ok(()) };
    let cap = match by {
        Attribute::Tenant | Attribute::Key => {
            "cap of that class in the policy, or limits.in_flight"
        }
        _ => "cap of that class in the policy",
    };
    Err(ApiError::invalid(
        "weight",
        format!(
            "the {0} {name:?} is a class of bands in the pool {1:?}, and a class of bands has no weight: its place in the \
             policy's list decides, the first goes before all others. Leave the weight out; to leave slots for the classes \
             below it, set {cap}",
            by.name(),
            pool.name,
        ),
    ))
}
