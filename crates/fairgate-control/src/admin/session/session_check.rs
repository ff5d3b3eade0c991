//! Finds the session of a request, before its handler runs.
//!
//! A browser sends its cookies with every request to this host: to all ports, and also when a
//! foreign page causes the request. Therefore a session counts only under these conditions:
//!
//! - The request carries no token or key of its own.
//! - The address serves sessions of this kind: clients' addresses serve tenants, admin addresses
//!   serve operators.
//! - A request that may change something comes from a page of this gateway. It then has our origin,
//!   and a header that no foreign page can set.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use fairgate_proxy::identity::Caller;
use fairgate_proxy::server::{AtAdminAddress, AtClientAddress};
use fairgate_store::{KeyHash, UnixMicros};
use fairgate_time::wall_clock;
use http::header::{AUTHORIZATION, COOKIE, HOST, ORIGIN};
use http::{HeaderMap, Method, StatusCode};

use super::super::api_error::ApiError;
use super::signed_value::{SessionKind, SignedSession};
use crate::control_plane::ControlPlane;

/// Header by which a page says whose session it uses: `admin`, `me`, or `1` for either.
pub(super) const SESSION_HEADER: &str = "x-fairgate-session";
/// Name of the secret in the store that seals the sessions.
const SECRET_NAME: &str = "sessions";
/// Path of the handlers that begin and end sessions.
pub(in super::super) const SESSION_PATH: &str = "/api/v1/session";

/// The session of a request.
#[derive(Clone, Debug)]
pub(in super::super) enum RequestSession {
    /// A valid session of this caller, with the session's id and end.
    Valid(SessionCaller, SignedSessionEnd),
    /// A cookie whose session has ended: it expired or was revoked, or its token or key has
    /// changed.
    Over,
    /// The database does not answer, so it is not known whether the session was revoked.
    Unknown,
}

/// The caller to whom a session belongs.
#[derive(Clone, Debug)]
pub(in super::super) enum SessionCaller {
    /// The holder of the admin token, with the actor for the audit trail.
    Admin(String),
    /// The holder of the viewer token.
    Viewer,
    /// A tenant with one of its keys.
    Tenant(Arc<Caller>),
}

/// Id and end of a session.
#[derive(Clone, Debug)]
pub(in super::super) struct SignedSessionEnd {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) expires_at: UnixMicros,
    pub(super) kind: SessionKind,
}

/// Finds the session of a request. Refuses a change by a session that does not come from a page of
/// this gateway.
pub(in super::super) async fn find_session(
    State(app): State<Arc<ControlPlane>>,
    mut request: Request,
    next: Next,
) -> Response {
    let headers = request.headers();
    let has_key = headers.contains_key(AUTHORIZATION) || headers.contains_key("x-api-key");
    if has_key || !headers.contains_key(COOKIE) {
        return next.run(request).await;
    }
    let wanted = WantedSession::of(&request);
    let cookies = wanted.cookies(request.headers());
    if cookies.is_empty() {
        return next.run(request).await;
    }
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    let is_login = request.method() == Method::POST && request.uri().path() == SESSION_PATH;
    let has_header = request.headers().contains_key(SESSION_HEADER);
    let is_ours = match origin(&request) {
        OriginOfRequest::Ours => is_read || has_header || is_login,
        OriginOfRequest::Unstated => is_read || is_login,
        OriginOfRequest::Foreign => false,
    };
    if !is_ours {
        return cross_site().into_response();
    }
    let mut session = RequestSession::Over;
    for (kind, value) in cookies {
        session = read_session(&app, kind, &value, is_read).await;
        if !matches!(session, RequestSession::Over) {
            break;
        }
    }
    request.extensions_mut().insert(session);
    next.run(request).await
}

/// Returns the refusal of a request that does not come from a page of this gateway.
pub(super) fn cross_site() -> ApiError {
    let message = format!(
        "a change by a session must come from a page of this gateway: with its Origin, and with the header \
         {SESSION_HEADER}; programs send a token or key instead"
    );
    ApiError::new(StatusCode::FORBIDDEN, "cross_site", message)
}

/// Kinds of sessions that a request may use.
#[derive(Clone, Copy, Debug)]
struct WantedSession {
    admin: bool,
    tenant: bool,
}

impl WantedSession {
    fn of(request: &Request) -> Self {
        let at_clients = request.extensions().get::<AtClientAddress>().is_some();
        let at_admin = request.extensions().get::<AtAdminAddress>().is_some();
        let by_header = request.headers().get(SESSION_HEADER).map(|value| value.as_bytes());
        let query = request.uri().query().unwrap_or_default();
        let by_query = query.split('&').find_map(|part| part.strip_prefix("session="));
        let word = by_header.or(by_query.map(str::as_bytes));
        Self {
            admin: !at_clients && word != Some(b"me"),
            tenant: !at_admin && word != Some(b"admin"),
        }
    }

    /// Returns the values of the cookies that may be used, the admin's first.
    fn cookies(self, headers: &HeaderMap) -> Vec<(SessionKind, String)> {
        let kinds = [(self.admin, SessionKind::Admin), (self.tenant, SessionKind::Tenant)];
        let wanted = kinds.into_iter().filter(|(wanted, _)| *wanted);
        let found = wanted.filter_map(|(_, kind)| Some((kind, cookie(headers, kind.cookie())?)));
        found.collect()
    }
}

fn cookie(headers: &HeaderMap, name: &str) -> Option<String> {
    let lists = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = lists.flat_map(|list| list.split(';')).filter_map(|pair| {
        let (of, value) = pair.trim().split_once('=')?;
        (of == name).then(|| value.to_owned())
    });
    pairs.next()
}

/// Origin of a request, as the browser states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OriginOfRequest {
    /// A page of this gateway.
    Ours,
    /// A page of another site.
    Foreign,
    /// The request states no origin: it is not from a page, or the browser leaves it out, as for a
    /// plain read.
    Unstated,
}

/// Returns the origin of a request. The gateway's own origin has the host and port to which the
/// request was sent.
pub(super) fn origin<B>(request: &http::Request<B>) -> OriginOfRequest {
    let headers = request.headers();
    let text = |value: &http::HeaderValue| value.to_str().ok().map(str::to_ascii_lowercase);
    let site = headers.get("sec-fetch-site").map(http::HeaderValue::as_bytes);
    if matches!(site, Some(b"cross-site" | b"same-site")) {
        return OriginOfRequest::Foreign;
    }
    let Some(origin) = headers.get(ORIGIN) else { return OriginOfRequest::Unstated };
    let host = headers
        .get(HOST)
        .and_then(text)
        .or_else(|| request.uri().authority().map(|host| host.as_str().to_ascii_lowercase()));
    let origin = text(origin);
    let authority = origin.as_deref().and_then(|origin| {
        origin.strip_prefix("https://").or_else(|| origin.strip_prefix("http://"))
    });
    match authority.zip(host.as_deref()) {
        Some((origin, host)) if origin == host => OriginOfRequest::Ours,
        _ => OriginOfRequest::Foreign,
    }
}

/// Returns the session of a cookie's value.
async fn read_session(
    app: &ControlPlane,
    cookie: SessionKind,
    value: &str,
    is_read: bool,
) -> RequestSession {
    let now = wall_clock::now();
    let Some((session, seal)) = SignedSession::read(value) else { return RequestSession::Over };
    if session.kind.cookie() != cookie.cookie() || session.expires_at <= now {
        return RequestSession::Over;
    }
    let Some((caller, secret)) = caller_of(app, &session, now) else { return RequestSession::Over };
    let Ok(key) = secret_of_sessions(app).await else { return RequestSession::Unknown };
    if !seal.is_of(&session, key.expose(), secret) {
        return RequestSession::Over;
    }
    let SignedSession { kind, id, expires_at, name } = session;
    match revocation_of(app, &id, is_read).await {
        Some(true) => RequestSession::Over,
        Some(false) => {
            RequestSession::Valid(caller, SignedSessionEnd { id, name, expires_at, kind })
        }
        None => RequestSession::Unknown,
    }
}

/// Returns the caller that a session names, with the current hash of the caller's token or key.
/// `None` if the caller no longer exists.
fn caller_of(
    app: &ControlPlane,
    session: &SignedSession,
    now: UnixMicros,
) -> Option<(SessionCaller, KeyHash)> {
    match session.kind {
        SessionKind::Admin => {
            let actor = match session.name.is_empty() {
                true => "admin".to_owned(),
                false => format!("admin:{}", session.name),
            };
            Some((SessionCaller::Admin(actor), **app.admin_token.load()))
        }
        SessionKind::Viewer => {
            let config = app.data.config.load();
            let token = config.admin.viewer_token.as_ref()?;
            Some((SessionCaller::Viewer, KeyHash::of(token.expose().as_bytes())))
        }
        SessionKind::Tenant => {
            let caller = app.data.identity.caller_of_key(&session.name, now).ok()?;
            let secret = caller.secret;
            Some((SessionCaller::Tenant(caller), secret))
        }
    }
}

/// Returns the secret that seals the sessions of this installation.
pub(super) async fn secret_of_sessions(
    app: &ControlPlane,
) -> Result<fairgate_store::InstallationSecret, fairgate_store::StoreError> {
    let read = || app.data.store.installation_secret(SECRET_NAME);
    app.session_secret.get_or_try_init(read).await.copied()
}

/// Returns true if the session was revoked. If the database does not answer, a read may use a
/// session that was valid at its last check. In all other such cases, the result is `None`.
async fn revocation_of(app: &ControlPlane, id: &str, is_read: bool) -> Option<bool> {
    let known = app.revoked_sessions.known(id);
    if let Some(known) = known.filter(|known| known.is_fresh()) {
        return Some(known.revoked);
    }
    match app.data.store.session_revocation(id.to_owned()).await {
        Ok(revoked) => {
            app.revoked_sessions.remember(id.to_owned(), revoked);
            Some(revoked)
        }
        Err(_) => known.filter(|_| is_read).map(|known| known.revoked),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(headers: &[(&str, &str)]) -> OriginOfRequest {
        let mut request = http::Request::builder().uri("/api/v1/tenants");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        origin(&request.body(()).unwrap())
    }

    #[test]
    fn only_our_own_host_and_port_are_ours() {
        let host = ("host", "gw.example:8080");
        assert_eq!(of(&[host, ("origin", "https://GW.example:8080")]), OriginOfRequest::Ours);
        assert_eq!(of(&[host, ("origin", "http://gw.example:8080")]), OriginOfRequest::Ours);
        assert_eq!(of(&[host]), OriginOfRequest::Unstated);
        for foreign in [
            "http://gw.example",
            "http://gw.example:8081",
            "http://gw.example:8080.evil",
            "http://evil/gw.example:8080",
            "null",
            "gw.example:8080",
            "",
        ] {
            assert_eq!(of(&[host, ("origin", foreign)]), OriginOfRequest::Foreign, "{foreign}");
        }
        let fetched = ("sec-fetch-site", "cross-site");
        assert_eq!(of(&[host, fetched]), OriginOfRequest::Foreign);
        let sibling = ("sec-fetch-site", "same-site");
        assert_eq!(
            of(&[host, ("origin", "http://gw.example:8080"), sibling]),
            OriginOfRequest::Foreign
        );
    }

    #[test]
    fn a_cookie_is_found_by_its_whole_name() {
        let mut headers = HeaderMap::new();
        headers.insert(
            COOKIE,
            "xfairgate_admin=1; fairgate_admin=2;fairgate_admin_x=3".parse().unwrap(),
        );
        headers.append(COOKIE, "fairgate_tenant=4".parse().unwrap());
        assert_eq!(cookie(&headers, "fairgate_admin").as_deref(), Some("2"));
        assert_eq!(cookie(&headers, "fairgate_tenant").as_deref(), Some("4"));
        assert_eq!(cookie(&headers, "fairgate"), None);
    }
}
