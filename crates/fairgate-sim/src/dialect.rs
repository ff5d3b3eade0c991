//! How a request is refused, in the words of the API that it used.

use bytes::Bytes;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use hyper::{Response, StatusCode};
use serde_json::{Value, json};

use crate::body::Body;

/// Whose API a route speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    OpenAi,
    Anthropic,
}

/// Why a request has no answer.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    message: String,
    /// OpenAI's `code`, where there is one.
    code: Option<&'static str>,
    /// The field that is at fault, where it is one.
    param: Option<&'static str>,
    /// OpenAI's `type`, where the status does not say it.
    kind: Option<&'static str>,
    retry_after_seconds: Option<u32>,
    allow: Option<&'static str>,
    /// Further headers; boxed, since most refusals have none.
    headers: Option<Box<HeaderMap>>,
}

impl Refusal {
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self {
            status,
            message: message.into(),
            code: None,
            param: None,
            kind: None,
            retry_after_seconds: None,
            allow: None,
            headers: None,
        }
    }

    /// A field of the request is not as it must be.
    pub(crate) fn field(param: &'static str, message: impl Into<String>) -> Self {
        Self { param: Some(param), ..Self::new(StatusCode::BAD_REQUEST, message) }
    }

    pub(crate) fn status(self, status: StatusCode) -> Self {
        Self { status, ..self }
    }

    pub(crate) fn code(self, code: &'static str) -> Self {
        Self { code: Some(code), ..self }
    }

    pub(crate) fn kind(self, openai: &'static str) -> Self {
        Self { kind: Some(openai), ..self }
    }

    /// Further headers of the answer.
    pub(crate) fn headers(self, headers: HeaderMap) -> Self {
        Self { headers: Some(Box::new(headers)), ..self }
    }

    pub(crate) fn retry_after(self, seconds: Option<u32>) -> Self {
        Self { retry_after_seconds: seconds, ..self }
    }

    pub(crate) fn allow(self, methods: &'static str) -> Self {
        Self { allow: Some(methods), ..self }
    }

    pub(crate) fn into_response(self, dialect: Dialect) -> Response<Body> {
        let mut response = json_response(self.status, &self.told(dialect));
        let headers = response.headers_mut();
        if let Some(seconds) = self.retry_after_seconds {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if let Some(methods) = self.allow {
            headers.insert(ALLOW, HeaderValue::from_static(methods));
        }
        headers.extend(self.headers.map(|further| *further).unwrap_or_default());
        response
    }

    fn told(&self, dialect: Dialect) -> Value {
        let (message, kind) = (&self.message, self.type_name(dialect));
        match dialect {
            Dialect::OpenAi => json!({"error": {
                "message": message, "type": kind, "param": self.param, "code": self.code,
            }}),
            Dialect::Anthropic => {
                json!({"type": "error", "error": {"type": kind, "message": message}})
            }
        }
    }

    fn type_name(&self, dialect: Dialect) -> &'static str {
        if let (Dialect::OpenAi, Some(kind)) = (dialect, self.kind) {
            return kind;
        }
        match (dialect, self.status.as_u16()) {
            (Dialect::OpenAi, 429) => "requests",
            (Dialect::OpenAi, 500..) => "server_error",
            (Dialect::OpenAi, _) => "invalid_request_error",
            (Dialect::Anthropic, 401) => "authentication_error",
            (Dialect::Anthropic, 403) => "permission_error",
            (Dialect::Anthropic, 404) => "not_found_error",
            (Dialect::Anthropic, 413) => "request_too_large",
            (Dialect::Anthropic, 429) => "rate_limit_error",
            (Dialect::Anthropic, 503 | 529) => "overloaded_error",
            (Dialect::Anthropic, 500..) => "api_error",
            (Dialect::Anthropic, _) => "invalid_request_error",
        }
    }
}

/// A whole JSON answer.
pub(crate) fn json_response(status: StatusCode, value: &Value) -> Response<Body> {
    let mut response = Response::new(Body::whole(Bytes::from(value.to_string())));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_api_has_its_own_shape_of_error() {
        let refusal = Refusal::field("model", "no such model").code("model_not_found");
        let told = refusal.told(Dialect::OpenAi);
        assert_eq!(told["error"]["type"], "invalid_request_error");
        assert_eq!(
            (&told["error"]["param"], &told["error"]["code"]),
            (&json!("model"), &json!("model_not_found"))
        );
        let told = Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "full").told(Dialect::Anthropic);
        assert_eq!(
            told,
            json!({"type": "error", "error": {"type": "overloaded_error", "message": "full"}})
        );
    }
}
