//! Handlers for workspaces, used by people. A workspace is a folder that only one task uses at a time.

use std::collections::HashSet;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use fairgate_api::error::ErrorBody;
use fairgate_api::fleet::{NewWorkspace, WorkspaceView};
use http::StatusCode;
use http::header::LOCATION;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{check_project_visible, tenant_of};
use crate::admin::api_error::ApiError;
use crate::admin::auth::{AdminCaller, Viewer};
use crate::admin::body::JsonBody;
use crate::admin::page::{page_after, page_length};
use crate::admin::path::{PathName, path_to};
use crate::admin::query::{NameFilter, QueryParams};
use crate::control_plane::ControlPlane;

/// A page of workspaces, sorted by name.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(in crate::admin) struct WorkspacePage {
    /// The workspaces of the page.
    items: Vec<WorkspaceView>,
    /// Value for `after` to get the next page; null on the last page.
    next: Option<String>,
}

/// Filter and page of the list of workspaces.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(default, deny_unknown_fields)]
pub(in crate::admin) struct WorkspacesQuery {
    /// Returns only workspaces of this project.
    #[param(value_type = Option<String>, max_length = 512, nullable = false)]
    project: Option<NameFilter>,
    /// Maximum number of workspaces, 1 to 1000 (default 100).
    #[param(minimum = 1, maximum = 1000, nullable = false)]
    limit: Option<u32>,
    /// Returns only workspaces after this name; pass the `next` of the previous page.
    #[param(value_type = Option<String>, max_length = 512, nullable = false)]
    after: Option<NameFilter>,
}

/// Lists workspaces, sorted by name.
///
/// A tenant's key sees only the workspaces of that tenant's projects.
#[utoipa::path(
    get, path = "/api/v1/workspaces", tag = "fleet", params(WorkspacesQuery), security(("admin" = []), ("tenant" = [])),
    responses(
        (status = 200, description = "A page of workspaces", body = WorkspacePage),
        (status = 404, description = "There is no such project, or no workspace to go on after", body = ErrorBody),
    ),
)]
pub(in crate::admin) async fn list(
    State(app): State<Arc<ControlPlane>>,
    viewer: Viewer,
    QueryParams(query): QueryParams<WorkspacesQuery>,
) -> Result<Json<WorkspacePage>, ApiError> {
    let limit = page_length(query.limit)?;
    let project = query.project.as_ref().map(|project| project.0.as_str());
    if let Some(project) = project {
        check_project_visible(&app, &viewer, project, || ApiError::not_found("project", project))
            .await?;
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

/// Creates a workspace of a project.
#[utoipa::path(
    post, path = "/api/v1/workspaces", tag = "fleet", request_body = NewWorkspace,
    responses(
        (status = 201, description = "The new workspace", body = WorkspaceView, headers(("location" = String, description = "Its path"))),
        (status = 404, description = "There is no such project", body = ErrorBody),
        (status = 409, description = "There is a workspace of that name", body = ErrorBody),
    ),
)]
pub(in crate::admin) async fn create(
    State(app): State<Arc<ControlPlane>>,
    admin: AdminCaller,
    JsonBody(new): JsonBody<NewWorkspace>,
) -> Result<impl IntoResponse, ApiError> {
    let workspace = app.fleet.add_workspace(&admin.actor, new).await?;
    let location = [(LOCATION, path_to("workspaces", &workspace.id))];
    Ok((StatusCode::CREATED, location, Json(workspace)))
}

/// Removes a workspace that no task holds. The files in its folder stay.
#[utoipa::path(
    delete, path = "/api/v1/workspaces/{id}", tag = "fleet",
    params(("id" = String, Path, description = "The workspace's name")),
    responses(
        (status = 204, description = "It is gone"),
        (status = 409, description = "A task holds it or needs it", body = ErrorBody),
    ),
)]
pub(in crate::admin) async fn remove(
    State(app): State<Arc<ControlPlane>>,
    admin: AdminCaller,
    PathName(id): PathName,
) -> Result<StatusCode, ApiError> {
    app.fleet.remove_workspace(&admin.actor, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}
