//! Parses the body of a provider's error, in any of the formats in use.

use std::time::Duration;

use serde_json::Value;

use super::time_span::span;
use super::{LimitUnit, LimitWindow};

/// Size in bytes of the largest body that is read. A larger body is not an error message.
const BODY_BYTES_MAX: usize = 64 * 1024;
/// Length in bytes of the longest code. A longer string counts as text and not as a code.
const CODE_BYTES_MAX: usize = 64;

/// The parts of a provider's error that are used, in one format for all providers.
#[derive(Debug, Default)]
pub(super) struct ProviderErrorBody {
    /// Values of `code`, `type`, `status` and `reason` in the error, in lower case.
    codes: Vec<String>,
    /// Text of the error message for people.
    pub(super) message: String,
    /// Headers of the provider that a router such as OpenRouter repeats in the body.
    pub(super) headers: Vec<(String, String)>,
    /// The quota in Google's error details; if there are several, the quota with the longest window.
    pub(super) quota: Option<GoogleQuota>,
    /// The longest `retryDelay` in Google's error details.
    pub(super) wait: Option<Duration>,
}

/// A quota in an error of Google's, with its unit, its window and the number allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct GoogleQuota {
    pub(super) window: Option<LimitWindow>,
    pub(super) counted: Option<LimitUnit>,
    pub(super) limit: Option<u64>,
}

impl ProviderErrorBody {
    /// Reads a body. A body that is not JSON is used as the message. A body larger than [`BODY_BYTES_MAX`] is ignored.
    pub(super) fn read(body: &[u8]) -> Self {
        if body.len() > BODY_BYTES_MAX {
            return Self::default();
        }
        let mut complaint = Self::default();
        match serde_json::from_slice::<Value>(body) {
            // Google wraps the error in an array on streaming routes.
            Ok(Value::Array(all)) => all.first().into_iter().for_each(|one| complaint.outer(one)),
            Ok(value) => complaint.outer(&value),
            Err(_) => complaint.message = String::from_utf8_lossy(body).into_owned(),
        }
        complaint
    }

    /// Returns the first of the `wanted` codes that the error has. The wanted codes must be in lower case.
    pub(super) fn code(&self, wanted: &[&'static str]) -> Option<&'static str> {
        wanted.iter().copied().find(|wanted| self.codes.iter().any(|code| code == wanted))
    }

    /// Returns the error's first code, for a log. The result is never a bare HTTP status, because numeric codes are not
    /// kept.
    pub(super) fn name(&self) -> Option<&str> {
        self.codes.first().map(String::as_str)
    }

    /// Reads an error in the form `{"error": {…}}`, `{"error": "…"}`, or without an outer object.
    fn outer(&mut self, value: &Value) {
        match &value["error"] {
            Value::String(message) => {
                self.message.clone_from(message);
                self.inner(value);
            }
            error @ Value::Object(_) => self.inner(error),
            _ => self.inner(value),
        }
    }

    fn inner(&mut self, error: &Value) {
        for name in ["code", "type", "status"] {
            self.add_code(&error[name]);
        }
        for name in ["message", "detail"] {
            if let (true, Some(message)) = (self.message.is_empty(), error[name].as_str()) {
                message.clone_into(&mut self.message);
            }
        }
        if let Some(headers) = error["metadata"]["headers"].as_object() {
            let pairs = headers.iter().filter_map(|(name, value)| match value {
                Value::String(text) => Some((name.clone(), text.clone())),
                Value::Number(number) => Some((name.clone(), number.to_string())),
                _ => None,
            });
            self.headers.extend(pairs);
        }
        match &error["details"] {
            // Anthropic's format.
            details @ Value::Object(_) => self.add_code(&details["error_code"]),
            // Google's format.
            Value::Array(details) => details.iter().for_each(|detail| self.detail(detail)),
            _ => {}
        }
    }

    fn add_code(&mut self, value: &Value) {
        if let Some(code) = value.as_str()
            && (1..=CODE_BYTES_MAX).contains(&code.len())
            && code.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'))
        {
            self.codes.push(code.to_ascii_lowercase());
        }
    }

    fn detail(&mut self, detail: &Value) {
        self.add_code(&detail["reason"]);
        if let Some(delay) = detail["retryDelay"].as_str().and_then(|text| span(text).ok()) {
            self.wait = self.wait.max(Some(delay));
        }
        let named =
            [(&detail["metadata"]["quota_limit"], &detail["metadata"]["quota_limit_value"])];
        let violations = detail["violations"].as_array().into_iter().flatten();
        let violations = violations.map(|one| (&one["quotaId"], &one["quotaValue"]));
        for (id, value) in violations.chain(named) {
            let Some(id) = id.as_str() else { continue };
            let limit = value.as_str().and_then(|text| text.parse().ok()).or(value.as_u64());
            // The violated quota with the longest window keeps requests from being accepted for the
            // longest time.
            self.quota = self.quota.max(Some(GoogleQuota::named(id, limit)));
        }
    }
}

impl GoogleQuota {
    /// Parses a quota id such as `GenerateContentInputTokensPerModelPerMinute-FreeTier`.
    fn named(id: &str, limit: Option<u64>) -> Self {
        let counted = [
            ("InputToken", LimitUnit::InputTokens),
            ("OutputToken", LimitUnit::OutputTokens),
            ("Token", LimitUnit::Tokens),
            ("Request", LimitUnit::Requests),
        ];
        let windows = [
            ("PerMinute", LimitWindow::Minute),
            ("PerHour", LimitWindow::Hour),
            ("PerDay", LimitWindow::Day),
        ];
        Self {
            window: windows.iter().find(|(name, _)| id.contains(name)).map(|(_, window)| *window),
            counted: counted.iter().find(|(name, _)| id.contains(name)).map(|(_, what)| *what),
            limit: limit.filter(|limit| (1..=super::COUNT_MAX).contains(limit)),
        }
    }
}
