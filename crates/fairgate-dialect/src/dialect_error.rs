//! Errors in the format of either dialect.

use bytes::Bytes;
use http::StatusCode;
use serde_json::{Value, json};

use crate::route::{Dialect, Route};

/// An error as a client sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DialectError {
    /// Status of the HTTP response.
    pub status: StatusCode,
    /// Stable code, such as `queue_full`.
    pub code: &'static str,
    /// True if the client has used up a quota. In OpenAI's dialect the error then has the type `insufficient_quota`,
    /// after which OpenAI's client libraries do not retry.
    pub is_quota: bool,
    /// Text that says what happened, to which object, and what to do.
    pub message: String,
    /// Name of the invalid parameter; `None` if no parameter is the cause.
    pub param: Option<&'static str>,
    /// Limit that the request exceeded; `None` if no limit is the cause.
    pub reached: Option<Box<ReachedLimit>>,
    /// Time that another request like this one would wait, in milliseconds; `None` if it is unknown.
    pub expected_wait_ms: Option<u64>,
}

/// A limit that was reached, in machine-readable form: `error.limit` in the body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReachedLimit {
    /// Name of the policy class that has the limit; `None` for a limit of the whole pool.
    pub class: Option<String>,
    /// Amount in use when the request was refused, in the limit's own unit.
    pub current: u128,
    /// Greatest amount that the limit allows, in the same unit as `current`.
    pub bound: u128,
}

impl ReachedLimit {
    /// Returns the JSON object `{"class","current","bound"}`. A number that needs more than 64 bits becomes the largest
    /// 64-bit number.
    fn json(&self) -> Value {
        let number = |number: u128| u64::try_from(number).unwrap_or(u64::MAX);
        json!({ "class": self.class, "current": number(self.current), "bound": number(self.bound) })
    }
}

/// Error types by HTTP status: the status, OpenAI's type, Anthropic's type.
const TYPES: [(u16, &str, &str); 16] = [
    (400, "invalid_request_error", "invalid_request_error"),
    (401, "authentication_error", "authentication_error"),
    (402, "insufficient_quota", "billing_error"),
    (403, "permission_error", "permission_error"),
    (404, "not_found_error", "not_found_error"),
    (405, "invalid_request_error", "invalid_request_error"),
    (408, "timeout_error", "timeout_error"),
    (409, "conflict_error", "conflict_error"),
    (413, "invalid_request_error", "request_too_large"),
    (415, "invalid_request_error", "invalid_request_error"),
    (429, "rate_limit_error", "rate_limit_error"),
    (500, "server_error", "api_error"),
    (502, "server_error", "api_error"),
    (503, "server_error", "overloaded_error"),
    (504, "server_error", "timeout_error"),
    (529, "server_error", "overloaded_error"),
];

/// OpenAI's error type for a client that has used up its quota. Clients retry after a rate limit, but not after this
/// error.
const QUOTA: &str = "insufficient_quota";

impl DialectError {
    /// Returns the JSON body in the client's dialect. OpenAI: `{"error":{"message","type","param","code"}}`; Anthropic:
    /// `{"type":"error","error":{"type","message","code"},"request_id"}` with its own type for each status. `error`
    /// also has `limit` if a limit was reached, and `expected_wait_ms` if that is known.
    pub fn body(&self, dialect: Dialect, request_id: &str) -> Bytes {
        let value = match dialect {
            Dialect::OpenAi => json!({ "error": self.openai() }),
            Dialect::Anthropic => self.anthropic(request_id),
        };
        Bytes::from(value.to_string())
    }

    /// Returns the error in the client's dialect as an event for a stream that has begun. The event must be the last of
    /// the stream, because it tells the clients of both vendors that the answer has failed.
    pub fn event(&self, route: Route, request_id: &str) -> Bytes {
        let text = match route {
            Route::Messages | Route::CountTokens => {
                format!("event: error\ndata: {}\n\n", self.anthropic(request_id))
            }
            // The documented event is flat, but the client libraries look for a member `error` in it.
            Route::Responses => {
                let event = json!({
                    "type": "error",
                    "code": self.code,
                    "message": self.message,
                    "param": self.param,
                    "sequence_number": 0,
                    "error": self.openai(),
                });
                format!("event: error\ndata: {event}\n\n")
            }
            Route::ChatCompletions | Route::Completions | Route::Embeddings => {
                format!("data: {}\n\n", json!({ "error": self.openai() }))
            }
        };
        Bytes::from(text)
    }

    fn openai(&self) -> Value {
        let kind = if self.is_quota { QUOTA } else { self.types().0 };
        let param = self.param;
        let error =
            json!({ "message": self.message, "type": kind, "param": param, "code": self.code });
        self.with_numbers(error)
    }

    fn anthropic(&self, request_id: &str) -> Value {
        let error = json!({ "type": self.types().1, "message": self.message, "code": self.code });
        let error = self.with_numbers(error);
        json!({ "type": "error", "error": error, "request_id": request_id })
    }

    fn with_numbers(&self, mut error: Value) -> Value {
        if let Some(reached) = &self.reached {
            error["limit"] = reached.json();
        }
        if let Some(millis) = self.expected_wait_ms {
            error["expected_wait_ms"] = json!(millis);
        }
        error
    }

    fn types(&self) -> (&'static str, &'static str) {
        let status = self.status.as_u16();
        let row = |wanted: u16| TYPES.iter().find(|row| row.0 == wanted);
        let like = if self.status.is_server_error() { 500 } else { 400 };
        row(status)
            .or_else(|| row(like))
            .map_or(("server_error", "api_error"), |row| (row.1, row.2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(status: u16, code: &'static str) -> DialectError {
        let status = StatusCode::from_u16(status).unwrap();
        DialectError {
            status,
            code,
            is_quota: false,
            message: "It \"broke\"\n".to_owned(),
            param: None,
            reached: None,
            expected_wait_ms: None,
        }
    }

    fn kind(problem: &DialectError, dialect: Dialect) -> String {
        let body: Value = serde_json::from_slice(&problem.body(dialect, "req_1")).unwrap();
        body["error"]["type"].as_str().unwrap().to_owned()
    }

    #[test]
    fn bodies_have_the_shape_of_their_dialect() {
        let mut missing = problem(400, "missing_model");
        missing.param = Some("model");
        let openai: Value =
            serde_json::from_slice(&missing.body(Dialect::OpenAi, "req_1")).unwrap();
        let inner = json!({
            "message": "It \"broke\"\n", "type": "invalid_request_error", "param": "model", "code": "missing_model",
        });
        assert_eq!(openai, json!({ "error": inner }));
        let anthropic: Value =
            serde_json::from_slice(&missing.body(Dialect::Anthropic, "req_1")).unwrap();
        let inner = json!({
            "type": "invalid_request_error", "message": "It \"broke\"\n", "code": "missing_model",
        });
        assert_eq!(anthropic, json!({ "type": "error", "error": inner, "request_id": "req_1" }));
    }

    #[test]
    fn every_status_has_a_type_in_both_dialects() {
        for (status, openai, anthropic) in TYPES {
            let problem = problem(status, "some_code");
            assert_eq!(kind(&problem, Dialect::OpenAi), openai);
            assert_eq!(kind(&problem, Dialect::Anthropic), anthropic);
        }
        for (status, openai, anthropic) in [
            (418, "invalid_request_error", "invalid_request_error"),
            (507, "server_error", "api_error"),
        ] {
            let problem = problem(status, "some_code");
            assert_eq!(kind(&problem, Dialect::OpenAi), openai);
            assert_eq!(kind(&problem, Dialect::Anthropic), anthropic);
        }
    }

    #[test]
    fn an_exhausted_budget_is_no_rate_limit_to_openais_clients() {
        let limited = problem(429, "rate_limited");
        assert_eq!(kind(&limited, Dialect::OpenAi), "rate_limit_error");
        let exhausted = DialectError { is_quota: true, ..limited };
        assert_eq!(kind(&exhausted, Dialect::OpenAi), "insufficient_quota");
        assert_eq!(kind(&exhausted, Dialect::Anthropic), "rate_limit_error");
    }

    #[test]
    fn events_are_one_event_with_the_error_where_clients_look_for_it() {
        for route in Route::ALL {
            let event = problem(502, "upstream_broke").event(route, "req_1");
            let text = std::str::from_utf8(&event).unwrap();
            assert!(text.ends_with("\n\n") && text.matches("\n\n").count() == 1, "{text}");
            let (_, data) = text.split_once("data: ").unwrap();
            let data: Value = serde_json::from_str(data).unwrap();
            assert_eq!(data["error"]["message"], "It \"broke\"\n");
            assert_eq!(text.starts_with("event: error\n"), data["type"] == "error", "{text}");
        }
    }
}
