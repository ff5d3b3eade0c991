//! Handlers for projects, used by people.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use fairgate_api::error::ErrorBody;
use fairgate_api::fleet::{NewProject, ProjectPatch, ProjectView};
use http::StatusCode;
use http::header::LOCATION;
use serde::Serialize;
use utoipa::ToSchema;

use super::tenant_of;
use crate::admin::api_error::ApiError;
use crate::admin::auth::{AdminCaller, Viewer};
use crate::admin::body::JsonBody;
use crate::admin::page::{PageQuery, page_after, page_length};
use crate::admin::path::{PathName, path_to};
use crate::admin::query::QueryParams;
use crate::control_plane::ControlPlane;

/// A page of projects, in order of creation.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(in crate::admin) struct ProjectPage {
    /// The projects of the page.
    items: Vec<ProjectView>,
    /// Value for `after` to get the next page; null on the last page.
    next: Option<String>,
}

/// Lists projects, in order of creation. A tenant's key sees only that tenant's projects.
#[utoipa::path(
    get, path = "/api/v1/projects", tag = "fleet", params(PageQuery), security(("admin" = []), ("tenant" = [])),
    responses(
        (status = 200, description = "A page of projects", body = ProjectPage),
        (status = 404, description = "There is no project to go on after", body = ErrorBody),
    ),
)]
pub(in crate::admin) async fn list(
    State(app): State<Arc<ControlPlane>>,
    viewer: Viewer,
    QueryParams(query): QueryParams<PageQuery>,
) -> Result<Json<ProjectPage>, ApiError> {
    let limit = page_length(query.limit)?;
    let projects = app.fleet.projects(tenant_of(&viewer)).await?;
    let (items, next) =
        page_after(projects, |project| &project.id, query.after.as_ref(), limit, "project")?;
    Ok(Json(ProjectPage { items, next }))
}

/// Shows a project with its use, what it is due and got, and the number of its tasks in each state.
///
/// A tenant's key sees only that tenant's projects.
#[utoipa::path(
    get, path = "/api/v1/projects/{id}", tag = "fleet", security(("admin" = []), ("tenant" = [])),
    params(("id" = String, Path, description = "The project's name")),
    responses((status = 200, description = "The project", body = ProjectView)),
)]
pub(in crate::admin) async fn show(
    State(app): State<Arc<ControlPlane>>,
    viewer: Viewer,
    PathName(id): PathName,
) -> Result<Json<ProjectView>, ApiError> {
    let project = app.fleet.project(&id).await?;
    match viewer.may_see(&project.tenant) {
        true => Ok(Json(project)),
        false => Err(ApiError::not_found("project", &id)),
    }
}

/// Creates a project of a tenant.
#[utoipa::path(
    post, path = "/api/v1/projects", tag = "fleet", request_body = NewProject,
    responses(
        (status = 201, description = "The new project", body = ProjectView, headers(("location" = String, description = "Its path"))),
        (status = 404, description = "There is no such tenant", body = ErrorBody),
        (status = 409, description = "There is a project of that name", body = ErrorBody),
    ),
)]
pub(in crate::admin) async fn create(
    State(app): State<Arc<ControlPlane>>,
    admin: AdminCaller,
    JsonBody(new): JsonBody<NewProject>,
) -> Result<impl IntoResponse, ApiError> {
    let project = app.fleet.add_project(&admin.actor, new).await?;
    let location = [(LOCATION, path_to("projects", &project.id))];
    Ok((StatusCode::CREATED, location, Json(project)))
}

/// Changes a project.
///
/// No task of a paused project is started. An archived project is finished.
#[utoipa::path(
    patch, path = "/api/v1/projects/{id}", tag = "fleet", request_body = ProjectPatch,
    params(("id" = String, Path, description = "The project's name")),
    responses(
        (status = 200, description = "The project as it is now", body = ProjectView),
        (status = 409, description = "It cannot be changed so as it stands", body = ErrorBody),
    ),
)]
pub(in crate::admin) async fn patch(
    State(app): State<Arc<ControlPlane>>,
    admin: AdminCaller,
    PathName(id): PathName,
    JsonBody(patch): JsonBody<ProjectPatch>,
) -> Result<Json<ProjectView>, ApiError> {
    Ok(Json(app.fleet.patch_project(&admin.actor, &id, patch).await?))
}
