//! Reload of the configuration file.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use fairgate_api::admin::ReloadedBody;
use fairgate_api::error::ConfigProblem;
use fairgate_config::ConfigErrors;
use http::StatusCode;

use super::api_error::ApiError;
use super::auth::AdminCaller;
use crate::control_plane::ControlPlane;

/// Reads the configuration file again and applies it.
///
/// If anything in the file is wrong, nothing is changed.
#[utoipa::path(
    post, path = "/api/v1/config/reload", tag = "operation",
    responses(
        (status = 200, description = "It is in force", body = ReloadedBody),
        (status = 409, description = "There is no file, or it cannot be put in force; nothing was changed", body = super::ErrorBody),
    ),
)]
pub(super) async fn reload(
    State(app): State<Arc<ControlPlane>>,
    admin: AdminCaller,
) -> Result<Json<ReloadedBody>, ApiError> {
    let Some(reloader) = app.reloader() else {
        let message = "this gateway was started without a configuration file; start it with one: fairgate serve -c FILE";
        return Err(ApiError::new(StatusCode::CONFLICT, "no_config_file", message));
    };
    let plan = reloader.reload(&admin.actor).await.map_err(|errors| {
        for problem in errors.iter() {
            tracing::error!(actor = admin.actor, %problem, "the configuration is not reloaded: nothing has changed");
        }
        refused(errors)
    })?;
    let changes: Vec<String> = plan.changes.iter().map(ToString::to_string).collect();
    tracing::info!(actor = admin.actor, ?changes, "the configuration was reloaded");
    Ok(Json(ReloadedBody { changes }))
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
