//! Extractors for names in paths.

use std::fmt::Write as _;

use axum::extract::{FromRequestParts, Path, RawPathParams};
use http::request::Parts;

use super::api_error::ApiError;

/// The only name or id in a path, percent-decoded.
pub(super) struct PathName(pub(super) String);

impl<S: Send + Sync> FromRequestParts<S> for PathName {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let Path(name) = Path::<String>::from_request_parts(parts, state)
            .await
            .map_err(|error| ApiError::bad_request("invalid_path", error.body_text()))?;
        Ok(Self(name))
    }
}

/// The id of the task in a path of an agent, percent-decoded.
pub(super) struct PathTaskName(pub(super) String);

impl<S: Send + Sync> FromRequestParts<S> for PathTaskName {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        segment(parts, state, "task").await.map(Self)
    }
}

/// Returns the path segment at the place of `{name}` in the route, percent-decoded.
pub(super) async fn segment<S: Send + Sync>(
    parts: &mut Parts,
    state: &S,
    name: &str,
) -> Result<String, ApiError> {
    let params = RawPathParams::from_request_parts(parts, state)
        .await
        .map_err(|error| ApiError::bad_request("invalid_path", error.body_text()))?;
    let found = params.iter().find(|(each, _)| *each == name);
    found.map(|(_, value)| value.to_owned()).ok_or_else(ApiError::no_path)
}

/// Returns the path of an object. Characters of its name other than ASCII letters, digits and `- . _ ~` are
/// percent-encoded.
pub(super) fn path_to(list: &str, name: &str) -> String {
    let mut path = format!("/api/v1/{list}/");
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                path.push(char::from(byte));
            }
            // Writing to a string cannot fail.
            _ => _ = write!(path, "%{byte:02X}"),
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_encoded() {
        assert_eq!(path_to("groups", "a-b.c"), "/api/v1/groups/a-b.c");
        assert_eq!(path_to("groups", "a/ü"), "/api/v1/groups/a%2F%C3%BC");
    }
}
