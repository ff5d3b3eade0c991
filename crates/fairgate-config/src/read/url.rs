//! Reads the base URL of an upstream, and paths below it.

use http::Uri;
use http::uri::PathAndQuery;

use crate::field::ConfigField;

const EXAMPLE: &str = "such as http://10.0.0.5:8000 or https://api.openai.com";

/// Reads a base URL. Drops a trailing `/v1`, which users often paste and which the request's own path adds again.
pub(super) fn base_url(field: ConfigField<'_>) -> Option<Uri> {
    server_url(field, EXAMPLE)
}

/// Reads the URL of a server, below which requests have paths of their own. `example` is for the error message.
pub(super) fn server_url(field: ConfigField<'_>, example: &str) -> Option<Uri> {
    let text = field.scalar().unwrap_or_default();
    match parse_base_url(text) {
        Ok(uri) => Some(uri),
        Err(problem) => field.wrong(format!("{problem} ({example})")),
    }
}

/// Parses the base URL of an upstream, and drops a trailing `/v1`.
///
/// # Errors
/// Returns a description of valid URLs. It never repeats the text, which may hold a password.
pub fn parse_base_url(text: &str) -> Result<Uri, &'static str> {
    let uri: Uri = text.parse().map_err(|_| "must be a URL")?;
    let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
        return Err("must be a URL with http:// or https:// and a host");
    };
    if !["http", "https"].contains(&scheme) {
        return Err("must start with http:// or https://");
    }
    if authority.as_str().contains('@') {
        return Err(
            "must not hold a user or password: what proves who we are goes into credential",
        );
    }
    let port = authority.as_str().strip_prefix(authority.host());
    let port_fits = match port {
        Some("") => true,
        Some(_) => authority.port_u16().is_some_and(|port| port != 0),
        None => false,
    };
    if authority.host().is_empty() || !port_fits {
        return Err("must have a host, and a port from 1 to 65535 where it has one");
    }
    if uri.query().is_some() || text.contains('#') {
        return Err("must not have a ? or #");
    }
    let path = uri.path().trim_end_matches('/');
    let prefix = path.strip_suffix("/v1").unwrap_or(path);
    if path.contains("//") || format!("{prefix}/").contains("/v1/") {
        return Err("must end before /v1: the request's own path is added");
    }
    let mut parts = uri.clone().into_parts();
    let prefix = if prefix.is_empty() { "/" } else { prefix };
    parts.path_and_query = Some(PathAndQuery::try_from(prefix).map_err(|_| "must be a URL")?);
    Uri::from_parts(parts).map_err(|_| "must be a URL")
}

/// Reads the path of a health check.
pub(super) fn health_path(field: ConfigField<'_>) -> Option<String> {
    path(field, "/health")
}

/// Reads the path of an engine's metrics.
pub(super) fn metrics_path(field: ConfigField<'_>) -> Option<String> {
    path(field, "/metrics")
}

fn path(field: ConfigField<'_>, example: &str) -> Option<String> {
    let text = field.scalar().unwrap_or_default();
    match text.starts_with('/') && !text.contains('#') && text.parse::<PathAndQuery>().is_ok() {
        true => Some(text.to_owned()),
        false => field.wrong(format!("must be a path that starts with /, such as {example}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_paste_becomes_a_base() {
        for (pasted, expected) in [
            ("http://10.0.0.5:8000", "http://10.0.0.5:8000/"),
            ("https://api.openai.com/v1", "https://api.openai.com/"),
            ("https://api.openai.com/v1/", "https://api.openai.com/"),
            ("https://host/openai", "https://host/openai"),
            ("https://host/openai/v1/", "https://host/openai"),
            ("http://[::1]:9/", "http://[::1]:9/"),
        ] {
            assert_eq!(
                parse_base_url(pasted).map(|uri| uri.to_string()),
                Ok(expected.to_owned()),
                "{pasted}"
            );
        }
    }

    #[test]
    fn what_cannot_be_a_base_is_refused() {
        for wrong in [
            "",
            "10.0.0.5:8000",
            "/v1",
            "ftp://host",
            "http://",
            "http://user:pass@host",
            "http://host:0",
            "http://host:99999",
            "http://host:port",
            "http://host?x=1",
            "http://host/#x",
            "https://host/v1/chat/completions",
            "https://host//v1",
            "https://host/a b",
        ] {
            assert!(parse_base_url(wrong).is_err(), "{wrong}: {:?}", parse_base_url(wrong));
        }
    }
}
