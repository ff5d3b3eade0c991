//! Tasks, for people.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use fairgate_fleet::{
    AddedTasks, NewTasks, TaskAction, TaskLine, TaskPatch, TaskQuery, TaskState, TaskView, Why,
};
use http::StatusCode;
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{TASKS_BYTES_MAX, see_project, tenant_of};
use crate::admin::ErrorBody;
use crate::admin::api_error::ApiError;
use crate::admin::auth::{Admin, Viewer};
use crate::admin::body::Body;
use crate::admin::page::page_length;
use crate::admin::path::Named;
use crate::admin::query::{Filter, Params};
use crate::app::App;

/// A page of tasks, in the order in which they were made.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(in crate::admin) struct TaskPage {
    /// The tasks.
    items: Vec<TaskLine>,
    /// What to give as `after` for the next page; null where this is the last.
    next: Option<String>,
}

/// Which tasks.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(default, deny_unknown_fields)]
pub(in crate::admin) struct TasksQuery {
    /// Of this project only.
    #[param(value_type = Option<String>, max_length = 512, nullable = false)]
    project: Option<Filter>,
    /// In these states only, with commas between: `READY,PAUSED`.
    #[param(
        value_type = Option<String>, nullable = false,
        pattern = "^(DEFINED|READY|ASSIGNED|IN_PROGRESS|WAITING_INPUT|PAUSED|COMPLETED|FAILED|BLOCKED)(,(DEFINED|READY|ASSIGNED|IN_PROGRESS|WAITING_INPUT|PAUSED|COMPLETED|FAILED|BLOCKED))*$",
    )]
    state: Option<States>,
    /// At most this many (default 100).
    #[param(minimum = 1, maximum = 1000, nullable = false)]
    limit: Option<u32>,
    /// Only what comes after this task: a page's `next`.
    #[param(value_type = Option<String>, max_length = 512, nullable = false)]
    after: Option<Filter>,
}

/// Several states.
#[derive(Clone, Debug)]
struct States(Vec<TaskState>);

impl<'de> Deserialize<'de> for States {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let state = |word: &str| {
            TaskState::from_word(word).ok_or_else(|| {
                let known: Vec<&str> = TaskState::ALL.iter().map(|state| state.word()).collect();
                let known = known.join(", ");
                serde::de::Error::custom(format!("state: {word:?} is none of {known}"))
            })
        };
        text.split(',').map(state).collect::<Result<_, _>>().map(Self)
    }
}

/// Lists tasks, in the order in which they were made. A tenant's key sees those of that tenant's projects.
#[utoipa::path(
    get, path = "/api/v1/tasks", tag = "fleet", params(TasksQuery), security(("admin" = []), ("tenant" = [])),
    responses(
        (status = 200, description = "A page of tasks", body = TaskPage),
        (status = 404, description = "There is no such project, or no task to go on after", body = ErrorBody),
    ),
)]
pub(in crate::admin) async fn list(
    State(app): State<Arc<App>>,
    viewer: Viewer,
    Params(query): Params<TasksQuery>,
) -> Result<Json<TaskPage>, ApiError> {
    let limit = page_length(query.limit)?;
    let project = query.project.map(|project| project.0);
    if let Some(project) = &project {
        see_project(&app, &viewer, project, || ApiError::not_found("project", project)).await?;
    }
    if let Some(after) = &query.after {
        see(&app, &viewer, &after.0).await?;
    }
    let query = TaskQuery {
        project,
        states: query.state.map(|states| states.0).unwrap_or_default(),
        tenant: tenant_of(&viewer).map(str::to_owned),
        after: query.after.map(|after| after.0),
        // One more, to know whether there is a next page.
        limit: limit + 1,
    };
    let mut items = app.fleet.tasks(query).await?;
    let more = items.len() > limit as usize;
    items.truncate(limit as usize);
    let next = items.last().filter(|_| more).map(|last| last.id.clone());
    Ok(Json(TaskPage { items, next }))
}

/// Finds nothing where a task is not the viewer's.
pub(super) async fn see(app: &App, viewer: &Viewer, id: &str) -> Result<(), ApiError> {
    match viewer {
        Viewer::Admin => Ok(()),
        Viewer::Tenant(_) => {
            let project = app.fleet.task_line(id).await?.project;
            see_project(app, viewer, &project, || ApiError::not_found("task", id)).await
        }
    }
}

/// Shows a task with its history. A tenant's key sees those of that tenant's projects.
#[utoipa::path(
    get, path = "/api/v1/tasks/{id}", tag = "fleet", security(("admin" = []), ("tenant" = [])),
    params(("id" = String, Path, description = "The task's name")),
    responses((status = 200, description = "The task", body = TaskView)),
)]
pub(in crate::admin) async fn show(
    State(app): State<Arc<App>>,
    viewer: Viewer,
    Named(id): Named,
) -> Result<Json<TaskView>, ApiError> {
    see(&app, &viewer, &id).await?;
    Ok(Json(app.fleet.task(&id).await?))
}

/// Makes tasks, all or none. With `dry_run` everything is checked and nothing is made.
#[utoipa::path(
    post, path = "/api/v1/tasks", tag = "fleet", request_body = NewTasks,
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
    State(app): State<Arc<App>>,
    admin: Admin,
    Body(new): Body<NewTasks, TASKS_BYTES_MAX>,
) -> Result<impl IntoResponse, ApiError> {
    Ok(added(app.fleet.add_tasks(&admin.actor, new).await?))
}

/// What adding tasks is answered with.
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
    State(app): State<Arc<App>>,
    admin: Admin,
    Named(id): Named,
    Body(patch): Body<TaskPatch, TASKS_BYTES_MAX>,
) -> Result<Json<TaskView>, ApiError> {
    Ok(Json(app.fleet.patch_task(&admin.actor, &id, patch).await?))
}

/// Cancels, pauses, resumes, restarts or skips a task, or answers what its agent asked.
#[utoipa::path(
    post, path = "/api/v1/tasks/{id}/actions", tag = "fleet", request_body = TaskAction,
    params(("id" = String, Path, description = "The task's name")),
    responses(
        (status = 200, description = "The task as it is now", body = TaskView),
        (status = 409, description = "It stands where this cannot be done (`illegal_transition`, both states named)", body = ErrorBody),
    ),
)]
pub(in crate::admin) async fn act(
    State(app): State<Arc<App>>,
    admin: Admin,
    Named(id): Named,
    Body(action): Body<TaskAction>,
) -> Result<Json<TaskView>, ApiError> {
    Ok(Json(app.fleet.act(&admin.actor, &id, action).await?))
}

/// Says why a task stands where it does: one sentence, then the numbers. A tenant's key sees those of that tenant's projects.
#[utoipa::path(
    get, path = "/api/v1/tasks/{id}/why", tag = "fleet", security(("admin" = []), ("tenant" = [])),
    params(("id" = String, Path, description = "The task's name")),
    responses((status = 200, description = "Why", body = Why)),
)]
pub(in crate::admin) async fn why(
    State(app): State<Arc<App>>,
    viewer: Viewer,
    Named(id): Named,
) -> Result<Json<Why>, ApiError> {
    see(&app, &viewer, &id).await?;
    Ok(Json(app.fleet.why(&id).await?))
}
