//! Handlers for agents, used by people.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use fairgate_api::error::ErrorBody;
use fairgate_api::fleet::{AgentPatch, AgentView, AgentWithToken, NewAgent};
use http::StatusCode;
use http::header::{CACHE_CONTROL, LOCATION};
use serde::Serialize;
use utoipa::ToSchema;

use crate::admin::api_error::ApiError;
use crate::admin::auth::AdminCaller;
use crate::admin::body::JsonBody;
use crate::admin::page::{PageQuery, page_after, page_length};
use crate::admin::path::{PathName, path_to};
use crate::admin::query::QueryParams;
use crate::control_plane::ControlPlane;

/// A page of agents, sorted by name.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(in crate::admin) struct AgentPage {
    /// The agents of the page.
    items: Vec<AgentView>,
    /// Value for `after` to get the next page; null on the last page.
    next: Option<String>,
}

/// Lists agents, sorted by name.
#[utoipa::path(
    get, path = "/api/v1/agents", tag = "fleet", params(PageQuery),
    responses(
        (status = 200, description = "A page of agents", body = AgentPage),
        (status = 404, description = "There is no agent to go on after", body = ErrorBody),
    ),
)]
pub(in crate::admin) async fn list(
    State(app): State<Arc<ControlPlane>>,
    _: AdminCaller,
    QueryParams(query): QueryParams<PageQuery>,
) -> Result<Json<AgentPage>, ApiError> {
    let limit = page_length(query.limit)?;
    let agents = app.fleet.agents().await?;
    let (items, next) =
        page_after(agents, |agent| &agent.id, query.after.as_ref(), limit, "agent")?;
    Ok(Json(AgentPage { items, next }))
}

/// Creates an agent, and shows its token once.
#[utoipa::path(
    post, path = "/api/v1/agents", tag = "fleet", request_body = NewAgent,
    responses(
        (status = 201, description = "The new agent with its token", body = AgentWithToken, headers(("location" = String, description = "Its path"))),
        (status = 409, description = "There is an agent of that name", body = ErrorBody),
        (status = 404, description = "There is no such tenant", body = ErrorBody),
    ),
)]
pub(in crate::admin) async fn create(
    State(app): State<Arc<ControlPlane>>,
    admin: AdminCaller,
    JsonBody(new): JsonBody<NewAgent>,
) -> Result<impl IntoResponse, ApiError> {
    let made = app.fleet.add_agent(&admin.actor, new).await?;
    let headers =
        [(LOCATION, path_to("agents", &made.agent.id)), (CACHE_CONTROL, "no-store".to_owned())];
    Ok((StatusCode::CREATED, headers, Json(made)))
}

/// Changes an agent.
///
/// A paused agent gets no new tasks. Retiring is final. The task that a retired agent holds is given back.
#[utoipa::path(
    patch, path = "/api/v1/agents/{id}", tag = "fleet", request_body = AgentPatch,
    params(("id" = String, Path, description = "The agent's name")),
    responses(
        (status = 200, description = "The agent as it is now", body = AgentView),
        (status = 403, description = "No admin token, or the agent is retired for good", body = ErrorBody),
    ),
)]
pub(in crate::admin) async fn patch(
    State(app): State<Arc<ControlPlane>>,
    admin: AdminCaller,
    PathName(id): PathName,
    JsonBody(patch): JsonBody<AgentPatch>,
) -> Result<Json<AgentView>, ApiError> {
    Ok(Json(app.fleet.patch_agent(&admin.actor, &id, patch).await?))
}

/// Gives an agent a new token. The old token is refused at once.
#[utoipa::path(
    post, path = "/api/v1/agents/{id}/rotate", tag = "fleet",
    params(("id" = String, Path, description = "The agent's name")),
    responses(
        (status = 200, description = "The agent with its new token", body = AgentWithToken),
        (status = 403, description = "No admin token, or the agent is retired for good", body = ErrorBody),
    ),
)]
pub(in crate::admin) async fn rotate(
    State(app): State<Arc<ControlPlane>>,
    admin: AdminCaller,
    PathName(id): PathName,
) -> Result<impl IntoResponse, ApiError> {
    let made = app.fleet.rotate_agent(&admin.actor, &id).await?;
    Ok(([(CACHE_CONTROL, "no-store")], Json(made)))
}
