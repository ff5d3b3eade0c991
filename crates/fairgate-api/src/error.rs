//! Error responses of the APIs, and the fields that a client reads from them.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// Body of every error response of the admin API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    /// The error with its code and message.
    pub error: ErrorDetail,
}

/// Code and message of an error, with the faulty field or the faulty lines of the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorDetail {
    /// Stable code for programs, such as `not_found`.
    pub code: String,
    /// Text for people that says what happened, to which object, and what to do.
    pub message: String,
    /// Path of the faulty field, from the top of the body or query, such as `limits.in_flight`. Absent if no single
    /// field is at fault.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub field: Option<String>,
    /// All errors of the configuration file; absent unless a reload was refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub problems: Vec<ConfigProblem>,
}

/// One error of a configuration file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ConfigProblem {
    /// Path of the file; null if the error is in no particular file.
    pub file: Option<String>,
    /// Line number, counted from 1; null if the line is not known.
    pub line: Option<usize>,
    /// Column in characters, counted from 1; null if the column is not known.
    pub column: Option<usize>,
    /// Path of the field, such as `pools[1].workers[0]`.
    pub field: String,
    /// Text for people that says what is wrong with the field, and what would be right.
    pub message: String,
}

/// Fields of an error response. A field is `None` if the response does not have it. The response
/// may come from the admin API, from the clients' API, which has other fields, or from a proxy in
/// between.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorFields {
    /// Stable code for programs.
    pub code: Option<String>,
    /// Text that says what happened, for people.
    pub message: Option<String>,
    /// Path of the faulty field.
    pub field: Option<String>,
    /// Type of the error. Only errors of the clients' API have a type.
    pub kind: Option<String>,
}

impl ErrorFields {
    /// Reads the body of an error response. All fields are `None` unless the body is JSON with an
    /// object `error`.
    pub fn read(body: &str) -> Self {
        let body: Value = serde_json::from_str(body).unwrap_or_default();
        let error = body.get("error");
        let field = |name| error?.get(name)?.as_str().map(str::to_owned);
        Self {
            code: field("code"),
            message: field("message"),
            field: field("field"),
            kind: field("type"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_reads_what_the_gateway_writes() {
        let detail = ErrorDetail {
            code: "not_found".into(),
            message: "there is no tenant \"x\"".into(),
            field: Some("tenant".into()),
            problems: Vec::new(),
        };
        let text = serde_json::to_string(&ErrorBody { error: detail.clone() }).unwrap();
        assert_eq!(serde_json::from_str::<ErrorBody>(&text).unwrap().error, detail);
        let read = ErrorFields::read(&text);
        assert_eq!(read.code.as_deref(), Some("not_found"));
        assert_eq!(read.message, Some(detail.message));
        assert_eq!((read.field.as_deref(), read.kind), (Some("tenant"), None));
    }

    #[test]
    fn other_servers_errors_have_what_they_have() {
        for text in ["<html>", "", "[]", "{\"error\":\"no\"}"] {
            assert_eq!(ErrorFields::read(text), ErrorFields::default(), "{text}");
        }
        let dialect = r#"{"error":{"message":"m","type":"t","param":null,"code":404}}"#;
        let read = ErrorFields::read(dialect);
        assert_eq!((read.message.as_deref(), read.kind.as_deref()), (Some("m"), Some("t")));
        assert_eq!(read.code, None);
    }
}
