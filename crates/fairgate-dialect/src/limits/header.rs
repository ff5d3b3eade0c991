//! Which header says what, by the words in its name.

use super::{Counted, Window};

/// Longer names are no rate-limit headers.
const NAME_BYTES_MAX: usize = 64;

/// What a header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Name {
    /// A number of one limit.
    Limit(Field, Counted, Option<Window>),
    /// `retry-after`: seconds or an HTTP date.
    RetryAfter,
    /// `retry-after-ms`, as Azure and OpenAI send it.
    RetryAfterMs,
    /// `date`: the provider's own clock.
    Date,
}

/// Which number of a limit it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    Limit,
    Remaining,
    Reset,
}

/// How the names begin, and what they count where no other word says it.
const PREFIXES: [(&str, Counted); 9] = [
    ("x-ratelimit-", Counted::Requests),
    ("anthropic-ratelimit-", Counted::Requests),
    ("ratelimit-", Counted::Requests),
    ("x-rate-limit-", Counted::Requests),
    // Together.
    ("x-tokenlimit-", Counted::Tokens),
    ("tokenlimit-", Counted::Tokens),
    // Mistral, before it took over OpenAI's names.
    ("x-ratelimitbysize-", Counted::Tokens),
    ("ratelimitbysize-", Counted::Tokens),
    ("x-ms-ratelimit-", Counted::Requests),
];

/// Reads a header's name in any case; `None` where it is not about limits, or about one that is not known here.
pub(super) fn read(header: &str) -> Option<Name> {
    if header.len() > NAME_BYTES_MAX {
        return None;
    }
    let header = header.trim().to_ascii_lowercase();
    match header.as_str() {
        "retry-after" => return Some(Name::RetryAfter),
        "retry-after-ms" | "x-ms-retry-after-ms" => return Some(Name::RetryAfterMs),
        "date" => return Some(Name::Date),
        _ => {}
    }
    PREFIXES.iter().find_map(|(prefix, counted)| words(header.strip_prefix(prefix)?, *counted))
}

/// The words after the prefix, in any order: `limit-requests-day`, `input-tokens-remaining`, `reset-tokens-per-minute`.
fn words(rest: &str, counted: Counted) -> Option<Name> {
    let (mut field, mut window) = (None, None);
    let (mut requests, mut tokens, mut input, mut output) = (false, false, false, false);
    for word in rest.split(['-', '_']) {
        match word {
            "limit" => field = Some(Field::Limit),
            "remaining" => field = Some(Field::Remaining),
            "reset" => field = Some(Field::Reset),
            "requests" | "request" | "req" => requests = true,
            "tokens" | "token" => tokens = true,
            "input" | "prompt" => input = true,
            "output" | "generated" | "completion" => output = true,
            "per" => {}
            word => window = Some(self::window(word)?),
        }
    }
    let counted = match (requests, input, output) {
        (true, ..) => Counted::Requests,
        (_, true, _) => Counted::InputTokens,
        (_, _, true) => Counted::OutputTokens,
        _ if tokens => Counted::Tokens,
        _ => counted,
    };
    Some(Name::Limit(field?, counted, window))
}

/// The window that a word names: `minute`, `min`, `1m`.
pub(super) fn window(word: &str) -> Option<Window> {
    Some(match word {
        "second" | "sec" | "1s" => Window::Second,
        "minute" | "min" | "1m" => Window::Minute,
        "hour" | "1h" => Window::Hour,
        "day" | "1d" => Window::Day,
        "month" => Window::Month,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_many_providers() {
        use Counted::{InputTokens, OutputTokens, Requests, Tokens};
        use Field::{Limit, Remaining, Reset};
        let cases = [
            ("x-ratelimit-limit-requests", Limit, Requests, None),
            ("X-RateLimit-Remaining-Tokens", Remaining, Tokens, None),
            ("x-ratelimit-reset-tokens", Reset, Tokens, None),
            ("anthropic-ratelimit-requests-limit", Limit, Requests, None),
            ("anthropic-ratelimit-input-tokens-remaining", Remaining, InputTokens, None),
            ("anthropic-ratelimit-output-tokens-reset", Reset, OutputTokens, None),
            ("x-ratelimit-limit-requests-day", Limit, Requests, Some(Window::Day)),
            ("x-ratelimit-remaining-tokens-minute", Remaining, Tokens, Some(Window::Minute)),
            ("x-ratelimit-limit-req-minute", Limit, Requests, Some(Window::Minute)),
            ("x-ratelimit-limit-tokens-per-day", Limit, Tokens, Some(Window::Day)),
            ("x-ratelimitbysize-limit-month", Limit, Tokens, Some(Window::Month)),
            ("X-RateLimit-Reset", Reset, Requests, None),
            ("x-tokenlimit-remaining", Remaining, Tokens, None),
            ("x-ratelimit-limit-tokens-prompt", Limit, InputTokens, None),
            ("x-ratelimit-limit-tokens-generated", Limit, OutputTokens, None),
            ("ratelimit-reset", Reset, Requests, None),
        ];
        for (name, field, counted, window) in cases {
            assert_eq!(read(name), Some(Name::Limit(field, counted, window)), "{name}");
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
        assert_eq!(read("Retry-After"), Some(Name::RetryAfter));
        assert_eq!(read(&"x-ratelimit-limit-".repeat(40)), None);
    }
}
