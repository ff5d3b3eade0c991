//! Sessions of the pages: a token or key is exchanged once for a cookie that scripts cannot read.
//!
//! The cookie's value is sealed with a secret that all gateways on one database share, so each of
//! them accepts the cookie. A session ends after twelve hours, at a logout, and when the token or
//! key changes.

mod session_check;
mod signed_value;

use std::net::IpAddr;
use std::sync::Arc;

use axum::Json;
use axum::extract::{FromRequestParts, Request, State};
use axum::response::{IntoResponse, Response};
use fairgate_proxy::gateway_name;
use fairgate_proxy::identity::Caller;
use fairgate_proxy::server::{AtAdminAddress, AtClientAddress, ClientAddress};
use fairgate_store::{KeyHash, UnixMicros};
use fairgate_time::wall_clock;
use http::header::{CACHE_CONTROL, SET_COOKIE};
use http::request::Parts;
use http::{HeaderValue, StatusCode};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use self::session_check::{OriginOfRequest, cross_site, origin, secret_of_sessions};
use self::signed_value::{SessionKind, SignedSession};
use super::api_error::ApiError;
use super::auth::{AdminCaller, Viewer, actor_name, equal_in_constant_time};
use super::body::JsonBody;
use crate::control_plane::ControlPlane;

pub(super) use self::session_check::{RequestSession, SESSION_PATH, SessionCaller, find_session};

/// Time for which a session is valid.
const LIFETIME_S: i64 = 12 * 3600;
/// Maximum size of the body of a login, in bytes.
const LOGIN_BYTES_MAX: usize = 4096;
/// The longest token or key, in bytes. Longer texts are not hashed.
const LONGEST_TOKEN: usize = 256;

/// A token or key, to be exchanged for a session.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Login)]
pub(super) struct LoginBody {
    /// The admin token, the viewer token, or a tenant's key.
    #[schema(max_length = 256)]
    token: String,
    /// Name of the person for the audit trail: 1 to 64 visible ASCII characters without spaces. Entries then name
    /// `admin:NAME`. It has no effect for a tenant.
    #[serde(default)]
    #[schema(pattern = "^[!-~]{1,64}$")]
    name: Option<String>,
}

/// Holder of a session.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = Session)]
pub(super) struct SessionBody {
    /// `admin`, `viewer` (the holder of the viewer token, who may only read) or `tenant`.
    kind: &'static str,
    /// Name that was given at the login; null if none was given, and for a tenant.
    name: Option<String>,
    /// Actor in the audit trail, such as `admin:on-call`; null if the session cannot change anything that is audited.
    actor: Option<String>,
    /// Name of the tenant; null for the admin and the viewer.
    tenant: Option<String>,
    /// Name of the tenant's group; null for the admin and the viewer.
    group: Option<String>,
    /// Id of the key; null for the admin and the viewer.
    key: Option<String>,
    /// True if the session may change things.
    may_write: bool,
    /// Time at which the session ends, RFC 3339 in UTC. Null if the request came with a token or key instead.
    #[schema(format = DateTime)]
    expires_at: Option<String>,
    /// Name of the gateway that answers: its host and the port for clients.
    gateway: String,
    /// Version of the gateway.
    version: &'static str,
}

/// Exchanges a token or key for a session.
///
/// The session is the cookie `fairgate_admin` or `fairgate_tenant`. It is valid for twelve hours on every gateway of the
/// database, and ends when the token or key changes. After ten wrong tokens in a minute, an address has to wait.
#[utoipa::path(
    post, path = "/api/v1/session", tag = "operation", security(()), request_body = LoginBody,
    responses(
        (status = 200, description = "The session has begun", body = SessionBody),
        (status = 401, description = "The token is wrong (`invalid_token`)", body = super::ErrorBody),
        (status = 403, description = "The request comes from a foreign page (`cross_site`)", body = super::ErrorBody),
        (status = 422, description = "The body has a wrong field", body = super::ErrorBody),
        (status = 429, description = "The address sent ten wrong tokens in a minute (`too_many_tries`)", body = super::ErrorBody),
    ),
)]
pub(super) async fn begin(
    State(app): State<Arc<ControlPlane>>,
    place: LoginPlace,
    JsonBody(login): JsonBody<LoginBody, LOGIN_BYTES_MAX>,
) -> Result<Response, ApiError> {
    if place.origin == OriginOfRequest::Foreign {
        return Err(cross_site());
    }
    app.login_tries.begin(place.address).map_err(|wait| {
        let message = "too many wrong tokens from this address; try again later";
        ApiError::new(StatusCode::TOO_MANY_REQUESTS, "too_many_tries", message).retry_after(wait)
    })?;
    let (kind, caller, secret) = holder(&app, &login.token, &place)?;
    let name = match (&caller, login.name) {
        (Some(caller), _) => caller.key.to_string(),
        (None, Some(name)) => actor_name(&name, "name")?,
        (None, None) => String::new(),
    };
    app.login_tries.succeeded(place.address);
    let expires_at = UnixMicros(wall_clock::now().0 + LIFETIME_S * 1_000_000);
    let session = SignedSession::new(kind, name, expires_at).map_err(|error| {
        ApiError::unavailable("no_random_numbers", format!("the system gives none: {error}"))
    })?;
    let key = secret_of_sessions(&app).await?;
    let value = session.signed(key.expose(), secret);
    let cookie = set_cookie(&app, kind, &value, LIFETIME_S);
    let body = body_of(&app, kind, caller.as_deref(), &session.name, Some(expires_at));
    Ok(with_cookie(Json(body), &cookie))
}

/// Shows who is logged in.
#[utoipa::path(
    get, path = "/api/v1/session", tag = "operation", security(("admin" = []), ("tenant" = [])),
    responses(
        (status = 200, description = "Who is logged in", body = SessionBody),
        (status = 401, description = "Nobody is (`no_session`), or the session has ended (`session_over`)", body = super::ErrorBody),
    ),
)]
pub(super) async fn show(
    State(app): State<Arc<ControlPlane>>,
    request: Request,
) -> Result<Response, ApiError> {
    let (mut parts, _) = request.into_parts();
    let session = parts.extensions.get::<RequestSession>().cloned();
    let body = match session {
        Some(RequestSession::Valid(caller, end)) => {
            let tenant = match &caller {
                SessionCaller::Tenant(tenant) => Some(&**tenant),
                SessionCaller::Admin(_) | SessionCaller::Viewer => None,
            };
            body_of(&app, end.kind, tenant, &end.name, Some(end.expires_at))
        }
        _ if !has_secret(&parts) && session.is_none() => {
            let message = "nobody is logged in: send a token or key to POST /api/v1/session";
            return Err(ApiError::new(StatusCode::UNAUTHORIZED, "no_session", message));
        }
        _ => match Viewer::from_request_parts(&mut parts, &app).await? {
            Viewer::Tenant(caller) => {
                body_of(&app, SessionKind::Tenant, Some(&caller), &caller.key, None)
            }
            Viewer::Admin => {
                let actor = AdminCaller::from_request_parts(&mut parts, &app).await?.actor;
                let kind = match actor == super::auth::VIEWER {
                    true => SessionKind::Viewer,
                    false => SessionKind::Admin,
                };
                let name = actor.strip_prefix("admin:").unwrap_or_default();
                body_of(&app, kind, None, name, None)
            }
        },
    };
    Ok(never_stored(Json(body).into_response()))
}

/// Ends the session, on every gateway of the database.
#[utoipa::path(
    delete, path = "/api/v1/session", tag = "operation", security(()),
    responses(
        (status = 204, description = "The session has ended, or there was none"),
        (status = 403, description = "The request does not come from a page of this gateway (`cross_site`)", body = super::ErrorBody),
    ),
)]
pub(super) async fn end(
    State(app): State<Arc<ControlPlane>>,
    request: Request,
) -> Result<Response, ApiError> {
    let Some(session) = request.extensions().get::<RequestSession>() else {
        return Ok(StatusCode::NO_CONTENT.into_response());
    };
    let kind = match session {
        RequestSession::Valid(_, end) => {
            let now = wall_clock::now();
            app.data.store.revoke_session(end.id.clone(), end.expires_at, now).await?;
            app.revoked_sessions.remember(end.id.clone(), true);
            Some(end.kind)
        }
        RequestSession::Over | RequestSession::Unknown => None,
    };
    let mut response = StatusCode::NO_CONTENT.into_response();
    let kinds = kind.map_or(vec![SessionKind::Admin, SessionKind::Tenant], |kind| vec![kind]);
    for kind in kinds {
        append_cookie(&mut response, &set_cookie(&app, kind, "", 0));
    }
    Ok(response)
}

/// Address and origin of a login.
pub(super) struct LoginPlace {
    address: Option<IpAddr>,
    origin: OriginOfRequest,
    at_clients: bool,
    at_admin: bool,
}

impl<S: Send + Sync> FromRequestParts<S> for LoginPlace {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, ApiError> {
        let mut head = http::Request::new(());
        *head.headers_mut() = parts.headers.clone();
        *head.uri_mut() = parts.uri.clone();
        Ok(Self {
            address: parts.extensions.get::<ClientAddress>().map(|client| client.0),
            origin: origin(&head),
            at_clients: parts.extensions.get::<AtClientAddress>().is_some(),
            at_admin: parts.extensions.get::<AtAdminAddress>().is_some(),
        })
    }
}

/// Returns the holder of a token or key, and the hash of it. An address that serves only clients
/// accepts only keys of tenants. An address that serves only the admin API accepts no keys of
/// tenants.
fn holder(
    app: &ControlPlane,
    token: &str,
    place: &LoginPlace,
) -> Result<(SessionKind, Option<Arc<Caller>>, KeyHash), ApiError> {
    let wrong = || {
        let message = "this is no token or key of this gateway; check it, or ask for a new one";
        ApiError::new(StatusCode::UNAUTHORIZED, "invalid_token", message)
    };
    if token.is_empty() || token.len() > LONGEST_TOKEN {
        return Err(wrong());
    }
    let secret = KeyHash::of(token.as_bytes());
    if !place.at_clients {
        if equal_in_constant_time(secret, **app.admin_token.load()) {
            return Ok((SessionKind::Admin, None, secret));
        }
        if super::auth::is_viewer_token(app, secret) {
            return Ok((SessionKind::Viewer, None, secret));
        }
    }
    if place.at_admin {
        return Err(wrong());
    }
    let caller = app.data.identity.caller_of_secret(secret, wall_clock::now());
    let caller = caller.map_err(|_| wrong())?;
    Ok((SessionKind::Tenant, Some(caller), secret))
}

fn has_secret(parts: &Parts) -> bool {
    parts.headers.contains_key(http::header::AUTHORIZATION)
        || parts.headers.contains_key("x-api-key")
}

fn body_of(
    app: &ControlPlane,
    kind: SessionKind,
    caller: Option<&Caller>,
    name: &str,
    expires_at: Option<UnixMicros>,
) -> SessionBody {
    let is_admin = kind == SessionKind::Admin;
    let named = (is_admin && !name.is_empty()).then(|| name.to_owned());
    SessionBody {
        kind: match kind {
            SessionKind::Admin => "admin",
            SessionKind::Viewer => "viewer",
            SessionKind::Tenant => "tenant",
        },
        actor: is_admin
            .then(|| named.as_ref().map_or("admin".to_owned(), |name| format!("admin:{name}"))),
        name: named,
        tenant: caller.map(|caller| caller.tenant.to_string()),
        group: caller.map(|caller| caller.group.to_string()),
        key: caller.map(|caller| caller.key.to_string()),
        may_write: kind != SessionKind::Viewer,
        expires_at: expires_at.map(fairgate_time::to_rfc3339),
        gateway: gateway_name(app.data.config.load().listen.port()),
        version: env!("CARGO_PKG_VERSION"),
    }
}

/// Returns the header that sets or, with an empty value, removes a cookie.
fn set_cookie(app: &ControlPlane, kind: SessionKind, value: &str, seconds: i64) -> String {
    let name = kind.cookie();
    let secure = if app.data.config.load().tls.is_some() { "; Secure" } else { "" };
    let seconds = if value.is_empty() { 0 } else { seconds };
    format!("{name}={value}; Path=/api/v1; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}")
}

fn append_cookie(response: &mut Response, cookie: &str) {
    // A cookie has letters, digits and points only.
    if let Ok(value) = HeaderValue::from_str(cookie) {
        response.headers_mut().append(SET_COOKIE, value);
    }
}

fn with_cookie(body: impl IntoResponse, cookie: &str) -> Response {
    let mut response = never_stored(body.into_response());
    append_cookie(&mut response, cookie);
    response
}

fn never_stored(mut response: Response) -> Response {
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
