//! Handlers with which agents claim a task, send heartbeats and end a claim. A client may safely repeat every call.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use fairgate_api::JsonWholeNumber;
use fairgate_api::agents::{
    AskRequest, Claim, ClaimRequest, CompleteRequest, FailRequest, HeartbeatRequest,
    ReleaseRequest, TaskLeaseBody,
};
use fairgate_api::error::ErrorBody;
use fairgate_api::fleet::TaskLine;
use fairgate_fleet::{TaskCompletion, TaskFailure, TaskHeartbeat, TaskQuestion, TaskRelease};
use fairgate_proxy::phase::GatewayPhase;
use fairgate_store::UnixMicros;
use http::StatusCode;
use http::header::CACHE_CONTROL;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::admin::api_error::ApiError;
use crate::admin::auth::AgentCaller;
use crate::admin::body::JsonBody;
use crate::admin::path::PathTaskName;
use crate::admin::query::QueryParams;
use crate::control_plane::ControlPlane;

/// Maximum size of a body with a result, in bytes. A result of 1 MiB may be six times as long in JSON.
const RESULT_BODY_BYTES_MAX: usize = 8 << 20;

/// Longest time that an agent may wait for a task in one call, in seconds.
const WAIT_S_MAX: u64 = 60;

/// Gives the agent a task. If there is none, waits up to `wait_s` seconds for one.
///
/// An agent that already holds a task gets that task again.
#[utoipa::path(
    post, path = "/api/v1/agents/{id}/claim", tag = "agents", request_body = ClaimRequest, security(("agent" = [])),
    params(("id" = String, Path, description = "The agent's own name")),
    responses(
        (status = 200, description = "The task", body = Claim),
        (status = 204, description = "There was none within the wait, or the gateway drains"),
    ),
)]
pub(in crate::admin) async fn claim(
    State(app): State<Arc<ControlPlane>>,
    AgentCaller(agent): AgentCaller,
    JsonBody(body): JsonBody<ClaimRequest>,
) -> Result<Response, ApiError> {
    let wait_s = body.wait_s.map_or(0, |wait| wait.0);
    if wait_s > WAIT_S_MAX {
        let message = format!("wait_s must be 0 to {WAIT_S_MAX} and is {wait_s}");
        return Err(ApiError::invalid("wait_s", message));
    }
    let Ok(_one_of_many) = app.claims.try_acquire() else {
        let message = "too many agents wait for a task here; try again in a second";
        return Err(ApiError::unavailable("too_many_claims", message));
    };
    let mut phase = app.data.phase.watch();
    // A client that disconnects drops this future. If it had just got a task, its next claim returns the same task.
    let claim = tokio::select! {
        claim = app.fleet.claim(&agent, Duration::from_secs(wait_s)) => claim?,
        _ = phase.wait_for(|stage| *stage > GatewayPhase::Serving) => None,
    };
    Ok(match claim {
        Some(claim) => ([(CACHE_CONTROL, "no-store")], Json(claim)).into_response(),
        None => StatusCode::NO_CONTENT.into_response(),
    })
}

/// Renews the lease of the agent's claim, and records the agent's progress.
#[utoipa::path(
    post, path = "/api/v1/agents/{id}/tasks/{task}/heartbeat", tag = "agents", request_body = HeartbeatRequest, security(("agent" = [])),
    params(("id" = String, Path, description = "The agent's own name"), ("task" = String, Path, description = "The task's name")),
    responses(
        (status = 200, description = "Until when it holds the task", body = TaskLeaseBody),
        (status = 409, description = "It holds the task no more (`lease_lost`)", body = ErrorBody),
    ),
)]
pub(in crate::admin) async fn heartbeat(
    State(app): State<Arc<ControlPlane>>,
    AgentCaller(agent): AgentCaller,
    PathTaskName(task): PathTaskName,
    JsonBody(body): JsonBody<HeartbeatRequest>,
) -> Result<Json<TaskLeaseBody>, ApiError> {
    let heartbeat = TaskHeartbeat { progress: body.progress, tokens: whole(body.tokens) };
    Ok(Json(app.fleet.heartbeat(&agent, &task, body.epoch.0, heartbeat).await?))
}

/// Completes the task. Repeating the call is no error.
#[utoipa::path(
    post, path = "/api/v1/agents/{id}/tasks/{task}/complete", tag = "agents", request_body = CompleteRequest, security(("agent" = [])),
    params(("id" = String, Path, description = "The agent's own name"), ("task" = String, Path, description = "The task's name")),
    responses(
        (status = 200, description = "The task as it is now", body = TaskLine),
        (status = 409, description = "It holds the task no more (`lease_lost`)", body = ErrorBody),
    ),
)]
pub(in crate::admin) async fn complete(
    State(app): State<Arc<ControlPlane>>,
    AgentCaller(agent): AgentCaller,
    PathTaskName(task): PathTaskName,
    JsonBody(body): JsonBody<CompleteRequest, RESULT_BODY_BYTES_MAX>,
) -> Result<Json<TaskLine>, ApiError> {
    let completion = TaskCompletion { result: body.result, tokens: whole(body.tokens) };
    Ok(Json(app.fleet.complete(&agent, &task, body.epoch.0, completion).await?))
}

/// Ends the claim with a failure.
///
/// The task is retried later, or is blocked. Repeating the call is no error.
#[utoipa::path(
    post, path = "/api/v1/agents/{id}/tasks/{task}/fail", tag = "agents", request_body = FailRequest, security(("agent" = [])),
    params(("id" = String, Path, description = "The agent's own name"), ("task" = String, Path, description = "The task's name")),
    responses(
        (status = 200, description = "The task as it is now", body = TaskLine),
        (status = 409, description = "It holds the task no more (`lease_lost`)", body = ErrorBody),
    ),
)]
pub(in crate::admin) async fn fail(
    State(app): State<Arc<ControlPlane>>,
    AgentCaller(agent): AgentCaller,
    PathTaskName(task): PathTaskName,
    JsonBody(body): JsonBody<FailRequest>,
) -> Result<Json<TaskLine>, ApiError> {
    let failure = TaskFailure {
        reason: body.reason,
        limited_until: body
            .limited_until
            .map(|until| UnixMicros(i64::try_from(until.0).unwrap_or(i64::MAX))),
        tokens: whole(body.tokens),
    };
    Ok(Json(app.fleet.fail(&agent, &task, body.epoch.0, failure).await?))
}

/// Asks a person a question.
///
/// The task waits for the answer, and the agent is free for another task. Repeating the call is no error.
#[utoipa::path(
    post, path = "/api/v1/agents/{id}/tasks/{task}/ask", tag = "agents", request_body = AskRequest, security(("agent" = [])),
    params(("id" = String, Path, description = "The agent's own name"), ("task" = String, Path, description = "The task's name")),
    responses(
        (status = 200, description = "The task as it is now", body = TaskLine),
        (status = 409, description = "It holds the task no more (`lease_lost`)", body = ErrorBody),
    ),
)]
pub(in crate::admin) async fn ask(
    State(app): State<Arc<ControlPlane>>,
    AgentCaller(agent): AgentCaller,
    PathTaskName(task): PathTaskName,
    JsonBody(body): JsonBody<AskRequest>,
) -> Result<Json<TaskLine>, ApiError> {
    let question = TaskQuestion { question: body.question, tokens: whole(body.tokens) };
    Ok(Json(app.fleet.ask(&agent, &task, body.epoch.0, question).await?))
}

/// Gives the task back without a failure. Repeating the call is no error.
#[utoipa::path(
    post, path = "/api/v1/agents/{id}/tasks/{task}/release", tag = "agents", request_body = ReleaseRequest, security(("agent" = [])),
    params(("id" = String, Path, description = "The agent's own name"), ("task" = String, Path, description = "The task's name")),
    responses(
        (status = 200, description = "The task as it is now", body = TaskLine),
        (status = 409, description = "It holds the task no more (`lease_lost`)", body = ErrorBody),
    ),
)]
pub(in crate::admin) async fn release(
    State(app): State<Arc<ControlPlane>>,
    AgentCaller(agent): AgentCaller,
    PathTaskName(task): PathTaskName,
    JsonBody(body): JsonBody<ReleaseRequest>,
) -> Result<Json<TaskLine>, ApiError> {
    let release = TaskRelease { reason: body.reason, unfit: body.unfit };
    Ok(Json(app.fleet.release(&agent, &task, body.epoch.0, release).await?))
}

/// Claim and needed task of a call that reads a result.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(in crate::admin) struct NeededResultQuery {
    /// Epoch of the claim, from the response to the claim.
    #[param(minimum = 0)]
    epoch: u64,
    /// Name of the task whose result to return. The agent's task must need it.
    #[param(max_length = 128)]
    task: String,
}

/// Returns the result of a task that the agent's task needs, as text.
#[utoipa::path(
    get, path = "/api/v1/agents/{id}/tasks/{task}/results", tag = "agents", security(("agent" = [])),
    params(("id" = String, Path, description = "The agent's own name"), ("task" = String, Path, description = "The task that it holds"), NeededResultQuery),
    responses(
        (status = 200, description = "The result", body = String, content_type = "text/plain"),
        (status = 404, description = "The task does not need that one, or that one has no result", body = ErrorBody),
        (status = 409, description = "It holds the task no more (`lease_lost`)", body = ErrorBody),
    ),
)]
pub(in crate::admin) async fn result(
    State(app): State<Arc<ControlPlane>>,
    AgentCaller(agent): AgentCaller,
    PathTaskName(task): PathTaskName,
    QueryParams(query): QueryParams<NeededResultQuery>,
) -> Result<Response, ApiError> {
    let result = app.fleet.needed_result(&agent, &task, query.epoch, &query.task).await?;
    Ok(([(CACHE_CONTROL, "no-store")], result).into_response())
}

fn whole(number: Option<JsonWholeNumber>) -> Option<u64> {
    number.map(|number| number.0)
}
