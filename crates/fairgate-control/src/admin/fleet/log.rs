//! Handlers for task logs. A log is the output of a task's commands; agents send it, and people read it.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use fairgate_api::agents::LogKeptBody;
use fairgate_api::error::ErrorBody;
use fairgate_api::fleet::LogPage;
use serde::Deserialize;
use utoipa::IntoParams;

use super::tasks::check_task_visible;
use crate::admin::api_error::ApiError;
use crate::admin::auth::{AgentCaller, Viewer};
use crate::admin::body::RawBody;
use crate::admin::path::{PathName, PathTaskName};
use crate::admin::query::QueryParams;
use crate::control_plane::ControlPlane;

/// Largest byte offset or epoch in a query. This is 2⁵³ − 1, the largest integer that a JSON float represents exactly.
const NUMBER_MAX: u64 = 9_007_199_254_740_991;

/// Maximum size of one piece of a log, in bytes.
const PIECE_BYTES_MAX: usize = 256 << 10;

/// Selects the claim whose log is read, and the first byte to return.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(default, deny_unknown_fields)]
pub(in crate::admin) struct LogQuery {
    /// Epoch of the claim whose log is read; that of the task's last claim if absent.
    #[param(minimum = 0, maximum = 9_007_199_254_740_991_i64, nullable = false)]
    epoch: Option<u64>,
    /// Offset of the first byte to return, counted from the start of the log (default 0).
    #[param(minimum = 0, maximum = 9_007_199_254_740_991_i64, nullable = false)]
    first_byte: Option<u64>,
}

/// Claim and byte offset to which a piece of a log belongs.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(in crate::admin) struct LogPieceQuery {
    /// Epoch of the claim that printed the piece.
    #[param(minimum = 0, maximum = 9_007_199_254_740_991_i64)]
    epoch: u64,
    /// Offset of the piece's first byte, counted from the start of the claim's log.
    #[param(minimum = 0, maximum = 9_007_199_254_740_991_i64)]
    first_byte: u64,
}

/// Shows the log of a task.
///
/// A tenant's key sees only the tasks of that tenant's projects.
#[utoipa::path(
    get, path = "/api/v1/tasks/{id}/log", tag = "fleet", security(("admin" = []), ("tenant" = [])),
    params(("id" = String, Path, description = "The task's name"), LogQuery),
    responses((status = 200, description = "A part of the log", body = LogPage)),
)]
pub(in crate::admin) async fn show(
    State(app): State<Arc<ControlPlane>>,
    viewer: Viewer,
    PathName(id): PathName,
    QueryParams(query): QueryParams<LogQuery>,
) -> Result<Json<LogPage>, ApiError> {
    let first_byte = query.first_byte.unwrap_or(0);
    bounded("epoch", query.epoch.unwrap_or(0))?;
    bounded("first_byte", first_byte)?;
    check_task_visible(&app, &viewer, &id).await?;
    Ok(Json(app.fleet.log(&id, query.epoch, first_byte).await?))
}

/// Appends to the log of a claim. Bytes that were sent before are skipped.
#[utoipa::path(
    post, path = "/api/v1/agents/{id}/tasks/{task}/log", tag = "agents", security(("agent" = [])),
    params(("id" = String, Path, description = "The agent's own name"), ("task" = String, Path, description = "The task's name"), LogPieceQuery),
    request_body(content = String, content_type = "application/octet-stream", description = "The bytes as they were printed"),
    responses(
        (status = 200, description = "Which byte comes next", body = LogKeptBody),
        (status = 409, description = "It holds the task no more (`lease_lost`)", body = ErrorBody),
        (status = 413, description = "The body is larger than 256 KiB", body = ErrorBody),
    ),
)]
pub(in crate::admin) async fn append(
    State(app): State<Arc<ControlPlane>>,
    AgentCaller(agent): AgentCaller,
    PathTaskName(task): PathTaskName,
    QueryParams(query): QueryParams<LogPieceQuery>,
    RawBody(bytes): RawBody<PIECE_BYTES_MAX>,
) -> Result<Json<LogKeptBody>, ApiError> {
    bounded("epoch", query.epoch)?;
    bounded("first_byte", query.first_byte)?;
    let kept = app.fleet.append_log(&agent, &task, query.epoch, query.first_byte, bytes.into());
    Ok(Json(LogKeptBody { next_byte: kept.await? }))
}

fn bounded(field: &str, number: u64) -> Result<(), ApiError> {
    if number <= NUMBER_MAX {
        return Ok(());
    }
    let message = format!("{field} must be at most {NUMBER_MAX} and is {number}");
    Err(ApiError::bad_request("invalid_query", message).in_field(field))
}
