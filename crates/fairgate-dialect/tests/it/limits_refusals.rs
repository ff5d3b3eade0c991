//! Tests with the refusals of many providers.

use std::time::Duration;

use fairgate_dialect::rate_limit_headers::{LimitUnit, LimitWindow, ProviderRefusal};
use serde_json::{Value, json};

use crate::limits::{limit, refused};

fn rate(
    counted: Option<LimitUnit>,
    window: Option<LimitWindow>,
    limit: Option<u64>,
    retry_ms: Option<u64>,
) -> ProviderRefusal {
    ProviderRefusal::Rate {
        counted,
        window,
        limit,
        retry_after: retry_ms.map(Duration::from_millis),
    }
}

fn openai_error(message: &str, kind: &str, code: &str) -> Value {
    json!({"error": {"message": message, "type": kind, "param": null, "code": code}})
}

#[test]
fn rates_that_bodies_name() {
    let minute = Some(LimitWindow::Minute);
    let openai = openai_error(
        "Rate limit reached for gpt-4o in organization org-1 on tokens per min (TPM): Limit 30000, Used 29937, \
         Requested 385. Please try again in 644ms. Visit https://platform.openai.com/account/rate-limits.",
        "tokens",
        "rate_limit_exceeded",
    );
    let (told, refusal) = refused(429, &[], &openai);
    assert_eq!(refusal, rate(Some(LimitUnit::Tokens), minute, Some(30_000), Some(644)));
    assert_eq!(told.tokens(), Some(&limit(LimitUnit::Tokens, minute, [30_000, 63], None)));
    // A header that is the same wait in whole seconds changes nothing; a later one counts.
    for (header, wait) in [("1", 644), ("20", 20_000)] {
        let (_, refusal) = refused(429, &[("retry-after", header)], &openai);
        assert_eq!(refusal, rate(Some(LimitUnit::Tokens), minute, Some(30_000), Some(wait)));
    }

    let anthropic = json!({"type": "error", "error": {"type": "rate_limit_error", "message":
        "This request would exceed the rate limit for your organization (0dcc) of 20,000 input tokens per minute."}});
    let (_, refusal) = refused(429, &[("retry-after", "12")], &anthropic);
    assert_eq!(refusal, rate(Some(LimitUnit::InputTokens), minute, Some(20_000), Some(12_000)));

    let gemini = json!([{"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message":
        "You exceeded your current quota, please check your plan and billing details.\nPlease retry in 36.4s.",
        "details": [
            {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [
                {"quotaId": "GenerateRequestsPerMinutePerProjectPerModel-FreeTier", "quotaValue": "5"},
                {"quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier", "quotaValue": "20"}]},
            {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "36s"}]}}]);
    let (_, refusal) = refused(429, &[], &gemini);
    assert_eq!(
        refusal,
        rate(Some(LimitUnit::Requests), Some(LimitWindow::Day), Some(20), Some(36_400))
    );

    let openrouter = json!({"error": {"message": "Rate limit exceeded: free-models-per-day", "code": 429,
        "metadata": {"headers": {"X-RateLimit-Limit": "50", "X-RateLimit-Remaining": "0",
            "X-RateLimit-Reset": "1794796685000"}}}});
    let (told, refusal) = refused(429, &[], &openrouter);
    let half_an_hour = Some(1_800_000);
    assert_eq!(told.requests().unwrap().remaining, Some(0));
    assert_eq!(
        refusal,
        rate(Some(LimitUnit::Requests), Some(LimitWindow::Hour), Some(50), half_an_hour)
    );

    let mistral = json!({"object": "error", "message": "Rate limit exceeded", "type": "rate_limited", "code": "1300"});
    assert_eq!(refused(429, &[], &mistral).1, rate(None, None, None, None));
    assert_eq!(refused(429, &[], &json!("slow")).1, rate(None, None, None, None));
    // Only the headers say which limit is empty.
    let headers = [
        ("x-ratelimit-limit-requests", "60"),
        ("x-ratelimit-remaining-requests", "0"),
        ("x-ratelimit-reset-requests", "59s"),
        ("x-ratelimit-remaining-tokens", "500"),
    ];
    let (_, refusal) = refused(429, &headers, &mistral);
    assert_eq!(refusal, rate(Some(LimitUnit::Requests), minute, Some(60), Some(59_000)));
}

#[test]
fn a_request_larger_than_the_limit_is_the_clients() {
    let message = "Request too large for gpt-4o in organization org-1 on tokens per min (TPM): Limit 30000, Requested \
                   41000. The input or output tokens must be reduced in order to run successfully.";
    let expected = ProviderRefusal::TooLargeForLimit {
        counted: Some(LimitUnit::Tokens),
        limit: Some(30_000),
        requested: Some(41_000),
    };
    for status in [429, 413] {
        let body = openai_error(message, "tokens", "rate_limit_exceeded");
        assert_eq!(refused(status, &[("retry-after", "1")], &body).1, expected);
    }
    assert_eq!(
        refused(413, &[], &json!({"error": {"message": "Body too large"}})).1,
        ProviderRefusal::Other
    );
}

#[test]
fn money_and_accounts_are_no_rates() {
    let spent = |reason: &str| ProviderRefusal::Spent { reason: reason.to_owned() };
    let blocked = |reason: &str| ProviderRefusal::Blocked { reason: reason.to_owned() };
    let quota = "You exceeded your current quota, please check your plan and billing details.";
    let credit =
        "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing.";
    let anthropic = |kind: &str, message: &str| json!({"type": "error", "error": {"type": kind, "message": message}});
    let capped = json!({"type": "error", "error": {"type": "rate_limit_error", "message": "Monthly spend cap",
        "details": {"error_code": "enforced_spend_limit_reached"}}});
    let google = json!({"error": {"code": 400, "status": "INVALID_ARGUMENT", "message": "API key not valid.",
        "details": [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}]}});
    let cases = [
        (
            429,
            openai_error(quota, "insufficient_quota", "insufficient_quota"),
            spent("insufficient_quota"),
        ),
        (
            429,
            openai_error("x", "insufficient_quota", "billing_hard_limit_reached"),
            spent("billing_hard_limit_reached"),
        ),
        (
            400,
            openai_error("x", "invalid_request_error", "billing_hard_limit_reached"),
            spent("billing_hard_limit_reached"),
        ),
        (400, anthropic("invalid_request_error", credit), spent("credit_balance_too_low")),
        (403, anthropic("permission_error", credit), spent("credit_balance_too_low")),
        (402, anthropic("billing_error", "x"), spent("billing_error")),
        (
            402,
            json!({"error": {"message": "Insufficient Balance", "code": 402}}),
            spent("payment_required"),
        ),
        (429, capped, spent("enforced_spend_limit_reached")),
        (
            401,
            openai_error("x", "invalid_request_error", "account_deactivated"),
            blocked("account_deactivated"),
        ),
        (429, openai_error("x", "requests", "account_deactivated"), blocked("account_deactivated")),
        (
            403,
            openai_error("x", "request_forbidden", "unsupported_country_region_territory"),
            blocked("unsupported_country_region_territory"),
        ),
        (
            401,
            anthropic("authentication_error", "invalid x-api-key"),
            blocked("authentication_error"),
        ),
        (401, json!("no"), blocked("unauthorized")),
        (400, google, blocked("api_key_invalid")),
        // What clients can cause is no reason to take a worker out.
        (
            403,
            json!({"error": {"message": "Input was flagged", "code": 403}}),
            ProviderRefusal::Other,
        ),
        (403, anthropic("permission_error", "not this model"), ProviderRefusal::Other),
        (
            400,
            openai_error(&format!("Bad value: {credit}"), "invalid_request_error", "x"),
            ProviderRefusal::Other,
        ),
        (
            404,
            openai_error("The model `insufficient_quota` does not exist", "x", "model_not_found"),
            ProviderRefusal::Other,
        ),
    ];
    for (status, body, expected) in cases {
        assert_eq!(refused(status, &[], &body).1, expected, "{status} {body}");
    }
}

#[test]
fn overload_is_not_the_accounts() {
    let anthropic =
        json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}});
    let nothing = ProviderRefusal::Overloaded { retry_after: None };
    let seconds = |n| ProviderRefusal::Overloaded { retry_after: Some(Duration::from_secs(n)) };
    assert_eq!(refused(529, &[], &anthropic).1, nothing);
    assert_eq!(refused(529, &[("retry-after", "5")], &anthropic).1, seconds(5));
    assert_eq!(refused(503, &[("retry-after", "3")], &json!({})).1, seconds(3));
    assert_eq!(
        refused(503, &[], &openai_error("Slow down", "server_error", "slow_down")).1,
        nothing
    );
    assert_eq!(refused(429, &[], &openai_error("x", "engine_overloaded_error", "x")).1, nothing);
    assert_eq!(
        refused(503, &[], &json!({"error": "upstream connect error"})).1,
        ProviderRefusal::Other
    );
    assert_eq!(refused(500, &[("retry-after", "3")], &json!({})).1, ProviderRefusal::Other);
}
