//! The headers that are passed on, in both directions.

use bytes::BytesMut;
use http::header::{ACCEPT_ENCODING, CONNECTION, CONTENT_LENGTH};
use http::{HeaderMap, HeaderName, HeaderValue};

const OURS: &str = "x-fairgate-";
/// Prefix of the headers in which clients of Dynamo state choices.
const DYNAMOS: &str = "x-dynamo-";
/// Prefix of the headers in which proxies in front of the gateway describe the client.
const PROXIES: &str = "x-forwarded-";

/// Query options that mean something to an API and do not identify the client. All others are dropped, because some
/// clients put their key into the query.
const OPTIONS: [&str; 2] = ["beta", "api-version"];

/// Returns true if a client may state a name or a choice in this header. All headers that `client_choices`,
/// `worker_filter` and `request_checks` read begin in one of these ways.
pub(super) fn may_be_choice(name: &HeaderName) -> bool {
    let name = name.as_str();
    name.starts_with("x-") && (name.starts_with(OURS) || name.starts_with(DYNAMOS))
}

/// Returns true for headers that concern one connection only.
fn is_hop_by_hop(name: &str) -> bool {
    matches!(
        name,
        "connection"
            | "keep-alive"
            | "proxy-connection"
            | "proxy-authenticate"
            | "proxy-authorization"
            | "te"
            | "trailer"
            | "transfer-encoding"
            | "upgrade"
    )
}

/// Returns true for headers of a client that no upstream gets. These are the client's credentials,
/// in the forms of all vendors, and the organisation or project that pays, because it would have to
/// match the operator's credential.
fn is_clients_own(name: &str) -> bool {
    matches!(
        name,
        "authorization"
            | "x-api-key"
            | "api-key"
            | "x-goog-api-key"
            | "x-goog-user-project"
            | "openai-organization"
            | "openai-project"
            | "forwarded"
            | "x-real-ip"
            | "cookie"
            | "host"
            | "expect"
            | "content-length"
    )
}

/// Returns true for headers that an upstream sends to the gateway and that no client gets.
fn is_upstreams_own(name: &str) -> bool {
    matches!(name, "set-cookie" | "alt-svc")
}

/// Returns the part of a client's query that an upstream may see; `None` if nothing is left.
pub(super) fn query(theirs: &str) -> Option<String> {
    let harmless = |part: &&str| {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        // Some servers treat a semicolon like an ampersand.
        OPTIONS.contains(&name) && !value.contains(';')
    };
    let left: Vec<&str> = theirs.split('&').filter(harmless).collect();
    (!left.is_empty()).then(|| left.join("&"))
}

/// Returns the headers of a client that go to an upstream. Requests an uncompressed answer, so that
/// its usage can be read.
pub(super) fn outbound(mut headers: HeaderMap) -> HeaderMap {
    strip(&mut headers, is_clients_own, &[OURS, PROXIES]);
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    compact(&mut headers);
    headers
}

/// Copies the values of the remaining headers into one small buffer. Without the copy, the values would be slices of
/// the connection's read buffer, which is larger and could not be reused as long as the request waits.
fn compact(headers: &mut HeaderMap) {
    let mut all = BytesMut::with_capacity(headers.values().map(HeaderValue::len).sum());
    for value in headers.values() {
        all.extend_from_slice(value.as_bytes());
    }
    let mut all = all.freeze();
    for value in headers.values_mut() {
        let own = all.split_to(value.len());
        // These bytes were a valid value before.
        if let Ok(own) = HeaderValue::from_maybe_shared(own) {
            *value = own;
        }
    }
}

/// Prefix of rate-limit headers. They are dropped, because they describe the provider's whole
/// account, of which a client has only a share.
const LIMITS: &str = "x-ratelimit-";
const ANTHROPIC_LIMITS: &str = "anthropic-ratelimit-";

/// Removes headers of an answer that a client must not see. `length_may_change` is true if events may be removed from
/// the body; then `Content-Length` is removed too.
pub(super) fn inbound(headers: &mut HeaderMap, length_may_change: bool) {
    strip(headers, is_upstreams_own, &[OURS, LIMITS, ANTHROPIC_LIMITS]);
    if length_may_change {
        headers.remove(CONTENT_LENGTH);
    }
}

/// Removes the headers that concern one connection, those for which `is_own` is true, and those
/// with one of the prefixes `beginnings`. Iterates over the headers that are present, because a
/// request has few and each removal hashes a name.
fn strip(headers: &mut HeaderMap, is_own: fn(&str) -> bool, beginnings: &[&str]) {
    // `Connection` may name further headers that are for this connection only.
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    let is_removed = |name: &&HeaderName| {
        let text = name.as_str();
        is_hop_by_hop(text)
            || is_own(text)
            || beginnings.iter().any(|beginning| text.starts_with(beginning))
            || named.contains(name)
    };
    let removed: Vec<HeaderName> = headers.keys().filter(is_removed).cloned().collect();
    for name in &removed {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn no_client_learns_what_is_left_of_the_providers_account() {
        let mut headers = of(&[
            ("x-ratelimit-remaining-tokens", "1"),
            ("anthropic-ratelimit-requests-limit", "50"),
            ("openai-version", "2020-10-01"),
        ]);
        inbound(&mut headers, false);
        let names: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
        assert_eq!(names, ["openai-version"]);
    }

    #[test]
    fn no_upstream_learns_who_the_client_is() {
        let out = outbound(of(&[
            ("authorization", "Bearer fg-x"),
            ("x-api-key", "fg-x"),
            ("cookie", "a=b"),
            ("host", "here"),
            ("expect", "100-continue"),
            ("content-length", "3"),
            ("x-fairgate-agent", "a"),
            ("connection", "keep-alive, x-secret-hop"),
            ("x-secret-hop", "1"),
            ("te", "trailers"),
            ("accept-encoding", "gzip"),
            ("anthropic-version", "2023-06-01"),
            ("anthropic-beta", "b"),
            ("openai-beta", "b"),
            ("openai-organization", "o"),
            ("openai-project", "p"),
            ("api-key", "k"),
            ("x-goog-api-key", "k"),
            ("x-goog-user-project", "p"),
            ("forwarded", "for=192.0.2.60"),
            ("x-forwarded-for", "192.0.2.60"),
            ("x-forwarded-host", "here"),
            ("x-real-ip", "192.0.2.60"),
            ("accept", "text/event-stream"),
        ]));
        let kept = of(&[
            ("accept-encoding", "identity"),
            ("anthropic-version", "2023-06-01"),
            ("anthropic-beta", "b"),
            ("openai-beta", "b"),
            ("accept", "text/event-stream"),
        ]);
        assert_eq!(out, kept);
    }

    #[test]
    fn only_known_options_of_a_query_go_through() {
        let cases = [
            ("beta=true", Some("beta=true")),
            ("key=k&api-version=2024-10-21&beta=true&x", Some("api-version=2024-10-21&beta=true")),
            ("beta", Some("beta")),
            ("", None),
            ("key=k", None),
            ("%62eta=true", None),
            ("betas=1&Beta=1", None),
            ("beta=true;key=k", None),
        ];
        for (theirs, left) in cases {
            assert_eq!(query(theirs).as_deref(), left, "{theirs}");
        }
    }

    #[test]
    fn no_client_gets_an_upstreams_cookies() {
        let mut headers = of(&[
            ("set-cookie", "a=b"),
            ("set-cookie", "c=d"),
            ("alt-svc", "h3=\":443\""),
            ("transfer-encoding", "chunked"),
            ("x-fairgate-request-id", "forged"),
            ("x-request-id", "theirs"),
            ("content-length", "9"),
        ]);
        inbound(&mut headers, false);
        assert_eq!(headers, of(&[("x-request-id", "theirs"), ("content-length", "9")]));
        inbound(&mut headers, true);
        assert_eq!(headers, of(&[("x-request-id", "theirs")]));
    }
}
