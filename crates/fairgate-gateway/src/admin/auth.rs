//! Authentication for the admin API.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use fairgate_fleet::AgentId;
use fairgate_store::KeyHash;
use http::request::Parts;
use http::{HeaderMap, StatusCode};

use super::api_error::ApiError;
use super::path::segment;
use crate::control_plane::ControlPlane;
use crate::identity::{Caller, presented_secret};
use crate::refusal::Refusal;
use fairgate_time::wall_clock;

/// Header in which the holder of the admin token may give a name for the audit trail.
const ACTOR: &str = "x-fairgate-actor";
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

/// Marks a request that arrived at the clients' address, which is not the address of the admin API. The admin token is
/// not accepted at the clients' address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AtClientAddress;

impl Viewer {
    /// Returns true if the data of this tenant may be shown to the viewer.
    pub(super) fn may_see(&self, tenant: &str) -> bool {
        match self {
            Self::Admin => true,
            Self::Tenant(caller) => *caller.tenant == *tenant,
        }
    }

    fn of(parts: &Parts, app: &ControlPlane) -> Result<Self, ApiError> {
        let headers = &parts.headers;
        let secret = presented_secret(headers).map_err(|problem| denied(app, problem))?;
        let admin = parts.extensions.get::<AtClientAddress>().is_none();
        if admin && equal_in_constant_time(KeyHash::of(secret), **app.admin_token.load()) {
            return Ok(Self::Admin);
        }
        let caller = app.data.identity.caller(headers, wall_clock::now());
        caller.map(Self::Tenant).map_err(|problem| denied(app, problem))
    }
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
            Viewer::Admin => Ok(Self::Admin(AdminCaller { actor: actor(&parts.headers)? })),
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
            Viewer::Admin => Ok(Self { actor: actor(&parts.headers)? }),
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
    ApiError::new(refusal.problem.status, refusal.code.as_str(), refusal.problem.message)
}

fn actor(headers: &HeaderMap) -> Result<String, ApiError> {
    let Some(value) = headers.get(ACTOR) else { return Ok("admin".to_owned()) };
    let name = value.to_str().ok().filter(|name| {
        (1..=LONGEST_ACTOR).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_graphic())
    });
    match name {
        Some(name) => Ok(format!("admin:{name}")),
        None => {
            let message = format!(
                "the header {ACTOR} must be 1 to {LONGEST_ACTOR} visible ASCII characters without spaces"
            );
            Err(ApiError::bad_request("invalid_header", message).in_field(ACTOR))
        }
    }
}

/// Compares two hashes in constant time.
fn equal_in_constant_time(a: KeyHash, b: KeyHash) -> bool {
    a.0.iter().zip(&b.0).fold(0, |difference, (a, b)| difference | (a ^ b)) == 0
}
