//! Tenants.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use fairgate_store::{Change, Tenant, TenantPatch};
use http::StatusCode;
use http::header::LOCATION;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::api_error::ApiError;
use super::auth::Admin;
use super::body::Body;
use super::change::{change, made};
use super::limits::LimitsBody;
use super::moment;
use super::name::{self, Name, Object, Whole};
use super::page::{page, page_length};
use super::path::{Named, path_to};
use super::query::{Filter, Params};
use crate::app::App;

/// A tenant: what shares are given to.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = Tenant)]
pub(super) struct TenantBody {
    /// Its name; unique across groups.
    name: String,
    /// The group it belongs to.
    group: String,
    /// Its share within its group.
    weight: u64,
    /// A disabled tenant's keys are refused.
    disabled: bool,
    /// What all its keys together may use.
    limits: LimitsBody,
    /// When it was made.
    #[schema(format = DateTime)]
    created_at: String,
}

/// A page of tenants, by name.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = TenantPage)]
pub(super) struct TenantPage {
    /// The tenants.
    items: Vec<TenantBody>,
    /// What to give as `after` for the next page; null where this is the last.
    next: Option<String>,
}

/// A new tenant.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewTenant)]
pub(super) struct NewTenant {
    /// Its name: letters, digits and `. _ : @ + -`, beginning with a letter or digit.
    #[schema(value_type = String, pattern = "^[A-Za-z0-9][A-Za-z0-9._:@+-]{0,127}$")]
    name: Name,
    /// The group it belongs to, which must exist.
    #[schema(min_length = 1, max_length = 128, pattern = "^[!-~]+$")]
    #[schema(value_type = String)]
    group: name::Word<128>,
    /// Its share within its group.
    #[serde(default = "name::default_weight")]
    #[schema(value_type = u64, minimum = 1, maximum = 1_000_000, default = 100)]
    weight: Whole,
    /// What all its keys together may use.
    #[serde(default)]
    #[schema(value_type = LimitsBody)]
    limits: Object<LimitsBody>,
}

/// What is new about a tenant; what is absent stays.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = TenantPatch)]
pub(super) struct PatchTenant {
    /// The group it belongs to, which must exist.
    #[serde(default, deserialize_with = "name::given")]
    #[schema(value_type = Option<String>, min_length = 1, max_length = 128, pattern = "^[!-~]+$", nullable = false)]
    group: Option<name::Word<128>>,
    /// Its share within its group.
    #[serde(default, deserialize_with = "name::given")]
    #[schema(value_type = Option<u64>, minimum = 1, maximum = 1_000_000, nullable = false)]
    weight: Option<Whole>,
    /// Whether its keys are refused.
    #[serde(default, deserialize_with = "name::given")]
    #[schema(nullable = false)]
    disabled: Option<bool>,
    /// All of its limits: those absent in here are lifted.
    #[serde(default, deserialize_with = "name::given")]
    #[schema(value_type = Option<LimitsBody>, nullable = false)]
    limits: Option<Object<LimitsBody>>,
}

/// Which tenants.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(default, deny_unknown_fields)]
pub(super) struct TenantQuery {
    /// Of this group only.
    #[param(value_type = Option<String>, max_length = 512, nullable = false)]
    group: Option<Filter>,
    /// At most this many (default 100).
    #[param(minimum = 1, maximum = 1000, nullable = false)]
    limit: Option<u32>,
    /// Only what comes after this name: a page's `next`.
    #[param(value_type = Option<String>, max_length = 512, nullable = false)]
    after: Option<Filter>,
}

impl From<&Tenant> for TenantBody {
    fn from(tenant: &Tenant) -> Self {
        Self {
            name: tenant.name.clone(),
            group: tenant.group.clone(),
            weight: tenant.weight,
            disabled: tenant.disabled,
            limits: LimitsBody::from(&tenant.limits),
            created_at: moment::shown(tenant.created_at),
        }
    }
}

/// Lists tenants, by name.
#[utoipa::path(
    get, path = "/api/v1/tenants", tag = "directory", params(TenantQuery),
    responses((status = 200, description = "A page of tenants", body = TenantPage)),
)]
pub(super) async fn list(
    State(app): State<Arc<App>>,
    _: Admin,
    Params(query): Params<TenantQuery>,
) -> Result<Json<TenantPage>, ApiError> {
    let limit = page_length(query.limit)?;
    let directory = app.identity.directory();
    let of_group =
        |tenant: &&Tenant| query.group.as_ref().is_none_or(|group| group.is(&tenant.group));
    let tenants = directory.tenants.iter().filter(of_group);
    let (tenants, next) = page(tenants, |tenant| &tenant.name, query.after.as_ref(), limit);
    Ok(Json(TenantPage { items: tenants.into_iter().map(TenantBody::from).collect(), next }))
}

/// Shows a tenant.
#[utoipa::path(
    get, path = "/api/v1/tenants/{name}", tag = "directory",
    params(("name" = String, Path, description = "The tenant's name")),
    responses((status = 200, description = "The tenant", body = TenantBody)),
)]
pub(super) async fn show(
    State(app): State<Arc<App>>,
    _: Admin,
    Named(name): Named,
) -> Result<Json<TenantBody>, ApiError> {
    let directory = app.identity.directory();
    let tenant = directory.tenants.iter().find(|tenant| tenant.name == name);
    tenant.map(|tenant| Json(tenant.into())).ok_or_else(|| ApiError::not_found("tenant", &name))
}

/// Adds a tenant.
#[utoipa::path(
    post, path = "/api/v1/tenants", tag = "directory", request_body = NewTenant,
    responses(
        (status = 201, description = "The new tenant", body = TenantBody, headers(("location" = String, description = "Its path"))),
        (status = 404, description = "There is no such group", body = super::ErrorBody),
        (status = 409, description = "There is a tenant of that name, or it has a budget in money, and no currency is known", body = super::ErrorBody),
    ),
)]
pub(super) async fn create(
    State(app): State<Arc<App>>,
    admin: Admin,
    Body(new): Body<NewTenant>,
) -> Result<impl IntoResponse, ApiError> {
    let add = Change::AddTenant {
        name: new.name.0,
        group: new.group.0,
        weight: new.weight.0,
        limits: new.limits.into(),
    };
    let tenant = made(change(&app, &admin, add).await?.tenant)?;
    let location = [(LOCATION, path_to("tenants", &tenant.name))];
    Ok((StatusCode::CREATED, location, Json(TenantBody::from(&tenant))))
}

/// Changes a tenant.
#[utoipa::path(
    patch, path = "/api/v1/tenants/{name}", tag = "directory", request_body = PatchTenant,
    params(("name" = String, Path, description = "The tenant's name")),
    responses(
        (status = 200, description = "The tenant as it is now", body = TenantBody),
        (status = 409, description = "It has a budget in money, and no currency is known", body = super::ErrorBody),
    ),
)]
pub(super) async fn patch(
    State(app): State<Arc<App>>,
    admin: Admin,
    Named(name): Named,
    Body(patch): Body<PatchTenant>,
) -> Result<Json<TenantBody>, ApiError> {
    let patch = TenantPatch {
        group: patch.group.map(|group| group.0),
        weight: patch.weight.map(|weight| weight.0),
        disabled: patch.disabled,
        limits: patch.limits.map(Into::into),
    };
    let tenant = made(change(&app, &admin, Change::PatchTenant { name, patch }).await?.tenant)?;
    Ok(Json(TenantBody::from(&tenant)))
}

/// Removes a tenant and its keys. What it used stays in the ledger.
#[utoipa::path(
    delete, path = "/api/v1/tenants/{name}", tag = "directory",
    params(("name" = String, Path, description = "The tenant's name")),
    responses((status = 204, description = "It is gone")),
)]
pub(super) async fn remove(
    State(app): State<Arc<App>>,
    admin: Admin,
    Named(name): Named,
) -> Result<StatusCode, ApiError> {
    change(&app, &admin, Change::RemoveTenant { name }).await?;
    Ok(StatusCode::NO_CONTENT)
}
