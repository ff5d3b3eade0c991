//! Query strings and path segments, read strictly.

use axum::extract::{FromRequestParts, Query};
use http::request::Parts;
use serde::de::DeserializeOwned;

use super::api_error::ApiError;

/// A query string. What is unknown, twice there or out of range is refused.
pub(super) struct Params<T>(pub(super) T);

impl<T: DeserializeOwned, S: Sync> FromRequestParts<S> for Params<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, ApiError> {
        let Query(params) = Query::try_from_uri(&parts.uri)
            .map_err(|error| ApiError::bad_request("invalid_query", error.body_text()))?;
        Ok(Self(params))
    }
}
