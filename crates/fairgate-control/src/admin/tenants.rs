//! Handlers for tenants of the directory.

use super::limits::{directory_limits, limits_body};
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use fairgate_api::JsonWholeNumber;
use fairgate_api::admin::LimitsBody;
use fairgate_api::admin::{AsciiName, TenantBody, TenantPage};
use fairgate_api::fleet::LabelSchema;
use fairgate_core::attribute::Attribute;
use fairgate_fleet::check_required_labels;
use fairgate_store::{DeclaredKind, Directory, DirectoryChange, Tenant, TenantPatch};
use http::StatusCode;
use http::header::LOCATION;
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use super::api_error::ApiError;
use super::auth::AdminCaller;
use super::body::JsonBody;
use super::change::{change, require_result};
use super::declared::declared_in;
use super::name::{self, JsonObject, NewOwnerName};
use super::page::{page, page_length};
use super::path::{PathName, path_to};
use super::query::{NameFilter, QueryParams};
use super::weight::check_weight;
use crate::control_plane::ControlPlane;

/// Body of a request that adds a tenant.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewTenant)]
pub(super) struct NewTenant {
    /// Name of the new tenant: 1 to 128 letters, digits and `. _ : @ + -`, beginning with a letter or digit.
    #[schema(value_type = String, pattern = "^[A-Za-z0-9][A-Za-z0-9._:@+-]{0,127}$")]
    name: NewOwnerName,
    /// Name of the tenant's group; the group must exist.
    #[schema(min_length = 1, max_length = 128, pattern = "^[!-~]+$")]
    #[schema(value_type = String)]
    group: AsciiName<128>,
    /// Weight of the tenant relative to the other tenants of its group, 1 to 1 000 000 (default 100).
    #[serde(default, deserialize_with = "name::given")]
    #[schema(value_type = Option<u64>, minimum = 1, maximum = 1_000_000, default = 100, nullable = false)]
    weight: Option<JsonWholeNumber>,
    /// Limits for all keys of the tenant together; none if absent.
    #[serde(default)]
    #[schema(value_type = LimitsBody)]
    limits: JsonObject<LimitsBody>,
    /// Labels that an agent must have to work on the tenant's tasks, such as `docker` or `machine:m1`; none if absent.
    #[serde(default)]
    #[schema(value_type = Vec<LabelSchema>, max_items = 32)]
    requires: Vec<String>,
}

/// Changes to a tenant; absent fields stay as they are.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = TenantPatch)]
pub(super) struct PatchTenant {
    /// Name of the tenant's group; the group must exist.
    #[serde(default, deserialize_with = "name::given")]
    #[schema(value_type = Option<String>, min_length = 1, max_length = 128, pattern = "^[!-~]+$", nullable = false)]
    group: Option<AsciiName<128>>,
    /// Weight of the tenant relative to the other tenants of its group, 1 to 1 000 000.
    #[serde(default, deserialize_with = "name::given")]
    #[schema(value_type = Option<u64>, minimum = 1, maximum = 1_000_000, nullable = false)]
    weight: Option<JsonWholeNumber>,
    /// True to refuse all keys of the tenant.
    #[serde(default, deserialize_with = "name::given")]
    #[schema(nullable = false)]
    disabled: Option<bool>,
    /// The new limits. They replace all old limits, so a limit that is absent here is removed.
    #[serde(default, deserialize_with = "name::given")]
    #[schema(value_type = Option<LimitsBody>, nullable = false)]
    limits: Option<JsonObject<LimitsBody>>,
    /// Labels that an agent must have to work on the tenant's tasks; replaces the whole list.
    #[serde(default, deserialize_with = "name::given")]
    #[schema(value_type = Option<Vec<LabelSchema>>, max_items = 32, nullable = false)]
    requires: Option<Vec<String>>,
}

/// Filter and page of the list of tenants.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(default, deny_unknown_fields)]
pub(super) struct TenantQuery {
    /// Returns only the tenants of this group.
    #[param(value_type = Option<String>, max_length = 512, nullable = false)]
    group: Option<NameFilter>,
    /// Maximum number of tenants, 1 to 1000 (default 100).
    #[param(minimum = 1, maximum = 1000, nullable = false)]
    limit: Option<u32>,
    /// Returns only tenants after this name; pass the `next` of the previous page.
    #[param(value_type = Option<String>, max_length = 512, nullable = false)]
    after: Option<NameFilter>,
}

/// Returns a tenant as the API shows it.
fn tenant_body(directory: &Directory, tenant: &Tenant) -> TenantBody {
    TenantBody {
        name: tenant.name.clone(),
        group: tenant.group.clone(),
        weight: tenant.weight,
        disabled: tenant.disabled,
        limits: limits_body(&tenant.limits),
        requires: tenant.requires.clone(),
        created_at: fairgate_time::to_rfc3339(tenant.created_at),
        declared: declared_in(directory, DeclaredKind::Tenant, &tenant.name),
    }
}

/// Lists tenants, sorted by name.
#[utoipa::path(
    get, path = "/api/v1/tenants", tag = "directory", params(TenantQuery),
    responses((status = 200, description = "A page of tenants", body = TenantPage)),
)]
pub(super) async fn list(
    State(app): State<Arc<ControlPlane>>,
    _: AdminCaller,
    QueryParams(query): QueryParams<TenantQuery>,
) -> Result<Json<TenantPage>, ApiError> {
    let limit = page_length(query.limit)?;
    let directory = app.data.identity.directory();
    let of_group =
        |tenant: &&Tenant| query.group.as_ref().is_none_or(|group| group.is(&tenant.group));
    let tenants = directory.tenants.iter().filter(of_group);
    let (tenants, next) = page(tenants, |tenant| &tenant.name, query.after.as_ref(), limit);
    Ok(Json(TenantPage {
        items: tenants.into_iter().map(|tenant| tenant_body(&directory, tenant)).collect(),
        next,
    }))
}

/// Shows one tenant by name.
#[utoipa::path(
    get, path = "/api/v1/tenants/{name}", tag = "directory",
    params(("name" = String, Path, description = "The tenant's name")),
    responses((status = 200, description = "The tenant", body = TenantBody)),
)]
pub(super) async fn show(
    State(app): State<Arc<ControlPlane>>,
    _: AdminCaller,
    PathName(name): PathName,
) -> Result<Json<TenantBody>, ApiError> {
    let directory = app.data.identity.directory();
    let tenant = directory.tenants.iter().find(|tenant| tenant.name == name);
    tenant
        .map(|tenant| Json(tenant_body(&directory, tenant)))
        .ok_or_else(|| ApiError::not_found("tenant", &name))
}

/// Adds a tenant to a group.
#[utoipa::path(
    post, path = "/api/v1/tenants", tag = "directory", request_body = NewTenant,
    responses(
        (status = 201, description = "The new tenant", body = TenantBody, headers(("location" = String, description = "Its path"))),
        (status = 404, description = "There is no such group", body = super::ErrorBody),
        (status = 409, description = "There is a tenant of that name, or it has a budget in money, and no currency is known", body = super::ErrorBody),
    ),
)]
pub(super) async fn create(
    State(app): State<Arc<ControlPlane>>,
    admin: AdminCaller,
    JsonBody(new): JsonBody<NewTenant>,
) -> Result<impl IntoResponse, ApiError> {
    check_weight(&app, Attribute::Tenant, &new.name.0, new.weight)?;
    let add = DirectoryChange::AddTenant {
        name: new.name.0,
        group: new.group.0,
        weight: new.weight.unwrap_or_else(name::default_weight).0,
        limits: directory_limits(new.limits.0),
        requires: check_required_labels(new.requires)?,
    };
    let tenant = require_result(change(&app, &admin, add).await?.tenant)?;
    let location = [(LOCATION, path_to("tenants", &tenant.name))];
    Ok((StatusCode::CREATED, location, Json(tenant_body(&app.data.identity.directory(), &tenant))))
}

/// Changes a tenant's group, weight, limits, state, or the labels that its agents must have.
#[utoipa::path(
    patch, path = "/api/v1/tenants/{name}", tag = "directory", request_body = PatchTenant,
    params(("name" = String, Path, description = "The tenant's name")),
    responses(
        (status = 200, description = "The tenant as it is now", body = TenantBody),
        (status = 409, description = "It has a budget in money, and no currency is known", body = super::ErrorBody),
    ),
)]
pub(super) async fn patch(
    State(app): State<Arc<ControlPlane>>,
    admin: AdminCaller,
    PathName(name): PathName,
    JsonBody(patch): JsonBody<PatchTenant>,
) -> Result<Json<TenantBody>, ApiError> {
    check_weight(&app, Attribute::Tenant, &name, patch.weight)?;
    let patch = TenantPatch {
        group: patch.group.map(|group| group.0),
        weight: patch.weight.map(|weight| weight.0),
        disabled: patch.disabled,
        limits: patch.limits.map(|limits| directory_limits(limits.0)),
        requires: patch.requires.map(check_required_labels).transpose()?,
    };
    let tenant = require_result(
        change(&app, &admin, DirectoryChange::PatchTenant { name, patch }).await?.tenant,
    )?;
    // The tenant's tasks may be able to start now.
    app.fleet.wake();
    Ok(Json(tenant_body(&app.data.identity.directory(), &tenant)))
}

/// Removes a tenant and its keys. The tenant's rows stay in the ledger.
#[utoipa::path(
    delete, path = "/api/v1/tenants/{name}", tag = "directory",
    params(("name" = String, Path, description = "The tenant's name")),
    responses(
        (status = 204, description = "It is gone"),
        (status = 409, description = "It has projects", body = super::ErrorBody),
    ),
)]
pub(super) async fn remove(
    State(app): State<Arc<ControlPlane>>,
    admin: AdminCaller,
    PathName(name): PathName,
) -> Result<StatusCode, ApiError> {
    change(&app, &admin, DirectoryChange::RemoveTenant { name }).await?;
    Ok(StatusCode::NO_CONTENT)
}
