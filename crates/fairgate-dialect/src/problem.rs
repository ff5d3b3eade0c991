//! Errors as callers of either dialect know them.

use bytes::Bytes;
use http::StatusCode;
use serde_json::{Value, json};

use crate::ask::BadAsk;
use crate::route::{Dialect, Route};

/// An error as a caller sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The HTTP status.
    pub status: StatusCode,
    /// The stable code, such as `queue_full`.
    pub code: &'static str,
    /// What happened, what it concerned and what to do.
    pub message: String,
    /// The parameter, where one is to blame.
    pub param: Option<&'static str>,
    /// The limit that was reached, where one was.
    pub reached: Option<Box<Reached>>,
}

/// A limit that was reached, for programs to read: `error.limit` in the body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reached {
    /// The policy class whose limit it is; the whole pool's where absent.
    pub class: Option<String>,
    /// How much was there.
    pub current: u128,
    /// How much may be there.
    pub bound: u128,
}

impl Reached {
    /// `{"class","current","bound"}`. A number that JSON cannot carry exactly is the largest that fits 64 bits.
    fn json(&self) -> Value {
        let number = |number: u128| u64::try_from(number).unwrap_or(u64::MAX);
        json!({ "class": self.class, "current": number(self.current), "bound": number(self.bound) })
    }
}

/// One row a status: its number, OpenAI's type, Anthropic's type.
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

/// OpenAI's word for a caller who has used up what it may: clients do not try again on it, unlike on a rate limit.
const QUOTA: &str = "insufficient_quota";

impl Problem {
    /// The JSON body in the caller's dialect. OpenAI: `{"error":{"message","type","param","code"}}`; Anthropic:
    /// `{"type":"error","error":{"type","message","code"},"request_id"}` with its own type for each status. Where a limit was
    /// reached, `error` has `limit` too.
    pub fn body(&self, dialect: Dialect, request_id: &str) -> Bytes {
        let value = match dialect {
            Dialect::OpenAi => json!({ "error": self.openai() }),
            Dialect::Anthropic => self.anthropic(request_id),
        };
        Bytes::from(value.to_string())
    }

    /// The error as an event of a stream that has begun, in the caller's dialect. Nothing may follow it: it tells the
    /// clients of both vendors that the answer is broken off.
    pub fn event(&self, route: Route, request_id: &str) -> Bytes {
        let text = match route {
            Route::Messages | Route::CountTokens => {
                format!("event: error\ndata: {}\n\n", self.anthropic(request_id))
            }
            // The documented event is flat; the clients look for `error` in it.
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
        let kind = if self.is_quota() { QUOTA } else { self.types().0 };
        let param = self.param;
        let error =
            json!({ "message": self.message, "type": kind, "param": param, "code": self.code });
        self.with_limit(error)
    }

    fn anthropic(&self, request_id: &str) -> Value {
        let error = json!({ "type": self.types().1, "message": self.message, "code": self.code });
        let error = self.with_limit(error);
        json!({ "type": "error", "error": error, "request_id": request_id })
    }

    fn with_limit(&self, mut error: Value) -> Value {
        if let Some(reached) = &self.reached {
            error["limit"] = reached.json();
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

    fn is_quota(&self) -> bool {
        self.code == QUOTA || self.code.starts_with("budget_")
    }
}

impl From<BadAsk> for Problem {
    /// A bad body is the caller's mistake: 400.
    fn from(bad: BadAsk) -> Self {
        let BadAsk { code, param, message } = bad;
        Self { status: StatusCode::BAD_REQUEST, code, message, param, reached: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(status: u16, code: &'static str) -> Problem {
        let status = StatusCode::from_u16(status).unwrap();
        Problem { status, code, message: "It \"broke\"\n".to_owned(), param: None, reached: None }
    }

    fn kind(problem: &Problem, dialect: Dialect) -> String {
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
        assert_eq!(kind(&problem(429, "budget_exhausted"), Dialect::OpenAi), "insufficient_quota");
        assert_eq!(kind(&problem(429, "rate_limited"), Dialect::OpenAi), "rate_limit_error");
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
