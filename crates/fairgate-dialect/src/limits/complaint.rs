//! The body of an error, in any of the shapes that providers use.

use std::time::Duration;

use serde_json::Value;

use super::span::span;
use super::{Counted, Window};

/// Larger bodies are no error messages.
const BODY_BYTES_MAX: usize = 64 * 1024;
/// Codes are short words; what is longer is text.
const CODE_BYTES_MAX: usize = 64;

/// What an error says, whoever it comes from.
#[derive(Debug, Default)]
pub(super) struct Complaint {
    /// Every machine-readable name: code, type, status, reason. In lower case.
    codes: Vec<String>,
    /// The sentence for people.
    pub(super) message: String,
    /// Headers that a router passes on in the body (OpenRouter).
    pub(super) headers: Vec<(String, String)>,
    /// What Google's error details say.
    pub(super) quota: Option<Quota>,
    /// Google's `retryDelay`.
    pub(super) wait: Option<Duration>,
}

/// A quota that Google names: what it counts, over which time, how much it allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Quota {
    pub(super) window: Option<Window>,
    pub(super) counted: Option<Counted>,
    pub(super) limit: Option<u64>,
}

impl Complaint {
    /// Reads a body; a body that is no JSON is a message.
    pub(super) fn read(body: &[u8]) -> Self {
        if body.len() > BODY_BYTES_MAX {
            return Self::default();
        }
        let mut complaint = Self::default();
        match serde_json::from_slice::<Value>(body) {
            // Google wraps it in an array when it streams.
            Ok(Value::Array(all)) => all.first().into_iter().for_each(|one| complaint.outer(one)),
            Ok(value) => complaint.outer(&value),
            Err(_) => complaint.message = String::from_utf8_lossy(body).into_owned(),
        }
        complaint
    }

    /// The first of these codes that it has. They must be in lower case.
    pub(super) fn code(&self, wanted: &[&'static str]) -> Option<&'static str> {
        wanted.iter().copied().find(|wanted| self.codes.iter().any(|code| code == wanted))
    }

    /// Its own code for a log: the first that is not a mere status.
    pub(super) fn name(&self) -> Option<&str> {
        self.codes.first().map(String::as_str)
    }

    /// `{"error": {…}}`, `{"error": "…"}`, or the error itself.
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
            // Anthropic.
            details @ Value::Object(_) => self.add_code(&details["error_code"]),
            // Google.
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
            // Where several are violated, the one over the longest time lasts.
            self.quota = self.quota.max(Some(Quota::named(id, limit)));
        }
    }
}

impl Quota {
    /// `GenerateContentInputTokensPerModelPerMinute-FreeTier`.
    fn named(id: &str, limit: Option<u64>) -> Self {
        let counted = [
            ("InputToken", Counted::InputTokens),
            ("OutputToken", Counted::OutputTokens),
            ("Token", Counted::Tokens),
            ("Request", Counted::Requests),
        ];
        let windows =
            [("PerMinute", Window::Minute), ("PerHour", Window::Hour), ("PerDay", Window::Day)];
        Self {
            window: windows.iter().find(|(name, _)| id.contains(name)).map(|(_, window)| *window),
            counted: counted.iter().find(|(name, _)| id.contains(name)).map(|(_, what)| *what),
            limit: limit.filter(|limit| (1..=super::COUNT_MAX).contains(limit)),
        }
    }
}
