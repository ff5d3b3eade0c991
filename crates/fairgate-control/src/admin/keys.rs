//! Handlers for keys. A key is never removed, because the ledger refers to it; it is revoked instead.

use super::limits::{directory_limits, limits_body};
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use fairgate_api::JsonWholeNumber;
use fairgate_api::WeightNumber;
use fairgate_api::admin::AsciiName;
use fairgate_api::admin::LimitsBody;
use fairgate_api::admin::{
    ClassNameSchema, KeyBody, KeyPage, KeyWithSecret, ModelNameSchema, TaintNameSchema,
    WorkerNameSchema,
};
use fairgate_core::attribute::Attribute;
use fairgate_store::{
    DeclaredKind, Directory, DirectoryChange, DirectoryChangeResult, Key, KeyPatch, KeyRights,
    RightsPatch, UnixMicros,
};
use http::StatusCode;
use http::header::{CACHE_CONTROL, LOCATION};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use super::api_error::ApiError;
use super::auth::AdminCaller;
use super::body::JsonBody;
use super::change::{change, require_result};
use super::declared::declared_in;
use super::moment;
use super::name::{self, JsonObject, KeyLabel};
use super::page::{page, page_length};
use super::path::{PathName, path_to};
use super::query::{NameFilter, QueryParams};
use super::weight::check_weight;
use crate::control_plane::ControlPlane;

/// Maximum number of models, classes, workers or taints in one list of a key.
const LONGEST_LIST: usize = 256;

/// Body of a request that creates a key.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewKey)]
pub(super) struct NewKey {
    /// Name of the tenant that owns the key; the tenant must exist.
    #[schema(value_type = String, min_length = 1, max_length = 128, pattern = "^[!-~]+$")]
    tenant: AsciiName<128>,
    /// Name that the owner gives the key: up to 128 ASCII characters, or up to 32 characters of any kind.
    #[serde(default)]
    #[schema(value_type = String, pattern = "^(?:[ -~]{0,128}|[^\\x00-\\x1f\\x7f-\\x9f]{0,32})$", default = "")]
    name: KeyLabel,
    /// Weight of the key relative to the tenant's other keys, 1 to 1 000 000 (default 100).
    #[serde(default = "name::default_weight")]
    #[schema(value_type = u64, minimum = 1, maximum = 1_000_000, default = 100)]
    weight: JsonWholeNumber,
    /// Limits for this key alone; none if absent.
    #[serde(default)]
    #[schema(value_type = LimitsBody)]
    limits: JsonObject<LimitsBody>,
    /// Models that the key may use, and patterns such as `gpt-*` with a `*` at the end for any ending; null means all.
    #[serde(default)]
    #[schema(value_type = Option<Vec<ModelNameSchema>>, max_items = 256)]
    models: Option<Vec<AsciiName<256>>>,
    /// Policy classes and families that requests of the key may name. A request that names none gets the first one of
    /// the list. Null means all classes of the policy, or only the default class if the classes have a strict order
    /// (`bands`). An empty list means only the default class.
    #[serde(default = "no_names")]
    #[schema(value_type = Option<Vec<ClassNameSchema>>, max_items = 256, default = json!([]))]
    classes: Option<Vec<AsciiName<128>>>,
    /// Highest priority that requests of the key may ask for. Lower priorities are always allowed.
    #[serde(default = "no_priority")]
    #[schema(value_type = i64, minimum = 0, maximum = 2_147_483_647, default = 0)]
    priority_max: JsonWholeNumber,
    /// Highest weight that requests of the key may state for a `load` node; null means the weight of their model.
    #[serde(default)]
    #[schema(value_type = Option<f64>, minimum = 0.001, maximum = 1_000_000, multiple_of = 0.001)]
    weight_max: Option<WeightNumber>,
    /// Workers that requests of the key may go to; null means all.
    #[serde(default)]
    #[schema(value_type = Option<Vec<WorkerNameSchema>>, max_items = 256)]
    workers: Option<Vec<AsciiName<128>>>,
    /// True if the key may choose the worker for a request, or a list of workers.
    #[serde(default)]
    may_pin: bool,
    /// True if the key may open leases.
    #[serde(default)]
    may_lease: bool,
    /// True if requests may name files, vector stores, containers and stored prompts of the upstream's account.
    #[serde(default)]
    may_use_foreign_ids: bool,
    /// Taints that the key may require of a worker; null means all.
    #[serde(default = "no_names")]
    #[schema(value_type = Option<Vec<TaintNameSchema>>, max_items = 256, default = json!([]))]
    taints: Option<Vec<AsciiName<128>>>,
    /// Default deadline of the key's requests, in milliseconds; null means the deadline of the request's class.
    #[serde(default)]
    #[schema(value_type = Option<u64>, minimum = 1, maximum = 86_400_000)]
    deadline_ms: Option<JsonWholeNumber>,
    /// Shortest deadline that a request may state in an `edf` queue, in milliseconds. Null means
    /// the shorter of the deadlines of the request's key and class, or the pool's `queue_timeout`
    /// if neither has a deadline.
    #[serde(default)]
    #[schema(value_type = Option<u64>, minimum = 1, maximum = 86_400_000)]
    deadline_min_ms: Option<JsonWholeNumber>,
    /// Time from which the key is refused; this time must be in the future. Null means never.
    #[serde(default, deserialize_with = "moment::optional")]
    #[schema(value_type = Option<String>, format = DateTime)]
    expires_at: Option<UnixMicros>,
}

/// Changes to a key; absent fields stay as they are.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = KeyPatch)]
pub(super) struct PatchKey {
    /// Name that the owner gives the key: up to 128 ASCII characters, or up to 32 characters of any kind.
    #[serde(default, deserialize_with = "name::given")]
    #[schema(value_type = Option<String>, pattern = "^(?:[ -~]{0,128}|[^\\x00-\\x1f\\x7f-\\x9f]{0,32})$", nullable = false)]
    name: Option<KeyLabel>,
    /// Weight of the key relative to the tenant's other keys, 1 to 1 000 000.
    #[serde(default, deserialize_with = "name::given")]
    #[schema(value_type = Option<u64>, minimum = 1, maximum = 1_000_000, nullable = false)]
    weight: Option<JsonWholeNumber>,
    /// The new limits. They replace all old limits, so a limit that is absent here is removed.
    #[serde(default, deserialize_with = "name::given")]
    #[schema(value_type = Option<LimitsBody>, nullable = false)]
    limits: Option<JsonObject<LimitsBody>>,
    /// Models that the key may use, and patterns such as `gpt-*` with a `*` at the end for any ending; null means all.
    #[serde(default, deserialize_with = "name::given")]
    #[schema(value_type = Option<Vec<ModelNameSchema>>, max_items = 256)]
    models: Option<Option<Vec<AsciiName<256>>>>,
    /// Policy classes and families that requests of the key may name. A request that names none gets the first one of
    /// the list. Null means all classes of the policy, or only the default class if the classes have a strict order
    /// (`bands`). An empty list means only the default class.
    #[serde(default, deserialize_with = "name::given")]
    #[schema(value_type = Option<Vec<ClassNameSchema>>, max_items = 256)]
    classes: Option<Option<Vec<AsciiName<128>>>>,
    /// Highest priority that requests of the key may ask for. Lower priorities are always allowed.
    #[serde(default, deserialize_with = "name::given")]
    #[schema(value_type = Option<i64>, minimum = 0, maximum = 2_147_483_647, nullable = false)]
    priority_max: Option<JsonWholeNumber>,
    /// Highest weight that requests of the key may state for a `load` node; null means the weight of their model.
    #[serde(default, deserialize_with = "name::given")]
    #[schema(value_type = Option<f64>, minimum = 0.001, maximum = 1_000_000, multiple_of = 0.001)]
    weight_max: Option<Option<WeightNumber>>,
    /// Workers that requests of the key may go to; null means all.
    #[serde(default, deserialize_with = "name::given")]
    #[schema(value_type = Option<Vec<WorkerNameSchema>>, max_items = 256)]
    workers: Option<Option<Vec<AsciiName<128>>>>,
    /// True if the key may choose the worker for a request, or a list of workers.
    #[serde(default, deserialize_with = "name::given")]
    #[schema(value_type = Option<bool>, nullable = false)]
    may_pin: Option<bool>,
    /// True if the key may open leases.
    #[serde(default, deserialize_with = "name::given")]
    #[schema(value_type = Option<bool>, nullable = false)]
    may_lease: Option<bool>,
    /// True if requests may name files, vector stores, containers and stored prompts of the upstream's account.
    #[serde(default, deserialize_with = "name::given")]
    #[schema(value_type = Option<bool>, nullable = false)]
    may_use_foreign_ids: Option<bool>,
    /// Taints that the key may require of a worker; null means all.
    #[serde(default, deserialize_with = "name::given")]
    #[schema(value_type = Option<Vec<TaintNameSchema>>, max_items = 256)]
    taints: Option<Option<Vec<AsciiName<128>>>>,
    /// Default deadline of the key's requests, in milliseconds; null means the deadline of the request's class.
    #[serde(default, deserialize_with = "name::given")]
    #[schema(value_type = Option<u64>, minimum = 1, maximum = 86_400_000)]
    deadline_ms: Option<Option<JsonWholeNumber>>,
    /// Shortest deadline that a request may state in an `edf` queue, in milliseconds. Null means
    /// the shorter of the deadlines of the request's key and class, or the pool's `queue_timeout`
    /// if neither has a deadline.
    #[serde(default, deserialize_with = "name::given")]
    #[schema(value_type = Option<u64>, minimum = 1, maximum = 86_400_000)]
    deadline_min_ms: Option<Option<JsonWholeNumber>>,
    /// Time from which the key is refused; this time must be in the future. Null means never.
    #[serde(default, deserialize_with = "moment::given")]
    #[schema(value_type = Option<String>, format = DateTime)]
    expires_at: Option<Option<UnixMicros>>,
}

fn no_priority() -> JsonWholeNumber {
    JsonWholeNumber(0)
}

fn no_names() -> Option<Vec<AsciiName<128>>> {
    Some(Vec::new())
}

/// Filter and page of the list of keys.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(default, deny_unknown_fields)]
pub(super) struct KeyQuery {
    /// Returns only the keys of this tenant.
    #[param(value_type = Option<String>, max_length = 512, nullable = false)]
    tenant: Option<NameFilter>,
    /// Maximum number of keys, 1 to 1000 (default 100).
    #[param(minimum = 1, maximum = 1000, nullable = false)]
    limit: Option<u32>,
    /// Returns only keys after this id; pass the `next` of the previous page.
    #[param(value_type = Option<String>, max_length = 512, nullable = false)]
    after: Option<NameFilter>,
}

/// Returns a key as the API shows it.
fn key_body(directory: &Directory, key: &Key, last_used_at: Option<UnixMicros>) -> KeyBody {
    KeyBody {
        declared: declared_in(directory, DeclaredKind::Key, &key.id),
        last_used_at: last_used_at.map(fairgate_time::to_rfc3339),
        id: key.id.clone(),
        tenant: key.tenant.clone(),
        name: key.name.clone(),
        hint: key.hint.clone(),
        weight: key.weight,
        limits: limits_body(&key.limits),
        rights: fairgate_fleet::rights_body(&key.rights),
        created_at: fairgate_time::to_rfc3339(key.created_at),
        expires_at: key.expires_at.map(fairgate_time::to_rfc3339),
        revoked_at: key.revoked_at.map(fairgate_time::to_rfc3339),
    }
}

/// Lists keys, sorted by id.
#[utoipa::path(
    get, path = "/api/v1/keys", tag = "directory", params(KeyQuery),
    responses((status = 200, description = "A page of keys", body = KeyPage)),
)]
pub(super) async fn list(
    State(app): State<Arc<ControlPlane>>,
    _: AdminCaller,
    QueryParams(query): QueryParams<KeyQuery>,
) -> Result<Json<KeyPage>, ApiError> {
    let limit = page_length(query.limit)?;
    let directory = app.data.identity.directory();
    let of_tenant = |key: &&Key| query.tenant.as_ref().is_none_or(|tenant| tenant.is(&key.tenant));
    let keys = directory.keys.iter().filter(of_tenant);
    let (keys, next) = page(keys, |key| &key.id, query.after.as_ref(), limit);
    Ok(Json(KeyPage { items: bodies(&app, &keys).await?, next }))
}

/// Shows one key by its id.
#[utoipa::path(
    get, path = "/api/v1/keys/{id}", tag = "directory",
    params(("id" = String, Path, description = "The key's id")),
    responses((status = 200, description = "The key", body = KeyBody)),
)]
pub(super) async fn show(
    State(app): State<Arc<ControlPlane>>,
    _: AdminCaller,
    PathName(id): PathName,
) -> Result<Json<KeyBody>, ApiError> {
    let directory = app.data.identity.directory();
    let key = directory.keys.iter().find(|key| key.id == id);
    let key = key.ok_or_else(|| ApiError::not_found("key", &id))?;
    body(&app, key).await.map(Json)
}

/// Returns the bodies of keys, in the same order.
async fn bodies(app: &ControlPlane, keys: &[&Key]) -> Result<Vec<KeyBody>, ApiError> {
    let ids = keys.iter().map(|key| key.id.clone()).collect();
    let uses = app.data.store.key_uses(ids).await?;
    let directory = app.data.identity.directory();
    Ok(keys.iter().map(|key| key_body(&directory, key, uses.get(&key.id).copied())).collect())
}

async fn body(app: &ControlPlane, key: &Key) -> Result<KeyBody, ApiError> {
    let uses = app.data.store.key_uses(vec![key.id.clone()]).await?;
    Ok(key_body(&app.data.identity.directory(), key, uses.get(&key.id).copied()))
}

/// Creates a key and returns its secret.
///
/// The secret is only in this response; it cannot be shown again.
#[utoipa::path(
    post, path = "/api/v1/keys", tag = "directory", request_body = NewKey,
    responses(
        (status = 201, description = "The new key with its secret", body = KeyWithSecret, headers(("location" = String, description = "Its path"))),
        (status = 404, description = "There is no such tenant", body = super::ErrorBody),
        (status = 409, description = "Its expiry has passed, or it has a budget in money, and no currency is known", body = super::ErrorBody),
    ),
)]
pub(super) async fn create(
    State(app): State<Arc<ControlPlane>>,
    admin: AdminCaller,
    JsonBody(new): JsonBody<NewKey>,
) -> Result<impl IntoResponse, ApiError> {
    let create = DirectoryChange::CreateKey {
        tenant: new.tenant.0,
        name: new.name.0,
        weight: new.weight.0,
        limits: directory_limits(new.limits.0),
        rights: KeyRights {
            models: words_or_all("models", new.models)?,
            classes: words_or_all("classes", new.classes)?,
            priority_max: priority_as_i64(new.priority_max),
            weight_max_milli: new.weight_max.map(|weight| weight.thousandths().into()),
            workers: words_or_all("workers", new.workers)?,
            may_pin: new.may_pin,
            may_lease: new.may_lease,
            may_use_foreign_ids: new.may_use_foreign_ids,
            taints: words_or_all("taints", new.taints)?,
            deadline_ms: new.deadline_ms.map(|millis| millis.0),
            deadline_min_ms: new.deadline_min_ms.map(|millis| millis.0),
        },
        expires_at: new.expires_at,
    };
    let made = with_secret(&app, change(&app, &admin, create).await?).await?;
    let headers =
        [(LOCATION, path_to("keys", &made.key.id)), (CACHE_CONTROL, "no-store".to_owned())];
    Ok((StatusCode::CREATED, headers, Json(made)))
}

/// Changes a key's name, weight, limits, rights or expiry.
#[utoipa::path(
    patch, path = "/api/v1/keys/{id}", tag = "directory", request_body = PatchKey,
    params(("id" = String, Path, description = "The key's id")),
    responses(
        (status = 200, description = "The key as it is now", body = KeyBody),
        (status = 409, description = "Its expiry has passed, or it has a budget in money, and no currency is known", body = super::ErrorBody),
    ),
)]
pub(super) async fn patch(
    State(app): State<Arc<ControlPlane>>,
    admin: AdminCaller,
    PathName(id): PathName,
    JsonBody(patch): JsonBody<PatchKey>,
) -> Result<Json<KeyBody>, ApiError> {
    check_weight(&app, Attribute::Key, &id, patch.weight)?;
    let patch = KeyPatch {
        name: patch.name.map(|name| name.0),
        weight: patch.weight.map(|weight| weight.0),
        limits: patch.limits.map(|limits| directory_limits(limits.0)),
        rights: RightsPatch {
            models: patch.models.map(|list| words_or_all("models", list)).transpose()?,
            classes: patch.classes.map(|list| words_or_all("classes", list)).transpose()?,
            priority_max: patch.priority_max.map(priority_as_i64),
            weight_max_milli: patch
                .weight_max
                .map(|most| most.map(|weight| weight.thousandths().into())),
            workers: patch.workers.map(|list| words_or_all("workers", list)).transpose()?,
            may_pin: patch.may_pin,
            may_lease: patch.may_lease,
            may_use_foreign_ids: patch.may_use_foreign_ids,
            taints: patch.taints.map(|list| words_or_all("taints", list)).transpose()?,
            deadline_ms: patch.deadline_ms.map(|given| given.map(|millis| millis.0)),
            deadline_min_ms: patch.deadline_min_ms.map(|given| given.map(|millis| millis.0)),
        },
        expires_at: patch.expires_at,
    };
    let key =
        require_result(change(&app, &admin, DirectoryChange::PatchKey { id, patch }).await?.key)?;
    body(&app, &key).await.map(Json)
}

/// Gives a key a new secret under the same id. The old secret is refused at once.
#[utoipa::path(
    post, path = "/api/v1/keys/{id}/rotate", tag = "directory",
    params(("id" = String, Path, description = "The key's id")),
    responses(
        (status = 200, description = "The key with its new secret", body = KeyWithSecret),
        (status = 409, description = "It was revoked", body = super::ErrorBody),
    ),
)]
pub(super) async fn rotate(
    State(app): State<Arc<ControlPlane>>,
    admin: AdminCaller,
    PathName(id): PathName,
) -> Result<impl IntoResponse, ApiError> {
    let changed = change(&app, &admin, DirectoryChange::RotateKey { id }).await?;
    let made = with_secret(&app, changed).await?;
    Ok(([(CACHE_CONTROL, "no-store")], Json(made)))
}

/// Revokes a key.
///
/// The key is refused from now on; its requests in flight continue. Revoking a key again changes nothing.
#[utoipa::path(
    post, path = "/api/v1/keys/{id}/revoke", tag = "directory",
    params(("id" = String, Path, description = "The key's id")),
    responses((status = 200, description = "The key as it is now", body = KeyBody)),
)]
pub(super) async fn revoke(
    State(app): State<Arc<ControlPlane>>,
    admin: AdminCaller,
    PathName(id): PathName,
) -> Result<Json<KeyBody>, ApiError> {
    let key = require_result(change(&app, &admin, DirectoryChange::RevokeKey { id }).await?.key)?;
    body(&app, &key).await.map(Json)
}

/// Returns a key with its new secret. If the time of the key's last use cannot be read, that time
/// is null. An error instead would lose the secret, which is shown only once.
async fn with_secret(
    app: &ControlPlane,
    changed: DirectoryChangeResult,
) -> Result<KeyWithSecret, ApiError> {
    let (key, secret) = (require_result(changed.key)?, require_result(changed.secret)?);
    let uses = app.data.store.key_uses(vec![key.id.clone()]).await.unwrap_or_default();
    let key = key_body(&app.data.identity.directory(), &key, uses.get(&key.id).copied());
    Ok(KeyWithSecret { key, secret: secret.expose().to_owned() })
}

/// Converts a priority to the store's type. A priority that does not fit becomes the greatest number of that type,
/// which the store then refuses.
fn priority_as_i64(priority: JsonWholeNumber) -> i64 {
    i64::try_from(priority.0).unwrap_or(i64::MAX)
}

fn words_or_all<const MOST: usize>(
    field: &str,
    words: Option<Vec<AsciiName<MOST>>>,
) -> Result<Option<Vec<String>>, ApiError> {
    let Some(words) = words else { return Ok(None) };
    if words.len() <= LONGEST_LIST {
        return Ok(Some(words.into_iter().map(|word| word.0).collect()));
    }
    let message = format!("{field} may have {LONGEST_LIST} entries and has {}", words.len());
    let status = StatusCode::UNPROCESSABLE_ENTITY;
    Err(ApiError::new(status, "invalid_value", message).in_field(field))
}
