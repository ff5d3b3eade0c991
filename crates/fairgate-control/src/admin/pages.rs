//! Serves the pages of the dashboard. Their files are part of the program and contain no data. The
//! pages read all data from the API, with a session.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use fairgate_dashboard::{CACHE_CONTROL, SECURITY_HEADERS, asset};
use http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL as CACHE_CONTROL_HEADER, CONTENT_ENCODING, CONTENT_TYPE, ETAG,
    IF_NONE_MATCH, VARY,
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri};

use super::api_error::ApiError;
use crate::control_plane::ControlPlane;

/// Path of the operators' page.
const ADMIN_PAGE: &str = "/";
/// Path of the tenants' page.
const TENANT_PAGE: &str = "/me";
/// Beginning of the paths of the files that the pages load.
const FILES: &str = "/assets/";

/// Returns true if this path of a listener belongs to a page or to a file of a page. The operators'
/// page is served with the admin API, and the tenants' page at the clients' address.
pub fn is_page(path: &str, serves_clients: bool, serves_admin: bool) -> bool {
    match path {
        ADMIN_PAGE => serves_admin,
        TENANT_PAGE => serves_clients,
        "/favicon.ico" => true,
        path => path.starts_with(FILES),
    }
}

/// Sends a page or one of its files.
pub(super) async fn show(
    State(app): State<Arc<ControlPlane>>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    if !app.data.config.load().admin.pages {
        return Err(ApiError::no_path());
    }
    let path = match uri.path() {
        "/favicon.ico" => "/assets/favicon.svg",
        path => path,
    };
    let file = asset(path).ok_or_else(ApiError::no_path)?;
    let is_gzip = accepts_gzip(&headers);
    let mut response = match matches_etag(&headers, &file.etag) {
        true => StatusCode::NOT_MODIFIED.into_response(),
        false if is_gzip => bytes::Bytes::from_static(&file.gzip).into_response(),
        false => bytes::Bytes::from_static(file.bytes).into_response(),
    };
    let is_sent = response.status() == StatusCode::OK;
    let of = response.headers_mut();
    for (name, value) in SECURITY_HEADERS {
        of.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    of.insert(CACHE_CONTROL_HEADER, HeaderValue::from_static(CACHE_CONTROL));
    of.insert(VARY, HeaderValue::from_static("accept-encoding"));
    if let Ok(etag) = HeaderValue::from_str(&file.etag) {
        of.insert(ETAG, etag);
    }
    if is_sent {
        of.insert(CONTENT_TYPE, HeaderValue::from_static(file.content_type));
        if is_gzip {
            of.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
    } else {
        of.remove(CONTENT_TYPE);
    }
    Ok(response)
}

/// Returns true if the client accepts gzip, as every browser does.
fn accepts_gzip(headers: &HeaderMap) -> bool {
    let lists = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|list| list.to_str().ok());
    let mut codings = lists.flat_map(|list| list.split(','));
    codings.any(|coding| {
        let mut parts = coding.split(';').map(str::trim);
        let is_gzip = parts.next().is_some_and(|name| name.eq_ignore_ascii_case("gzip"));
        let refused = parts.any(|part| {
            let value = part.strip_prefix("q=").and_then(|value| value.parse::<f32>().ok());
            value.is_some_and(|value| value <= 0.0)
        });
        is_gzip && !refused
    })
}

/// Returns true if the client has this version of the file already.
fn matches_etag(headers: &HeaderMap, etag: &str) -> bool {
    let lists = headers.get_all(IF_NONE_MATCH).iter().filter_map(|list| list.to_str().ok());
    let mut tags = lists.flat_map(|list| list.split(',')).map(str::trim);
    tags.any(|tag| tag == "*" || tag.trim_start_matches("W/") == etag)
}
