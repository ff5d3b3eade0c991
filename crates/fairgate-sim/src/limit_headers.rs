//! Headers in which a provider states its limits with every answer, and the error response for a request that exceeds a
//! limit.

use std::time::Duration;

use fairgate_time::{UnixMicros, to_rfc3339, wall_clock};
use hyper::StatusCode;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};

use crate::account::{AccountLevels, ExceededLimit, SimAccount};
use crate::bucket::BucketLevel;
use crate::error_response::{ApiDialect, SimErrorResponse};
use crate::limit_statement::{LimitHeaderFault, LimitHeaders};

const YEAR: Duration = Duration::from_secs(365 * 86_400);

/// Returns the format of the headers for a route; `None` if responses have no such headers.
fn style(account: &SimAccount, route: ApiDialect) -> Option<ApiDialect> {
    match account.options.statement {
        LimitHeaders::Route => Some(route),
        LimitHeaders::OpenAi => Some(ApiDialect::OpenAi),
        LimitHeaders::Anthropic => Some(ApiDialect::Anthropic),
        LimitHeaders::Nothing => None,
    }
}

/// Builds the headers that state the account's limits, for an answer or a refusal.
pub(crate) fn headers(
    account: &SimAccount,
    standing: AccountLevels,
    route: ApiDialect,
) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let Some(style) = style(account, route) else { return headers };
    let lie = account.options.lie;
    for (counted, level) in [("requests", standing.requests), ("tokens", standing.tokens)] {
        let Some(level) = level else { continue };
        let stated = StatedLimit::new(level, lie, standing.statement);
        for (field, value) in [
            ("limit", stated.limit(lie)),
            ("remaining", stated.remaining(lie, style, counted)),
            ("reset", stated.reset(lie, style)),
        ] {
            let name = match style {
                ApiDialect::OpenAi => format!("x-ratelimit-{field}-{counted}"),
                ApiDialect::Anthropic => format!("anthropic-ratelimit-{counted}-{field}"),
            };
            insert(&mut headers, &name, &value);
        }
    }
    headers
}

/// Builds the refusal of a request that exceeds a limit.
pub(crate) fn refusal(
    account: &SimAccount,
    shortage: ExceededLimit,
    standing: AccountLevels,
    tokens: u64,
    model: &str,
    route: ApiDialect,
) -> SimErrorResponse {
    let status = StatusCode::TOO_MANY_REQUESTS;
    let mut stated = headers(account, standing, route);
    let Some(style) = style(account, route) else {
        let refusal = SimErrorResponse::new(status, "Too many requests. Try again later.");
        return refusal.kind("rate_limit_error").code("rate_limit_exceeded");
    };
    let (level, kind, unit, wait) = match shortage {
        ExceededLimit::Requests { wait } => (standing.requests, "requests", "requests", Some(wait)),
        ExceededLimit::Tokens { wait } => (standing.tokens, "tokens", "tokens", Some(wait)),
        ExceededLimit::TooLarge => (standing.tokens, "tokens", "tokens", None),
    };
    let requested = if kind == "requests" { 1 } else { tokens };
    let message = match (route, level, wait) {
        (ApiDialect::OpenAi, Some(level), Some(wait)) => format!(
            "Rate limit reached for {model} on {unit} per min ({}PM): Limit {}, Used {}, Requested {requested}. Please try \
             again in {}.",
            if kind == "requests" { "R" } else { "T" },
            level.per_minute,
            level.per_minute.saturating_sub(level.remaining),
            go_duration(wait),
        ),
        (ApiDialect::OpenAi, Some(level), None) => format!(
            "Request too large for {model} on tokens per min (TPM): Limit {}, Requested {requested}. Send fewer input \
             tokens or ask for fewer output tokens.",
            level.depth,
        ),
        (ApiDialect::Anthropic, Some(level), _) => format!(
            "This request would exceed your organization's rate limit of {} {unit} per minute.",
            thousands(level.per_minute),
        ),
        (_, None, _) => "Too many requests.".to_owned(),
    };
    if let Some(wait) = wait {
        retry_after(&mut stated, wait, style, account.options.lie);
    }
    SimErrorResponse::new(status, message).kind(kind).code("rate_limit_exceeded").headers(stated)
}

fn retry_after(
    headers: &mut HeaderMap,
    wait: Duration,
    style: ApiDialect,
    lie: Option<LimitHeaderFault>,
) {
    let wait = if lie == Some(LimitHeaderFault::ResetInAYear) { YEAR } else { wait };
    let seconds = wait.as_micros().div_ceil(1_000_000).max(1);
    let (seconds, millis) = match lie {
        Some(LimitHeaderFault::Negative) => ("-1".to_owned(), "-1".to_owned()),
        Some(LimitHeaderFault::Absurd) => ("9".repeat(19), "9".repeat(19)),
        _ => (seconds.to_string(), wait.as_micros().div_ceil(1000).to_string()),
    };
    insert(headers, "retry-after", &seconds);
    if style == ApiDialect::OpenAi {
        insert(headers, "retry-after-ms", &millis);
    }
}

fn insert(headers: &mut HeaderMap, name: &str, value: &str) {
    // Names and values consist of letters and digits here, so neither conversion fails.
    if let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), HeaderValue::from_str(value)) {
        headers.insert(name, value);
    }
}

/// The numbers of one limit before they are formatted. The deliberate errors `negative` and `absurd` are added when the
/// numbers are formatted.
struct StatedLimit {
    limit: u64,
    remaining: u64,
    reset: Duration,
}

impl StatedLimit {
    fn new(level: BucketLevel, lie: Option<LimitHeaderFault>, statement: u64) -> Self {
        let BucketLevel { per_minute, remaining, full_after, .. } = level;
        match lie {
            Some(LimitHeaderFault::Flapping) if statement % 2 == 1 => {
                let limit = (per_minute / 10).max(1);
                Self { limit, remaining: 0, reset: Duration::from_secs(59) }
            }
            Some(LimitHeaderFault::RemainingZero) => {
                Self { limit: per_minute, remaining: 0, reset: full_after }
            }
            Some(LimitHeaderFault::ResetInAYear) => {
                Self { limit: per_minute, remaining, reset: YEAR }
            }
            _ => Self { limit: per_minute, remaining, reset: full_after },
        }
    }

    fn limit(&self, lie: Option<LimitHeaderFault>) -> String {
        number(self.limit, lie)
    }

    fn remaining(&self, lie: Option<LimitHeaderFault>, style: ApiDialect, counted: &str) -> String {
        let rounds = style == ApiDialect::Anthropic && counted == "tokens";
        let left = self.remaining;
        number(if rounds { left.saturating_add(500) / 1000 * 1000 } else { left }, lie)
    }

    fn reset(&self, lie: Option<LimitHeaderFault>, style: ApiDialect) -> String {
        match (lie, style) {
            (Some(LimitHeaderFault::Negative), _) => "-1s".to_owned(),
            (Some(LimitHeaderFault::Absurd), _) => format!("{}h", "9".repeat(19)),
            (_, ApiDialect::OpenAi) => go_duration(self.reset),
            (_, ApiDialect::Anthropic) => rfc3339(self.reset),
        }
    }
}

fn number(number: u64, lie: Option<LimitHeaderFault>) -> String {
    match lie {
        Some(LimitHeaderFault::Negative) => "-1".to_owned(),
        Some(LimitHeaderFault::Absurd) => {
            number.saturating_add(1_000_000_000_000_000_000).to_string()
        }
        _ => number.to_string(),
    }
}

/// Formats a time span as OpenAI does, rounded up to the millisecond. Examples are `120ms`, `1.5s` and `6m0s`.
fn go_duration(span: Duration) -> String {
    let millis = span.as_micros().div_ceil(1000);
    if millis < 1000 {
        return if millis == 0 { "0s".to_owned() } else { format!("{millis}ms") };
    }
    let (hours, minutes, millis) = (millis / 3_600_000, millis / 60_000 % 60, millis % 60_000);
    let seconds = format!("{}.{:03}", millis / 1000, millis % 1000);
    let seconds = seconds.trim_end_matches('0').trim_end_matches('.');
    match (hours, minutes) {
        (0, 0) => format!("{seconds}s"),
        (0, minutes) => format!("{minutes}m{seconds}s"),
        (hours, minutes) => format!("{hours}h{minutes}m{seconds}s"),
    }
}

/// Formats the moment that is `span` from now, rounded up to the second, such as `2026-11-16T02:08:05Z`.
fn rfc3339(span: Duration) -> String {
    let seconds = wall_clock::since_1970().saturating_add(span).as_micros().div_ceil(1_000_000);
    written(u64::try_from(seconds).unwrap_or(u64::MAX))
}

fn written(unix_seconds: u64) -> String {
    let micros = i64::try_from(unix_seconds).ok().and_then(|s| s.checked_mul(1_000_000));
    to_rfc3339(UnixMicros(micros.unwrap_or(i64::MAX))).replace(".000000", "")
}

/// Formats a number with commas between thousands, such as `400,000`.
fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_and_moments_are_written_as_providers_do() {
        let spans = [
            (0, "0s"),
            (1, "1ms"),
            (120_000, "120ms"),
            (1_000_000, "1s"),
            (1_500_000, "1.5s"),
            (360_000_000, "6m0s"),
            (90_500_000, "1m30.5s"),
            (7_380_000_000, "2h3m0s"),
        ];
        for (micros, text) in spans {
            assert_eq!(go_duration(Duration::from_micros(micros)), text);
        }
        assert_eq!(written(1_794_794_885), "2026-11-16T02:08:05Z");
        assert_eq!(written(1_709_164_800), "2024-02-29T00:00:00Z");
        assert_eq!(written(1_735_689_599), "2024-12-31T23:59:59Z");
        assert_eq!((thousands(999), thousands(1_234_567)), ("999".into(), "1,234,567".into()));
    }

    #[test]
    fn lies_change_the_numbers() {
        let level = BucketLevel {
            per_minute: 100,
            depth: 100,
            remaining: 40,
            full_after: Duration::from_secs(36),
        };
        let stated = |lie, statement| {
            let stated = StatedLimit::new(level, lie, statement);
            let remaining = stated.remaining(lie, ApiDialect::OpenAi, "tokens");
            [stated.limit(lie), remaining, stated.reset(lie, ApiDialect::OpenAi)]
        };
        assert_eq!(stated(None, 0), ["100", "40", "36s"]);
        assert_eq!(stated(Some(LimitHeaderFault::RemainingZero), 0), ["100", "0", "36s"]);
        assert_eq!(stated(Some(LimitHeaderFault::ResetInAYear), 0), ["100", "40", "8760h0m0s"]);
        assert_eq!(stated(Some(LimitHeaderFault::Negative), 0), ["-1", "-1", "-1s"]);
        assert_eq!(stated(Some(LimitHeaderFault::Absurd), 0)[0], "1000000000000000100");
        assert_eq!(stated(Some(LimitHeaderFault::Flapping), 0), ["100", "40", "36s"]);
        assert_eq!(stated(Some(LimitHeaderFault::Flapping), 1), ["10", "0", "59s"]);
    }
}
