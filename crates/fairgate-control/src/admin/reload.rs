//! Reload of the configuration file, and the check of a text that may become the file.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use fairgate_api::admin::{CheckedConfigBody, ReloadedBody};
use fairgate_api::error::ConfigProblem;
use fairgate_config::ConfigErrors;
use http::StatusCode;
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use super::api_error::ApiError;
use super::auth::AdminCaller;
use super::body::JsonBody;
use super::query::QueryParams;
use crate::control_plane::{AppliedReload, ConfigPreview, ConfigReloader, ControlPlane};

/// Maximum size of a JSON body with the text of a configuration, in bytes. The text itself may have
/// 1 MiB.
const CHECK_BYTES_MAX: usize = 3 << 20;

/// Option of a reload.
#[derive(Clone, Copy, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ReloadQuery {
    /// True to apply the file even if more than half of the declared tenants and keys would be
    /// disabled, because the file no longer declares them (default false).
    #[param(value_type = Option<bool>, nullable = false)]
    yes: bool,
}

/// A text that may become the configuration file.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ConfigText)]
pub(super) struct ConfigText {
    /// The whole text, in YAML.
    #[schema(max_length = 1_048_576)]
    text: String,
}

/// Reads the configuration file again and applies it.
///
/// If anything in the file is wrong, nothing is changed. Groups, tenants and keys that the file no longer declares are
/// disabled; without `yes`, a reload that would disable more than half of them is refused.
#[utoipa::path(
    post, path = "/api/v1/config/reload", tag = "operation", params(ReloadQuery),
    responses(
        (status = 200, description = "It is in force", body = ReloadedBody),
        (status = 409, description = "There is no file, or it cannot be put in force; nothing was changed", body = super::ErrorBody),
    ),
)]
pub(super) async fn reload(
    State(app): State<Arc<ControlPlane>>,
    admin: AdminCaller,
    QueryParams(query): QueryParams<ReloadQuery>,
) -> Result<Json<ReloadedBody>, ApiError> {
    let reloader = reloader(&app)?;
    let reloaded = reloader.reload(&admin.actor, query.yes).await.map_err(|errors| {
        for problem in errors.iter() {
            tracing::error!(actor = admin.actor, %problem, "the configuration is not reloaded: nothing has changed");
        }
        refused(errors)
    })?;
    let AppliedReload { plan, directory } = reloaded;
    let changes: Vec<String> = plan.changes.iter().map(ToString::to_string).collect();
    tracing::info!(actor = admin.actor, ?changes, ?directory, "the configuration was reloaded");
    Ok(Json(ReloadedBody { changes, directory }))
}

/// Checks a text as if it were the configuration file, and shows what a reload of the text would
/// change. Changes nothing.
///
/// Secrets and relative paths of the text are looked up where the gateway runs.
#[utoipa::path(
    post, path = "/api/v1/config/check", tag = "operation", request_body = ConfigText,
    responses(
        (status = 200, description = "What a reload would change", body = CheckedConfigBody),
        (status = 409, description = "There is no file, or the text cannot be put in force", body = super::ErrorBody),
    ),
)]
pub(super) async fn check(
    State(app): State<Arc<ControlPlane>>,
    _: AdminCaller,
    JsonBody(ConfigText { text }): JsonBody<ConfigText, CHECK_BYTES_MAX>,
) -> Result<Json<CheckedConfigBody>, ApiError> {
    let ConfigPreview { plan, directory } = reloader(&app)?.check(text).await.map_err(refused)?;
    let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
    Ok(Json(CheckedConfigBody {
        changes: plan.changes.iter().map(ToString::to_string).collect(),
        directory: directory.steps.iter().map(ToString::to_string).collect(),
        disabled: count(directory.disabled()),
        usable: count(directory.usable),
        needs_yes: directory.disables_most(),
    }))
}

fn reloader(app: &ControlPlane) -> Result<&dyn ConfigReloader, ApiError> {
    app.reloader().ok_or_else(|| {
        let message = "this gateway was started without a configuration file; start it with one: fairgate serve -c FILE";
        ApiError::new(StatusCode::CONFLICT, "no_config_file", message)
    })
}

fn refused(errors: ConfigErrors) -> ApiError {
    let message = format!("nothing was changed: {errors}");
    let problems = errors.iter().map(|error| ConfigProblem {
        file: error.file.as_ref().map(|file| file.display().to_string()),
        line: error.place.map(|place| place.line),
        column: error.place.map(|place| place.column),
        field: error.field.clone(),
        message: error.message.clone(),
    });
    ApiError::new(StatusCode::CONFLICT, "invalid_config", message).with_problems(problems.collect())
}
