//! Query strings and path segments, read strictly.

use axum::extract::{FromRequestParts, Query};
use http::request::Parts;
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};

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

/// How long a name in a query string may be, in characters.
const LONGEST_FILTER: usize = 512;

/// A name to filter by, or to go on after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Filter(pub(super) String);

impl Filter {
    /// Whether it is that name.
    pub(super) fn is(&self, name: &str) -> bool {
        self.0 == name
    }
}

impl<'de> Deserialize<'de> for Filter {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        if name.chars().nth(LONGEST_FILTER).is_some() {
            return Err(D::Error::custom(format!("is longer than {LONGEST_FILTER} characters")));
        }
        Ok(Self(name))
    }
}
