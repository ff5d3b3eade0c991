//! Extractor for query strings, which are parsed strictly.

use axum::extract::{FromRequestParts, Query};
use http::request::Parts;
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};

use super::api_error::ApiError;

/// A query string. Unknown or repeated parameters and values out of range are refused.
pub(super) struct QueryParams<T>(pub(super) T);

impl<T: DeserializeOwned, S: Sync> FromRequestParts<S> for QueryParams<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, ApiError> {
        let Query(params) = Query::try_from_uri(&parts.uri)
            .map_err(|error| ApiError::bad_request("invalid_query", error.body_text()))?;
        Ok(Self(params))
    }
}

/// Maximum length of a name in a query string, in characters.
const LONGEST_FILTER: usize = 512;

/// A name in a query string: a filter, or the last entry of the previous page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NameFilter(pub(super) String);

impl NameFilter {
    /// Returns true if the filter equals this name.
    pub(super) fn is(&self, name: &str) -> bool {
        self.0 == name
    }
}

impl<'de> Deserialize<'de> for NameFilter {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        if name.chars().nth(LONGEST_FILTER).is_some() {
            return Err(D::Error::custom(format!("is longer than {LONGEST_FILTER} characters")));
        }
        Ok(Self(name))
    }
}
