//! Routes requests. The most frequent paths are matched here; all other paths go to the control
//! plane.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use fairgate_api::leases::LEASES;
use fairgate_dialect::{Dialect, Route};
use http::{HeaderMap, Method, Request, StatusCode};
use hyper::body::Incoming;
use tower::ServiceExt;

use super::hyper_errors::ConnectionRequests;
use crate::forward::DataPlane;
use crate::forward::{forward, leases, models};
use crate::refusal;
use crate::reply::{Reply, ReplyBody, content_length, set_reason_phrase};

/// The APIs that a listener serves.
pub struct ListenerRoutes {
    /// True if clients' requests are served here.
    pub serves_clients: bool,
    /// True if the admin API and the metrics are served here.
    pub serves_admin: bool,
    /// Router of the control plane.
    pub control: Router,
    /// Returns true for a path of the control plane that is also served to clients, because a
    /// tenant's key or an agent's token is enough for it.
    pub is_for_clients: fn(&Method, &str) -> bool,
    /// Returns true for the path of a page or of one of its files. The result depends on whether
    /// the listener serves clients, the admin API, or both.
    pub is_page: fn(path: &str, serves_clients: bool, serves_admin: bool) -> bool,
}

/// Marks a request for the control plane that arrived at the clients' address, which is not the address of the admin
/// API. The admin token is not accepted at the clients' address.
#[derive(Clone, Copy, Debug)]
pub struct AtClientAddress;

/// Marks a request for the control plane that arrived at an address that serves only the admin API.
/// Sessions of tenants begin at the clients' address and are valid only there.
#[derive(Clone, Copy, Debug)]
pub struct AtAdminAddress;

/// Address of the client that sent a request for the control plane. Behind trusted proxies, it is
/// the last address in `x-forwarded-for` that is not a trusted proxy.
#[derive(Clone, Copy, Debug)]
pub struct ClientAddress(pub IpAddr);

const MODELS: &str = "/v1/models";

/// Routes and answers one request.
pub(super) async fn dispatch(
    app: Arc<DataPlane>,
    routes: Arc<ListenerRoutes>,
    connection: Arc<ConnectionRequests>,
    request: Request<Incoming>,
) -> Reply {
    let mut reply = answer(app, routes, &connection, request).await;
    set_reason_phrase(&mut reply);
    reply
}

async fn answer(
    app: Arc<DataPlane>,
    routes: Arc<ListenerRoutes>,
    connection: &ConnectionRequests,
    request: Request<Incoming>,
) -> Reply {
    // hyper accepts up to twice `head_max`, depending on how a head arrives.
    let head_max = app.config.load().limits.header_bytes_max;
    if head_bytes(&request) > u64::from(head_max) {
        return too_large(&app, &request, head_max);
    }
    let path = request.uri().path();
    if routes.serves_clients {
        if let Some(route) = Route::from_path(path) {
            return if request.method() == Method::POST {
                // Boxed, so that a connection without a request holds no memory for one.
                Box::pin(forward(app, route, request)).await
            } else {
                wrong_method(&app, "POST", route.dialect())
            };
        }
        let below = path.strip_prefix(LEASES);
        if below.is_some_and(|below| below.is_empty() || below.starts_with('/')) {
            return Box::pin(leases(app, &connection.leases, request)).await;
        }
        let named = path.strip_prefix(MODELS);
        if let Some(named) = named.filter(|named| named.is_empty() || named.starts_with('/')) {
            let dialect = dialect_of(request.headers());
            let reading = matches!(*request.method(), Method::GET | Method::HEAD);
            match (named, named.strip_prefix('/')) {
                _ if !reading => return wrong_method(&app, "GET, HEAD", dialect),
                ("" | "/", _) => return models(&app, dialect, request.headers(), None).await,
                (_, Some(named)) => {
                    let named = decoded(named);
                    return models(&app, dialect, request.headers(), Some(&named)).await;
                }
                _ => {}
            }
        }
    }
    if is_of_control(path, routes.serves_admin) {
        let mut request = request;
        let client = client_address(&app, connection, request.headers());
        if !routes.serves_clients {
            request.extensions_mut().insert(AtAdminAddress);
        }
        return Box::pin(control(&routes, client, request)).await;
    }
    if routes.serves_clients && (routes.is_for_clients)(request.method(), path) {
        let mut request = request;
        let client = client_address(&app, connection, request.headers());
        request.extensions_mut().insert(AtClientAddress);
        return Box::pin(control(&routes, client, request)).await;
    }
    let is_page = (routes.is_page)(path, routes.serves_clients, routes.serves_admin);
    if is_page && app.config.load().admin.pages {
        let client = client_address(&app, connection, request.headers());
        return Box::pin(control(&routes, client, request)).await;
    }
    let refusal = refusal::unknown_path(path);
    app.metrics.count_refusal(refusal.code);
    refusal.reply(dialect_of(request.headers()), &app.request_ids.next())
}

fn is_of_control(path: &str, admin: bool) -> bool {
    matches!(path, "/healthz" | "/readyz")
        || admin && (path == "/metrics" || refusal::is_admin_path(path))
}

/// Passes a request to the control plane.
async fn control(
    routes: &ListenerRoutes,
    client: Option<IpAddr>,
    mut request: Request<Incoming>,
) -> Reply {
    if let Some(client) = client {
        request.extensions_mut().insert(ClientAddress(client));
    }
    let Ok(response) = routes.control.clone().oneshot(request.map(Body::new)).await;
    response.map(ReplyBody::Control)
}

/// Returns the address of the client. Behind trusted proxies, it is the last address in
/// `x-forwarded-for` that is not a trusted proxy.
fn client_address(
    app: &DataPlane,
    connection: &ConnectionRequests,
    headers: &HeaderMap,
) -> Option<IpAddr> {
    let peer = connection.peer?;
    let config = app.config.load();
    let is_proxy =
        |address: IpAddr| config.limits.trusted_proxies.iter().any(|range| range.contains(address));
    if !is_proxy(peer) {
        return Some(peer);
    }
    let lists = headers.get_all("x-forwarded-for").iter().rev();
    let texts = lists.filter_map(|list| list.to_str().ok()).flat_map(|list| list.rsplit(','));
    let mut addresses = texts.filter_map(|text| text.trim().parse().ok());
    addresses.find(|address| !is_proxy(*address)).or(Some(peer))
}

/// Returns the size of a request's head in bytes: its target, and its headers with their separators.
fn head_bytes(request: &Request<Incoming>) -> u64 {
    let headers = request.headers().iter();
    let headers: usize = headers.map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
    let target = request.uri().path_and_query().map_or(0, |target| target.as_str().len());
    content_length(headers + target)
}

fn too_large(app: &DataPlane, request: &Request<Incoming>, head_max: u32) -> Reply {
    let route = Route::from_path(request.uri().path());
    let dialect = route.map_or_else(|| dialect_of(request.headers()), Route::dialect);
    let refusal = refusal::malformed_request(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, head_max);
    app.metrics.count_refusal(refusal.code);
    refusal.reply(dialect, &app.request_ids.next())
}

/// Returns the dialect of a request whose path does not show it: Anthropic's if the request has the header
/// `anthropic-version`, which Anthropic's clients always send; else OpenAI's.
fn dialect_of(headers: &HeaderMap) -> Dialect {
    if headers.contains_key("anthropic-version") { Dialect::Anthropic } else { Dialect::OpenAi }
}

fn wrong_method(app: &DataPlane, allowed: &'static str, dialect: Dialect) -> Reply {
    let (code, reply) = refusal::wrong_method(allowed, dialect, &app.request_ids.next());
    app.metrics.count_refusal(code);
    reply
}

/// Decodes the percent escapes of a path segment. Returns the segment unchanged if the escapes are not valid.
fn decoded(part: &str) -> Cow<'_, str> {
    if !part.contains('%') {
        return Cow::Borrowed(part);
    }
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let hex = |at: usize| after.get(at).and_then(|digit| char::from(*digit).to_digit(16));
        match (byte, hex(0), hex(1)) {
            (b'%', Some(high), Some(low)) => {
                bytes.push(u8::try_from(high * 16 + low).unwrap_or(b'?'));
                rest = &after[2..];
            }
            _ => {
                bytes.push(byte);
                rest = after;
            }
        }
    }
    String::from_utf8(bytes).map_or(Cow::Borrowed(part), Cow::Owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn model_names_may_be_escaped() {
        assert_eq!(decoded("gpt-4"), "gpt-4");
        assert_eq!(decoded("meta%2Fllama%203"), "meta/llama 3");
        assert_eq!(decoded("50%"), "50%");
        assert_eq!(decoded("%ff"), "%ff");
        assert_eq!(decoded("%zz%4"), "%zz%4");
    }

    #[test]
    fn admin_paths_are_where_they_should_be_only() {
        assert!(is_of_control("/healthz", false));
        assert!(!is_of_control("/metrics", false));
        assert!(!is_of_control("/api/v1/tenants", false));
        assert!(is_of_control("/api/v1/tenants", true));
        assert!(!is_of_control("/api/v10", true));
    }
}
