//! Handlers that show the current configuration, and the policy of a pool as a tree.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use fairgate_config::{EffectiveValue, effective_settings};
use serde::Serialize;
use tokio::time::Instant;
use utoipa::ToSchema;

use super::api_error::ApiError;
use super::auth::AdminCaller;
use super::path::PathName;
use super::policy_tree::{PolicyNodeBody, PolicyTreeBuilder};
use super::pools::pool_by_name;
use crate::control_plane::ControlPlane;

/// The current configuration of the gateway.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = EffectiveConfig)]
pub(super) struct ConfigBody {
    /// All settings: those of the gateway first, then those of upstreams and pools by name.
    settings: Vec<SettingBody>,
}

/// One setting, with the value that applies: that of the file, or the default.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = EffectiveSetting)]
pub(super) struct SettingBody {
    /// Path of the field, with upstreams and pools by name, such as `pools.llama.capacity`.
    path: String,
    /// Value, as the configuration file spells it; null if there is none, or if it is secret.
    value: Option<String>,
    /// Source of a secret, such as `environment variable OPENAI_API_KEY`, or `a secret` if the
    /// source is not known. Null if the setting is not secret.
    secret: Option<String>,
    /// True if a change needs a restart.
    needs_restart: bool,
}

/// Shows the current configuration with all defaults. For a secret, only the source is shown.
#[utoipa::path(
    get, path = "/api/v1/config", tag = "operation",
    responses((status = 200, description = "All settings", body = ConfigBody)),
)]
pub(super) async fn show(State(app): State<Arc<ControlPlane>>, _: AdminCaller) -> Json<ConfigBody> {
    let settings = effective_settings(&app.data.config.load()).into_iter().map(|setting| {
        let (value, secret) = match setting.value {
            EffectiveValue::None => (None, None),
            EffectiveValue::Shown(text) => (Some(text), None),
            EffectiveValue::Secret(source) => {
                (None, Some(source.unwrap_or_else(|| "a secret".to_owned())))
            }
        };
        SettingBody { path: setting.path, value, secret, needs_restart: setting.needs_restart }
    });
    Json(ConfigBody { settings: settings.collect() })
}

/// The policy of a pool as a tree.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = PoolPolicy)]
pub(super) struct PoolPolicyBody {
    /// Name of the pool, as in the configuration.
    pool: String,
    /// Unit in which the pool's scheduler counts, and so that of the quanta in `drr` nodes: `tokens`, `worker_time`
    /// (microseconds of a full worker) or `money` (micro-units).
    unit: &'static str,
    /// Root of the tree.
    root: PolicyNodeBody,
}

/// Shows the policy of a pool as a tree, with the weights, caps and holds that apply at this
/// moment.
///
/// All groups, tenants and keys of the directory are shown as flows, even if they never sent a
/// request.
#[utoipa::path(
    get, path = "/api/v1/pools/{pool}/policy", tag = "operation",
    params(("pool" = String, Path, description = "The pool's name")),
    responses((status = 200, description = "The tree", body = PoolPolicyBody)),
)]
pub(super) async fn policy(
    State(app): State<Arc<ControlPlane>>,
    _: AdminCaller,
    PathName(name): PathName,
) -> Result<Json<PoolPolicyBody>, ApiError> {
    let pool = pool_by_name(&app, &name)?;
    let newest = app.snapshots.newer_than(&pool, Instant::now()).await?;
    let directory = app.data.identity.directory();
    let root = PolicyTreeBuilder::new(&newest.snapshot, &directory).root();
    let unit = pool.setup().unit().name();
    Ok(Json(PoolPolicyBody { pool: name, unit, root }))
}
