//! The name in a path.

use std::fmt::Write as _;

use axum::extract::{FromRequestParts, Path};
use http::request::Parts;

use super::api_error::ApiError;

/// The one name or id in a path, decoded.
pub(super) struct Named(pub(super) String);

impl<S: Send + Sync> FromRequestParts<S> for Named {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let Path(name) = Path::<String>::from_request_parts(parts, state)
            .await
            .map_err(|error| ApiError::bad_request("invalid_path", error.body_text()))?;
        Ok(Self(name))
    }
}

/// The path of something by its name: what is not plain is percent-encoded.
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
