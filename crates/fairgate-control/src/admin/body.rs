//! Extractors for request bodies, with a maximum size. JSON is parsed strictly.

use axum::extract::{FromRequest, Request};
use bytes::Bytes;
use http::StatusCode;
use http::header::CONTENT_TYPE;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::DeserializeOwned;

use super::api_error::ApiError;
use super::name::JsonObject;

/// Maximum size of a body in bytes, unless a handler sets another.
const BODY_BYTES_MAX: usize = 1 << 20;

/// A JSON body of at most `MOST` bytes. The error for invalid syntax names the line and column; the error for a value
/// of the wrong shape names the field.
pub(super) struct JsonBody<T, const MOST: usize = BODY_BYTES_MAX>(pub(super) T);

/// A body of at most `MOST` arbitrary bytes.
pub(super) struct RawBody<const MOST: usize>(pub(super) Bytes);

impl<S: Sync, const MOST: usize> FromRequest<S> for RawBody<MOST> {
    type Rejection = ApiError;

    async fn from_request(request: Request, _state: &S) -> Result<Self, ApiError> {
        read_bytes(request, MOST).await.map(Self)
    }
}

impl<T: DeserializeOwned, S: Sync, const MOST: usize> FromRequest<S> for JsonBody<T, MOST> {
    type Rejection = ApiError;

    async fn from_request(request: Request, _state: &S) -> Result<Self, ApiError> {
        let content_type =
            request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        if !content_type.is_some_and(is_json) {
            return Err(ApiError::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "unsupported_media_type",
                "the body must be JSON, and say so: Content-Type: application/json",
            ));
        }
        read(&read_bytes(request, MOST).await?).map(Self)
    }
}

async fn read_bytes(request: Request, most: usize) -> Result<Bytes, ApiError> {
    let collected = Limited::new(request.into_body(), most).collect().await;
    let collected = collected.map_err(|error| match error.is::<LengthLimitError>() {
        true => ApiError::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "body_too_large",
            format!("the body is larger than {most} bytes"),
        ),
        false => ApiError::bad_request("broken_body", "the body ended before its end"),
    })?;
    Ok(collected.to_bytes())
}

fn is_json(content_type: &str) -> bool {
    let media_type = content_type.split(';').next().unwrap_or_default().trim();
    media_type.eq_ignore_ascii_case("application/json")
}

fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ApiError> {
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let read: Result<JsonObject<T>, _> = serde_path_to_error::deserialize(&mut json);
    let JsonObject(value) = read.map_err(|error| {
        let path = error.path().to_string();
        body_error(&error.into_inner(), &path)
    })?;
    json.end().map_err(|error| body_error(&error, "."))?;
    Ok(value)
}

fn body_error(error: &serde_json::Error, path: &str) -> ApiError {
    let told = match error.is_data() {
        true => ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid_value", error.to_string()),
        false => ApiError::bad_request("invalid_json", format!("the body is no JSON: {error}")),
    };
    match path {
        "." | "?" => told,
        path => told.in_field(path),
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(deny_unknown_fields)]
    struct Outer {
        inner: Inner,
    }

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(deny_unknown_fields)]
    struct Inner {
        weight: u64,
    }

    fn error(text: &str) -> String {
        format!("{:?}", read::<Outer>(text.as_bytes()).expect_err("wrong"))
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place_and_field() {
        assert_eq!(
            read::<Outer>(br#"{"inner":{"weight":1}}"#).ok(),
            Some(Outer { inner: Inner { weight: 1 } })
        );
        for (text, told) in [
            (r#"{"inner":{"weight":-1}}"#, ["422", "line 1 column 21", "inner.weight"]),
            (r#"{"inner":{"wieght":1}}"#, ["422", "unknown field `wieght`", "inner.wieght"]),
            (r#"{"inner":{}}"#, ["422", "missing field `weight`", "inner"]),
            ("{\"inner\":\n{", ["400", "line 2 column 1", "invalid_json"]),
            (r#"{"inner":{"weight":1}} x"#, ["400", "trailing characters", "invalid_json"]),
            ("", ["400", "EOF", "invalid_json"]),
        ] {
            let error = error(text);
            assert!(told.iter().all(|told| error.contains(told)), "{text}: {error}");
        }
    }

    #[test]
    fn content_types() {
        assert!(is_json("application/json"));
        assert!(is_json("Application/JSON; charset=utf-8"));
        assert!(!is_json("text/plain"));
        assert!(!is_json("application/jsonp"));
    }
}
