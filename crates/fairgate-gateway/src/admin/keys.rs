//! Keys. A key is never removed, for the ledger names it: it is revoked.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use fairgate_store::{AllowedTaints, Change, Changed, Key, KeyPatch, Rights, UnixMicros};
use http::StatusCode;
use http::header::{CACHE_CONTROL, LOCATION};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::api_error::ApiError;
use super::auth::Admin;
use super::body::Body;
use super::change::{change, made};
use super::limits::LimitsBody;
use super::moment;
use super::name::{self, Label, Object, Whole, Word};
use super::page::{page, page_length};
use super::path::{Named, path_to};
use super::query::{Filter, Params};
use crate::app::App;

/// How many models, classes or taints a key may name.
const LONGEST_LIST: usize = 256;

/// A key of a tenant. Its secret is nowhere.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = Key)]
pub(super) struct KeyBody {
    /// Names the key in journals, the ledger and this API; it is no secret.
    id: String,
    /// Its tenant.
    tenant: String,
    /// What its owner calls it; may be empty.
    name: String,
    /// The first characters of the secret.
    hint: String,
    /// Its share within its tenant.
    weight: u64,
    /// What this key alone may use.
    limits: LimitsBody,
    /// The models that it may ask for; null is all.
    models: Option<Vec<String>>,
    #[serde(flatten)]
    rights: RightsBody,
    /// When it was made.
    #[schema(format = DateTime)]
    created_at: String,
    /// From when on it is refused; null is never.
    #[schema(format = DateTime)]
    expires_at: Option<String>,
    /// When it was revoked; null where it was not.
    #[schema(format = DateTime)]
    revoked_at: Option<String>,
}

/// What a key may choose for its requests.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = Rights)]
pub(super) struct RightsBody {
    /// The policy classes and families that it may name; the first is used where a request names none. Null is all that the
    /// policy has, an empty list the policy's default only.
    classes: Option<Vec<String>>,
    /// The highest priority that it may ask for.
    priority_max: i64,
    /// Whether it may say which worker takes a request.
    may_pin: bool,
    /// The taints that it may require of a worker; null is all.
    taints: Option<Vec<String>>,
}

/// A key with its new secret.
#[derive(Clone, Serialize, ToSchema)]
#[schema(as = KeyWithSecret)]
pub(super) struct KeyWithSecret {
    /// The key.
    key: KeyBody,
    /// What its owner sends. It is shown here and never again.
    secret: String,
}

/// A page of keys, by id.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = KeyPage)]
pub(super) struct KeyPage {
    /// The keys, revoked and expired ones included.
    items: Vec<KeyBody>,
    /// What to give as `after` for the next page; null where this is the last.
    next: Option<String>,
}

/// A new key.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewKey)]
pub(super) struct NewKey {
    /// Its tenant, which must exist.
    #[schema(value_type = String, min_length = 1, max_length = 128, pattern = "^[!-~]+$")]
    tenant: Word<128>,
    /// What its owner calls it: up to 128 ASCII characters, or up to 32 of any kind.
    #[serde(default)]
    #[schema(value_type = String, pattern = "^(?:[ -~]{0,128}|[^\\x00-\\x1f\\x7f-\\x9f]{0,32})$", default = "")]
    name: Label,
    /// Its share within its tenant.
    #[serde(default = "name::default_weight")]
    #[schema(value_type = u64, minimum = 1, maximum = 1_000_000, default = 100)]
    weight: Whole,
    /// What this key alone may use.
    #[serde(default)]
    #[schema(value_type = LimitsBody)]
    limits: Object<LimitsBody>,
    /// The models that it may ask for; null is all.
    #[serde(default)]
    #[schema(value_type = Option<Vec<ModelName>>, max_items = 256)]
    models: Option<Vec<Word<256>>>,
    /// The policy classes and families that it may name; the first is used where a request names none. Null is all that the
    /// policy has, an empty list the policy's default only.
    #[serde(default)]
    #[schema(value_type = Option<Vec<ClassName>>, max_items = 256)]
    classes: Option<Vec<Word<128>>>,
    /// The highest priority that it may ask for. Lower ones are always allowed.
    #[serde(default = "no_priority")]
    #[schema(value_type = i64, minimum = 0, maximum = 2_147_483_647, default = 0)]
    priority_max: Whole,
    /// Whether it may say which worker takes a request.
    #[serde(default)]
    may_pin: bool,
    /// The taints that it may require of a worker; null is all.
    #[serde(default = "no_taints")]
    #[schema(value_type = Option<Vec<TaintName>>, max_items = 256, default = json!([]))]
    taints: Option<Vec<Word<128>>>,
    /// From when on it is refused, which must be to come; null is never.
    #[serde(default, deserialize_with = "moment::optional")]
    #[schema(value_type = Option<String>, format = DateTime)]
    expires_at: Option<UnixMicros>,
}

/// What is new about a key; what is absent stays.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = KeyPatch)]
pub(super) struct PatchKey {
    /// What its owner calls it: up to 128 ASCII characters, or up to 32 of any kind.
    #[serde(default, deserialize_with = "name::given")]
    #[schema(value_type = Option<String>, pattern = "^(?:[ -~]{0,128}|[^\\x00-\\x1f\\x7f-\\x9f]{0,32})$", nullable = false)]
    name: Option<Label>,
    /// Its share within its tenant.
    #[serde(default, deserialize_with = "name::given")]
    #[schema(value_type = Option<u64>, minimum = 1, maximum = 1_000_000, nullable = false)]
    weight: Option<Whole>,
    /// All of its limits: those absent in here are lifted.
    #[serde(default, deserialize_with = "name::given")]
    #[schema(value_type = Option<LimitsBody>, nullable = false)]
    limits: Option<Object<LimitsBody>>,
    /// The models that it may ask for; null is all.
    #[serde(default, deserialize_with = "name::given")]
    #[schema(value_type = Option<Vec<ModelName>>, max_items = 256)]
    models: Option<Option<Vec<Word<256>>>>,
    /// The policy classes and families that it may name; the first is used where a request names none. Null is all that the
    /// policy has, an empty list the policy's default only.
    #[serde(default, deserialize_with = "name::given")]
    #[schema(value_type = Option<Vec<ClassName>>, max_items = 256)]
    classes: Option<Option<Vec<Word<128>>>>,
    /// The highest priority that it may ask for. Lower ones are always allowed.
    #[serde(default, deserialize_with = "name::given")]
    #[schema(value_type = Option<i64>, minimum = 0, maximum = 2_147_483_647, nullable = false)]
    priority_max: Option<Whole>,
    /// Whether it may say which worker takes a request.
    #[serde(default, deserialize_with = "name::given")]
    #[schema(value_type = Option<bool>, nullable = false)]
    may_pin: Option<bool>,
    /// The taints that it may require of a worker; null is all.
    #[serde(default, deserialize_with = "name::given")]
    #[schema(value_type = Option<Vec<TaintName>>, max_items = 256)]
    taints: Option<Option<Vec<Word<128>>>>,
    /// From when on it is refused, which must be to come; null is never.
    #[serde(default, deserialize_with = "moment::given")]
    #[schema(value_type = Option<String>, format = DateTime)]
    expires_at: Option<Option<UnixMicros>>,
}

/// A model, as clients name it.
#[derive(ToSchema)]
#[schema(as = ModelName, value_type = String, pattern = "^[!-~]{1,256}$")]
#[allow(dead_code, reason = "only its schema is used")]
pub(super) struct ModelName(String);

fn no_priority() -> Whole {
    Whole(0)
}

fn no_taints() -> Option<Vec<Word<128>>> {
    Some(Vec::new())
}

/// A taint of workers.
#[derive(ToSchema)]
#[schema(as = TaintName, value_type = String, pattern = "^[!-~]{1,128}$")]
#[allow(dead_code, reason = "only its schema is used")]
pub(super) struct TaintName(String);

/// A policy class or family.
#[derive(ToSchema)]
#[schema(as = ClassName, value_type = String, pattern = "^[!-~]{1,128}$")]
#[allow(dead_code, reason = "only its schema is used")]
pub(super) struct ClassName(String);

/// Which keys.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(default, deny_unknown_fields)]
pub(super) struct KeyQuery {
    /// Of this tenant only.
    #[param(value_type = Option<String>, max_length = 512, nullable = false)]
    tenant: Option<Filter>,
    /// At most this many (default 100).
    #[param(minimum = 1, maximum = 1000, nullable = false)]
    limit: Option<u32>,
    /// Only what comes after this id: a page's `next`.
    #[param(value_type = Option<String>, max_length = 512, nullable = false)]
    after: Option<Filter>,
}

impl From<&Rights> for RightsBody {
    fn from(rights: &Rights) -> Self {
        let Rights { classes, priority_max, may_pin, taints } = rights.clone();
        Self { classes, priority_max, may_pin, taints: taints.0 }
    }
}

impl From<&Key> for KeyBody {
    fn from(key: &Key) -> Self {
        Self {
            id: key.id.clone(),
            tenant: key.tenant.clone(),
            name: key.name.clone(),
            hint: key.hint.clone(),
            weight: key.weight,
            limits: LimitsBody::from(&key.limits),
            models: key.models.clone(),
            rights: RightsBody::from(&key.rights),
            created_at: moment::shown(key.created_at),
            expires_at: key.expires_at.map(moment::shown),
            revoked_at: key.revoked_at.map(moment::shown),
        }
    }
}

/// Lists keys, by id.
#[utoipa::path(
    get, path = "/api/v1/keys", tag = "directory", params(KeyQuery),
    responses((status = 200, description = "A page of keys", body = KeyPage)),
)]
pub(super) async fn list(
    State(app): State<Arc<App>>,
    _: Admin,
    Params(query): Params<KeyQuery>,
) -> Result<Json<KeyPage>, ApiError> {
    let limit = page_length(query.limit)?;
    let directory = app.identity.directory();
    let of_tenant = |key: &&Key| query.tenant.as_ref().is_none_or(|tenant| tenant.is(&key.tenant));
    let keys = directory.keys.iter().filter(of_tenant);
    let (keys, next) = page(keys, |key| &key.id, query.after.as_ref(), limit);
    Ok(Json(KeyPage { items: keys.into_iter().map(KeyBody::from).collect(), next }))
}

/// Shows a key.
#[utoipa::path(
    get, path = "/api/v1/keys/{id}", tag = "directory",
    params(("id" = String, Path, description = "The key's id")),
    responses((status = 200, description = "The key", body = KeyBody)),
)]
pub(super) async fn show(
    State(app): State<Arc<App>>,
    _: Admin,
    Named(id): Named,
) -> Result<Json<KeyBody>, ApiError> {
    let directory = app.identity.directory();
    let key = directory.keys.iter().find(|key| key.id == id);
    key.map(|key| Json(key.into())).ok_or_else(|| ApiError::not_found("key", &id))
}

/// Makes a key. Its secret is in the answer, and nowhere else ever.
#[utoipa::path(
    post, path = "/api/v1/keys", tag = "directory", request_body = NewKey,
    responses(
        (status = 201, description = "The new key with its secret", body = KeyWithSecret, headers(("location" = String, description = "Its path"))),
        (status = 404, description = "There is no such tenant", body = super::ErrorBody),
        (status = 409, description = "Its expiry has passed, or it has a budget in money, and no currency is known", body = super::ErrorBody),
    ),
)]
pub(super) async fn create(
    State(app): State<Arc<App>>,
    admin: Admin,
    Body(new): Body<NewKey>,
) -> Result<impl IntoResponse, ApiError> {
    let create = Change::CreateKey {
        tenant: new.tenant.0,
        name: new.name.0,
        weight: new.weight.0,
        limits: new.limits.into(),
        models: words_or_all("models", new.models)?,
        rights: Rights {
            classes: words_or_all("classes", new.classes)?,
            priority_max: ceiling(new.priority_max),
            may_pin: new.may_pin,
            taints: AllowedTaints(words_or_all("taints", new.taints)?),
        },
        expires_at: new.expires_at,
    };
    let made = with_secret(change(&app, &admin, create).await?)?;
    let headers =
        [(LOCATION, path_to("keys", &made.key.id)), (CACHE_CONTROL, "no-store".to_owned())];
    Ok((StatusCode::CREATED, headers, Json(made)))
}

/// Changes a key.
#[utoipa::path(
    patch, path = "/api/v1/keys/{id}", tag = "directory", request_body = PatchKey,
    params(("id" = String, Path, description = "The key's id")),
    responses(
        (status = 200, description = "The key as it is now", body = KeyBody),
        (status = 409, description = "Its expiry has passed, or it has a budget in money, and no currency is known", body = super::ErrorBody),
    ),
)]
pub(super) async fn patch(
    State(app): State<Arc<App>>,
    admin: Admin,
    Named(id): Named,
    Body(patch): Body<PatchKey>,
) -> Result<Json<KeyBody>, ApiError> {
    let patch = KeyPatch {
        name: patch.name.map(|name| name.0),
        weight: patch.weight.map(|weight| weight.0),
        limits: patch.limits.map(Into::into),
        models: patch.models.map(|list| words_or_all("models", list)).transpose()?,
        classes: patch.classes.map(|list| words_or_all("classes", list)).transpose()?,
        priority_max: patch.priority_max.map(ceiling),
        may_pin: patch.may_pin,
        taints: patch
            .taints
            .map(|list| words_or_all("taints", list).map(AllowedTaints))
            .transpose()?,
        expires_at: patch.expires_at,
    };
    let key = made(change(&app, &admin, Change::PatchKey { id, patch }).await?.key)?;
    Ok(Json(KeyBody::from(&key)))
}

/// Gives a key a new secret under the same id. The old one is refused at once.
#[utoipa::path(
    post, path = "/api/v1/keys/{id}/rotate", tag = "directory",
    params(("id" = String, Path, description = "The key's id")),
    responses(
        (status = 200, description = "The key with its new secret", body = KeyWithSecret),
        (status = 409, description = "It was revoked", body = super::ErrorBody),
    ),
)]
pub(super) async fn rotate(
    State(app): State<Arc<App>>,
    admin: Admin,
    Named(id): Named,
) -> Result<impl IntoResponse, ApiError> {
    let made = with_secret(change(&app, &admin, Change::RotateKey { id }).await?)?;
    Ok(([(CACHE_CONTROL, "no-store")], Json(made)))
}

/// Refuses a key from now on. What is in flight with it goes on. Revoking it again changes nothing.
#[utoipa::path(
    post, path = "/api/v1/keys/{id}/revoke", tag = "directory",
    params(("id" = String, Path, description = "The key's id")),
    responses((status = 200, description = "The key as it is now", body = KeyBody)),
)]
pub(super) async fn revoke(
    State(app): State<Arc<App>>,
    admin: Admin,
    Named(id): Named,
) -> Result<Json<KeyBody>, ApiError> {
    let key = made(change(&app, &admin, Change::RevokeKey { id }).await?.key)?;
    Ok(Json(KeyBody::from(&key)))
}

fn with_secret(changed: Changed) -> Result<KeyWithSecret, ApiError> {
    let (key, secret) = (made(changed.key)?, made(changed.secret)?);
    Ok(KeyWithSecret { key: KeyBody::from(&key), secret: secret.expose().to_owned() })
}

/// What is larger than any number that the store takes is refused there.
fn ceiling(priority: Whole) -> i64 {
    i64::try_from(priority.0).unwrap_or(i64::MAX)
}

fn words_or_all<const MOST: usize>(
    field: &str,
    words: Option<Vec<Word<MOST>>>,
) -> Result<Option<Vec<String>>, ApiError> {
    let Some(words) = words else { return Ok(None) };
    if words.len() <= LONGEST_LIST {
        return Ok(Some(words.into_iter().map(|word| word.0).collect()));
    }
    let message = format!("{field} may have {LONGEST_LIST} entries and has {}", words.len());
    let status = StatusCode::UNPROCESSABLE_ENTITY;
    Err(ApiError::new(status, "invalid_value", message).in_field(field))
}
