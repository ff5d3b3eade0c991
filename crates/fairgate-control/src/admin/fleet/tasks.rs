//! Handlers for tasks, used by people.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use fairgate_api::error::ErrorBody;
use fairgate_api::fleet::{
    AddedTasks, NewTasks, TaskAction, TaskExplanation, TaskLine, TaskPatch, TaskState, TaskView,
};
use fairgate_fleet::TaskQuery;
use http::StatusCode;
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{TASKS_BYTES_MAX, check_project_visible, tenant_of};
use crate::admin::api_error::ApiError;
use crate::admin::auth::{AdminCaller, FleetCaller, Viewer};
use crate::admin::body::JsonBody;
use crate::admin::page::page_length;
use crate::admin::path::PathName;
use crate::admin::query::{NameFilter, QueryParams};
use crate::control_plane::ControlPlane;

/// A page of tasks, in order of creation.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(in crate::admin) struct TaskPage {
    /// The tasks of the page.
    items: Vec<TaskLine>,
    /// Value for `after` to get the next page; null on the last page.
    next: Option<String>,
}

/// Filter and page of the list of tasks.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(default, deny_unknown_fields)]
pub(in crate::admin) struct TasksQuery {
    /// Returns only tasks of this project.
    #[param(value_type = Option<String>, max_length = 512, nullable = false)]
    project: Option<NameFilter>,
    /// Returns only tasks in these states, separated by commas: `READY,PAUSED`.
    #[param(
        value_type = Option<String>, nullable = false,
        pattern = "^(DEFINED|READY|ASSIGNED|IN_PROGRESS|WAITING_INPUT|PAUSED|COMPLETED|FAILED|BLOCKED)(,(DEFINED|READY|ASSIGNED|IN_PROGRESS|WAITING_INPUT|PAUSED|COMPLETED|FAILED|BLOCKED))*$",
    )]
    state: Option<TaskStatesFilter>,
    /// Maximum number of tasks, 1 to 1000 (default 100).
    #[param(minimum = 1, maximum = 1000, nullable = false)]
    limit: Option<u32>,
    /// Returns only tasks after this task; pass the `next` of the previous page.
    #[param(value_type = Option<String>, max_length = 512, nullable = false)]
    after: Option<NameFilter>,
}

/// A list of task states, separated by commas.
#[derive(Clone, Debug)]
struct TaskStatesFilter(Vec<TaskState>);

impl<'de> Deserialize<'de> for TaskStatesFilter {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let state = |word: &str| {
            word.parse::<TaskState>().map_err(|_| {
                let known: Vec<&str> = TaskState::ALL.iter().map(|state| state.word()).collect();
                let known = known.join(", ");
                serde::de::Error::custom(format!("state: {word:?} is none of {known}"))
            })
        };
        text.split(',').map(state).collect::<Result<_, _>>().map(Self)
    }
}

/// Lists tasks, in order of creation.
///
/// A tenant's key sees only the tasks of that tenant's projects.
#[utoipa::path(
    get, path = "/api/v1/tasks", tag = "fleet", params(TasksQuery), security(("admin" = []), ("tenant" = [])),
    responses(
        (status = 200, description = "A page of tasks", body = TaskPage),
        (status = 404, description = "There is no such project, or no task to go on after", body = ErrorBody),
    ),
)]
pub(in crate::admin) async fn list(
    State(app): State<Arc<ControlPlane>>,
    viewer: Viewer,
    QueryParams(query): QueryParams<TasksQuery>,
) -> Result<Json<TaskPage>, ApiError> {
    let limit = page_length(query.limit)?;
    let project = query.project.map(|project| project.0);
    if let Some(project) = &project {
        check_project_visible(&app, &viewer, project, || ApiError::not_found("project", project))
            .await?;
    }
    if let Some(after) = &query.after {
        check_task_visible(&app, &viewer, &after.0).await?;
    }
    let query = TaskQuery {
        project,
        states: query.state.map(|states| states.0).unwrap_or_default(),
        tenant: tenant_of(&viewer).map(str::to_owned),
        after: query.after.map(|after| after.0),
        // One more than asked, to know if there is a next page.
        limit: limit + 1,
    };
    let mut items = app.fleet.tasks(query).await?;
    let more = items.len() > limit as usize;
    items.truncate(limit as usize);
    let next = items.last().filter(|_| more).map(|last| last.id.clone());
    Ok(Json(TaskPage { items, next }))
}

/// Returns a 404 error unless the viewer may see the task.
pub(super) async fn check_task_visible(
    app: &ControlPlane,
    viewer: &Viewer,
    id: &str,
) -> Result<(), ApiError> {
    match viewer {
        Viewer::Admin => Ok(()),
        Viewer::Tenant(_) => {
            let project = app.fleet.task_line(id).await?.project;
            check_project_visible(app, viewer, &project, || ApiError::not_found("task", id)).await
        }
    }
}

/// Shows a task with its history.
///
/// A tenant's key sees only the tasks of that tenant's projects.
#[utoipa::path(
    get, path = "/api/v1/tasks/{id}", tag = "fleet", security(("admin" = []), ("tenant" = [])),
    params(("id" = String, Path, description = "The task's name")),
    responses((status = 200, description = "The task", body = TaskView)),
)]
pub(in crate::admin) async fn show(
    State(app): State<Arc<ControlPlane>>,
    viewer: Viewer,
    PathName(id): PathName,
) -> Result<Json<TaskView>, ApiError> {
    check_task_visible(&app, &viewer, &id).await?;
    Ok(Json(app.fleet.task(&id).await?))
}

/// Adds all tasks of the body, or none if any is refused.
///
/// With `dry_run`, everything is checked and nothing is added. A tenant's key adds tasks to that tenant's projects, up to
/// 10 000 open tasks in each, and cannot name an agent in `affinity`.
#[utoipa::path(
    post, path = "/api/v1/tasks", tag = "fleet", request_body = NewTasks, security(("admin" = []), ("tenant" = [])),
    responses(
        (status = 200, description = "What would be made: a dry run", body = AddedTasks),
        (status = 201, description = "The new tasks", body = AddedTasks),
        (status = 404, description = "There is no such project", body = ErrorBody),
        (status = 409, description = "There is another task of that name, or its project is archived", body = ErrorBody),
        (status = 413, description = "The body is larger than 16 MiB", body = ErrorBody),
        (status = 422, description = "A field has a value that it may not have, or tasks would wait for each other (`cycle`)", body = ErrorBody),
    ),
)]
pub(in crate::admin) async fn create(
    State(app): State<Arc<ControlPlane>>,
    caller: FleetCaller,
    JsonBody(new): JsonBody<NewTasks, TASKS_BYTES_MAX>,
) -> Result<impl IntoResponse, ApiError> {
    Ok(added(match caller {
        FleetCaller::Admin(admin) => app.fleet.add_tasks(&admin.actor, new).await?,
        FleetCaller::Tenant(caller) => app.fleet.add_tasks_of_tenant(&caller.tenant, new).await?,
    }))
}

/// Returns the response for added tasks: 201, or 200 for a dry run.
pub(super) fn added(added: AddedTasks) -> (StatusCode, Json<AddedTasks>) {
    let status = if added.dry_run { StatusCode::OK } else { StatusCode::CREATED };
    (status, Json(added))
}

/// Changes a task that no agent holds.
#[utoipa::path(
    patch, path = "/api/v1/tasks/{id}", tag = "fleet", request_body = TaskPatch,
    params(("id" = String, Path, description = "The task's name")),
    responses(
        (status = 200, description = "The task as it is now", body = TaskView),
        (status = 409, description = "An agent holds it, or it has ended", body = ErrorBody),
        (status = 413, description = "The body is larger than 16 MiB", body = ErrorBody),
    ),
)]
pub(in crate::admin) async fn patch(
    State(app): State<Arc<ControlPlane>>,
    admin: AdminCaller,
    PathName(id): PathName,
    JsonBody(patch): JsonBody<TaskPatch, TASKS_BYTES_MAX>,
) -> Result<Json<TaskView>, ApiError> {
    Ok(Json(app.fleet.patch_task(&admin.actor, &id, patch).await?))
}

/// Cancels, pauses, resumes, restarts or skips a task, or answers the question that the task's agent asked.
///
/// A tenant's key can only answer, and only for the tasks of that tenant's projects.
#[utoipa::path(
    post, path = "/api/v1/tasks/{id}/actions", tag = "fleet", request_body = TaskAction, security(("admin" = []), ("tenant" = [])),
    params(("id" = String, Path, description = "The task's name")),
    responses(
        (status = 200, description = "The task as it is now", body = TaskView),
        (status = 409, description = "It stands where this cannot be done (`illegal_transition`, both states named)", body = ErrorBody),
    ),
)]
pub(in crate::admin) async fn act(
    State(app): State<Arc<ControlPlane>>,
    caller: FleetCaller,
    PathName(id): PathName,
    JsonBody(action): JsonBody<TaskAction>,
) -> Result<Json<TaskView>, ApiError> {
    let actor = match caller {
        FleetCaller::Admin(admin) => admin.actor,
        FleetCaller::Tenant(caller) => {
            let actor = format!("tenant:{}", caller.tenant);
            check_task_visible(&app, &Viewer::Tenant(caller), &id).await?;
            if !matches!(action, TaskAction::Answer { .. }) {
                let message = "a tenant's key can answer a task's question; everything else needs the admin token";
                return Err(ApiError::new(StatusCode::FORBIDDEN, "admin_only", message));
            }
            actor
        }
    };
    Ok(Json(app.fleet.act(&actor, &id, action).await?))
}

/// Explains the state of a task in one sentence, followed by the numbers behind it.
///
/// A tenant's key sees only the tasks of that tenant's projects.
#[utoipa::path(
    get, path = "/api/v1/tasks/{id}/why", tag = "fleet", security(("admin" = []), ("tenant" = [])),
    params(("id" = String, Path, description = "The task's name")),
    responses((status = 200, description = "Why", body = TaskExplanation)),
)]
pub(in crate::admin) async fn why(
    State(app): State<Arc<ControlPlane>>,
    viewer: Viewer,
    PathName(id): PathName,
) -> Result<Json<TaskExplanation>, ApiError> {
    check_task_visible(&app, &viewer, &id).await?;
    Ok(Json(match viewer {
        Viewer::Admin => app.fleet.why(&id).await?,
        Viewer::Tenant(_) => app.fleet.why_within_tenant(&id).await?,
    }))
}
