//! Projects, for people.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use fairgate_fleet::{NewProject, ProjectPatch, ProjectView};
use http::StatusCode;
use http::header::LOCATION;
use serde::Serialize;
use utoipa::ToSchema;

use super::tenant_of;
use crate::admin::ErrorBody;
use crate::admin::api_error::ApiError;
use crate::admin::auth::{Admin, Viewer};
use crate::admin::body::Body;
use crate::admin::page::{PageQuery, page_after, page_length};
use crate::admin::path::{Named, path_to};
use crate::admin::query::Params;
use crate::app::App;

/// A page of projects, in the order in which they were made.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(in crate::admin) struct ProjectPage {
    /// The projects.
    items: Vec<ProjectView>,
    /// What to give as `after` for the next page; null where this is the last.
    next: Option<String>,
}

/// Lists projects, in the order in which they were made. A tenant's key sees that tenant's.
#[utoipa::path(
    get, path = "/api/v1/projects", tag = "fleet", params(PageQuery), security(("admin" = []), ("tenant" = [])),
    responses(
        (status = 200, description = "A page of projects", body = ProjectPage),
        (status = 404, description = "There is no project to go on after", body = ErrorBody),
    ),
)]
pub(in crate::admin) async fn list(
    State(app): State<Arc<App>>,
    viewer: Viewer,
    Params(query): Params<PageQuery>,
) -> Result<Json<ProjectPage>, ApiError> {
    let limit = page_length(query.limit)?;
    let projects = app.fleet.projects(tenant_of(&viewer)).await?;
    let (items, next) =
        page_after(projects, |project| &project.id, query.after.as_ref(), limit, "project")?;
    Ok(Json(ProjectPage { items, next }))
}

/// Shows a project: what it used beside what its weight promises, its tasks by state. A tenant's key sees that tenant's.
#[utoipa::path(
    get, path = "/api/v1/projects/{id}", tag = "fleet", security(("admin" = []), ("tenant" = [])),
    params(("id" = String, Path, description = "The project's name")),
    responses((status = 200, description = "The project", body = ProjectView)),
)]
pub(in crate::admin) async fn show(
    State(app): State<Arc<App>>,
    viewer: Viewer,
    Named(id): Named,
) -> Result<Json<ProjectView>, ApiError> {
    let project = app.fleet.project(&id).await?;
    match viewer.may_see(&project.tenant) {
        true => Ok(Json(project)),
        false => Err(ApiError::not_found("project", &id)),
    }
}

/// Makes a project.
#[utoipa::path(
    post, path = "/api/v1/projects", tag = "fleet", request_body = NewProject,
    responses(
        (status = 201, description = "The new project", body = ProjectView, headers(("location" = String, description = "Its path"))),
        (status = 404, description = "There is no such tenant", body = ErrorBody),
        (status = 409, description = "There is a project of that name", body = ErrorBody),
    ),
)]
pub(in crate::admin) async fn create(
    State(app): State<Arc<App>>,
    admin: Admin,
    Body(new): Body<NewProject>,
) -> Result<impl IntoResponse, ApiError> {
    let project = app.fleet.add_project(&admin.actor, new).await?;
    let location = [(LOCATION, path_to("projects", &project.id))];
    Ok((StatusCode::CREATED, location, Json(project)))
}

/// Changes a project. Paused, nothing new of it starts; archived, it is finished.
#[utoipa::path(
    patch, path = "/api/v1/projects/{id}", tag = "fleet", request_body = ProjectPatch,
    params(("id" = String, Path, description = "The project's name")),
    responses(
        (status = 200, description = "The project as it is now", body = ProjectView),
        (status = 409, description = "It cannot be changed so as it stands", body = ErrorBody),
    ),
)]
pub(in crate::admin) async fn patch(
    State(app): State<Arc<App>>,
    admin: Admin,
    Named(id): Named,
    Body(patch): Body<ProjectPatch>,
) -> Result<Json<ProjectView>, ApiError> {
    Ok(Json(app.fleet.patch_project(&admin.actor, &id, patch).await?))
}
