//! What the commands of tasks print: agents send it, people read it.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use fairgate_fleet::LogPage;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::tasks::see;
use crate::admin::ErrorBody;
use crate::admin::api_error::ApiError;
use crate::admin::auth::{AgentCaller, Viewer};
use crate::admin::body::RawBody;
use crate::admin::path::{Named, TaskNamed};
use crate::admin::query::Params;
use crate::app::App;

/// The largest number of a byte or a claim in a query: what every program can write exactly.
const NUMBER_MAX: u64 = 9_007_199_254_740_991;

/// The most bytes that an agent sends at once.
const PIECE_BYTES_MAX: usize = 256 << 10;

/// Which part of a log.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(default, deny_unknown_fields)]
pub(in crate::admin) struct LogQuery {
    /// Of this claim of the task; of its last where absent.
    #[param(minimum = 0, maximum = 9_007_199_254_740_991_i64, nullable = false)]
    epoch: Option<u64>,
    /// From this byte on (default 0).
    #[param(minimum = 0, maximum = 9_007_199_254_740_991_i64, nullable = false)]
    first_byte: Option<u64>,
}

/// Where a piece of a log belongs.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(in crate::admin) struct PieceQuery {
    /// Which claim of the task printed it.
    #[param(minimum = 0, maximum = 9_007_199_254_740_991_i64)]
    epoch: u64,
    /// The number of its first byte, counted from the claim's first.
    #[param(minimum = 0, maximum = 9_007_199_254_740_991_i64)]
    first_byte: u64,
}

/// How much of a log is kept.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = LogKept)]
pub(in crate::admin) struct LogKept {
    /// The number of the byte that is to come next.
    next_byte: u64,
}

/// Shows what a task's command printed. A tenant's key sees the tasks of that tenant's projects.
#[utoipa::path(
    get, path = "/api/v1/tasks/{id}/log", tag = "fleet", security(("admin" = []), ("tenant" = [])),
    params(("id" = String, Path, description = "The task's name"), LogQuery),
    responses((status = 200, description = "A part of the log", body = LogPage)),
)]
pub(in crate::admin) async fn show(
    State(app): State<Arc<App>>,
    viewer: Viewer,
    Named(id): Named,
    Params(query): Params<LogQuery>,
) -> Result<Json<LogPage>, ApiError> {
    let first_byte = query.first_byte.unwrap_or(0);
    bounded("epoch", query.epoch.unwrap_or(0))?;
    bounded("first_byte", first_byte)?;
    see(&app, &viewer, &id).await?;
    Ok(Json(app.fleet.log(&id, query.epoch, first_byte).await?))
}

/// Keeps what a claim's command printed. Bytes that were sent before are left out.
#[utoipa::path(
    post, path = "/api/v1/agents/{id}/tasks/{task}/log", tag = "agents", security(("agent" = [])),
    params(("id" = String, Path, description = "The agent's own name"), ("task" = String, Path, description = "The task's name"), PieceQuery),
    request_body(content = String, content_type = "application/octet-stream", description = "The bytes as they were printed"),
    responses(
        (status = 200, description = "Which byte comes next", body = LogKept),
        (status = 409, description = "It holds the task no more (`lease_lost`)", body = ErrorBody),
        (status = 413, description = "The body is larger than 256 KiB", body = ErrorBody),
    ),
)]
pub(in crate::admin) async fn append(
    State(app): State<Arc<App>>,
    AgentCaller(agent): AgentCaller,
    TaskNamed(task): TaskNamed,
    Params(query): Params<PieceQuery>,
    RawBody(bytes): RawBody<PIECE_BYTES_MAX>,
) -> Result<Json<LogKept>, ApiError> {
    bounded("epoch", query.epoch)?;
    bounded("first_byte", query.first_byte)?;
    let kept = app.fleet.append_log(&agent, &task, query.epoch, query.first_byte, bytes.into());
    Ok(Json(LogKept { next_byte: kept.await? }))
}

fn bounded(field: &str, number: u64) -> Result<(), ApiError> {
    if number <= NUMBER_MAX {
        return Ok(());
    }
    let message = format!("{field} must be at most {NUMBER_MAX} and is {number}");
    Err(ApiError::bad_request("invalid_query", message).in_field(field))
}
