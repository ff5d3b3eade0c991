//! Classifies a header by the words in its name.

use super::{LimitUnit, LimitWindow};

/// Length in bytes of the longest header name that is read. No known rate-limit header is longer.
const NAME_BYTES_MAX: usize = 64;

/// Meaning of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeaderMeaning {
    /// A header with one number of one limit: the field, the unit, and the window if the name has one.
    Limit(LimitField, LimitUnit, Option<LimitWindow>),
    /// The header `retry-after`, whose value is a number of seconds or an HTTP date.
    RetryAfter,
    /// The header `retry-after-ms` of Azure and OpenAI, whose value is a number of milliseconds.
    RetryAfterMs,
    /// The header `date`, whose value is the time of the provider's clock.
    Date,
}

/// The number of a limit that a header states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LimitField {
    Limit,
    Remaining,
    Reset,
}

/// Prefixes of the names of rate-limit headers, each with the unit that applies if no other word of the name states a
/// unit.
const PREFIXES: [(&str, LimitUnit); 9] = [
    ("x-ratelimit-", LimitUnit::Requests),
    ("anthropic-ratelimit-", LimitUnit::Requests),
    ("ratelimit-", LimitUnit::Requests),
    ("x-rate-limit-", LimitUnit::Requests),
    // Used by Together.
    ("x-tokenlimit-", LimitUnit::Tokens),
    ("tokenlimit-", LimitUnit::Tokens),
    // Used by Mistral before it adopted OpenAI's names.
    ("x-ratelimitbysize-", LimitUnit::Tokens),
    ("ratelimitbysize-", LimitUnit::Tokens),
    ("x-ms-ratelimit-", LimitUnit::Requests),
];

/// Classifies a header by its name, in upper or lower case. Returns `None` if the header is not about limits, or if it
/// is about a limit of an unknown kind.
pub(super) fn read(header: &str) -> Option<HeaderMeaning> {
    if header.len() > NAME_BYTES_MAX {
        return None;
    }
    let header = header.trim().to_ascii_lowercase();
    match header.as_str() {
        "retry-after" => return Some(HeaderMeaning::RetryAfter),
        "retry-after-ms" | "x-ms-retry-after-ms" => return Some(HeaderMeaning::RetryAfterMs),
        "date" => return Some(HeaderMeaning::Date),
        _ => {}
    }
    PREFIXES.iter().find_map(|(prefix, counted)| words(header.strip_prefix(prefix)?, *counted))
}

/// Reads the words after the prefix, which may be in any order, as in `limit-requests-day`, `input-tokens-remaining`
/// and `reset-tokens-per-minute`.
fn words(rest: &str, counted: LimitUnit) -> Option<HeaderMeaning> {
    let (mut field, mut window) = (None, None);
    let (mut requests, mut tokens, mut input, mut output) = (false, false, false, false);
    for word in rest.split(['-', '_']) {
        match word {
            "limit" => field = Some(LimitField::Limit),
            "remaining" => field = Some(LimitField::Remaining),
            "reset" => field = Some(LimitField::Reset),
            "requests" | "request" | "req" => requests = true,
            "tokens" | "token" => tokens = true,
            "input" | "prompt" => input = true,
            "output" | "generated" | "completion" => output = true,
            "per" => {}
            word => window = Some(self::window(word)?),
        }
    }
    let counted = match (requests, input, output) {
        (true, ..) => LimitUnit::Requests,
        (_, true, _) => LimitUnit::InputTokens,
        (_, _, true) => LimitUnit::OutputTokens,
        _ if tokens => LimitUnit::Tokens,
        _ => counted,
    };
    Some(HeaderMeaning::Limit(field?, counted, window))
}

/// Returns the window that a word names, such as `minute`, `min` or `1m`; `None` if the word names no window.
pub(super) fn window(word: &str) -> Option<LimitWindow> {
    Some(match word {
        "second" | "sec" | "1s" => LimitWindow::Second,
        "minute" | "min" | "1m" => LimitWindow::Minute,
        "hour" | "1h" => LimitWindow::Hour,
        "day" | "1d" => LimitWindow::Day,
        "month" => LimitWindow::Month,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_many_providers() {
        use LimitField::{Limit, Remaining, Reset};
        use LimitUnit::{InputTokens, OutputTokens, Requests, Tokens};
        let cases = [
            ("x-ratelimit-limit-requests", Limit, Requests, None),
            ("X-RateLimit-Remaining-Tokens", Remaining, Tokens, None),
            ("x-ratelimit-reset-tokens", Reset, Tokens, None),
            ("anthropic-ratelimit-requests-limit", Limit, Requests, None),
            ("anthropic-ratelimit-input-tokens-remaining", Remaining, InputTokens, None),
            ("anthropic-ratelimit-output-tokens-reset", Reset, OutputTokens, None),
            ("x-ratelimit-limit-requests-day", Limit, Requests, Some(LimitWindow::Day)),
            ("x-ratelimit-remaining-tokens-minute", Remaining, Tokens, Some(LimitWindow::Minute)),
            ("x-ratelimit-limit-req-minute", Limit, Requests, Some(LimitWindow::Minute)),
            ("x-ratelimit-limit-tokens-per-day", Limit, Tokens, Some(LimitWindow::Day)),
            ("x-ratelimitbysize-limit-month", Limit, Tokens, Some(LimitWindow::Month)),
            ("X-RateLimit-Reset", Reset, Requests, None),
            ("x-tokenlimit-remaining", Remaining, Tokens, None),
            ("x-ratelimit-limit-tokens-prompt", Limit, InputTokens, None),
            ("x-ratelimit-limit-tokens-generated", Limit, OutputTokens, None),
            ("ratelimit-reset", Reset, Requests, None),
        ];
        for (name, field, counted, window) in cases {
            assert_eq!(read(name), Some(HeaderMeaning::Limit(field, counted, window)), "{name}");
        }
    }

    #[test]
    fn what_counts_something_else_is_left_out() {
        let others = [
            "x-ratelimit-limit-tokens_usage_based",
            "anthropic-ratelimit-unified-5h-reset",
            "x-ratelimit-tokens-query-cost",
            "x-ratelimit-over-limit",
            "x-ratelimit-limit-images",
            "x-ratelimit-",
            "x-ratelimit-requests",
            "content-type",
            "",
        ];
        for name in others {
            assert_eq!(read(name), None, "{name}");
        }
        assert_eq!(read("Retry-After"), Some(HeaderMeaning::RetryAfter));
        assert_eq!(read(&"x-ratelimit-limit-".repeat(40)), None);
    }
}
