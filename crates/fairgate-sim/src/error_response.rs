//! Error responses in the format of the API that the request used.

use bytes::Bytes;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use hyper::{Response, StatusCode};
use serde_json::{Value, json};

use crate::body::SimBody;

/// API whose error format a route uses: OpenAI's or Anthropic's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ApiDialect {
    OpenAi,
    Anthropic,
}

/// An error response: the status, the message and the fields of the API's error object.
#[derive(Debug)]
pub(crate) struct SimErrorResponse {
    pub(crate) status: StatusCode,
    message: String,
    /// Value of `code` in OpenAI's format; `None` becomes null.
    code: Option<&'static str>,
    /// Name of the invalid field of the request; `None` if no single field is the cause.
    param: Option<&'static str>,
    /// Value of `type` in OpenAI's format; `None` takes the usual type of the status.
    kind: Option<&'static str>,
    retry_after_seconds: Option<u32>,
    allow: Option<&'static str>,
    /// Further headers of the response. They are boxed because most refusals have none.
    headers: Option<Box<HeaderMap>>,
}

impl SimErrorResponse {
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

    /// Refuses a request because of one field, with status 400.
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

    /// Sets the further headers of the response, and drops those that were set before.
    pub(crate) fn headers(self, headers: HeaderMap) -> Self {
        Self { headers: Some(Box::new(headers)), ..self }
    }

    pub(crate) fn retry_after(self, seconds: Option<u32>) -> Self {
        Self { retry_after_seconds: seconds, ..self }
    }

    pub(crate) fn allow(self, methods: &'static str) -> Self {
        Self { allow: Some(methods), ..self }
    }

    pub(crate) fn into_response(self, dialect: ApiDialect) -> Response<SimBody> {
        let mut response = json_response(self.status, &self.to_json(dialect));
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

    fn to_json(&self, dialect: ApiDialect) -> Value {
        let (message, kind) = (&self.message, self.type_name(dialect));
        match dialect {
            ApiDialect::OpenAi => json!({"error": {
                "message": message, "type": kind, "param": self.param, "code": self.code,
            }}),
            ApiDialect::Anthropic => {
                json!({"type": "error", "error": {"type": kind, "message": message}})
            }
        }
    }

    fn type_name(&self, dialect: ApiDialect) -> &'static str {
        if let (ApiDialect::OpenAi, Some(kind)) = (dialect, self.kind) {
            return kind;
        }
        match (dialect, self.status.as_u16()) {
            (ApiDialect::OpenAi, 429) => "requests",
            (ApiDialect::OpenAi, 500..) => "server_error",
            (ApiDialect::OpenAi, _) => "invalid_request_error",
            (ApiDialect::Anthropic, 401) => "authentication_error",
            (ApiDialect::Anthropic, 403) => "permission_error",
            (ApiDialect::Anthropic, 404) => "not_found_error",
            (ApiDialect::Anthropic, 413) => "request_too_large",
            (ApiDialect::Anthropic, 429) => "rate_limit_error",
            (ApiDialect::Anthropic, 503 | 529) => "overloaded_error",
            (ApiDialect::Anthropic, 500..) => "api_error",
            (ApiDialect::Anthropic, _) => "invalid_request_error",
        }
    }
}

/// Builds a whole JSON response.
pub(crate) fn json_response(status: StatusCode, value: &Value) -> Response<SimBody> {
    let mut response = Response::new(SimBody::whole(Bytes::from(value.to_string())));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_api_has_its_own_shape_of_error() {
        let refusal = SimErrorResponse::field("model", "no such model").code("model_not_found");
        let json = refusal.to_json(ApiDialect::OpenAi);
        assert_eq!(json["error"]["type"], "invalid_request_error");
        assert_eq!(
            (&json["error"]["param"], &json["error"]["code"]),
            (&json!("model"), &json!("model_not_found"))
        );
        let json = SimErrorResponse::new(StatusCode::SERVICE_UNAVAILABLE, "full")
            .to_json(ApiDialect::Anthropic);
        assert_eq!(
            json,
            json!({"type": "error", "error": {"type": "overloaded_error", "message": "full"}})
        );
    }
}
