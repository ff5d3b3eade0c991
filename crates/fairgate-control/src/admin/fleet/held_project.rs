//! Handlers with which agents read and add tasks of the project whose task they hold.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use fairgate_api::error::ErrorBody;
use fairgate_api::fleet::{AddedTasks, NewTasks, ProjectView, TaskExplanation};
use fairgate_fleet::{AgentId, FleetError};
use http::StatusCode;

use super::tasks::added;
use crate::admin::api_error::ApiError;
use crate::admin::auth::AgentCaller;
use crate::admin::body::JsonBody;
use crate::admin::path::PathTaskName;
use crate::control_plane::ControlPlane;

/// Maximum size of a body with tasks from an agent, in bytes.
const TASKS_BYTES_MAX: usize = 4 << 20;

/// Returns the project of the task that the agent holds; an error if the agent holds no task.
async fn project_of(app: &ControlPlane, agent: &AgentId) -> Result<String, ApiError> {
    let Some(held) = app.fleet.held_by(agent).await? else {
        let message = format!(
            "agent {:?} holds no task, and only a task gives it a project: claim one first",
            agent.id
        );
        return Err(ApiError::new(StatusCode::CONFLICT, "no_task", message));
    };
    Ok(held.project)
}

/// Adds tasks to the project whose task the agent holds. Adds all of them, or none if any is refused.
#[utoipa::path(
    post, path = "/api/v1/agents/{id}/tasks", tag = "agents", request_body = NewTasks, security(("agent" = [])),
    params(("id" = String, Path, description = "The agent's own name")),
    responses(
        (status = 200, description = "What would be made: a dry run", body = AddedTasks),
        (status = 201, description = "The new tasks", body = AddedTasks),
        (status = 409, description = "It holds no task (`no_task`), or there is another task of that name", body = ErrorBody),
        (status = 413, description = "The body is larger than 4 MiB", body = ErrorBody),
        (status = 422, description = "A field has a value that it may not have, a task is of another project, or tasks would wait for each other (`cycle`)", body = ErrorBody),
    ),
)]
pub(in crate::admin) async fn add_tasks(
    State(app): State<Arc<ControlPlane>>,
    AgentCaller(agent): AgentCaller,
    JsonBody(new): JsonBody<NewTasks, TASKS_BYTES_MAX>,
) -> Result<impl IntoResponse, ApiError> {
    let project = project_of(&app, &agent).await?;
    if let Some(place) = new.tasks.iter().position(|task| task.project != project) {
        let message =
            format!("must be {project:?}, the project of the task that agent {:?} holds", agent.id);
        return Err(ApiError::invalid(&format!("tasks[{place}].project"), message));
    }
    Ok(added(app.fleet.add_tasks(&format!("agent:{}", agent.id), new).await?))
}

/// Explains the state of a task in the project whose task the agent holds.
#[utoipa::path(
    get, path = "/api/v1/agents/{id}/tasks/{task}/why", tag = "agents", security(("agent" = [])),
    params(("id" = String, Path, description = "The agent's own name"), ("task" = String, Path, description = "The task's name")),
    responses(
        (status = 200, description = "Why", body = TaskExplanation),
        (status = 409, description = "It holds no task (`no_task`)", body = ErrorBody),
    ),
)]
pub(in crate::admin) async fn why(
    State(app): State<Arc<ControlPlane>>,
    AgentCaller(agent): AgentCaller,
    PathTaskName(task): PathTaskName,
) -> Result<Json<TaskExplanation>, ApiError> {
    let project = project_of(&app, &agent).await?;
    if app.fleet.task_line(&task).await?.project != project {
        // The answer is the same as for a task that does not exist.
        return Err(FleetError::NotFound { what: "task", id: task }.into());
    }
    Ok(Json(app.fleet.why_within_tenant(&task).await?))
}

/// Shows the share of the project whose task the agent holds.
#[utoipa::path(
    get, path = "/api/v1/agents/{id}/share", tag = "agents", security(("agent" = [])),
    params(("id" = String, Path, description = "The agent's own name")),
    responses(
        (status = 200, description = "The project", body = ProjectView),
        (status = 409, description = "It holds no task (`no_task`)", body = ErrorBody),
    ),
)]
pub(in crate::admin) async fn share(
    State(app): State<Arc<ControlPlane>>,
    AgentCaller(agent): AgentCaller,
) -> Result<Json<ProjectView>, ApiError> {
    let project = project_of(&app, &agent).await?;
    Ok(Json(app.fleet.project(&project).await?))
}
