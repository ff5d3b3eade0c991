//! Property tests with random headers and bodies. Reading must not panic, and all values must be within their bounds. A
//! failure prints its seed and its input.

use fairgate_dialect::fuzz::{check_limits, limits};
use http::StatusCode;
use proptest::prelude::*;
use proptest::sample::select;

const NAMES: [&str; 14] = [
    "x-ratelimit-limit-requests",
    "x-ratelimit-remaining-requests",
    "x-ratelimit-reset-requests",
    "x-ratelimit-limit-tokens",
    "x-ratelimit-remaining-tokens",
    "X-RateLimit-Reset",
    "anthropic-ratelimit-input-tokens-limit",
    "anthropic-ratelimit-input-tokens-remaining",
    "anthropic-ratelimit-input-tokens-reset",
    "x-ratelimit-limit-tokens-day",
    "retry-after",
    "retry-after-ms",
    "date",
    "ratelimit-limit",
];

fn value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        any::<u64>().prop_map(|n| n.to_string().into_bytes()),
        any::<i64>().prop_map(|n| n.to_string().into_bytes()),
        any::<f64>().prop_map(|n| n.to_string().into_bytes()),
        "[0-9]{0,20}(\\.[0-9]{0,20})?(h|m|s|ms|us|ns|d)?([0-9.]{0,9}(s|ms)?)?"
            .prop_map(String::into_bytes),
        "[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9:]{8}(\\.[0-9]{0,12})?(Z|[+-][0-9]{2}:[0-9]{2})?"
            .prop_map(String::into_bytes),
        "[A-Z][a-z]{2}, [0-9]{2} (Jan|Feb|Nov|Foo) [0-9]{2,5} [0-9:]{8} (GMT|CET)"
            .prop_map(String::into_bytes),
        proptest::collection::vec(any::<u8>(), 0..40),
    ]
}

fn message() -> impl Strategy<Value = String> {
    let word = prop_oneof![
        select(vec![
            "Limit",
            "limit:",
            "Used",
            "Requested",
            "per",
            "min",
            "minute",
            "day",
            "tokens",
            "input",
            "requests",
            "(TPM):",
            "again",
            "in",
            "retry",
            "after",
            "of",
            "seconds",
            "rate",
            "-5",
            "Request too large",
        ])
        .prop_map(str::to_owned),
        any::<u64>().prop_map(|n| n.to_string()),
        "[0-9,.]{1,12}(s|ms|m|h)?\\.?",
        "\\PC{0,8}",
    ];
    proptest::collection::vec(word, 0..30).prop_map(|words| words.join(" "))
}

proptest! {
    #[test]
    fn any_bytes(data in proptest::collection::vec(any::<u8>(), 0..300)) {
        limits(&data);
    }

    #[test]
    fn likely_headers_and_messages(
        headers in proptest::collection::vec((select(NAMES.to_vec()), value()), 0..12),
        status in prop_oneof![Just(429_u16), 400..600_u16],
        message in message(),
        code in select(vec!["rate_limit_exceeded", "insufficient_quota", "tokens", "", "overloaded_error"]),
    ) {
        let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, &value[..])).collect();
        let status = StatusCode::from_u16(status).unwrap();
        let body = serde_json::json!({"error": {"message": message, "type": code, "code": code,
            "details": [{"retryDelay": message, "violations": [{"quotaId": message, "quotaValue": message}]}],
            "metadata": {"headers": {"X-RateLimit-Reset": message, "retry-after": status.as_u16()}}}});
        check_limits(status, &headers, body.to_string().as_bytes());
        check_limits(status, &headers, message.as_bytes());
    }
}
