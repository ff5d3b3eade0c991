//! Handlers for groups of tenants.

use super::limits::{group_budgets, group_limits};
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use fairgate_api::JsonWholeNumber;
use fairgate_api::admin::GroupLimits;
use fairgate_api::admin::{GroupBody, GroupPage};
use fairgate_core::attribute::Attribute;
use fairgate_store::{DeclaredKind, Directory, DirectoryChange, Group, GroupPatch};
use http::StatusCode;
use http::header::LOCATION;
use serde::Deserialize;
use utoipa::ToSchema;

use super::api_error::ApiError;
use super::auth::AdminCaller;
use super::body::JsonBody;
use super::change::{change, require_result};
use super::declared::declared_in;
use super::name::{self, JsonObject, NewOwnerName};
use super::page::{PageQuery, page, page_length};
use super::path::{PathName, path_to};
use super::query::QueryParams;
use super::weight::check_weight;
use crate::control_plane::ControlPlane;

/// Body of a request that adds a group.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewGroup)]
pub(super) struct NewGroup {
    /// Name of the new group: 1 to 128 letters, digits and `. _ : @ + -`, beginning with a letter or digit.
    #[schema(value_type = String, pattern = "^[A-Za-z0-9][A-Za-z0-9._:@+-]{0,127}$")]
    name: NewOwnerName,
    /// Weight of the group relative to the other groups, 1 to 1 000 000 (default 100).
    #[serde(default, deserialize_with = "name::given")]
    #[schema(value_type = Option<u64>, minimum = 1, maximum = 1_000_000, default = 100, nullable = false)]
    weight: Option<JsonWholeNumber>,
    /// Limits for all tenants of the group together; none if absent.
    #[serde(default)]
    #[schema(value_type = GroupLimits)]
    limits: JsonObject<GroupLimits>,
}

/// Changes to a group; absent fields stay as they are.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = GroupPatch)]
pub(super) struct PatchGroup {
    /// Weight of the group relative to the other groups, 1 to 1 000 000.
    #[serde(default, deserialize_with = "name::given")]
    #[schema(value_type = Option<u64>, minimum = 1, maximum = 1_000_000, nullable = false)]
    weight: Option<JsonWholeNumber>,
    /// The new limits. They replace all old limits, so a limit that is absent here is removed.
    #[serde(default, deserialize_with = "name::given")]
    #[schema(value_type = Option<GroupLimits>, nullable = false)]
    limits: Option<JsonObject<GroupLimits>>,
}

/// Returns a group as the API shows it.
fn group_body(directory: &Directory, group: &Group) -> GroupBody {
    let created_at = fairgate_time::to_rfc3339(group.created_at);
    let limits = group_limits(&group.budgets);
    let declared = declared_in(directory, DeclaredKind::Group, &group.name);
    GroupBody { name: group.name.clone(), weight: group.weight, limits, created_at, declared }
}

/// Lists groups, sorted by name.
#[utoipa::path(
    get, path = "/api/v1/groups", tag = "directory", params(PageQuery),
    responses((status = 200, description = "A page of groups", body = GroupPage)),
)]
pub(super) async fn list(
    State(app): State<Arc<ControlPlane>>,
    _: AdminCaller,
    QueryParams(query): QueryParams<PageQuery>,
) -> Result<Json<GroupPage>, ApiError> {
    let limit = page_length(query.limit)?;
    let directory = app.data.identity.directory();
    let (groups, next) =
        page(directory.groups.iter(), |group| &group.name, query.after.as_ref(), limit);
    Ok(Json(GroupPage {
        items: groups.into_iter().map(|group| group_body(&directory, group)).collect(),
        next,
    }))
}

/// Shows one group by name.
#[utoipa::path(
    get, path = "/api/v1/groups/{name}", tag = "directory",
    params(("name" = String, Path, description = "The group's name")),
    responses((status = 200, description = "The group", body = GroupBody)),
)]
pub(super) async fn show(
    State(app): State<Arc<ControlPlane>>,
    _: AdminCaller,
    PathName(name): PathName,
) -> Result<Json<GroupBody>, ApiError> {
    let directory = app.data.identity.directory();
    let group = directory.groups.iter().find(|group| group.name == name);
    group
        .map(|group| Json(group_body(&directory, group)))
        .ok_or_else(|| ApiError::not_found("group", &name))
}

/// Adds a group to the directory.
#[utoipa::path(
    post, path = "/api/v1/groups", tag = "directory", request_body = NewGroup,
    responses(
        (status = 201, description = "The new group", body = GroupBody, headers(("location" = String, description = "Its path"))),
        (status = 409, description = "There is a group of that name, or it has a budget in money, and no currency is known", body = super::ErrorBody),
    ),
)]
pub(super) async fn create(
    State(app): State<Arc<ControlPlane>>,
    admin: AdminCaller,
    JsonBody(new): JsonBody<NewGroup>,
) -> Result<impl IntoResponse, ApiError> {
    check_weight(&app, Attribute::Group, &new.name.0, new.weight)?;
    let weight = new.weight.unwrap_or_else(name::default_weight).0;
    let add = DirectoryChange::AddGroup {
        name: new.name.0,
        weight,
        budgets: group_budgets(new.limits.0),
    };
    let group = require_result(change(&app, &admin, add).await?.group)?;
    let location = [(LOCATION, path_to("groups", &group.name))];
    Ok((StatusCode::CREATED, location, Json(group_body(&app.data.identity.directory(), &group))))
}

/// Changes a group's weight or limits.
#[utoipa::path(
    patch, path = "/api/v1/groups/{name}", tag = "directory", request_body = PatchGroup,
    params(("name" = String, Path, description = "The group's name")),
    responses(
        (status = 200, description = "The group as it is now", body = GroupBody),
        (status = 409, description = "It has a budget in money, and no currency is known", body = super::ErrorBody),
    ),
)]
pub(super) async fn patch(
    State(app): State<Arc<ControlPlane>>,
    admin: AdminCaller,
    PathName(name): PathName,
    JsonBody(patch): JsonBody<PatchGroup>,
) -> Result<Json<GroupBody>, ApiError> {
    check_weight(&app, Attribute::Group, &name, patch.weight)?;
    let patch = DirectoryChange::PatchGroup {
        name,
        patch: GroupPatch {
            weight: patch.weight.map(|weight| weight.0),
            budgets: patch.limits.map(|limits| group_budgets(limits.0)),
        },
    };
    let group = require_result(change(&app, &admin, patch).await?.group)?;
    Ok(Json(group_body(&app.data.identity.directory(), &group)))
}

/// Removes a group that has no tenants.
#[utoipa::path(
    delete, path = "/api/v1/groups/{name}", tag = "directory",
    params(("name" = String, Path, description = "The group's name")),
    responses(
        (status = 204, description = "It is gone"),
        (status = 409, description = "It has tenants", body = super::ErrorBody),
    ),
)]
pub(super) async fn remove(
    State(app): State<Arc<ControlPlane>>,
    admin: AdminCaller,
    PathName(name): PathName,
) -> Result<StatusCode, ApiError> {
    change(&app, &admin, DirectoryChange::RemoveGroup { name }).await?;
    Ok(StatusCode::NO_CONTENT)
}
