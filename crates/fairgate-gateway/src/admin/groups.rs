//! Groups.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use fairgate_store::{Change, Group, GroupPatch};
use http::StatusCode;
use http::header::LOCATION;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::api_error::ApiError;
use super::auth::Admin;
use super::body::Body;
use super::change::{change, made};
use super::limits::GroupLimits;
use super::moment;
use super::name::{self, Name, Object, Whole};
use super::page::{PageQuery, page, page_length};
use super::path::{Named, path_to};
use super::query::Params;
use crate::app::App;

/// A group of tenants, which share what the group gets.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = Group)]
pub(super) struct GroupBody {
    /// Its name.
    name: String,
    /// Its share among groups.
    weight: u64,
    /// What all its tenants together may use.
    limits: GroupLimits,
    /// When it was made.
    #[schema(format = DateTime)]
    created_at: String,
}

/// A page of groups, by name.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = GroupPage)]
pub(super) struct GroupPage {
    /// The groups.
    items: Vec<GroupBody>,
    /// What to give as `after` for the next page; null where this is the last.
    next: Option<String>,
}

/// A new group.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewGroup)]
pub(super) struct NewGroup {
    /// Its name: letters, digits and `. _ : @ + -`, beginning with a letter or digit.
    #[schema(value_type = String, pattern = "^[A-Za-z0-9][A-Za-z0-9._:@+-]{0,127}$")]
    name: Name,
    /// Its share among groups.
    #[serde(default = "name::default_weight")]
    #[schema(value_type = u64, minimum = 1, maximum = 1_000_000, default = 100)]
    weight: Whole,
    /// What all its tenants together may use.
    #[serde(default)]
    #[schema(value_type = GroupLimits)]
    limits: Object<GroupLimits>,
}

/// What is new about a group; what is absent stays.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = GroupPatch)]
pub(super) struct PatchGroup {
    /// Its share among groups.
    #[serde(default, deserialize_with = "name::given")]
    #[schema(value_type = Option<u64>, minimum = 1, maximum = 1_000_000, nullable = false)]
    weight: Option<Whole>,
    /// All of its limits: those absent in here are lifted.
    #[serde(default, deserialize_with = "name::given")]
    #[schema(value_type = Option<GroupLimits>, nullable = false)]
    limits: Option<Object<GroupLimits>>,
}

impl From<&Group> for GroupBody {
    fn from(group: &Group) -> Self {
        let created_at = moment::shown(group.created_at);
        let limits = GroupLimits::from(group.budgets.as_slice());
        Self { name: group.name.clone(), weight: group.weight, limits, created_at }
    }
}

/// Lists groups, by name.
#[utoipa::path(
    get, path = "/api/v1/groups", tag = "directory", params(PageQuery),
    responses((status = 200, description = "A page of groups", body = GroupPage)),
)]
pub(super) async fn list(
    State(app): State<Arc<App>>,
    _: Admin,
    Params(query): Params<PageQuery>,
) -> Result<Json<GroupPage>, ApiError> {
    let limit = page_length(query.limit)?;
    let directory = app.identity.directory();
    let (groups, next) =
        page(directory.groups.iter(), |group| &group.name, query.after.as_ref(), limit);
    Ok(Json(GroupPage { items: groups.into_iter().map(GroupBody::from).collect(), next }))
}

/// Shows a group.
#[utoipa::path(
    get, path = "/api/v1/groups/{name}", tag = "directory",
    params(("name" = String, Path, description = "The group's name")),
    responses((status = 200, description = "The group", body = GroupBody)),
)]
pub(super) async fn show(
    State(app): State<Arc<App>>,
    _: Admin,
    Named(name): Named,
) -> Result<Json<GroupBody>, ApiError> {
    let directory = app.identity.directory();
    let group = directory.groups.iter().find(|group| group.name == name);
    group.map(|group| Json(group.into())).ok_or_else(|| ApiError::not_found("group", &name))
}

/// Adds a group.
#[utoipa::path(
    post, path = "/api/v1/groups", tag = "directory", request_body = NewGroup,
    responses(
        (status = 201, description = "The new group", body = GroupBody, headers(("location" = String, description = "Its path"))),
        (status = 409, description = "There is a group of that name, or it has a budget in money, and no currency is known", body = super::ErrorBody),
    ),
)]
pub(super) async fn create(
    State(app): State<Arc<App>>,
    admin: Admin,
    Body(new): Body<NewGroup>,
) -> Result<impl IntoResponse, ApiError> {
    let budgets = new.limits.0.into();
    let add = Change::AddGroup { name: new.name.0, weight: new.weight.0, budgets };
    let group = made(change(&app, &admin, add).await?.group)?;
    let location = [(LOCATION, path_to("groups", &group.name))];
    Ok((StatusCode::CREATED, location, Json(GroupBody::from(&group))))
}

/// Changes a group.
#[utoipa::path(
    patch, path = "/api/v1/groups/{name}", tag = "directory", request_body = PatchGroup,
    params(("name" = String, Path, description = "The group's name")),
    responses(
        (status = 200, description = "The group as it is now", body = GroupBody),
        (status = 409, description = "It has a budget in money, and no currency is known", body = super::ErrorBody),
    ),
)]
pub(super) async fn patch(
    State(app): State<Arc<App>>,
    admin: Admin,
    Named(name): Named,
    Body(patch): Body<PatchGroup>,
) -> Result<Json<GroupBody>, ApiError> {
    let patch = Change::PatchGroup {
        name,
        patch: GroupPatch {
            weight: patch.weight.map(|weight| weight.0),
            budgets: patch.limits.map(|limits| limits.0.into()),
        },
    };
    let group = made(change(&app, &admin, patch).await?.group)?;
    Ok(Json(GroupBody::from(&group)))
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
    State(app): State<Arc<App>>,
    admin: Admin,
    Named(name): Named,
) -> Result<StatusCode, ApiError> {
    change(&app, &admin, Change::RemoveGroup { name }).await?;
    Ok(StatusCode::NO_CONTENT)
}
