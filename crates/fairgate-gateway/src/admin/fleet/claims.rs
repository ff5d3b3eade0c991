//! What agents do with tasks: claim one, show that they are alive, end it. All of it may be said twice.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use fairgate_fleet::{Claim, Completion, Failure, Heartbeat, Held, Question, Release, TaskLine};
use fairgate_store::UnixMicros;
use http::StatusCode;
use http::header::CACHE_CONTROL;
use serde::Deserialize;
use utoipa::ToSchema;

use crate::admin::ErrorBody;
use crate::admin::api_error::ApiError;
use crate::admin::auth::AgentCaller;
use crate::admin::body::Body;
use crate::admin::name::Whole;
use crate::admin::path::TaskNamed;
use crate::app::App;
use crate::phase::Stage;

/// The longest that a claim waits, in seconds.
const WAIT_S_MAX: u64 = 60;

/// How long to wait for a task.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
#[schema(as = ClaimRequest)]
pub(in crate::admin) struct ClaimBody {
    /// How long to wait where there is no task now, in seconds.
    #[schema(value_type = Option<u64>, minimum = 0, maximum = 60, default = 0)]
    wait_s: Option<Whole>,
}

/// A sign of life.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = HeartbeatRequest)]
pub(in crate::admin) struct HeartbeatBody {
    /// Which claim of the task it is about.
    #[schema(value_type = u64, minimum = 0)]
    epoch: Whole,
    /// What the agent is doing; at most 4 KiB, cut beyond.
    progress: Option<String>,
    /// What this claim used so far in all, in tokens. Counts only for agents that report.
    #[schema(value_type = Option<u64>, minimum = 0, maximum = 1_000_000_000_000_i64)]
    tokens: Option<Whole>,
}

/// How a task ended well.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = CompleteRequest)]
pub(in crate::admin) struct CompleteBody {
    /// Which claim of the task it is about.
    #[schema(value_type = u64, minimum = 0)]
    epoch: Whole,
    /// What it came to; at most 64 KiB.
    #[schema(max_length = 65536, pattern = "^([^\\x00]*\\S[^\\x00]*)?$")]
    result: Option<String>,
    /// What this claim used in all, in tokens. Counts only for agents that report.
    #[schema(value_type = Option<u64>, minimum = 0, maximum = 1_000_000_000_000_i64)]
    tokens: Option<Whole>,
}

/// How a task ended badly.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = FailRequest)]
pub(in crate::admin) struct FailBody {
    /// Which claim of the task it is about.
    #[schema(value_type = u64, minimum = 0)]
    epoch: Whole,
    /// Why; at most 4 KiB, cut beyond.
    reason: Option<String>,
    /// The provider's limit is reached until this moment, in microseconds since 1970: the task waits until then, and this
    /// counts as no failure.
    #[schema(value_type = Option<u64>, minimum = 0, maximum = 253_402_300_799_999_999_i64)]
    limited_until: Option<Whole>,
    /// What this claim used in all, in tokens. Counts only for agents that report.
    #[schema(value_type = Option<u64>, minimum = 0, maximum = 1_000_000_000_000_i64)]
    tokens: Option<Whole>,
}

/// What an agent asks a person.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = AskRequest)]
pub(in crate::admin) struct AskBody {
    /// Which claim of the task it is about.
    #[schema(value_type = u64, minimum = 0)]
    epoch: Whole,
    /// The question; at most 16 KiB.
    #[schema(max_length = 16384, pattern = "^[^\\x00]*\\S[^\\x00]*$")]
    question: String,
    /// What this claim used in all, in tokens. Counts only for agents that report.
    #[schema(value_type = Option<u64>, minimum = 0, maximum = 1_000_000_000_000_i64)]
    tokens: Option<Whole>,
}

/// A task that an agent gives back unharmed.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ReleaseRequest)]
pub(in crate::admin) struct ReleaseBody {
    /// Which claim of the task it is about.
    #[schema(value_type = u64, minimum = 0)]
    epoch: Whole,
    /// Why.
    reason: Option<String>,
}

/// Gives the agent a task, waiting for one where there is none now. An agent that holds a task is given that one again.
#[utoipa::path(
    post, path = "/api/v1/agents/{id}/claim", tag = "agents", request_body = ClaimBody, security(("agent" = [])),
    params(("id" = String, Path, description = "The agent's own name")),
    responses(
        (status = 200, description = "The task", body = Claim),
        (status = 204, description = "There was none within the wait, or the gateway drains"),
    ),
)]
pub(in crate::admin) async fn claim(
    State(app): State<Arc<App>>,
    AgentCaller(agent): AgentCaller,
    Body(body): Body<ClaimBody>,
) -> Result<Response, ApiError> {
    let wait_s = body.wait_s.map_or(0, |wait| wait.0);
    if wait_s > WAIT_S_MAX {
        let message = format!("wait_s must be 0 to {WAIT_S_MAX} and is {wait_s}");
        return Err(ApiError::invalid("wait_s", message));
    }
    let Ok(_one_of_many) = app.control.claims.try_acquire() else {
        let message = "too many agents wait for a task here; try again in a second";
        return Err(ApiError::unavailable("too_many_claims", message));
    };
    let mut phase = app.phase.watch();
    // A client that leaves drops this, and a claim that was just given to it is given to it again when it comes back.
    let claim = tokio::select! {
        claim = app.fleet.claim(&agent, Duration::from_secs(wait_s)) => claim?,
        _ = phase.wait_for(|stage| *stage > Stage::Serving) => None,
    };
    Ok(match claim {
        Some(claim) => ([(CACHE_CONTROL, "no-store")], Json(claim)).into_response(),
        None => StatusCode::NO_CONTENT.into_response(),
    })
}

/// Shows that the agent is alive, and what it is doing. Its lease begins anew.
#[utoipa::path(
    post, path = "/api/v1/agents/{id}/tasks/{task}/heartbeat", tag = "agents", request_body = HeartbeatBody, security(("agent" = [])),
    params(("id" = String, Path, description = "The agent's own name"), ("task" = String, Path, description = "The task's name")),
    responses(
        (status = 200, description = "Until when it holds the task", body = Held),
        (status = 409, description = "It holds the task no more (`lease_lost`)", body = ErrorBody),
    ),
)]
pub(in crate::admin) async fn heartbeat(
    State(app): State<Arc<App>>,
    AgentCaller(agent): AgentCaller,
    TaskNamed(task): TaskNamed,
    Body(body): Body<HeartbeatBody>,
) -> Result<Json<Held>, ApiError> {
    let heartbeat = Heartbeat { progress: body.progress, tokens: whole(body.tokens) };
    Ok(Json(app.fleet.heartbeat(&agent, &task, body.epoch.0, heartbeat).await?))
}

/// Ends the task well. Saying it twice is no error.
#[utoipa::path(
    post, path = "/api/v1/agents/{id}/tasks/{task}/complete", tag = "agents", request_body = CompleteBody, security(("agent" = [])),
    params(("id" = String, Path, description = "The agent's own name"), ("task" = String, Path, description = "The task's name")),
    responses(
        (status = 200, description = "The task as it is now", body = TaskLine),
        (status = 409, description = "It holds the task no more (`lease_lost`)", body = ErrorBody),
    ),
)]
pub(in crate::admin) async fn complete(
    State(app): State<Arc<App>>,
    AgentCaller(agent): AgentCaller,
    TaskNamed(task): TaskNamed,
    Body(body): Body<CompleteBody>,
) -> Result<Json<TaskLine>, ApiError> {
    let completion = Completion { result: body.result, tokens: whole(body.tokens) };
    Ok(Json(app.fleet.complete(&agent, &task, body.epoch.0, completion).await?))
}

/// Ends the claim badly: the task is tried again later, or is blocked. Saying it twice is no error.
#[utoipa::path(
    post, path = "/api/v1/agents/{id}/tasks/{task}/fail", tag = "agents", request_body = FailBody, security(("agent" = [])),
    params(("id" = String, Path, description = "The agent's own name"), ("task" = String, Path, description = "The task's name")),
    responses(
        (status = 200, description = "The task as it is now", body = TaskLine),
        (status = 409, description = "It holds the task no more (`lease_lost`)", body = ErrorBody),
    ),
)]
pub(in crate::admin) async fn fail(
    State(app): State<Arc<App>>,
    AgentCaller(agent): AgentCaller,
    TaskNamed(task): TaskNamed,
    Body(body): Body<FailBody>,
) -> Result<Json<TaskLine>, ApiError> {
    let failure = Failure {
        reason: body.reason,
        limited_until: body
            .limited_until
            .map(|until| UnixMicros(i64::try_from(until.0).unwrap_or(i64::MAX))),
        tokens: whole(body.tokens),
    };
    Ok(Json(app.fleet.fail(&agent, &task, body.epoch.0, failure).await?))
}

/// Asks a person something: the task waits for the answer, and the agent is free. Saying it twice is no error.
#[utoipa::path(
    post, path = "/api/v1/agents/{id}/tasks/{task}/ask", tag = "agents", request_body = AskBody, security(("agent" = [])),
    params(("id" = String, Path, description = "The agent's own name"), ("task" = String, Path, description = "The task's name")),
    responses(
        (status = 200, description = "The task as it is now", body = TaskLine),
        (status = 409, description = "It holds the task no more (`lease_lost`)", body = ErrorBody),
    ),
)]
pub(in crate::admin) async fn ask(
    State(app): State<Arc<App>>,
    AgentCaller(agent): AgentCaller,
    TaskNamed(task): TaskNamed,
    Body(body): Body<AskBody>,
) -> Result<Json<TaskLine>, ApiError> {
    let question = Question { question: body.question, tokens: whole(body.tokens) };
    Ok(Json(app.fleet.ask(&agent, &task, body.epoch.0, question).await?))
}

/// Gives the task back unharmed. Saying it twice is no error.
#[utoipa::path(
    post, path = "/api/v1/agents/{id}/tasks/{task}/release", tag = "agents", request_body = ReleaseBody, security(("agent" = [])),
    params(("id" = String, Path, description = "The agent's own name"), ("task" = String, Path, description = "The task's name")),
    responses(
        (status = 200, description = "The task as it is now", body = TaskLine),
        (status = 409, description = "It holds the task no more (`lease_lost`)", body = ErrorBody),
    ),
)]
pub(in crate::admin) async fn release(
    State(app): State<Arc<App>>,
    AgentCaller(agent): AgentCaller,
    TaskNamed(task): TaskNamed,
    Body(body): Body<ReleaseBody>,
) -> Result<Json<TaskLine>, ApiError> {
    let release = Release { reason: body.reason };
    Ok(Json(app.fleet.release(&agent, &task, body.epoch.0, release).await?))
}

fn whole(number: Option<Whole>) -> Option<u64> {
    number.map(|number| number.0)
}
