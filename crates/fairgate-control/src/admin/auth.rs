//! Authentication for the admin API.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use fairgate_fleet::AgentId;
use fairgate_store::KeyHash;
use http::request::Parts;
use http::{HeaderMap, Method, StatusCode};

use super::api_error::ApiError;
use super::path::segment;
use super::session::{RequestSession, SessionCaller};
use crate::control_plane::ControlPlane;
use fairgate_proxy::identity::{Caller, presented_secret};
use fairgate_proxy::refusal::Refusal;
use fairgate_proxy::server::AtClientAddress;
use fairgate_time::wall_clock;

/// Header in which the holder of the admin token may give a name for the audit trail.
const ACTOR: &str = "x-fairgate-actor";
/// Actor of the holder of the viewer token.
pub(super) const VIEWER: &str = "viewer";
/// Maximum length of the name in the header [`ACTOR`], in bytes.
const LONGEST_ACTOR: usize = 64;

/// A client with the admin token. As an extractor, this type refuses all other clients.
pub(super) struct AdminCaller {
    /// Name for the audit trail: `admin` or `admin:NAME`.
    pub(super) actor: String,
}

/// A client that reads data. The admin sees all data; a tenant sees only that tenant's own data.
pub(super) enum Viewer {
    Admin,
    Tenant(Arc<Caller>),
}

/// The admin, or a tenant that acts on its own tasks.
pub(super) enum FleetCaller {
    Admin(AdminCaller),
    Tenant(Arc<Caller>),
}

/// An agent that sent its own token, on a path that contains the agent's own id.
pub(super) struct AgentCaller(pub(super) AgentId);

impl Viewer {
    /// Returns true if the data of this tenant may be shown to the viewer.
    pub(super) fn may_see(&self, tenant: &str) -> bool {
        match self {
            Self::Admin => true,
            Self::Tenant(caller) => *caller.tenant == *tenant,
        }
    }

    fn of(parts: &Parts, app: &ControlPlane) -> Result<Self, ApiError> {
        if let Some(session) = parts.extensions.get::<RequestSession>() {
            return Self::of_session(session, parts, app);
        }
        let headers = &parts.headers;
        let secret = presented_secret(headers).map_err(|problem| denied(app, problem))?;
        let admin = parts.extensions.get::<AtClientAddress>().is_none();
        if admin && equal_in_constant_time(KeyHash::of(secret), **app.admin_token.load()) {
            return Ok(Self::Admin);
        }
        if admin && is_viewer_token(app, KeyHash::of(secret)) {
            return Self::reading(parts, app);
        }
        let caller = app.data.identity.caller(headers, wall_clock::now());
        caller.map(Self::Tenant).map_err(|problem| denied(app, problem))
    }
}

impl Viewer {
    fn of_session(
        session: &RequestSession,
        parts: &Parts,
        app: &ControlPlane,
    ) -> Result<Self, ApiError> {
        match session {
            RequestSession::Valid(SessionCaller::Admin(_), _) => Ok(Self::Admin),
            RequestSession::Valid(SessionCaller::Viewer, _) => Self::reading(parts, app),
            RequestSession::Valid(SessionCaller::Tenant(caller), _) => {
                Ok(Self::Tenant(caller.clone()))
            }
            RequestSession::Over => {
                app.data.metrics.count_admin_denied();
                let message = "the session has ended; log in again";
                Err(ApiError::new(StatusCode::UNAUTHORIZED, "session_over", message))
            }
            RequestSession::Unknown => {
                let message = "the database does not answer, so the session cannot be checked";
                Err(ApiError::unavailable("store_unavailable", message))
            }
        }
    }

    /// Lets the holder of the viewer token read everything, and change nothing.
    fn reading(parts: &Parts, app: &ControlPlane) -> Result<Self, ApiError> {
        if matches!(parts.method, Method::GET | Method::HEAD) {
            return Ok(Self::Admin);
        }
        app.data.metrics.count_admin_denied();
        let message = "the viewer token opens reads only; this needs the admin token";
        Err(ApiError::new(StatusCode::FORBIDDEN, "read_only", message))
    }
}

/// Returns true if this is the hash of the viewer token, `admin.viewer_token` of the configuration.
pub(super) fn is_viewer_token(app: &ControlPlane, secret: KeyHash) -> bool {
    let config = app.data.config.load();
    let token = config.admin.viewer_token.as_ref();
    token
        .is_some_and(|token| equal_in_constant_time(secret, KeyHash::of(token.expose().as_bytes())))
}

/// Returns true if the request carries the admin token.
pub(super) fn is_admin(headers: &HeaderMap, app: &ControlPlane) -> bool {
    presented_secret(headers)
        .is_ok_and(|secret| equal_in_constant_time(KeyHash::of(secret), **app.admin_token.load()))
}

impl FromRequestParts<Arc<ControlPlane>> for Viewer {
    type Rejection = ApiError;

    async fn from_request_parts(
        parts: &mut Parts,
        app: &Arc<ControlPlane>,
    ) -> Result<Self, ApiError> {
        Self::of(parts, app)
    }
}

impl FromRequestParts<Arc<ControlPlane>> for FleetCaller {
    type Rejection = ApiError;

    async fn from_request_parts(
        parts: &mut Parts,
        app: &Arc<ControlPlane>,
    ) -> Result<Self, ApiError> {
        match Viewer::of(parts, app)? {
            Viewer::Admin => Ok(Self::Admin(AdminCaller { actor: actor(parts, app)? })),
            Viewer::Tenant(caller) => Ok(Self::Tenant(caller)),
        }
    }
}

impl FromRequestParts<Arc<ControlPlane>> for AdminCaller {
    type Rejection = ApiError;

    async fn from_request_parts(
        parts: &mut Parts,
        app: &Arc<ControlPlane>,
    ) -> Result<Self, ApiError> {
        match Viewer::of(parts, app)? {
            Viewer::Admin => Ok(Self { actor: actor(parts, app)? }),
            Viewer::Tenant(_) => {
                app.data.metrics.count_admin_denied();
                let message = "this needs the admin token; a tenant's key opens /api/v1/me and its own requests";
                Err(ApiError::new(StatusCode::FORBIDDEN, "admin_only", message))
            }
        }
    }
}

impl FromRequestParts<Arc<ControlPlane>> for AgentCaller {
    type Rejection = ApiError;

    async fn from_request_parts(
        parts: &mut Parts,
        app: &Arc<ControlPlane>,
    ) -> Result<Self, ApiError> {
        let name = segment(parts, app, "id").await?;
        let token = presented_secret(&parts.headers).ok();
        let agent = match token.and_then(|token| std::str::from_utf8(token).ok()) {
            Some(token) => app.fleet.agent(token).await?,
            None => None,
        };
        let Some(agent) = agent else {
            app.data.metrics.count_admin_denied();
            let message = "this needs an agent's own token, as \"Authorization: Bearer fga-…\"; it is shown when the agent \
                           is made or its token rotated";
            return Err(ApiError::new(StatusCode::UNAUTHORIZED, "invalid_agent_token", message));
        };
        if agent.id != name {
            app.data.metrics.count_admin_denied();
            let message = format!("this is the token of agent {:?}, not of {name:?}", agent.id);
            return Err(ApiError::new(StatusCode::FORBIDDEN, "other_agent", message));
        }
        Ok(Self(agent))
    }
}

fn denied(app: &ControlPlane, refusal: Refusal) -> ApiError {
    app.data.metrics.count_admin_denied();
    let code = refusal.code.as_str();
    ApiError::new(refusal.status(), code, refusal.into_message())
}

fn actor(parts: &Parts, app: &ControlPlane) -> Result<String, ApiError> {
    match parts.extensions.get::<RequestSession>() {
        Some(RequestSession::Valid(SessionCaller::Admin(actor), _)) => return Ok(actor.clone()),
        Some(RequestSession::Valid(SessionCaller::Viewer, _)) => return Ok(VIEWER.to_owned()),
        _ => {}
    }
    let secret = presented_secret(&parts.headers).ok().map(KeyHash::of);
    if secret.is_some_and(|secret| is_viewer_token(app, secret)) {
        return Ok(VIEWER.to_owned());
    }
    let Some(value) = parts.headers.get(ACTOR) else { return Ok("admin".to_owned()) };
    // A value that is no text has no valid characters.
    let name = value.to_str().unwrap_or_default();
    Ok(format!("admin:{}", actor_name(name, &format!("the header {ACTOR}"))?))
}

/// Checks a name for the audit trail. `field` says where it was given.
pub(super) fn actor_name(name: &str, field: &str) -> Result<String, ApiError> {
    let is_valid = (1..=LONGEST_ACTOR).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_graphic());
    if is_valid {
        return Ok(name.to_owned());
    }
    let message =
        format!("{field} must be 1 to {LONGEST_ACTOR} visible ASCII characters without spaces");
    let (code, at) = match field.strip_prefix("the header ") {
        Some(header) => ("invalid_header", header),
        None => ("invalid_value", field),
    };
    Err(ApiError::bad_request(code, message).in_field(at))
}

/// Compares two hashes in constant time.
pub(super) fn equal_in_constant_time(a: KeyHash, b: KeyHash) -> bool {
    a.0.iter().zip(&b.0).fold(0, |difference, (a, b)| difference | (a ^ b)) == 0
}
