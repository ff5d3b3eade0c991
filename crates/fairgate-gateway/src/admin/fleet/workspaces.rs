//! Workspaces, for people: folders that one task at a time has to itself.

use std::collections::HashSet;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use fairgate_fleet::{NewWorkspace, WorkspaceView};
use http::StatusCode;
use http::header::LOCATION;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{see_project, tenant_of};
use crate::admin::ErrorBody;
use crate::admin::api_error::ApiError;
use crate::admin::auth::{Admin, Viewer};
use crate::admin::body::Body;
use crate::admin::page::{page_after, page_length};
use crate::admin::path::{Named, path_to};
use crate::admin::query::{Filter, Params};
use crate::app::App;

/// A page of workspaces, by name.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(in crate::admin) struct WorkspacePage {
    /// The workspaces.
    items: Vec<WorkspaceView>,
    /// What to give as `after` for the next page; null where this is the last.
    next: Option<String>,
}

/// Which workspaces.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(default, deny_unknown_fields)]
pub(in crate::admin) struct WorkspacesQuery {
    /// Of this project only.
    #[param(value_type = Option<String>, max_length = 512, nullable = false)]
    project: Option<Filter>,
    /// At most this many (default 100).
    #[param(minimum = 1, maximum = 1000, nullable = false)]
    limit: Option<u32>,
    /// Only what comes after this name: a page's `next`.
    #[param(value_type = Option<String>, max_length = 512, nullable = false)]
    after: Option<Filter>,
}

/// Lists workspaces, by name. A tenant's key sees those of that tenant's projects.
#[utoipa::path(
    get, path = "/api/v1/workspaces", tag = "fleet", params(WorkspacesQuery), security(("admin" = []), ("tenant" = [])),
    responses(
        (status = 200, description = "A page of workspaces", body = WorkspacePage),
        (status = 404, description = "There is no such project, or no workspace to go on after", body = ErrorBody),
    ),
)]
pub(in crate::admin) async fn list(
    State(app): State<Arc<App>>,
    viewer: Viewer,
    Params(query): Params<WorkspacesQuery>,
) -> Result<Json<WorkspacePage>, ApiError> {
    let limit = page_length(query.limit)?;
    let project = query.project.as_ref().map(|project| project.0.as_str());
    if let Some(project) = project {
        see_project(&app, &viewer, project, || ApiError::not_found("project", project)).await?;
    }
    let mut workspaces = app.fleet.workspaces(project).await?;
    if let Some(tenant) = tenant_of(&viewer) {
        let own = app.fleet.projects(Some(tenant)).await?;
        let own: HashSet<&str> = own.iter().map(|project| project.id.as_str()).collect();
        workspaces.retain(|workspace| own.contains(workspace.project.as_str()));
    }
    let (items, next) = page_after(
        workspaces,
        |workspace| &workspace.id,
        query.after.as_ref(),
        limit,
        "workspace",
    )?;
    Ok(Json(WorkspacePage { items, next }))
}

/// Makes a workspace.
#[utoipa::path(
    post, path = "/api/v1/workspaces", tag = "fleet", request_body = NewWorkspace,
    responses(
        (status = 201, description = "The new workspace", body = WorkspaceView, headers(("location" = String, description = "Its path"))),
        (status = 404, description = "There is no such project", body = ErrorBody),
        (status = 409, description = "There is a workspace of that name", body = ErrorBody),
    ),
)]
pub(in crate::admin) async fn create(
    State(app): State<Arc<App>>,
    admin: Admin,
    Body(new): Body<NewWorkspace>,
) -> Result<impl IntoResponse, ApiError> {
    let workspace = app.fleet.add_workspace(&admin.actor, new).await?;
    let location = [(LOCATION, path_to("workspaces", &workspace.id))];
    Ok((StatusCode::CREATED, location, Json(workspace)))
}

/// Removes a workspace that no task holds. What is in its folder stays.
#[utoipa::path(
    delete, path = "/api/v1/workspaces/{id}", tag = "fleet",
    params(("id" = String, Path, description = "The workspace's name")),
    responses(
        (status = 204, description = "It is gone"),
        (status = 409, description = "A task holds it or needs it", body = ErrorBody),
    ),
)]
pub(in crate::admin) async fn remove(
    State(app): State<Arc<App>>,
    admin: Admin,
    Named(id): Named,
) -> Result<StatusCode, ApiError> {
    app.fleet.remove_workspace(&admin.actor, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}
