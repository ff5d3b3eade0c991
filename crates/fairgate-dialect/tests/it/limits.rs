//! Tests with the rate-limit headers of many providers.

use std::time::Duration;

use fairgate_dialect::fuzz::check_limits;
use fairgate_dialect::rate_limit_headers::{
    EpochMicros, LimitUnit, LimitWindow, ProviderRefusal, RateLimit, RateLimitHeaders,
    read_rate_limits,
};
use http::StatusCode;
use serde_json::Value;

/// The time 2026-11-16T02:08:05Z.
const NOW: EpochMicros = EpochMicros(1_794_794_885_000_000);

fn read(headers: &[(&str, &str)]) -> RateLimitHeaders {
    read_rate_limits(headers.iter().map(|(name, value)| (*name, value.as_bytes())), NOW)
}

pub(crate) fn refused(
    status: u16,
    headers: &[(&str, &str)],
    body: &Value,
) -> (RateLimitHeaders, ProviderRefusal) {
    let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_bytes())).collect();
    let status = StatusCode::from_u16(status).unwrap();
    check_limits(status, &headers, body.to_string().as_bytes())
}

pub(crate) fn limit(
    counted: LimitUnit,
    window: Option<LimitWindow>,
    numbers: [u64; 2],
    reset_ms: impl Into<Option<u64>>,
) -> RateLimit {
    let [limit, remaining] = numbers.map(Some);
    let reset_after = reset_ms.into().map(Duration::from_millis);
    RateLimit { counted, window, limit, remaining, reset_after }
}

#[test]
fn openai() {
    let told = read(&[
        ("content-type", "application/json"),
        ("x-ratelimit-limit-requests", "5000"),
        ("x-ratelimit-limit-tokens", "160000"),
        ("x-ratelimit-limit-tokens_usage_based", "160000"),
        ("x-ratelimit-remaining-requests", "4999"),
        ("x-ratelimit-remaining-tokens", "159976"),
        ("x-ratelimit-reset-requests", "12ms"),
        ("x-ratelimit-reset-tokens", "9ms"),
        ("x-ratelimit-reset-tokens_usage_based", "9ms"),
    ]);
    let minute = Some(LimitWindow::Minute);
    assert_eq!(told.requests(), Some(&limit(LimitUnit::Requests, minute, [5000, 4999], 12)));
    assert_eq!(told.tokens(), Some(&limit(LimitUnit::Tokens, minute, [160_000, 159_976], 9)));
    assert_eq!((told.limits.len(), told.ignored.len(), told.retry_after), (2, 0, None));
}

#[test]
fn a_limit_per_day_shows_itself_by_how_slowly_it_fills() {
    let window = |limit: &str, remaining: &str, reset: &str| {
        let told = read(&[
            ("x-ratelimit-limit-tokens", limit),
            ("x-ratelimit-remaining-tokens", remaining),
            ("x-ratelimit-reset-tokens", reset),
        ]);
        told.tokens().unwrap().window
    };
    // OpenAI, tokens per day under the name of tokens per minute.
    assert_eq!(window("1500000", "1495621", "4m12.172s"), Some(LimitWindow::Day));
    // Groq: 14 400 requests a day refill one in six seconds.
    assert_eq!(window("14400", "14370", "2m59.56s"), Some(LimitWindow::Day));
    assert_eq!(window("18000", "17997", "7.66ms"), None);
    assert_eq!(window("30000", "15000", "30s"), Some(LimitWindow::Minute));
    // Overdrawn: it fills for longer than its window.
    assert_eq!(window("30000", "0", "1m30s"), None);
    assert_eq!(window("1000", "1000", "0s"), None);
    assert_eq!(window("1000", "10", "5h"), Some(LimitWindow::Day));
    let long = read(&[("x-ratelimit-limit-tokens", "1"), ("x-ratelimit-reset-tokens", "20m")]);
    assert_eq!(long.tokens().unwrap().window, Some(LimitWindow::Hour));
    assert_eq!(long.tokens().unwrap().per_minute(), None);
}

/// Reads one limit on requests from headers in OpenAI's format. An empty text means that the header is absent.
fn requests(limit: &str, remaining: &str, reset: &str) -> RateLimit {
    let headers = [
        ("x-ratelimit-limit-requests", limit),
        ("x-ratelimit-remaining-requests", remaining),
        ("x-ratelimit-reset-requests", reset),
    ];
    let stated: Vec<_> = headers.into_iter().filter(|(_, value)| !value.is_empty()).collect();
    *read(&stated).requests().unwrap()
}

#[test]
fn a_limit_per_second_shows_itself_by_how_fast_it_fills() {
    // 20 a second: one comes back every 50 ms. The remaining amount is rounded down.
    let window = |remaining, reset| requests("20", remaining, reset).window;
    for (remaining, reset) in [("19", "50ms"), ("", "50ms"), ("18", "75ms"), ("18", "0.1")] {
        assert_eq!(window(remaining, reset), Some(LimitWindow::Second), "{remaining} {reset}");
    }
    assert_eq!(requests("20", "19", "50ms").per_minute(), Some(1200));
    // It could as well be the end of a fixed minute, or is no time span, or says nothing.
    for (remaining, reset) in [
        ("0", "1s"),
        ("0", "1"),
        ("0", "50ms"),
        ("10", "487ms"),
        ("19", "2026-11-16T02:08:05.050Z"),
        ("20", "50ms"),
        ("19", "0s"),
    ] {
        assert_eq!(window(remaining, reset), None, "{remaining} {reset}");
        assert_eq!(requests("20", remaining, reset).per_minute(), Some(20));
    }
}

#[test]
fn documented_limits_per_minute_stay_limits_per_minute() {
    for (limit, remaining, reset) in [
        // OpenAI: `1s`, `6m0s`, `120ms` and fractions of them.
        ("60", "59", "1s"),
        ("10000", "9999", "6ms"),
        ("500", "499", "120ms"),
        ("500", "498", "240ms"),
        ("3500", "3499", "17ms"),
        ("30000", "29999", "2ms"),
        ("30000", "29999", "1ms"),
        ("60", "0", "59.9s"),
        ("30000", "0", "6m0s"),
        ("500", "499", "0s"),
        // A limit per minute that is enforced over a second: 1000 of it at once, which are back within the second.
        ("60000", "999", "1ms"),
        ("60000", "500", "500ms"),
        ("60000", "0", "999ms"),
        // Azure states whole seconds until its count begins again, and -1 for what it does not state.
        ("60", "59", "1"),
        ("60", "0", "10"),
        ("60", "-1", "1"),
        ("120", "", "0"),
        // Groq writes fractions of seconds.
        ("30", "29", "2s"),
        ("30", "28", "3.984s"),
        // A proxy that states the limit alone.
        ("20", "", ""),
        ("20", "19", ""),
    ] {
        let per_minute = requests(limit, remaining, reset).per_minute();
        assert_eq!(per_minute, limit.parse().ok(), "{limit} {remaining} {reset}");
    }
    // Groq: requests per day, under the name of OpenAI's requests per minute.
    assert_eq!(requests("14400", "14370", "2m59.56s").per_minute(), None);
    assert_eq!(requests("1000", "999", "1m26.4s").per_minute(), None);
    // Anthropic: points in time, of which less than a second may be left.
    for reset in ["2026-11-16T02:08:05Z", "2026-11-16T02:08:06Z", "2026-11-16T02:08:05.02Z"] {
        let told = read(&[
            ("anthropic-ratelimit-requests-limit", "50"),
            ("anthropic-ratelimit-requests-remaining", "49"),
            ("anthropic-ratelimit-requests-reset", reset),
        ]);
        assert_eq!(told.requests().unwrap().per_minute(), Some(50), "{reset}");
    }
}

#[test]
fn anthropic() {
    let headers = [
        ("anthropic-ratelimit-requests-limit", "50"),
        ("anthropic-ratelimit-requests-remaining", "45"),
        ("anthropic-ratelimit-requests-reset", "2026-11-16T02:08:11Z"),
        ("anthropic-ratelimit-input-tokens-limit", "40000"),
        ("anthropic-ratelimit-input-tokens-remaining", "38000"),
        ("anthropic-ratelimit-input-tokens-reset", "2026-11-16T02:08:08Z"),
        ("anthropic-ratelimit-output-tokens-limit", "8000"),
        ("anthropic-ratelimit-output-tokens-remaining", "2000"),
        ("anthropic-ratelimit-output-tokens-reset", "2026-11-16T02:08:50Z"),
        ("anthropic-ratelimit-tokens-limit", "48000"),
        ("anthropic-ratelimit-tokens-remaining", "40000"),
        ("anthropic-ratelimit-tokens-reset", "2026-11-16T02:08:15Z"),
        ("anthropic-ratelimit-unified-5h-utilization", "0.16"),
        ("request-id", "req_1"),
    ];
    let told = read(&headers);
    let minute = Some(LimitWindow::Minute);
    assert_eq!(told.requests(), Some(&limit(LimitUnit::Requests, minute, [50, 45], 6000)));
    let output = limit(LimitUnit::OutputTokens, minute, [8000, 2000], 45_000);
    assert_eq!(told.tokens(), Some(&output), "the smallest part is left of it");
    assert_eq!((told.limits.len(), told.ignored.len()), (4, 0));
    // A clock that is half a minute late changes nothing where the answer has a date.
    let late = EpochMicros(NOW.0 - 30_000_000);
    let date = [("date", "Mon, 16 Nov 2026 02:08:05 GMT")];
    let headers = headers.iter().chain(&date).map(|(name, value)| (*name, value.as_bytes()));
    assert_eq!(fairgate_dialect::rate_limit_headers::read_rate_limits(headers, late), told);
}

#[test]
fn windows_that_headers_name() {
    let told = read(&[
        ("x-ratelimit-limit-requests-day", "1440000"),
        ("x-ratelimit-remaining-requests-day", "1439870"),
        ("x-ratelimit-reset-requests-day", "33011.382867097855"),
        ("x-ratelimit-limit-tokens-minute", "275000"),
        ("x-ratelimit-remaining-tokens-minute", "275000"),
        ("x-ratelimit-reset-tokens-minute", "11.382867097854614"),
    ]);
    let day = told.requests().unwrap();
    assert_eq!((day.window, day.per_minute()), (Some(LimitWindow::Day), None));
    assert_eq!(told.tokens().unwrap().per_minute(), Some(275_000));
    // Mistral, per minute and month: the minute binds until the month is used up.
    let mistral = |left: &str| {
        let told = read(&[
            ("x-ratelimit-limit-req-minute", "720"),
            ("x-ratelimit-remaining-req-minute", "717"),
            ("x-ratelimit-limit-tokens-minute", "5000000"),
            ("x-ratelimit-remaining-tokens-minute", "4999911"),
            ("x-ratelimit-limit-tokens-month", "1000000000"),
            ("x-ratelimit-remaining-tokens-month", left),
            ("x-ratelimit-tokens-query-cost", "52"),
        ]);
        (told.requests().unwrap().per_minute(), told.tokens().unwrap().window)
    };
    assert_eq!(mistral("7"), (Some(720), Some(LimitWindow::Minute)));
    assert_eq!(mistral("0"), (Some(720), Some(LimitWindow::Month)));
}

#[test]
fn others() {
    let together = read(&[
        ("x-ratelimit-limit", "10"),
        ("x-ratelimit-remaining", "9"),
        ("x-ratelimit-reset", "1"),
        ("x-tokenlimit-limit", "3000"),
        ("x-tokenlimit-remaining", "2500"),
    ]);
    assert_eq!(together.requests().unwrap().remaining, Some(9));
    assert_eq!(together.tokens().unwrap().limit, Some(3000));
    let azure = read(&[
        ("x-ratelimit-remaining-requests", "119"),
        ("x-ratelimit-remaining-tokens", "119984"),
        ("x-ratelimit-reset-tokens", "17"),
        ("retry-after-ms", "1234"),
        ("retry-after", "2"),
    ]);
    assert_eq!(azure.tokens().unwrap().reset_after, Some(Duration::from_secs(17)));
    assert_eq!(azure.retry_after, Some(Duration::from_millis(1234)), "the exact one");
    let apart = read(&[("retry-after", "20"), ("retry-after-ms", "50")]);
    assert_eq!(apart.retry_after, Some(Duration::from_secs(20)), "the later one");
    let openrouter = read(&[
        ("X-RateLimit-Limit", "20"),
        ("X-RateLimit-Remaining", "0"),
        ("X-RateLimit-Reset", "1794794940000"),
    ]);
    assert_eq!(openrouter.requests().unwrap().reset_after, Some(Duration::from_secs(55)));
    let none = read(&[("server", "llama.cpp"), ("content-type", "text/event-stream")]);
    assert_eq!(none, RateLimitHeaders::default());
    let date = read(&[("Retry-After", "Mon, 16 Nov 2026 02:08:35 GMT")]);
    assert_eq!(date.retry_after, Some(Duration::from_secs(30)));
}

#[test]
fn absurd_values_are_dropped_and_noted() {
    let told = read(&[
        ("x-ratelimit-limit-requests", "-1"),
        ("x-ratelimit-remaining-requests", "NaN"),
        ("x-ratelimit-limit-tokens", "1000000000000000000"),
        ("x-ratelimit-remaining-tokens", "0"),
        ("x-ratelimit-reset-tokens", "2027-11-16T02:08:05Z"),
        ("retry-after", "31536000"),
        ("anthropic-ratelimit-input-tokens-limit", "0"),
        ("anthropic-ratelimit-output-tokens-limit", "10"),
        ("anthropic-ratelimit-output-tokens-remaining", "11"),
        ("x-rate-limit-reset", "\u{1b}[31m-\n"),
    ]);
    assert_eq!(told.requests(), None);
    assert_eq!(told.tokens().unwrap().remaining, Some(0));
    assert_eq!(told.retry_after, None);
    let output = told.limits.iter().find(|limit| limit.counted == LimitUnit::OutputTokens).unwrap();
    assert_eq!(output.remaining, Some(10));
    let notes: Vec<_> = told.ignored.iter().map(ToString::to_string).collect();
    assert_eq!(notes.len(), 8, "{notes:#?}");
    assert!(
        notes.contains(&"`x-ratelimit-limit-requests: -1` is negative and was ignored".to_owned())
    );
    assert!(notes.contains(
        &"`retry-after: 31536000` is more than 32 days ahead and was ignored".to_owned()
    ));
    assert!(notes.iter().all(|note| !note.contains(['\u{1b}', '\n'])), "{notes:?}");
}

#[test]
fn the_smallest_part_left_binds_however_small_the_limits_are() {
    let told = read(&[
        ("anthropic-ratelimit-input-tokens-limit", "900"),
        ("anthropic-ratelimit-input-tokens-remaining", "450"),
        ("anthropic-ratelimit-output-tokens-limit", "80000"),
        ("anthropic-ratelimit-output-tokens-remaining", "79000"),
    ]);
    assert_eq!(told.tokens().unwrap().counted, LimitUnit::InputTokens);
}

#[test]
fn of_two_values_under_one_name_the_cautious_counts() {
    let told = read(&[
        ("x-ratelimit-limit-requests", "100"),
        ("X-RateLimit-Limit-Requests", "60"),
        ("x-ratelimit-remaining-requests", "3"),
        ("x-ratelimit-remaining-requests", "50"),
        ("x-ratelimit-reset-requests", "1s"),
        ("x-ratelimit-reset-requests", "57s"),
    ]);
    let one = limit(LimitUnit::Requests, Some(LimitWindow::Minute), [60, 3], 57_000);
    assert_eq!(told.requests(), Some(&one));
    assert_eq!(told.ignored.len(), 1);
    let same = read(&[("x-ratelimit-limit-requests", "9"), ("x-ratelimit-limit-requests", "9")]);
    assert!(same.ignored.is_empty());
}
